"""What papers say of pipelines without a flush, beside what rows, bytes and clocks give.

Harlap et al. 2018, arXiv:1806.03377; Narayanan et al. 2021, arXiv:2006.09503. An update stands after every e
microbatches. Delays and versions are those of a stream that is long enough to reach them.
"""

from fractions import Fraction
from itertools import product
from math import ceil

import pytest

import gpipe_sim as gp
from gpipe_sim import PipeDream
from gpipe_sim.core.memory import ACTIVATIONS, BOUNDARY, OLDER, PARAMETERS
from gpipe_sim.streams import PipeDream2BW

DEPTHS, EVERY = range(1, 7), range(1, 9)


def long_stream(devices: int, every: int) -> int:
    """More mini-batches than are ever on the way, and a last one that is not full."""
    return 6 * max(devices, every) + devices * every % 3


@pytest.mark.parametrize("devices", DEPTHS)
def test_stashing_delays_device_k_by_k_minus_k_minus_1_over_every_rounded_up(devices):
    for every in EVERY:
        found = gp.staleness(PipeDream(devices, long_stream(devices, every), every))
        for k, row in enumerate(found.delay):
            delay = ceil((devices - k - 1) / every)
            assert max(row) == delay and set(row[delay * every :]) == {delay}
            assert found.held[k] == delay + 1


@pytest.mark.parametrize("devices", DEPTHS)
def test_vertical_sync_delays_every_device_as_the_first(devices):
    for every in EVERY:
        found = gp.staleness(PipeDream(devices, long_stream(devices, every), every), "vertical")
        delay = ceil((devices - 1) / every)
        assert {max(row) for row in found.delay} == {delay}
        assert {*found.held} == {delay + 1}


@pytest.mark.parametrize("devices", DEPTHS)
def test_double_buffering_uses_version_floor_m_over_every_minus_1(devices):
    for every in range(devices, devices + 4):
        found = gp.staleness(PipeDream2BW(devices, long_stream(devices, every), every))
        expected = tuple(max(m // every - 1, 0) for m in range(found.schedule.microbatches))
        assert {*found.forward, *found.backward} == {expected}
        assert {max(row) for row in found.delay} == {1} and {*found.held} == {2}


def test_the_papers_numbers_at_four_devices():
    """PipeDream's section 3.3 and 2BW's 3.1; what 1F1B lets in is also what device 0 holds."""
    plain, by_two = (gp.staleness(PipeDream(4, 12, every)) for every in (1, 2))
    assert plain.held == (4, 3, 2, 1) and gp.peak_in_flight(PipeDream(4, 12))[0] == 4
    assert [max(row) for row in plain.delay] == [3, 2, 1, 0]
    assert [max(row) for row in by_two.delay] == [2, 1, 1, 0]
    assert set(gp.staleness(PipeDream(4, 12), "vertical").held) == {4}
    double = gp.staleness(PipeDream2BW(4, 13)).forward[0]
    assert [double[m] for m in (0, 3, 4, 7, 8, 12)] == [0, 0, 0, 0, 1, 2]


@pytest.mark.parametrize("devices", DEPTHS)
def test_a_stream_has_no_bubble_after_its_warm_up_and_flushes_cost_one_each(devices):
    for every, mini_batches in product((1, 2, 3, 8), (1, 2, 5)):
        count = every * mini_batches
        for forward, backward in ((1, 2), (Fraction(1, 3), 5)):
            costs, times = gp.Costs(forward, backward, 0), (forward, backward)
            stream = gp.simulate(PipeDream(devices, count, every), costs).makespan
            assert stream == (count + devices - 1) * sum(times)
            for family in (gp.OneFOneB, gp.GPipe):
                alone = gp.simulate(family(devices, every), costs).makespan
                assert mini_batches * alone == (count + mini_batches * (devices - 1)) * sum(times)


@pytest.mark.parametrize("devices", [2, 3, 4, 6])
def test_what_2bw_and_gpipe_hold_with_recompute(devices):
    """On the device that holds most, the first: stages are all alike but for the loss behind the last."""
    microbatches, width, samples = 3 * devices, 16, 4
    x = gp.MetaArray((samples * microbatches, width), "f8")
    layers = gp.mlp([width] * (2 * devices + 1), activation="tanh")
    layers.append(gp.core.Tanh())
    partitions = gp.split(layers, balance=[4] * devices)
    profile = gp.profile(partitions, (x, x), gp.mse, gp.SGD(0.1))
    one = samples * width * 8  # bytes of what is between two layers
    weights = sum(array.nbytes for partition in partitions for array in partition.parameters.values())
    saved = devices * 2 * one  # what each Tanh gives; the Linear behind it has the same array
    stream = gp.remat(PipeDream2BW(devices, microbatches), "always")
    held = gp.predict_memory(stream, profile)[0]
    assert held.peak(PARAMETERS, OLDER) == 2 * weights / devices
    assert held.peak(BOUNDARY) == devices * one
    assert held.peak(PARAMETERS, OLDER, *ACTIVATIONS) == (2 * weights + saved) / devices + devices * one
    flushed = gp.predict_memory(gp.remat(gp.GPipe(devices, microbatches), "always"), profile)[0]
    assert flushed.peak(PARAMETERS, OLDER, *ACTIVATIONS) == (weights + saved) / devices + microbatches * one
