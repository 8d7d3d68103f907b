"""The same numbers as one device, whatever the schedule; and devices that share nothing."""

from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from cases import ALONE, BOTH_WAYS, UPDATED, V_SHAPED, every_schedule, over, overlapped, zero_bubble
from numeric import apart, furthest_apart

from gpipe_sim.core.actions import B, F
from gpipe_sim.core.cost_model import CostModel
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.gpipe import GPipe
from gpipe_sim.core.interleaved import Interleaved1F1B
from gpipe_sim.core.layers import Layer, mlp
from gpipe_sim.core.losses import cross_entropy, mse
from gpipe_sim.core.memory import GRADIENTS, PARAMETERS
from gpipe_sim.core.one_f_one_b import OneFOneB
from gpipe_sim.core.optimizers import SGD
from gpipe_sim.core.partition import Partition
from gpipe_sim.core.remat import remat
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.split import split
from gpipe_sim.core.step import StepResult, single_device_step, train_step
from gpipe_sim.dataset import digits
from gpipe_sim.errors import ScheduleError

SIZES = [64] + [12] * 6 + [10]  # 13 layers: room for four devices of three stages
MODES = ("always", "except_last", "never")
BEYOND = {
    "split": zero_bubble(4, 8),
    "split, M < K": zero_bubble(4, 2),
    "overlapped": overlapped(4, 8),
    "V": V_SHAPED,
    **({} if ALONE else {"both ways": BOTH_WAYS}),
}
OVER_EVERY = over([*every_schedule([(1, 3), (2, 1), (3, 2), (4, 4), (4, 10)]), *BEYOND.values()])


def ten_digits(dtype: type = np.float64) -> tuple[np.ndarray, np.ndarray]:
    """A batch that three, four or eight microbatches cut unevenly."""
    data = digits(dtype=dtype)
    return data.x[:10], data.y[:10]


@cache
def alone(microbatches: int) -> StepResult:
    return single_device_step(mlp(SIZES), ten_digits(), cross_entropy, microbatches=microbatches)


def run(schedule: Schedule, **options) -> StepResult:
    partitions = split(mlp(SIZES), stages=schedule.stages)
    return train_step(partitions, schedule, ten_digits(), cross_entropy, **options)


@cache
def unmetered(schedule: Schedule, mode: str) -> StepResult:
    """A step that several tests read, and none changes."""
    return run(remat(schedule, mode), meter=False)


# Gradients equal a single device's


def assert_as_on_one_device(step: StepResult) -> None:
    """The gradients to 1e-12, loss and outputs to 1e-13."""
    expected = alone(1)
    assert furthest_apart(step.gradients, expected.gradients) < 1e-12
    assert step.loss == pytest.approx(expected.loss, rel=1e-13)
    assert apart(step.outputs, expected.outputs) < 1e-13


@OVER_EVERY
def test_gradients_equal_the_whole_batch_on_one_device_to_1e_12(schedule):
    for mode in MODES:
        assert_as_on_one_device(unmetered(schedule, mode))


def test_a_reversed_drain_adds_up_in_another_order_and_differs_only_in_rounding():
    found, expected = run(GPipe(4, 8)).gradients, alone(8).gradients
    assert 0 < furthest_apart(found, expected) < 1e-14


@over(every_schedule([(2, 4)]))
def test_float32_is_equal_within_float32(schedule):
    layers = mlp(SIZES, dtype=np.float32)
    expected = single_device_step(layers, ten_digits(np.float32), cross_entropy)
    step = train_step(split(layers, stages=schedule.stages), schedule, ten_digits(np.float32), cross_entropy)
    assert {gradient.dtype for gradient in step.gradients.values()} == {np.dtype(np.float32)}
    assert step.outputs.dtype == np.float32
    assert furthest_apart(step.gradients, expected.gradients) < 2e-6


@pytest.mark.parametrize("make", [np.asfortranarray, lambda x: np.repeat(x, 2, axis=1)[:, ::2]])
def test_a_batch_that_is_not_contiguous_gives_the_very_same_numbers_on_one_device(make):
    """Devices get copies; the reference once multiplied the strided rows, in another order."""
    x, y = ten_digits()
    layers, batch = mlp(SIZES), (make(np.vstack([x] * 7)), np.concatenate([y] * 7))
    assert not batch[0].flags.c_contiguous
    step = train_step(split(layers, stages=4), OneFOneB(4, 5), batch, cross_entropy)
    expected = single_device_step(layers, batch, cross_entropy, microbatches=5)
    assert np.array_equal(step.outputs, expected.outputs)
    assert furthest_apart(step.gradients, expected.gradients) == 0


def test_gradients_on_one_device_are_what_central_differences_give():
    """The reference itself: along a random direction through all weights at once."""
    layers = mlp([64, 8, 8, 10], activation="tanh")
    gradients = single_device_step(layers, ten_digits(), cross_entropy, microbatches=4).gradients
    parameters, rng = Partition(layers).parameters, np.random.default_rng(5)
    direction = {key: rng.normal(size=parameter.shape) for key, parameter in parameters.items()}
    slope = sum((gradients[key] * direction[key]).sum() for key in gradients)

    def loss_at(h: float) -> float:
        for key, parameter in parameters.items():
            parameter += h * direction[key]
        loss = single_device_step(layers, ten_digits(), cross_entropy).loss
        for key, parameter in parameters.items():
            parameter -= h * direction[key]
        return loss

    assert (loss_at(1e-6) - loss_at(-1e-6)) / 2e-6 == pytest.approx(slope, rel=1e-7)


def test_gradients_go_by_layer_along_the_model():
    step = run(Interleaved1F1B(2, 2, 3))
    assert list(step.gradients) == [(layer, name) for layer in range(0, 13, 2) for name in ("W", "b")]
    assert [g.shape for g in step.gradients.values()][:2] == [(64, 12), (12,)]


# Uneven microbatches


class Witness(Layer):
    """Notes how many samples came through, and passes them on."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x, ctx):
        self.seen.append((ctx.microbatch, len(x)))
        return x, None

    def backward_input(self, saved, dy):
        return dy, None


def test_ten_digits_in_four_microbatches_are_3_3_2_2():
    witness = Witness()
    train_step(split([witness, *mlp([64, 10])], stages=2), OneFOneB(2, 4), ten_digits(), cross_entropy)
    assert witness.seen == [(0, 3), (1, 3), (2, 2), (3, 2)]


@pytest.mark.parametrize(("mode", "times"), [("always", 8), ("except_last", 7), ("never", 4)])
def test_recomputing_runs_the_forward_again(mode, times):
    witness = Witness()
    schedule = remat(GPipe(2, 4), mode)
    train_step(split([witness, *mlp([64, 10])], stages=2), schedule, ten_digits(), cross_entropy)
    assert len(witness.seen) == times


# Randomness


# Updates


def parameters_of(partitions: list[Partition]) -> dict:
    return {key: array for partition in partitions for key, array in partition.parameters.items()}


def copies_of(partitions: list[Partition]) -> dict:
    return {key: array.copy() for key, array in parameters_of(partitions).items()}


def unchanged(partitions: list[Partition], before: dict) -> bool:
    return all((array == before[key]).all() for key, array in parameters_of(partitions).items())


# Devices share nothing


@over([*every_schedule([(2, 4), (4, 5)]), zero_bubble(3, 4), overlapped(3, 4), V_SHAPED])
def test_no_array_is_ever_on_two_devices_and_only_weights_and_gradients_stay(schedule, devices):
    for mode in ("always", "never"):
        devices.clear()
        run(remat(schedule, mode), meter=mode == "always")
        assert len(devices) == schedule.devices
        for device, stages in zip(devices, schedule.placement, strict=True):
            assert {category for category, _ in device.memory.held} == {PARAMETERS, GRADIENTS}
            assert {key for _, key in device.memory.held} == set(stages)


def test_what_a_step_returns_is_not_the_callers_batch_or_weights():
    x, y = ten_digits()
    partitions = split([Witness(), *mlp([64, 10])], stages=2)
    before = copies_of(partitions)
    step = train_step(partitions, OneFOneB(2, 2), (x, y), cross_entropy)
    kept = x.copy()
    step.outputs[:] = np.nan
    for gradient in step.gradients.values():
        gradient[:] = np.nan
    assert (x == kept).all()
    assert unchanged(partitions, before)
    passed_on = train_step(split([Witness(), Witness()], stages=2), GPipe(2, 1), (x, x), mse)
    assert not np.shares_memory(passed_on.outputs, x)


def test_a_step_leaves_nothing_for_the_next_one():
    partitions = split(mlp(SIZES), stages=4)
    before, how = copies_of(partitions), {"optimizer": SGD(0.1)}
    first, second = (
        train_step(partitions, OneFOneB(4, 4), ten_digits(), cross_entropy, **how) for _ in range(2)
    )
    assert unchanged(partitions, before), "without updates in the schedule"
    assert all((first.gradients[key] == second.gradients[key]).all() for key in first.gradients)
    assert not any(np.shares_memory(first.gradients[key], second.gradients[key]) for key in first.gradients)
    assert first.memory == second.memory


# What a step reports


def test_a_step_comes_with_its_timeline_and_every_devices_memory_on_its_clock():
    step = run(remat(OneFOneB(4, 8), "always"), costs=Costs(comm=Fraction(1, 2)))
    assert step.timeline.spans == simulate(remat(OneFOneB(4, 8), "always"), Costs(comm=Fraction(1, 2))).spans
    assert len(step.memory) == 4
    ends = {span.end for span in step.timeline.spans}
    for memory, row in zip(step.memory, step.timeline.rows, strict=True):
        assert set(memory.times) <= ends | {0}
        assert {span.end for span in row} <= set(memory.times)
        assert list(memory.times) == sorted(set(memory.times))


def test_costs_move_the_clock_and_no_bit_of_a_gradient():
    plain, slow, free = (
        run(OneFOneB(4, 8), costs=costs)
        for costs in (None, Costs([1, 9, 2, 3], 4, [5, 1, 1, 7], comm=3), Costs(0, 0, 0))
    )
    assert slow.timeline.makespan > plain.timeline.makespan > free.timeline.makespan == 0
    for key, gradient in plain.gradients.items():
        assert (gradient == slow.gradients[key]).all() and (gradient == free.gradients[key]).all()


def test_exact_costs_give_an_exact_clock_even_after_equal_floats():
    for half in (0.5, Fraction(1, 2)):
        step = run(GPipe(2, 2), costs=Costs(half, half, half))
        assert type(step.timeline.makespan) is type(half)
        assert type(step.memory[0].times[-1]) is type(half)


def test_the_meter_changes_no_bit_and_may_be_left_out():
    with_meter, without = run(OneFOneB(4, 8)), run(OneFOneB(4, 8), meter=False)
    assert without.memory == ()
    assert without.timeline.makespan == 33
    assert all((with_meter.gradients[key] == without.gradients[key]).all() for key in without.gradients)


def test_a_device_may_hold_no_stage():
    idle = Explicit(["0F0 0B0 0F1 0B1", ""], placement=[[0], []])
    step = run(idle)
    assert furthest_apart(step.gradients, alone(1).gradients) < 1e-12
    assert step.memory[1].peak() == 0


# Bad input: refused, and nothing has changed


X, Y = ten_digits()
BAD_BATCHES = {
    "features": ((X[:, :5], Y), ValueError, r"layer 0, Linear\(64, 12\), takes .* got \(\d, 5\)"),
    "one axis": ((X[:, 0], Y), ValueError, r"layer 0, Linear\(64, 12\), takes .* got \(\d,\)"),
    "lengths": ((X[:9], Y), ValueError, "equal length .got lengths 9 and 10"),
    "three": ((X, Y, Y), ValueError, r"a batch is \(inputs, targets\) \(got 3 parts\)"),
    "one": ((X,), ValueError, r"a batch is \(inputs, targets\)"),
    "not two": (X, TypeError, r"a batch is \(inputs, targets\) \(got ndarray\)"),
    "too few": ((X[:3], Y[:3]), ValueError, "3 samples cannot be cut into 4 .* at least 4, or at most 3"),
    "none": ((X[:0], Y[:0]), ValueError, "a batch of 0 samples cannot be cut into 4 microbatches"),
    "classes": ((X, np.array([0] * 9 + [10])), ValueError, r"targets from 0 to 9, got \d+ to 10"),
    "not classes": ((X, Y / 2), TypeError, "class numbers, got float64"),
    "one-hot": ((X, np.eye(10, dtype=int)), ValueError, r"targets \(batch,\), got \(\d, 10\) and \(\d, 10\)"),
}  # fmt: skip


@pytest.mark.parametrize("schedule", [OneFOneB(2, 4), *UPDATED], ids=repr)
@pytest.mark.parametrize(("batch", "error", "words"), BAD_BATCHES.values(), ids=BAD_BATCHES)
def test_a_batch_that_does_not_fit_is_refused_and_no_weight_has_changed(batch, error, words, schedule):
    partitions, optimizer = split(mlp(SIZES), stages=2), SGD(0.1, momentum=0.9)
    before = copies_of(partitions)
    with pytest.raises(error, match=words):
        train_step(partitions, schedule, batch, cross_entropy, optimizer=optimizer)
    assert unchanged(partitions, before)
    assert not any(state["velocity"].any() for state in optimizer.state.values())
    with pytest.raises(error, match=words):
        single_device_step(mlp(SIZES), batch, cross_entropy, microbatches=4)


CANNOT_RUN = [
    (Explicit(["0F0 0F1 0B0"]), {}, ScheduleError, "0B1 is missing"),
    (OneFOneB(2, 2), {"loss": "mse"}, TypeError, "'mse'"),
    (
        OneFOneB(4, 4),
        {"partitions": mlp(SIZES)[:4]},
        TypeError,
        r"split\(layers, stages=4\) makes it",
    ),
    (
        Interleaved1F1B(4, 4),
        {"partitions": split(mlp(SIZES), stages=4)},
        ValueError,
        r"has 8 stages, but there are 4 partitions; split\(layers, stages=8\) would fit",
    ),
    (
        OneFOneB(4, 4),
        {"partitions": split(mlp(SIZES), stages=4, devices=["a", "b", "a", "b"])},
        ValueError,
        r"share device 'a' are on devices 0 and 2 of OneFOneB.*colocate\(schedule, dev",
    ),
]


@pytest.mark.parametrize(("schedule", "changes", "error", "words"), CANNOT_RUN)
def test_a_step_that_cannot_run_is_refused_before_it_starts(schedule, changes, error, words):
    assert_refused(schedule, changes, error, words)


def assert_refused(schedule: Schedule, changes: dict, error: type[Exception], words: str) -> None:
    usual = {"partitions": split(mlp(SIZES), stages=schedule.stages), "loss": cross_entropy}
    asked = usual | {"schedule": schedule, "batch": ten_digits(), "optimizer": SGD(0.1)} | changes
    before = copies_of(asked["partitions"])
    with pytest.raises(error, match=words):
        train_step(**asked)
    assert unchanged(asked["partitions"], before)


def test_two_schedules_that_compare_equal_run_each_its_own_order():
    """Plans were once kept by equality, and the second of these ran the first one's order."""

    class Twin(OneFOneB):
        rows = None

        def order(self, device):
            return self.rows[device]

    one, other = Twin(1, 2), Twin(1, 2)
    vars(one)["rows"] = [[F(0, 0), B(0, 0), F(0, 1), B(0, 1)]]
    vars(other)["rows"] = [[F(0, 0), F(0, 1), B(0, 0), B(0, 1)]]
    assert one == other
    partitions = split(mlp([64, 10]), stages=1)
    orders = [
        [
            str(span.action)
            for span in train_step(partitions, each, ten_digits(), cross_entropy).timeline.spans
        ]
        for each in (one, other)
    ]
    assert orders == [["0F0", "0B0", "0F1", "0B1"], ["0F0", "0F1", "0B0", "0B1"]]


def test_a_steps_timeline_has_the_costs_that_it_was_given():
    """Also those of a model that changed since the last step with the same schedule."""

    class Changing(CostModel):
        each = 1

        def duration(self, action, device):
            return self.each

    schedule, model = OneFOneB(2, 4), Changing()
    partitions, batch = split(mlp([8, 8, 8]), stages=2), (np.ones((4, 8)), np.ones((4, 8)))

    def makespan(costs):
        return train_step(partitions, schedule, batch, mse, costs=costs).timeline.makespan

    assert [makespan(costs) for costs in (None, Costs(2), Costs(2), None)] == [15, 20, 20, 15]
    assert makespan(model) == 10
    model.each = 3
    assert makespan(model) == 30


def test_a_step_shows_itself_in_a_line_however_large_its_arrays_are():
    step = run(GPipe(4, 8))
    assert repr(step) == f"<StepResult with loss {step.loss:.4g}>"
