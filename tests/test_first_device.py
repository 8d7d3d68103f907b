"""nn.DataParallel's round: all through device 0, which is its bottleneck; against the ring."""

from fractions import Fraction
from itertools import pairwise

import pytest

import gpipe_sim as gp
from gpipe_sim import Link
from gpipe_sim.core import Timeline
from gpipe_sim.replicas import data_parallel_round

LINK = Link(bandwidth=100)


def both(devices: int) -> tuple[Timeline, Timeline]:
    """The round and the ring: 16 samples of F = 1, I = W = 1, 10 bytes in and 1 out; a model of 400 bytes."""
    costs = gp.Costs(*[16 // devices] * 3)
    sizes = {"weights": 400, "inputs": 160 // devices, "outputs": 16 // devices}
    through_one = data_parallel_round(devices, costs, **sizes, links=LINK)
    return through_one, gp.all_reduce(gp.simulate(through_one.schedule, costs), 400, links=LINK)


def test_more_devices_make_the_round_longer_and_the_ring_shorter():
    """As bytes through device 0 grow with the devices, and through any device of a ring they do not."""
    bytes_through, lengths = {}, {}
    for n in (1, 2, 4, 8, 16):
        through_one, ring = map(gp.why.bytes_through, timelines := both(n))
        share = 160 // n + 2 * (16 // n) + 2 * 400
        assert through_one == ((n - 1) * share, *[share] * (n - 1))
        assert ring == (2 * Fraction(2 * (n - 1), n) * 400,) * n
        bytes_through[n] = through_one[0], ring[0]
        lengths[n] = [float(timeline.makespan) for timeline in timelines]
    assert bytes_through == {1: (0, 0), 2: (896, 800), 4: (2544, 1200), 8: (5768, 1400), 16: (12180, 1500)}
    del lengths[16]
    assert lengths == {1: [48, 48], 2: [32.96, 28], 4: [37.28, 18], 8: [63.44, 13]}


def test_a_round_on_paper():
    """2 devices: 1 to scatter, 2 to replicate, F of 4, 1/2 back, 1/2 for its gradient, B of 8, 2 to add."""
    timeline = data_parallel_round(2, gp.Costs(4, 4, 4), weights=200, inputs=100, outputs=50, links=LINK)
    assert [str(each) for each in timeline.collectives] == [
        "scatter from device 0 to 1, 0\u20131",
        "replicate from device 0 to 1, 1\u20133",
        "gather from device 1 to 0, 7\u20137.5",
        "scatter from device 0 to 1, 7.5\u20138",
        "reduce from device 1 to 0, 16\u201318",
    ]
    assert [(str(span.action), span.start, span.end) for span in timeline.spans] == [
        ("0F0", 0, 4),
        ("0F1", 3, 7),
        ("0B0", Fraction(15, 2), Fraction(31, 2)),
        ("0B1", 8, 16),
    ]
    assert timeline.makespan == 18


@pytest.mark.parametrize("devices", [1, 2, 3, 8])
@pytest.mark.parametrize("latency", [0, 3])
def test_device_0_takes_part_in_one_transfer_at_a_time_and_each_device_has_what_it_needs(devices, latency):
    speed = [1 + device % 2 for device in range(devices)]
    links = Link(latency, 50)
    timeline = data_parallel_round(
        devices, gp.Costs(4, 3, 3, speed=speed), weights=100, inputs=30, outputs=20, links=links
    )
    moved = timeline.collectives
    assert len(moved) == 5 * (devices - 1)
    assert all(a.end <= b.start for a, b in pairwise(moved))
    for device in range(1, devices):
        mine = [each for each in moved if device in each.devices]
        forward, backward = timeline.on(device)
        assert [each.what for each in mine] == ["scatter", "replicate", "gather", "scatter", "reduce"]
        assert mine[1].end == forward.start and forward.end <= mine[2].start
        assert mine[3].end == backward.start and backward.end <= mine[4].start
    path = gp.why.critical_path(timeline)
    assert path[0].start == 0 and path[-1].end == timeline.makespan
    assert all(a.end == b.start for a, b in pairwise(path))


def test_a_devices_gradients_are_those_of_one_device():
    data = gp.digits()
    batch = data.x[:16], data.y[:16]
    layers = gp.mlp([64, 12, 10])
    schedule = both(4)[0].schedule
    found = gp.train_step(gp.split(layers, stages=1), schedule, batch, gp.cross_entropy)
    alone = gp.single_device_step(layers, batch, gp.cross_entropy, microbatches=4)
    for key, gradient in alone.gradients.items():
        assert abs(found.gradients[key] - gradient).max() < 1e-15


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"devices": 0}, ValueError, "data_parallel_round needs devices >= 1"),
        ({"devices": 10**9}, ValueError, "data_parallel_round needs at most 1,000 devices"),
        ({"weights": -1}, ValueError, "weights to be finite and >= 0"),
        ({"inputs": "1"}, TypeError, "inputs to be a number"),
        ({"outputs": None}, TypeError, "outputs to be a number"),
        ({"costs": 3}, TypeError, "simulate needs costs"),
        ({"links": None}, TypeError, "links to be a Link"),
        ({"links": {(0, 1): LINK}}, ValueError, "no link from device 1"),
    ],
)
def test_what_is_no_round_is_refused(changes, error, says):
    with pytest.raises(error, match=says):
        data_parallel_round(**{"devices": 2, "weights": 1, "links": LINK} | changes)
