"""Gradients summed over links after a pipeline: when, for how long, and what waits for it."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from cases import every_schedule, over

import gpipe_sim as gp
from gpipe_sim import Kind, Link, Nodes, all_reduce, replicate, with_updates
from gpipe_sim.replicas.all_reduce import ring_time

SLOW = Link(latency=1, bandwidth=1)  #: 1 for each round, and 1 for each byte
SIZES = [(1, 2), (2, 3), (4, 8)]


def mesh(devices: int, replicas: int, **options) -> gp.Timeline:
    """A step of 16 layers and 64 microbatches; a layer's forward takes 1, its backward 2."""
    layers = 16 // devices
    schedule = replicate(gp.OneFOneB(devices, 64 // replicas), replicas, **options)
    return gp.simulate(schedule, gp.Costs(layers, layers, layers))


# Published and stated numbers


@pytest.mark.parametrize(
    ("devices", "replicas", "alone", "both"),
    [(16, 1, 237, 237), (8, 2, 234, 244), (4, 4, 228, 258), (2, 8, 216, 286), (1, 16, 192, 342)],
)
def test_sixteen_devices_as_five_meshes(devices, replicas, alone, both):
    """64 microbatches in all; a layer's gradients are 4 bytes, on links of latency 1 and bandwidth 1."""
    timeline = mesh(devices, replicas)
    summed = all_reduce(timeline, 4 * 16 // devices, links=SLOW)
    assert (timeline.makespan, summed.makespan) == (alone, both)
    assert [each.end - each.start for each in summed.collectives] == [both - alone] * len(summed.collectives)
    assert gp.formulas.ring_all_reduce_time(replicas, 4 * 16 // devices, 1, 1) == both - alone


def test_chimera_and_dualpipe_pay_for_their_second_copy():
    """Stages 1 and 2 are on the same two devices: one after the other."""
    for schedule, alone, both in ((gp.Chimera(4, 8), 30, 38), (gp.DualPipe(4, 8), 26, 37)):
        timeline = gp.simulate(schedule)
        summed = all_reduce(timeline, 4, links=SLOW)
        assert (timeline.makespan, summed.makespan) == (alone, both)
        assert {(each.stage, each.devices) for each in summed.collectives} == {
            (0, (0, 3)),
            (1, (1, 2)),
            (2, (1, 2)),
            (3, (0, 3)),
        }


# The time of a ring


def walked(links: list[Link], size) -> Fraction:
    """When the last piece arrives, move by move: a piece leaves when it is there and its link is free."""
    devices = len(links)
    free, last = [0] * devices, 0
    there = {(device, device): 0 for device in range(devices)}
    for _, source, target, piece, _ in gp.ring_moves(devices):
        leaves = max(there[source, piece], free[source])
        free[source] = leaves + links[source].busy(Fraction(size, devices))
        there[target, piece] = free[source] + links[source].latency
        last = max(last, there[target, piece])
    return last


@pytest.mark.parametrize("devices", [2, 3, 4, 7, 16])
def test_rounds_on_equal_links_take_what_the_alpha_beta_formula_says(devices):
    for size, latency, bandwidth in ((0, 1, 1), (1000, 0, 3), (1000, 7, 3), (5, Fraction(1, 3), 2)):
        link = Link(latency, bandwidth)
        found = ring_time([link] * devices, size)
        assert found == gp.formulas.ring_all_reduce_time(devices, size, latency, bandwidth)
        assert found == walked([link] * devices, size)


def test_rounds_on_links_that_differ_are_those_of_a_walk_from_move_to_move():
    rng = np.random.default_rng(0)
    for _ in range(60):
        devices = int(rng.integers(2, 8))
        links = [Link(int(rng.integers(0, 9)), int(rng.integers(1, 5))) for _ in range(devices)]
        size = int(rng.integers(0, 100))
        found = ring_time(links, size)
        assert found == walked(links, size)
        slowest = Link(max(link.latency for link in links), min(link.bandwidth for link in links))
        assert found <= ring_time([slowest] * devices, size)
        assert found >= 2 * (devices - 1) * slowest.busy(Fraction(size, devices))


def test_the_slowest_link_of_a_ring_sets_its_time_and_its_latency_counts_once_around():
    """8 devices, 800 bytes: 14 rounds of 100 bytes. With one link of a tenth of the bandwidth it takes as
    long as if all had that. A latency of 100 on one link is paid twice, as a piece goes around, not 14 times.
    """
    fast, narrow, far = Link(0, 100), Link(0, 10), Link(100, 100)
    assert ring_time(8 * [fast], 800) == 14
    assert ring_time(7 * [fast] + [narrow], 800) == ring_time(8 * [narrow], 800) == 140
    assert ring_time(7 * [fast] + [far], 800) == 214
    assert ring_time(8 * [far], 800) == 1414


# Laws


@pytest.mark.parametrize("replicas", [1, 2, 3])
@over(every_schedule(SIZES))
def test_what_is_summed_and_when(schedule, replicas):
    timeline = gp.simulate(replicate(schedule, replicas), gp.Costs(2, 3, 1, comm=1))
    summed = all_reduce(timeline, 3, links=SLOW)
    program, ended = timeline.schedule.program, {}
    for span in timeline.spans:
        for part in span.action.parts:
            if part.kind in (Kind.B, Kind.W):
                ended.setdefault(part.stage, {})[span.device] = span.end
    several = {stage: ends for stage, ends in ended.items() if len(ends) > 1}
    assert sorted(each.stage for each in summed.collectives) == sorted(several)
    assert len(several) == (program.stages if replicas > 1 else len(several))
    for each in summed.collectives:
        assert each.devices == tuple(sorted(several[each.stage]))
        earlier = [
            other.end
            for other in summed.collectives
            if other.start < each.start and {*other.devices} & {*each.devices}
        ]
        assert each.start == max([*several[each.stage].values(), *earlier])
        assert each.end - each.start == gp.formulas.ring_all_reduce_time(len(each.devices), 3, 1, 1)
    assert summed.spans == timeline.spans and summed.messages == timeline.messages
    assert summed.makespan == max([timeline.makespan, *(each.end for each in summed.collectives)])
    for device in range(program.devices):
        mine = [each for each in summed.collectives if device in each.devices]
        assert all(a.end <= b.start for a, b in pairwise(mine)), "one at a time"


@over(every_schedule(SIZES))
def test_the_critical_path_goes_through_what_ends_last(schedule):
    timeline = all_reduce(gp.simulate(replicate(schedule, 2)), 3, links=SLOW)
    path = gp.critical_path(timeline)
    assert path[-1].end == timeline.makespan and path[0].start == 0
    assert all(b.start <= a.end for a, b in pairwise(path)), "without a gap"
    assert isinstance(path[-1], gp.Collective)
    for device in range(timeline.schedule.devices):
        assert gp.why_idle(timeline, device, timeline.makespan).end <= timeline.makespan


@over(every_schedule(SIZES))
def test_metrics_count_what_is_not_hidden_as_waiting(schedule):
    alone = gp.simulate(replicate(schedule, 2))
    both = all_reduce(alone, 3, links=SLOW)
    more = both.makespan - alone.makespan
    assert gp.busy_time(both) == gp.busy_time(alone)
    assert gp.idle_time(both) == gp.idle_time(alone) + more * both.schedule.devices
    assert gp.simulate(both.schedule).collectives == ()


def test_links_that_take_no_time_sum_at_once():
    timeline = gp.simulate(replicate(gp.ZBH1(4, 8), 2))
    summed = all_reduce(timeline, 100, links=Link())
    assert summed.makespan == timeline.makespan
    assert all(each.start == each.end for each in summed.collectives)


# Buckets


def test_buckets_overlap_with_the_last_backward():
    """Two devices, a backward of 8 from 4 on, 8 bytes: 8 + 2 when all at once; in 4 parts of 2 the first is
    ready at 6, and each takes 2 rounds of 1 byte."""
    timeline = gp.simulate(replicate(gp.GPipe(1, 1), 2), gp.Costs(4, 4, 4))
    starts = {}
    for buckets in (1, 2, 4):
        summed = all_reduce(timeline, 8, links=Link(bandwidth=1), buckets=buckets)
        starts[buckets] = [(each.start, each.end, each.bytes) for each in summed.collectives]
    assert starts == {
        1: [(12, 20, 8)],
        2: [(8, 12, 4), (12, 16, 4)],
        4: [(6, 8, 2), (8, 10, 2), (10, 12, 2), (12, 14, 2)],
    }


def test_each_bucket_pays_the_latency_again():
    """4 devices, 64 bytes: 6 rounds of 1/2 + 4/b each. The first of b parts is ready 32/b after 16."""
    ends = {}
    for buckets in (1, 2, 4, 8, 16):
        timeline = gp.simulate(replicate(gp.GPipe(1, 1), 4), gp.Costs(16, 16, 16))
        ends[buckets] = all_reduce(timeline, 64, links=Link(Fraction(1, 2), 4), buckets=buckets).makespan
    assert ends == {1: 75, 2: 63, 4: 60, 8: 68, 16: 90}
    assert min(ends, key=ends.get) == 4


@over(every_schedule([(2, 3), (4, 8)]))
def test_without_latency_buckets_never_make_a_step_longer_and_move_the_same_bytes(schedule):
    timeline = gp.simulate(replicate(schedule, 2), gp.Costs(2, 3, 2))
    plain, parted = (all_reduce(timeline, 6, links=Link(bandwidth=2), buckets=n) for n in (1, 3))
    assert sum(each.bytes for each in parted.collectives) == sum(each.bytes for each in plain.collectives)
    if schedule.program.stages == schedule.program.devices and len(schedule.placement[0]) == 1:
        assert parted.makespan <= plain.makespan
    for stage in range(schedule.stages):
        mine = [each for each in parted.collectives if each.stage == stage]
        [whole] = [each for each in plain.collectives if each.stage == stage]
        assert len(mine) == 3 and mine[0].start <= whole.start


# What updates wait for


def test_clipping_is_a_barrier():
    """Without it a stage is updated when its own gradient is there; with it, when all gradients are."""
    schedule = with_updates(gp.OneFOneB(4, 8))
    timeline = gp.simulate(schedule, gp.Costs(update=1))
    updates = {span.device: span.start for span in timeline.spans if span.action.kind is Kind.U}
    assert updates == {0: 33, 1: 31, 2: 29, 3: 27}
    clipped = all_reduce(timeline, 4, links=SLOW, clip=True)
    [norm] = clipped.collectives
    assert (norm.what, norm.stage, norm.devices, norm.start, norm.end) == ("norm", None, (0, 1, 2, 3), 33, 51)
    after = {span.device: (span.start, span.end) for span in clipped.spans if span.action.kind is Kind.U}
    assert after == dict.fromkeys(range(4), (51, 52))
    assert (timeline.makespan, clipped.makespan) == (34, 52)
    assert gp.critical_path(clipped)[-2:] == (norm, clipped.on(3)[-1]), "any of the four"
    assert str(gp.why_idle(clipped, 3, 40)) == (
        "device 3 waits from 27 to 51 for the norm on devices 0 1 2 3, 33\u201351"
    )


def test_the_norm_waits_for_all_sums_and_a_single_device_has_nothing_to_send():
    summed = all_reduce(gp.simulate(replicate(gp.OneFOneB(2, 4), 2)), 4, links=SLOW, clip=True)
    *sums, norm = summed.collectives
    assert norm.start == max(each.end for each in sums) and norm.end == summed.makespan
    assert all_reduce(gp.simulate(gp.GPipe(1, 4)), 4, links=SLOW, clip=True).collectives == ()


# Bytes and layouts


def test_the_bytes_are_those_of_a_models_gradients():
    data = gp.digits()
    partitions = gp.split(gp.mlp([64, 32, 16, 10]), balance=[2, 3])
    batch = data.x[:16], data.y[:16]
    profile = gp.profile(partitions, batch, gp.cross_entropy)
    schedule = replicate(gp.GPipe(2, 2), 2)
    step = gp.train_step(partitions, schedule, batch, gp.cross_entropy, meter=False)
    of_stage = [
        sum(array.nbytes for (layer, _), array in step.gradients.items() if (layer < 2) == (stage == 0))
        for stage in range(2)
    ]
    assert list(profile.gradient_bytes) == of_stage
    summed = all_reduce(step.timeline, profile, links=SLOW)
    assert {each.stage: each.bytes for each in summed.collectives} == dict(enumerate(of_stage))


def test_which_layout_of_ranks_wins_on_two_levels():
    """2 nodes of 4: 2 replicas of 4 stages. Between nodes messages take 1 longer, and each byte 1.

    With small gradients the pipelines should stay inside a node, with large ones the sums.
    """
    links = Nodes(4, inside=Link(), between=Link(latency=1, bandwidth=1))
    found = {}
    for adjacent in ("stages", "replicas"):
        schedule = replicate(gp.OneFOneB(4, 8), 2, adjacent=adjacent)
        timeline = gp.simulate(schedule, links=links)
        found[adjacent] = [timeline.makespan] + [
            all_reduce(timeline, size, links=links).makespan for size in (0, 4, 40)
        ]
    assert found == {"stages": [33, 35, 39, 75], "replicas": [49, 49, 49, 49]}, "equal for 14 bytes"


@pytest.mark.parametrize(
    ("sequences", "microbatches", "stages_adjacent", "replicas_adjacent"),
    [
        (64, 8, 0.0772, 0.0636),
        (2048, 8, 1.9995, 1.9954),
        (4096, 8, 3.9838, 3.9896),
        (4096, 64, 3.1394, 3.1279),
    ],
)
def test_layouts_of_bert_large_on_two_nodes(sequences, microbatches, stages_adjacent, replicas_adjacent):
    """Seconds of 2 replicas of 4 stages on 2 nodes of 4: 100 TFLOP/s, 150 GB/s in a node, 12.5 GB/s between.

    A stage's gradients are 189 MB, 15 ms between nodes, and nothing hides them; messages of 2 to 134 MB hide
    behind compute but for those around the first and the last. So it is better to have the copies of a stage
    in one node, by a fifth for a small batch, until messages are nearly as large as the gradients.
    """
    text = gp.StandIn((2 * sequences, 128), np.int32)
    profile = gp.profile(gp.split(gp.bert_large(), stages=4), (text, text), gp.cross_entropy)
    links = Nodes(4, inside=Link(5e-6, 150e9), between=Link(10e-6, 12.5e9))
    found = []
    for adjacent in ("stages", "replicas"):
        schedule = replicate(gp.OneFOneB(4, microbatches), 2, adjacent=adjacent)
        costs = gp.costs_from_flops(profile, gp.Accelerator(100e12), schedule.microbatches)
        timeline = gp.simulate(schedule, costs, links=links, profile=profile)
        found.append(all_reduce(timeline, profile, links=links).makespan)
    assert found == pytest.approx([stages_adjacent, replicas_adjacent], abs=6e-5)


# Refused

TIMELINE = gp.simulate(replicate(gp.GPipe(2, 2), 2))


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: all_reduce(gp.GPipe(2, 2), 4, links=SLOW), TypeError, "all_reduce needs a timeline"),
        (
            lambda: all_reduce(TIMELINE, [4], links=SLOW),
            ValueError,
            "a size for each of 2 stages, or one number",
        ),
        (lambda: all_reduce(TIMELINE, -4, links=SLOW), ValueError, "sizes to be finite and >= 0"),
        (lambda: all_reduce(TIMELINE, [4, "x"], links=SLOW), TypeError, "each size to be a number"),
        (lambda: all_reduce(TIMELINE, "44", links=SLOW), TypeError, "sizes in bytes: a number, one for each"),
        (lambda: all_reduce(TIMELINE, 4, links=3), TypeError, "links to be a Link"),
        (
            lambda: all_reduce(TIMELINE, 4, links={(0, 1): SLOW}),
            ValueError,
            "no link from device 1 to device 3",
        ),
        (lambda: all_reduce(TIMELINE, 4, links=SLOW, buckets=0), ValueError, "all_reduce needs buckets >= 1"),
        (
            lambda: all_reduce(TIMELINE, 4, links=SLOW, buckets=10**12),  # it once ran out of memory
            ValueError,
            "all_reduce needs at most 10,000 buckets",
        ),
        (lambda: all_reduce(TIMELINE, 4, links=SLOW, buckets=1.5), TypeError, "buckets to be a whole number"),
        (lambda: all_reduce(TIMELINE, 4, links=SLOW, clip=1), TypeError, "clip to be True or False"),
        (
            lambda: all_reduce(all_reduce(TIMELINE, 4, links=SLOW), 4, links=SLOW),
            ValueError,
            "all_reduce has been there already",
        ),
    ],
)
def test_what_cannot_be_summed_is_refused(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_an_action_behind_an_update_that_waits_is_refused():
    early = gp.Explicit(["0F0 0B0 0U0 1F0 1B0 1U0"], placement=[[0, 1]])
    assert gp.problems(early)
    rows = gp.Explicit(["0F0 2F0 2B0 2U0 0B0 0U0", "1F0 1B0 1U0"], placement=[[0, 2], [1]])
    timeline = gp.simulate(rows)
    with pytest.raises(ValueError, match=r"0B0 stands behind an update that waits until .* device 0's row"):
        all_reduce(timeline, 4, links=SLOW, clip=True)


def test_rings_of_as_many_devices_on_other_links_take_other_times():
    fast, slow = Link(latency=1, bandwidth=100), Link(latency=5, bandwidth=100)
    links = {(0, 2): fast, (2, 0): fast, (1, 3): slow, (3, 1): slow}
    summed = all_reduce(TIMELINE, 400, links=links)
    assert {each.stage: each.end - each.start for each in summed.collectives} == {0: 6, 1: 14}
