"""The same numbers as one device, whatever the schedule; and devices that share nothing."""

from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from cases import BOTH_WAYS, V_SHAPED, in_order, over_every_schedule, overlapped, zero_bubble
from numeric import apart, furthest_apart

from gpipe_sim import (
    SGD,
    Adam,
    B,
    Chimera,
    Context,
    CostModel,
    Costs,
    DeadlockError,
    DualPipe,
    Explicit,
    F,
    GPipe,
    Interleaved1F1B,
    Layer,
    Linear,
    LoopedBFS,
    OneFOneB,
    Partition,
    Schedule,
    ScheduleError,
    StepResult,
    Tanh,
    cross_entropy,
    digits,
    mlp,
    mse,
    remat,
    replicate,
    simulate,
    single_device_step,
    split,
    train_step,
    with_updates,
)
from gpipe_sim.core import step as step_module
from gpipe_sim.core.memory import GRADIENTS, PARAMETERS, roots

SIZES = [64] + [12] * 6 + [10]  # 13 layers: room for four devices of three stages
MODES = ("always", "except_last", "never")
BEYOND = {
    "split": zero_bubble(4, 8),
    "split, M < K": zero_bubble(4, 2),
    "overlapped": overlapped(4, 8),
    "V": V_SHAPED,
    "both ways": BOTH_WAYS,
}
over_what_no_family_makes_yet = pytest.mark.parametrize("schedule", BEYOND.values(), ids=BEYOND)


def ten_digits(dtype: type = np.float64) -> tuple[np.ndarray, np.ndarray]:
    """A batch that three, four or eight microbatches cut unevenly."""
    data = digits(dtype=dtype)
    return data.x[:10], data.y[:10]


@cache
def alone(activation: str, microbatches: int) -> StepResult:
    return single_device_step(
        mlp(SIZES, activation=activation), ten_digits(), cross_entropy, microbatches=microbatches
    )


def run(schedule: Schedule, activation: str = "relu", **options) -> StepResult:
    partitions = split(mlp(SIZES, activation=activation), stages=schedule.stages)
    return train_step(partitions, schedule, ten_digits(), cross_entropy, **options)


@cache
def unmetered(schedule: Schedule, mode: str) -> StepResult:
    """A step that several tests read, and none changes."""
    return run(remat(schedule, mode), meter=False)


# Gradients equal a single device's


def assert_as_on_one_device(step: StepResult, activation: str = "relu") -> None:
    """The gradients to 1e-12, loss and outputs to 1e-13."""
    expected = alone(activation, 1)
    assert furthest_apart(step.gradients, expected.gradients) < 1e-12
    assert step.loss == pytest.approx(expected.loss, rel=1e-13)
    assert apart(step.outputs, expected.outputs) < 1e-13


@over_every_schedule()
def test_gradients_equal_the_whole_batch_on_one_device_to_1e_12(schedule):
    for mode in MODES:
        assert_as_on_one_device(unmetered(schedule, mode))


@pytest.mark.parametrize("activation", ["tanh", "gelu"])
@over_every_schedule([(1, 3), (2, 4), (3, 2)])
def test_gradients_equal_one_devices_with_other_layers_too(schedule, activation):
    for mode in MODES:
        assert_as_on_one_device(run(remat(schedule, mode), activation, meter=False), activation)


@over_what_no_family_makes_yet
def test_split_overlapped_and_doubled_stages_give_the_same_gradients(schedule):
    for mode in MODES:
        assert_as_on_one_device(run(remat(schedule, mode)))


@over_every_schedule()
def test_gradients_are_the_same_bits_where_microbatches_add_up_in_order(schedule):
    """All but the reversed drains (GPipe, looped BFS) and the families with two copies of a stage."""
    reversed_drain = isinstance(schedule, LoopedBFS) or schedule == GPipe(
        schedule.devices, schedule.microbatches
    )
    another_order = reversed_drain or isinstance(schedule, (DualPipe, Chimera))
    assert in_order(schedule) == (not another_order or schedule.microbatches == 1)
    if not in_order(schedule):
        return
    expected = alone("relu", schedule.microbatches)
    for mode in MODES:
        step = unmetered(schedule, mode)
        assert all((step.gradients[key] == expected.gradients[key]).all() for key in expected.gradients)
        assert step.loss == expected.loss
        assert (step.outputs == expected.outputs).all()


@pytest.mark.parametrize(
    "schedule", [zero_bubble(4, 8), overlapped(4, 8), V_SHAPED], ids=["split", "overlapped", "V"]
)
def test_splitting_or_overlapping_changes_no_bit(schedule):
    assert in_order(schedule)
    expected = alone("relu", schedule.microbatches)
    for mode in MODES:
        found = run(remat(schedule, mode)).gradients
        assert all((found[key] == expected.gradients[key]).all() for key in expected.gradients)


def test_a_reversed_drain_adds_up_in_another_order_and_differs_only_in_rounding():
    found, expected = run(GPipe(4, 8)).gradients, alone("relu", 8).gradients
    assert 0 < furthest_apart(found, expected) < 1e-14


@over_every_schedule([(1, 3), (2, 3), (4, 8)])
def test_float32_is_equal_within_float32(schedule):
    layers = mlp(SIZES, dtype=np.float32)
    expected = single_device_step(layers, ten_digits(np.float32), cross_entropy)
    step = train_step(split(layers, stages=schedule.stages), schedule, ten_digits(np.float32), cross_entropy)
    assert {gradient.dtype for gradient in step.gradients.values()} == {np.dtype(np.float32)}
    assert step.outputs.dtype == np.float32
    assert furthest_apart(step.gradients, expected.gradients) < 2e-6


def test_mse_and_two_columns_of_targets_work_as_well():
    x, _ = ten_digits()
    layers, batch = mlp([64, 8, 8, 2]), (x, x[:, 10:12])
    expected = single_device_step(layers, batch, mse)
    step = train_step(split(layers, stages=3), OneFOneB(3, 4), batch, mse)
    assert furthest_apart(step.gradients, expected.gradients) < 1e-12


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


def test_as_many_microbatches_as_digits_is_the_most():
    witness = Witness()
    train_step(split([witness, *mlp([64, 10])], stages=2), OneFOneB(2, 10), ten_digits(), cross_entropy)
    assert witness.seen == [(m, 1) for m in range(10)]


@pytest.mark.parametrize(("mode", "times"), [("always", 8), ("except_last", 7), ("never", 4)])
def test_recomputing_runs_the_forward_again(mode, times):
    witness = Witness()
    schedule = remat(GPipe(2, 4), mode)
    train_step(split([witness, *mlp([64, 10])], stages=2), schedule, ten_digits(), cross_entropy)
    assert len(witness.seen) == times


# Randomness

FIXED = {"seed": 3, "step": 5}


class Dropout(Layer):
    """Half of its inputs are 0, drawn from what the context gives; none in evaluation."""

    def forward(self, x, ctx):
        mask = 2.0 * (ctx.rng().random(x.shape) < 0.5) if ctx.training else np.ones_like(x)
        return x * mask, mask

    def backward_input(self, saved, dy):
        return dy * saved, None


def with_dropout() -> list[Layer]:
    linear_and_tanh = iter(mlp([64, 12, 12, 12, 12, 12, 10], activation="tanh"))
    return [
        layer for pair in zip(linear_and_tanh, linear_and_tanh, strict=False) for layer in (*pair, Dropout())
    ] + [Linear(12, 10, rng=np.random.default_rng(9))]


@cache
def alone_with_dropout(microbatches: int) -> StepResult:
    return single_device_step(with_dropout(), ten_digits(), cross_entropy, microbatches=microbatches, **FIXED)


@over_every_schedule([(1, 3), (2, 4), (3, 2), (4, 3)])
def test_dropout_draws_the_same_under_every_schedule_and_when_recomputed(schedule):
    layers = with_dropout()
    expected = alone_with_dropout(schedule.microbatches)
    for mode in MODES:
        partitions = split(layers, stages=schedule.stages)
        step = train_step(partitions, remat(schedule, mode), ten_digits(), cross_entropy, **FIXED)
        assert furthest_apart(step.gradients, expected.gradients) < 1e-12
        assert step.loss == expected.loss


class Redrawn(Dropout):
    """The same, but its backward draws the mask again from the context instead of keeping it."""

    def forward(self, x, ctx):
        return super().forward(x, ctx)[0], ctx

    def backward_input(self, saved, dy):
        return super().forward(dy, saved)


@pytest.mark.parametrize(
    "schedule", [GPipe(3, 4), OneFOneB(3, 4), zero_bubble(3, 4)], ids=["GPipe", "1F1B", "split"]
)
def test_a_layer_may_keep_its_context_and_draw_the_same_in_its_backward(schedule):
    layers = with_dropout()
    redrawn = [Redrawn() if isinstance(layer, Dropout) else layer for layer in layers]
    kept, again = (
        train_step(split(model, stages=3), schedule, ten_digits(), cross_entropy, seed=3).gradients
        for model in (layers, redrawn)
    )
    assert furthest_apart(again, kept) < 1e-15


def test_dropout_draws_anew_for_every_step_seed_microbatch_and_layer():
    def loss(**options):
        partitions = split(with_dropout(), stages=2)
        return train_step(partitions, OneFOneB(2, 2), ten_digits(), cross_entropy, **options).loss

    assert loss(seed=1, step=1) == loss(seed=1, step=1)
    assert len({loss(), loss(seed=1), loss(step=1), loss(seed=1, step=1)}) == 4
    layer = Dropout()
    masks = [layer.forward(np.ones((2, 50)), Context(microbatch=m))[0].tolist() for m in (0, 1)]
    masks.append(layer.forward(np.ones((2, 50)), Context(layer=1))[0].tolist())
    assert len({str(mask) for mask in masks}) == 3


# Updates


@pytest.mark.parametrize(
    "optimizer", [lambda: SGD(0.1, momentum=0.9), lambda: Adam(0.01)], ids=["SGD", "Adam"]
)
@pytest.mark.parametrize(
    "schedule",
    [
        GPipe(4, 4),
        OneFOneB(4, 4),
        Interleaved1F1B(2, 4),
        zero_bubble(4, 4),
        overlapped(4, 4),
        V_SHAPED,
        Chimera(4, 6),
        DualPipe(4, 8),
        BOTH_WAYS,
        replicate(zero_bubble(2, 3), 3),
    ],
    ids=["GPipe", "1F1B", "interleaved", "split", "overlapped", "V", "Chimera", "DualPipe", "ways", "copies"],
)
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


def parameters_of(partitions: list[Partition]) -> dict:
    return {key: array for partition in partitions for key, array in partition.parameters.items()}


def copies_of(partitions: list[Partition]) -> dict:
    return {key: array.copy() for key, array in parameters_of(partitions).items()}


def unchanged(partitions: list[Partition], before: dict) -> bool:
    return all((array == before[key]).all() for key, array in parameters_of(partitions).items())


def test_without_updates_a_step_changes_no_weight_even_if_an_optimizer_is_at_hand():
    partitions = split(mlp(SIZES), stages=4)
    before = copies_of(partitions)
    train_step(partitions, OneFOneB(4, 4), ten_digits(), cross_entropy, optimizer=SGD(0.1))
    assert unchanged(partitions, before)


# Devices share nothing


@pytest.fixture
def devices(monkeypatch):
    """Every simulated device of the steps that follow; after each action no two hold the same bytes."""
    made = []

    class Watched(step_module.Device):
        def __init__(self, *args):
            super().__init__(*args)
            made.append(self)

        def perform(self, span):
            super().perform(span)
            held = [{id(root) for root in roots(list(device.memory.held.values()))} for device in made]
            assert sum(map(len, held)) == len(set().union(*held)), f"shared after {span.action}"

    monkeypatch.setattr(step_module.Step, "device", Watched)
    return made


@over_every_schedule([(1, 3), (2, 3), (3, 2), (4, 8)])
def test_no_array_is_ever_on_two_devices_and_only_weights_and_gradients_stay(schedule, devices):
    for mode in MODES:
        devices.clear()
        run(remat(schedule, mode), meter=mode == "always")
        assert len(devices) == schedule.devices
        for device, stages in zip(devices, schedule.placement, strict=True):
            assert {category for category, _ in device.memory.held} == {PARAMETERS, GRADIENTS}
            assert {key for _, key in device.memory.held} == set(stages)


@pytest.mark.parametrize(
    "schedule", [zero_bubble(3, 4), overlapped(3, 4), V_SHAPED], ids=["split", "overlapped", "V"]
)
def test_split_and_overlapped_backwards_leave_nothing_behind_either(schedule, devices):
    run(schedule)
    kinds = {category for device in devices for category, _ in device.memory.held}
    assert kinds == {PARAMETERS, GRADIENTS}


class RuinsInput(Layer):
    """Passes on a copy and scribbles over what it was handed, which the sender's Tanh still needs."""

    def forward(self, x, ctx):
        y = x.copy()
        x[:] = np.nan
        return y, None

    def backward_input(self, saved, dy):
        return dy, None


class RuinsGradient(Layer):
    """The same on the way back, where the sender's Bias still needs it."""

    def forward(self, x, ctx):
        return x, None

    def backward_input(self, saved, dy):
        dx = dy.copy()
        dy[:] = np.nan
        return dx, None


class Bias(Layer):
    """y = x + b. What it sends back is what its own weight gradient still reads."""

    def __init__(self, features: int):
        super().__init__()
        self.parameters = {"b": np.zeros(features)}

    def forward(self, x, ctx):
        return x + self.parameters["b"], None

    def backward_input(self, saved, dy):
        return dy, dy

    def backward_weight(self, pending):
        return {"b": pending.sum(axis=0)}


@pytest.mark.parametrize(
    "schedule", [GPipe(3, 4), OneFOneB(3, 4), zero_bubble(3, 4)], ids=["GPipe", "1F1B", "split"]
)
def test_a_device_that_scribbles_over_what_it_receives_harms_nobody(schedule):
    clean, dirty = [], []
    for stage in range(3):
        layers = [Bias(6), Linear(6, 6, rng=np.random.default_rng(stage)), Tanh()]
        clean += layers
        dirty += [RuinsInput(), *layers, RuinsGradient()]
    x, y = np.random.default_rng(2).normal(size=(10, 6)), np.arange(10) % 6
    batch, kept = (x, y), (x.copy(), y.copy())
    expected = train_step(split(clean, stages=3), schedule, batch, cross_entropy)
    found = train_step(split(dirty, stages=3), schedule, batch, cross_entropy)  # renumbers the layers
    assert all((array == copy).all() for array, copy in zip(batch, kept, strict=True))
    assert found.loss == expected.loss
    for gradient, wanted in zip(found.gradients.values(), expected.gradients.values(), strict=True):
        assert (gradient == wanted).all()


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
    first, second = (train_step(partitions, OneFOneB(4, 4), ten_digits(), cross_entropy) for _ in range(2))
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
    plain, slow = run(OneFOneB(4, 8)), run(OneFOneB(4, 8), costs=Costs([1, 9, 2, 3], 4, [5, 1, 1, 7], comm=3))
    assert slow.timeline.makespan > plain.timeline.makespan
    assert all((plain.gradients[key] == slow.gradients[key]).all() for key in plain.gradients)


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


def test_one_device_alone_has_no_timeline_and_no_meter():
    assert alone("relu", 1).timeline is None
    assert alone("relu", 1).memory == ()


def test_a_device_may_hold_no_stage():
    idle = Explicit(["0F0 0B0 0F1 0B1", ""], placement=[[0], []])
    step = run(idle)
    assert furthest_apart(step.gradients, alone("relu", 1).gradients) < 1e-12
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


@pytest.mark.parametrize("updates", [False, True], ids=["plain", "with updates"])
@pytest.mark.parametrize(("batch", "error", "words"), BAD_BATCHES.values(), ids=BAD_BATCHES)
def test_a_batch_that_does_not_fit_is_refused_and_no_weight_has_changed(batch, error, words, updates):
    partitions, optimizer = split(mlp(SIZES), stages=4), Adam(0.1)
    before = copies_of(partitions)
    schedule = with_updates(OneFOneB(4, 4)) if updates else OneFOneB(4, 4)
    with pytest.raises(error, match=words):
        train_step(partitions, schedule, batch, cross_entropy, optimizer=optimizer)
    assert unchanged(partitions, before)
    assert not any("t" in state or state["m"].any() or state["v"].any() for state in optimizer.state.values())


@pytest.mark.parametrize(("batch", "error", "words"), BAD_BATCHES.values(), ids=BAD_BATCHES)
def test_one_device_refuses_the_same_batches(batch, error, words):
    with pytest.raises(error, match=words):
        single_device_step(mlp(SIZES), batch, cross_entropy, microbatches=4)


@pytest.mark.parametrize(
    ("value", "error"), [(0, ValueError), (-1, ValueError), (2.5, TypeError), ("2", TypeError)]
)
def test_one_device_takes_a_whole_number_of_microbatches(value, error):
    with pytest.raises(error, match=r"needs microbatches .* \(got "):
        single_device_step(mlp(SIZES), ten_digits(), cross_entropy, microbatches=value)


def test_partitions_must_be_as_many_as_stages():
    with pytest.raises(
        ValueError, match=r"has 8 stages, but there are 4 partitions; split\(layers, stages=8\) would fit"
    ):
        train_step(split(mlp(SIZES), stages=4), Interleaved1F1B(4, 4), ten_digits(), cross_entropy)


def test_layers_are_not_partitions():
    with pytest.raises(TypeError, match=r"split\(layers, stages=4\) makes it \(got Linear"):
        train_step(mlp(SIZES)[:4], OneFOneB(4, 4), ten_digits(), cross_entropy)


def test_a_loss_by_name_is_refused():
    with pytest.raises(TypeError, match="'mse'"):
        train_step(split(mlp(SIZES), stages=2), OneFOneB(2, 2), ten_digits(), "mse")


def test_partitions_that_were_given_one_device_must_run_on_one():
    partitions = split(mlp(SIZES), stages=4, devices=["a", "b", "a", "b"])
    with pytest.raises(
        ValueError, match=r"share device 'a' are on devices 0 and 2 of OneFOneB.*colocate\(schedule, dev"
    ):
        train_step(partitions, OneFOneB(4, 4), ten_digits(), cross_entropy)


def test_updates_need_an_optimizer():
    with pytest.raises(ValueError, match=r"0U1 needs an optimizer: train_step\(..., optimizer=...\)"):
        train_step(split(mlp(SIZES), stages=2), with_updates(GPipe(2, 2)), ten_digits(), cross_entropy)


def test_a_gradient_that_no_update_would_apply_is_refused_before_a_weight_changes():
    early = Explicit(["0F0 0B0 0U0 0F1 0B1"])
    partitions = split(mlp(SIZES), stages=1)
    before = copies_of(partitions)
    with pytest.raises(ValueError, match="0B1 is behind the last update of stage 0 on device 0"):
        train_step(partitions, early, ten_digits(), cross_entropy, optimizer=SGD(0.1))
    assert unchanged(partitions, before)


@pytest.mark.parametrize(
    ("schedule", "error", "words"),
    [
        (Explicit(["0F0 0F1 0B0"]), ScheduleError, "0B1 is missing"),
        (Explicit(["0F0 0B0 0F1 0B1 0U1", "1F1 1B1 1F0 1B0 1U1"]), DeadlockError, "device 0 is stuck at 0B0"),
    ],
)
def test_a_schedule_that_cannot_run_is_refused_before_it_starts(schedule, error, words):
    partitions = split(mlp(SIZES), stages=schedule.stages)
    before = copies_of(partitions)
    with pytest.raises(error, match=words):
        train_step(partitions, schedule, ten_digits(), cross_entropy, optimizer=SGD(0.1))
    assert unchanged(partitions, before)


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


def test_a_step_at_no_cost_at_all_gives_the_same_gradients():
    partitions, batch = split(mlp([8, 8, 8]), stages=2), (np.ones((4, 8)), np.ones((4, 8)))
    usual, free = (
        train_step(partitions, OneFOneB(2, 4), batch, mse, costs=costs) for costs in (None, Costs(0, 0, 0))
    )
    assert free.timeline.makespan == 0
    assert all((free.gradients[key] == gradient).all() for key, gradient in usual.gradients.items())


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
