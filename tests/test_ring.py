"""Ring all-reduce: real pieces go around, all devices end with the same bits, and every byte is counted."""

from fractions import Fraction

import numpy as np
import pytest
from cases import every_schedule, over

import gpipe_sim as gp
from gpipe_sim.core import Linear
from gpipe_sim.replicas import ring_all_reduce, ring_moves
from gpipe_sim.why import bytes_through

COUNTS = [1, 2, 3, 4, 7, 16]


def arrays(devices: int, shape=(5, 7), dtype=float) -> list[np.ndarray]:
    rng = np.random.default_rng(devices)
    return [(100 * rng.normal(size=shape)).astype(dtype) for _ in range(devices)]


@pytest.mark.parametrize("devices", COUNTS)
def test_every_device_ends_with_the_very_same_bits_of_the_sum(devices):
    own = arrays(devices)
    before = [array.copy() for array in own]
    found = ring_all_reduce(own)
    assert {total.tobytes() for total in found.sums} == {found.sums[0].tobytes()}
    np.testing.assert_allclose(found.sums[0], sum(own), rtol=1e-13)
    assert all((a == b).all() for a, b in zip(own, before, strict=True)), "what was given has not changed"
    held = [*own, *found.sums]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(held) for b in held[:i])
    whole = arrays(devices, (3, 4), np.int64)
    assert (ring_all_reduce(whole).sums[0] == sum(whole)).all(), "exactly, in any order"


def test_uneven_pieces_of_35_numbers_on_4_devices_are_416_to_424_bytes_sent():
    """280 bytes are cut into 72, 72, 72 and 64; 2(n-1)/n of the whole is 420."""
    assert ring_all_reduce(arrays(4)).sent == (416, 424, 424, 416)


@pytest.mark.parametrize("devices", COUNTS)
@pytest.mark.parametrize("size", [0, 1, 48, 35])
def test_on_average_a_device_sends_what_the_formula_says(devices, size):
    sent = ring_all_reduce(arrays(devices, size)).sent
    assert Fraction(sum(sent), devices) == Fraction(2 * (devices - 1), devices) * 8 * size
    if size % devices == 0:
        assert len(set(sent)) == 1


def test_three_devices_are_drawn_as_in_the_docstring():
    rows = {}
    for move in ring_moves(3):
        rows.setdefault((move.source, move.target), []).append(f"p{move.piece}")
    assert rows == {
        (0, 1): ["p0", "p2", "p1", "p0"],
        (1, 2): ["p1", "p0", "p2", "p1"],
        (2, 0): ["p2", "p1", "p0", "p2"],
    }
    assert [move.adds for move in ring_moves(3)] == 6 * [True] + 6 * [False]


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ([], ValueError, "ring_all_reduce needs an array of each device"),
        (3, TypeError, "ring_all_reduce needs an array of each device"),
        ("ab", TypeError, "ring_all_reduce needs an array of each device"),
        ([np.ones(3), np.ones(4)], ValueError, r"device 1 has float64 of shape \(4,\), and device 0 float64"),
        ([np.ones(3), np.ones(3, np.float32)], ValueError, "device 1 has float32"),
        ([np.ones(3), None], TypeError, "each array to hold real numbers"),
        ([np.ones(3, bool)] * 2, TypeError, "device 0 has bool"),
    ],
)
def test_what_cannot_be_added_is_refused(given, error, says):
    with pytest.raises(error, match=says):
        ring_all_reduce(given)


class Narrow(Linear):
    """Its gradients are of its own dtype, though what comes back is wider."""

    def backward_weight(self, pending):
        return {name: g.astype(np.float32) for name, g in super().backward_weight(pending).items()}


def test_gradients_of_two_dtypes_are_summed_each_in_its_own():
    rng = np.random.default_rng(0)
    layers = [Narrow(64, 12, rng=rng, dtype=np.float32), Linear(12, 10, rng=rng)]
    data = gp.digits()
    batch = data.x[:12], data.y[:12]
    found = gp.train_step(
        gp.split(layers, stages=1), gp.replicate(gp.GPipe(1, 2), 3), batch, gp.cross_entropy
    )
    alone = gp.single_device_step(layers, batch, gp.cross_entropy, microbatches=6)
    assert {gradient.dtype for gradient in alone.gradients.values()} == {*map(np.dtype, (np.float32, float))}
    for key, gradient in alone.gradients.items():
        assert found.gradients[key].dtype == gradient.dtype
        np.testing.assert_allclose(found.gradients[key], gradient, rtol=1e-4, atol=1e-6)
    assert sum(found.ring_bytes) == 4 * sum(gradient.nbytes for gradient in alone.gradients.values())


@pytest.mark.parametrize("replicas", [1, 3])
@over(every_schedule([(2, 4), (4, 5)]))
def test_a_step_sends_the_bytes_that_the_pass_over_its_timeline_says(schedule, replicas):
    """In all; each device alone sends a few bytes more or less, where pieces are uneven."""
    both = gp.replicate(schedule, replicas)
    layers = gp.split(gp.mlp([64] + [6] * schedule.stages + [10]), stages=schedule.stages)
    data = gp.digits()
    batch = data.x[: both.microbatches], data.y[: both.microbatches]
    step = gp.train_step(layers, both, batch, gp.cross_entropy, meter=False)
    profile = gp.profile(layers, batch, gp.cross_entropy)
    timeline = gp.all_reduce(step.timeline, profile, links=gp.Link())
    assert len(step.ring_bytes) == both.devices
    assert 2 * sum(step.ring_bytes) == sum(bytes_through(timeline)), "what is sent is received"
    for found, mean in zip(step.ring_bytes, bytes_through(timeline), strict=True):
        assert abs(found - mean / 2) <= 16 * len(timeline.collectives)
    assert (sum(step.ring_bytes) > 0) == bool(timeline.collectives)
