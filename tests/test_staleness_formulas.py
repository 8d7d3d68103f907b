"""What papers say of pipelines without a flush, beside what rows, bytes and clocks give."""

from fractions import Fraction
from itertools import product

import pytest

import gpipe_sim as gp
from gpipe_sim import PipeDream, PipeDream2BW, formulas
from gpipe_sim.core.memory import ACTIVATIONS, BOUNDARY, OLDER, PARAMETERS

DEPTHS, EVERY = range(1, 7), range(1, 9)


def long_stream(devices: int, every: int) -> int:
    """More mini-batches than are ever on the way, and a last one that is not full."""
    return 6 * max(devices, every) + devices * every % 3


@pytest.mark.parametrize("devices", DEPTHS)
def test_stashing_delays_device_k_by_k_minus_k_minus_1_over_every_rounded_up(devices):
    for every in EVERY:
        found = gp.staleness(PipeDream(devices, long_stream(devices, every), every))
        for k, row in enumerate(found.delay):
            delay = formulas.stashing_delay(devices, k, every)
            assert max(row) == delay and set(row[delay * every :]) == {delay}
            assert found.held[k] == formulas.stashing_versions(devices, k, every)


@pytest.mark.parametrize("devices", DEPTHS)
def test_vertical_sync_delays_every_device_as_the_first(devices):
    for every in EVERY:
        found = gp.staleness(PipeDream(devices, long_stream(devices, every), every), "vertical")
        delay = formulas.vertical_sync_delay(devices, every)
        assert {max(row) for row in found.delay} == {delay}
        assert {*found.held} == {formulas.vertical_sync_versions(devices, every)}


@pytest.mark.parametrize("devices", DEPTHS)
def test_double_buffering_uses_version_floor_m_over_every_minus_1(devices):
    for every in range(devices, devices + 4):
        found = gp.staleness(PipeDream2BW(devices, long_stream(devices, every), every))
        expected = [
            formulas.double_buffering_version(devices, every, m) for m in range(found.schedule.microbatches)
        ]
        assert {*found.forward, *found.backward} == {tuple(expected)}
        assert {max(row) for row in found.delay} == {1} and {*found.held} == {2}


def test_the_papers_numbers_at_four_devices():
    assert [formulas.stashing_versions(4, k) for k in range(4)] == [4, 3, 2, 1]
    assert [formulas.stashing_delay(4, k) for k in range(4)] == [3, 2, 1, 0]
    assert [formulas.stashing_delay(4, k, every=2) for k in range(4)] == [2, 1, 1, 0]
    assert formulas.vertical_sync_versions(4) == 4
    assert [formulas.double_buffering_version(4, 4, m) for m in (0, 3, 4, 7, 8, 12)] == [0, 0, 0, 0, 1, 2]


def test_noam_is_what_1f1b_holds_on_the_first_device():
    for devices in DEPTHS:
        assert formulas.noam(devices) == gp.peak_in_flight(PipeDream(devices, 12))[0] == devices
    assert [formulas.noam(4, n) for n in (1, 2, 3, 4)] == [4, 2, 2, 1]
    with pytest.raises(ValueError, match=r"noam needs input_workers <= workers, here 2 \(got 3\)"):
        formulas.noam(2, 3)


@pytest.mark.parametrize("devices", DEPTHS)
def test_a_stream_has_no_bubble_after_its_warm_up_and_flushes_cost_one_each(devices):
    for every, mini_batches in product((1, 2, 3, 8), (1, 2, 5)):
        count = every * mini_batches
        for forward, backward in ((1, 2), (Fraction(1, 3), 5)):
            costs, times = gp.Costs(forward, backward, 0), (forward, backward)
            stream = gp.simulate(PipeDream(devices, count, every), costs).makespan
            assert stream == formulas.pipedream_makespan(devices, count, *times)
            for family in (gp.OneFOneB, gp.GPipe):
                alone = gp.simulate(family(devices, every), costs).makespan
                assert mini_batches * alone == formulas.flushed_makespan(devices, count, every, *times)


def test_177_231_and_672():
    assert formulas.pipedream_makespan(4, 56) == 177
    assert [formulas.flushed_makespan(4, 56, every) for every in (56, 8, 1)] == [177, 231, 672]
    assert formulas.flushed_makespan(4, 57, 8) == 231 + 12, "an eighth flush for one more microbatch"


@pytest.mark.parametrize("devices", [2, 3, 4, 6])
def test_what_2bw_and_gpipe_hold_with_recompute(devices):
    """On the device that holds most, the first: stages are all alike but for the loss behind the last."""
    microbatches, width, samples = 3 * devices, 16, 4
    x = gp.StandIn((samples * microbatches, width), "f8")
    layers = gp.mlp([width] * (2 * devices + 1), activation="tanh")
    layers.append(gp.Tanh())
    partitions = gp.split(layers, balance=[4] * devices)
    profile = gp.profile(partitions, (x, x), gp.mse, gp.SGD(0.1))
    one = samples * width * 8  # bytes of what is between two layers
    weights = sum(array.nbytes for partition in partitions for array in partition.parameters.values())
    saved = devices * 2 * one  # what each Tanh gives; the Linear behind it has the same array
    stream = gp.remat(PipeDream2BW(devices, microbatches), "always")
    held = gp.predict_memory(stream, profile)[0]
    formula = formulas.double_buffering_memory(devices, weights, saved, one)
    assert held.peak(PARAMETERS, OLDER) == 2 * weights / devices
    assert held.peak(BOUNDARY) == devices * one
    assert held.peak(PARAMETERS, OLDER, *ACTIVATIONS) == formula
    flushed = gp.predict_memory(gp.remat(gp.GPipe(devices, microbatches), "always"), profile)[0]
    formula = formulas.gpipe_recompute_memory(devices, microbatches, weights, saved, one)
    assert flushed.peak(PARAMETERS, OLDER, *ACTIVATIONS) == formula


def test_2bw_trades_a_version_of_the_weights_for_boundary_inputs():
    """It holds less than GPipe once (m - d) boundary inputs outweigh a stage's weights."""
    two, flushed = formulas.double_buffering_memory(4, 400, 80, 10), formulas.gpipe_recompute_memory
    assert two == 200 + 20 + 40
    assert flushed(4, 14, 400, 80, 10) == two and flushed(4, 13, 400, 80, 10) < two
    assert type(formulas.double_buffering_memory(3, 1, 1, 1)) is int
    assert formulas.double_buffering_memory(2, 1, 1, 0.5) == 2.5
    assert formulas.gpipe_recompute_memory(3, 2, 1, 1, 1) == Fraction(8, 3)
