"""What is held at most, in bytes, is what the order says is in flight."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from cases import every_order, over, over_every_order
from numeric import Energy

from gpipe_sim import (
    SGD,
    ZBV,
    GPipe,
    Naive,
    OneFOneB,
    peak_in_flight,
    predict_memory,
    profile,
    remat,
    split,
    train_step,
)
from gpipe_sim.core import Kind, Linear, Tanh
from gpipe_sim.families import VHalf, VMin


@cache
def peaks(schedule, width: int = 4, rows: int = 2) -> list[float]:
    """Each device's activation peak in units of what one stage saves of one microbatch: input and output."""
    rng = np.random.default_rng(0)
    layers = [layer for _ in range(schedule.stages) for layer in (Linear(width, width, rng=rng), Tanh())]
    batch = np.ones((rows * schedule.microbatches, width))
    how = {"optimizer": SGD(0.0)}  # of streams; the others update nothing
    step = train_step(split(layers, stages=schedule.stages), schedule, (batch, batch), Energy(), **how)
    return [memory.activation_peak / (2 * rows * width * 8) for memory in step.memory]


@pytest.mark.parametrize(("devices", "microbatches"), [(1, 1), (2, 5), (4, 3), (4, 8), (6, 12)])
def test_gpipe_holds_m_times_what_a_stage_saves_and_1f1b_k_minus_k_times_predicted_and_measured(
    devices, microbatches
):
    """Linear(5, 5) and Tanh save two arrays of 3 x 5 numbers of 8 bytes: 240 bytes of each microbatch."""
    rng = np.random.default_rng(0)
    layers = [layer for _ in range(devices) for layer in (Linear(5, 5, rng=rng), Tanh())]
    partitions, x = split(layers, stages=devices), np.ones((3 * microbatches, 5))
    plan = profile(partitions, (x, x), Energy())
    for family, held in (
        (GPipe, [microbatches] * devices),
        (OneFOneB, [min(devices - k, microbatches) for k in range(devices)]),
    ):
        schedule = family(devices, microbatches)
        measured = train_step(partitions, schedule, (x, x), Energy()).memory
        predicted = predict_memory(schedule, plan)
        for traces in (measured, predicted):
            assert [trace.activation_peak for trace in traces] == [240 * n for n in held]


def halves_held(row) -> int:
    """The most arrays that a device keeps at the end of an action, each half of what a stage saves.

    F keeps the stage's input and output; I lets the output go and keeps the gradient that meets the input
    in W; B and W let everything go. What one stage hands the next on the same device is one array.
    """
    held, most = {}, 0
    for action in row:
        for stage, kind, m in action.parts:
            held[stage, m] = {
                Kind.F: {("crosses", stage - 1, m), ("crosses", stage, m)},
                Kind.I: {("crosses", stage - 1, m), ("gradient", stage, m)},
            }.get(kind, set())
        most = max(most, len(set().union(*held.values())))
    return most


@over_every_order()
def test_the_bytes_measured_are_one_input_and_one_more_array_for_each_stage_and_microbatch(schedule):
    assert peaks(schedule) == [halves_held(row) / 2 for row in schedule.actions]


def plain(schedule) -> bool:
    """No pairs, and no two neighbouring stages on one device, where they would share what crosses."""
    neighbours = any(b - a == 1 for held in schedule.placement for a, b in pairwise(sorted(held)))
    pairs = any(len(action.parts) > 1 for row in schedule.actions for action in row)
    return not neighbours and not pairs


@over(filter(plain, every_order()))
def test_the_bytes_measured_are_the_microbatches_in_flight(schedule):
    assert peaks(schedule) == list(peak_in_flight(schedule))


@pytest.mark.parametrize("family", [ZBV, VHalf, VMin])
def test_only_where_the_v_turns_is_less_held_than_is_in_flight(family):
    """The last device holds both stages next to the turn, and one array for what crosses it."""
    schedule = family(4, 8)
    *measured, at_the_turn = peaks(schedule)
    *in_flight, counted = peak_in_flight(schedule)
    assert measured == in_flight
    assert at_the_turn < counted


@pytest.mark.parametrize("family", [Naive, GPipe, OneFOneB])
@pytest.mark.parametrize(("devices", "microbatches"), [(1, 3), (3, 2), (4, 8)])
def test_recomputing_everything_peaks_at_its_boundary_inputs_and_one_working_set(
    family, devices, microbatches
):
    """Half a unit is a boundary input, the other half the working set beside it."""
    schedule = family(devices, microbatches)
    held = peak_in_flight(schedule)
    assert peaks(remat(schedule, "always")) == [n / 2 + 1 / 2 for n in held]
