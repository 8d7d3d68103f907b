"""Steps of schedules and with layers that chapters add: the same numbers as one device."""

from functools import cache

import numpy as np
import pytest
from cases import BOTH_WAYS, V_SHAPED, every_schedule, in_order, over, overlapped, zero_bubble
from numeric import furthest_apart
from test_step import MODES, OVER_EVERY, SIZES, alone, assert_refused, parameters_of, ten_digits, unmetered

from gpipe_sim import (
    SGD,
    Adam,
    Explicit,
    GPipe,
    Interleaved1F1B,
    OneFOneB,
    cross_entropy,
    mlp,
    remat,
    replicate,
    single_device_step,
    split,
    train_step,
    with_updates,
)
from gpipe_sim.core import Context, Layer, Linear
from gpipe_sim.core.step import StepResult
from gpipe_sim.errors import DeadlockError
from gpipe_sim.families import Chimera, DualPipe, LoopedBFS
from gpipe_sim.transformers import Dropout


@OVER_EVERY
def test_gradients_are_the_same_bits_where_microbatches_add_up_in_order(schedule):
    """All but the reversed drains (GPipe, looped BFS) and those with two copies of a stage."""
    reversed_drain = isinstance(schedule, LoopedBFS) or schedule == GPipe(
        schedule.devices, schedule.microbatches
    )
    another_order = reversed_drain or isinstance(schedule, (DualPipe, Chimera)) or schedule is BOTH_WAYS
    assert in_order(schedule) == (not another_order or schedule.microbatches == 1)
    if not in_order(schedule):
        return
    expected = alone(schedule.microbatches)
    for mode in MODES:
        step = unmetered(schedule, mode)
        assert all((step.gradients[key] == expected.gradients[key]).all() for key in expected.gradients)
        assert step.loss == expected.loss
        assert (step.outputs == expected.outputs).all()


FIXED = {"seed": 3, "step": 5}


def with_dropout() -> list[Layer]:
    linear_and_tanh = iter(mlp([64, 12, 12, 12, 12, 12, 10], activation="tanh"))
    return [
        layer
        for pair in zip(linear_and_tanh, linear_and_tanh, strict=False)
        for layer in (*pair, Dropout(0.5))
    ] + [Linear(12, 10, rng=np.random.default_rng(9))]


@cache
def alone_with_dropout(microbatches: int) -> StepResult:
    return single_device_step(with_dropout(), ten_digits(), cross_entropy, microbatches=microbatches, **FIXED)


@over(every_schedule([(2, 4), (4, 3)]))
def test_dropout_draws_the_same_under_every_schedule_and_when_recomputed(schedule):
    layers = with_dropout()
    expected = alone_with_dropout(schedule.microbatches)
    for mode in MODES:
        partitions = split(layers, stages=schedule.stages)
        step = train_step(partitions, remat(schedule, mode), ten_digits(), cross_entropy, **FIXED)
        assert furthest_apart(step.gradients, expected.gradients) < 1e-12
        assert step.loss == expected.loss


def test_dropout_draws_anew_for_every_step_seed_microbatch_and_layer():
    def loss(**options):
        partitions = split(with_dropout(), stages=2)
        return train_step(partitions, OneFOneB(2, 2), ten_digits(), cross_entropy, **options).loss

    assert loss(seed=1, step=1) == loss(seed=1, step=1)
    assert len({loss(), loss(seed=1), loss(step=1), loss(seed=1, step=1)}) == 4
    layer = Dropout(0.5)
    masks = [layer.forward(np.ones((2, 50)), Context(microbatch=m))[0].tolist() for m in (0, 1)]
    masks.append(layer.forward(np.ones((2, 50)), Context(layer=1))[0].tolist())
    assert len({str(mask) for mask in masks}) == 3


UPDATED = [
    *(GPipe(4, 4), OneFOneB(4, 4), Interleaved1F1B(2, 4), zero_bubble(4, 4), overlapped(4, 4), V_SHAPED),
    *(Chimera(4, 6), DualPipe(4, 8), BOTH_WAYS, replicate(zero_bubble(2, 3), 3)),
]


@pytest.mark.parametrize(
    "optimizer", [lambda: SGD(0.1, momentum=0.9), lambda: Adam(0.01)], ids=["SGD", "Adam"]
)
@over(UPDATED)
def test_updates_within_the_schedule_equal_a_plain_step(schedule, optimizer):
    inside, outside = (split(mlp(SIZES), stages=schedule.stages) for _ in range(2))
    inner, outer = optimizer(), optimizer()
    for step in range(2):
        found = train_step(
            inside, with_updates(schedule), ten_digits(), cross_entropy, optimizer=inner, step=step
        )
        plain = train_step(outside, schedule, ten_digits(), cross_entropy, step=step)
        outer.step(parameters_of(outside), plain.gradients)
        assert all((found.gradients[key] == plain.gradients[key]).all() for key in plain.gradients)
        assert found.loss == plain.loss
    before = parameters_of(split(mlp(SIZES), stages=1))
    for key, parameter in parameters_of(inside).items():
        assert (parameter == parameters_of(outside)[key]).all()
        assert (parameter != before[key]).any()


CANNOT_UPDATE = [
    (Explicit(["0F0 0B0 0F1 0B1 0U1", "1F1 1B1 1F0 1B0 1U1"]), {}, DeadlockError, "device 0 is stuck at 0B0"),
    (Explicit(["0F0 0B0 0U0 0F1 0B1"]), {}, ValueError, "0B1 is behind the last update of stage 0 on device"),
    (
        with_updates(GPipe(2, 2)),
        {"optimizer": None},
        ValueError,
        r"0U1 needs an optimizer: train_step\(",
    ),
]


@pytest.mark.parametrize(("schedule", "changes", "error", "words"), CANNOT_UPDATE)
def test_a_step_that_cannot_update_is_refused_before_it_starts(schedule, changes, error, words):
    assert_refused(schedule, changes, error, words)
