"""A step on PyTorch's engine, in this process, equals the NumPy executor's to 1e-10."""

import logging
import re
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import engine_cases  # noqa: E402
import torch_modules  # noqa: E402
from engine_cases import EXPLICIT, assert_a_timeline_of, assert_equal, batch_for, model, runnable  # noqa: E402
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from numeric import apart  # noqa: E402
from torch import nn  # noqa: E402
from torch_autograd import assert_like_autograd  # noqa: E402
from torch_modules import Does, Gives, OwnError, fail, linears, some_batch  # noqa: E402

import gpipe_sim as gp  # noqa: E402
from gpipe_sim import cross_entropy, mlp, mse, remat  # noqa: E402
from gpipe_sim.core import (  # noqa: E402
    GELU,
    LAYERS,
    Layer,
    Linear,
    Loss,
    ReLU,
    Schedule,
    Tanh,
)
from gpipe_sim.core.step import StepResult  # noqa: E402
from gpipe_sim.torch_backend import Pipeline, devices, place, split, to_torch, train_step  # noqa: E402
from gpipe_sim.transformers import (  # noqa: E402
    PaddingMask,
    attention,
    blocks,
    llama,
    transformer,
)


def both(
    layers: list[Layer], schedule: Schedule, batch: tuple, loss: Loss, **cut
) -> tuple[StepResult, StepResult]:
    """A step on torch and in NumPy. The first has the schedule's timeline."""
    cut = cut or {"stages": schedule.stages}
    names = ["cpu"] * schedule.devices
    step = train_step(to_torch(gp.split(layers, **cut)), schedule, batch, loss, devices=names)
    assert_a_timeline_of(step.timeline, schedule)
    return step, gp.train_step(gp.split(layers, **cut), schedule, batch, loss, meter=False)


# The same numbers as in NumPy


RECOMPUTED = [
    remat(schedule, mode)
    for schedule in (*runnable([(3, 4)]), *EXPLICIT.values())
    for mode in ("always", "except_last")
]


@pytest.mark.parametrize(
    "schedule",
    [*runnable([(1, 3), (2, 1), (3, 2), (4, 8)]), *EXPLICIT.values(), *RECOMPUTED],
    ids=repr,
)
def test_every_schedule_gives_what_numpy_gives(schedule):
    assert_equal(*both(model(), schedule, batch_for(schedule.microbatches), cross_entropy))


@pytest.mark.parametrize("schedule", runnable([(2, 3)]), ids=repr)
def test_float32_gives_the_same_within_float32(schedule):
    batch = batch_for(schedule.microbatches, dtype=np.float32)
    step, expected = both(model(dtype=np.float32), schedule, batch, cross_entropy)
    assert_equal(step, expected, 1e-5)
    assert {array.dtype for array in (step.outputs, *step.gradients.values())} == {np.dtype(np.float32)}


@given(st.data())
def test_any_order_of_any_model_cut_anywhere_gives_the_same(data):
    """Stages without parameters, too: first, in the middle, last, or all of them but one."""
    schedule = data.draw(engine_cases.legal_orders())
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    count = schedule.stages + data.draw(st.integers(0, 3))
    kinds = data.draw(st.lists(st.sampled_from("LRTG"), min_size=count, max_size=count))
    kinds[data.draw(st.integers(0, count - 1))] = "L"
    widths = iter([4, *rng.integers(2, 6, kinds.count("L"))])
    layers, width = [], next(widths)
    for kind in kinds:
        if kind == "L":
            layers.append(Linear(width, following := int(next(widths)), rng=rng))
            width = following
        else:
            layers.append({"R": ReLU, "T": Tanh, "G": GELU}[kind]())
    cuts = np.sort(rng.choice(np.arange(1, count), schedule.stages - 1, replace=False))
    x = rng.normal(size=(2 * schedule.microbatches, 4))
    batch = x, rng.normal(size=(len(x), width))
    balance = np.diff([0, *cuts, count]).tolist()
    step, expected = both(layers, schedule, batch, mse, balance=balance)
    assert step.loss == pytest.approx(expected.loss, rel=1e-10)
    assert np.allclose(step.outputs, expected.outputs, rtol=1e-10, atol=1e-12)
    assert step.gradients.keys() == expected.gradients.keys()
    for key, gradient in expected.gradients.items():
        # a dead ReLU leaves zeros; a full tanh few digits of 1 - t²
        assert np.abs(step.gradients[key] - gradient).max() <= 1e-10 * np.abs(gradient).max() + 1e-13


@given(engine_cases.legal_orders(), st.data())
def test_whoever_learns_learns_what_plain_autograd_says(schedule, data):
    """Each parameter frozen or not: a split backward must not lose a gradient behind a frozen stage."""
    torch.manual_seed(0)
    modules = [nn.Sequential(nn.Linear(3, 3), nn.Tanh()).double() for _ in range(schedule.stages)]
    for parameter in nn.Sequential(*modules).parameters():
        parameter.requires_grad_(data.draw(st.booleans()))
    modules[-1][0].bias.requires_grad_(True)
    loss = torch_modules.half_of_squares, torch_modules.half_of_squares
    step = assert_like_autograd(modules, schedule, some_batch(2 * schedule.microbatches), loss)
    assert len(step.gradients) == sum(p.requires_grad for module in modules for p in module.parameters())


@pytest.mark.parametrize(
    "schedule", [gp.OneFOneB(3, 4), gp.ZBH1(3, 4), remat(gp.ZBH1(3, 4), "always")], ids=repr
)
@pytest.mark.parametrize("first", [nn.Identity(), linears(1)[0].requires_grad_(False)], ids=repr)
def test_a_first_stage_that_learns_nothing_costs_the_second_no_gradient(first, schedule):
    """PyTorch's split backward leaves out the weights of a stage whose input needs no gradient."""
    step = assert_like_autograd([first, *linears(2)], schedule, some_batch())
    assert [layer for layer, _ in step.gradients] == [1, 1, 2, 2]


def test_a_model_in_which_nothing_learns_still_runs():
    x, _ = some_batch()
    step = train_step([nn.Identity(), nn.Tanh()], gp.OneFOneB(2, 4), (x, x), mse)
    assert step.gradients == {}
    assert np.allclose(step.outputs, np.tanh(x))


# ``.grad`` grows, and a failure leaves no trace


def test_a_mean_over_tokens_is_the_batchs_where_microbatches_have_unequal_numbers_of_them():
    """By the recipe of ``Pipeline``; a mean over each microbatch is not."""
    microbatches, (x, _) = 4, some_batch(shape=(5, 3))
    targets = torch.from_numpy(x).argmax(-1)
    for sample in range(8):
        targets[sample, : sample // 2] = -100  # 10, 8, 6 and 4 tokens count
    n_tokens = (targets >= 0).sum()

    def summed(outputs, targets):
        flat = outputs.flatten(0, 1), targets.flatten()
        return nn.functional.cross_entropy(*flat, reduction="sum") * microbatches / n_tokens

    modules = linears(2)
    step = train_step(modules, gp.OneFOneB(2, microbatches), (x, targets), summed)
    found = [parameter.grad for module in modules for parameter in module.parameters()]

    def whole(outputs, targets):
        return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    alone = linears(2)
    loss = whole(nn.Sequential(*alone)(torch.from_numpy(x)), targets)
    loss.backward()
    assert step.loss == pytest.approx(loss.item(), rel=1e-12)
    wanted = [parameter.grad for module in alone for parameter in module.parameters()]
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-14)
    assert train_step(linears(2), gp.OneFOneB(2, microbatches), (x, targets), whole).loss != pytest.approx(
        loss.item(), rel=1e-3
    )


@pytest.mark.parametrize("schedule", [gp.GPipe(2, 4), gp.ZBH1(2, 4)], ids=repr)
def test_grad_grows_by_the_gradient_and_what_was_there_is_not_scaled(schedule):
    modules, batch = linears(2), some_batch()
    pipeline = Pipeline(modules, schedule, mse)
    first = pipeline.step(batch).gradients
    for parameter in modules[1].parameters():
        parameter.grad = torch.full_like(parameter, 100)
    second = pipeline.step(batch).gradients
    for (stage, name), gradient in first.items():
        own = modules[stage].get_parameter(name).grad
        assert np.allclose(own, (100 if stage else gradient) + gradient, rtol=1e-14)
        own.zero_()  # which the result does not share
    assert all((first[key] == second[key]).all() for key in first), "a step's own, whatever was there"


@pytest.mark.parametrize("at", [0, 1, 3])
def test_a_step_that_fails_leaves_grad_as_it_was_and_the_next_one_works(at, caplog):
    """And it logs no table of what was to come."""
    modules, batch = linears(3), some_batch()
    modules[1] = nn.Sequential(modules[1], broken := Does(fail, OwnError, "a wheel", "it was old", at=at))
    kept = torch.full((3, 3), 7.0, dtype=torch.float64)
    modules[0].weight.grad = kept
    pipeline = Pipeline(modules, gp.OneFOneB(3, 4), mse)
    with pytest.raises(OwnError, match=r"(?m)^a wheel, it was old$"):
        pipeline.step(batch)
    assert not [one for one in caplog.records if one.name == "torch.distributed.pipelining.schedules"]
    assert modules[0].weight.grad is kept and (kept == 7).all()
    assert [p.grad for module in modules[1:] for p in module.parameters()] == [None] * 5
    broken.at = 1000
    found, expected = pipeline.step(batch), train_step(modules, gp.OneFOneB(3, 4), batch, mse)
    assert_equal(found, expected, 1e-14)


@pytest.mark.parametrize("schedule", [gp.OneFOneB(3, 4), gp.ZBH1(3, 4)], ids=repr)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_backward_that_fails_says_where_and_leaves_grad_as_it_was(at, schedule):
    """Later releases of torch try the backwards out before the first step, but for the first stage's.

    That one leaves all of its backward to W.
    """
    modules = linears(3)
    modules[at] = nn.Sequential(modules[at], Gives(torch_modules.BrokenBackward.apply))
    if type(schedule) is gp.OneFOneB:
        doing = "backward"
    else:
        doing = "(backward|input gradient)" if at else "weight gradient"
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="in the backward") as failure:
            train_step(modules, schedule, some_batch(), mse)
        (note,) = failure.value.__notes__
        assert re.fullmatch(f"in the {doing} of stage {at}, Sequential", note)
        assert all(p.grad is None for module in modules for p in module.parameters())


def test_a_step_leaves_the_process_as_it_was():
    """The hook for uncaught errors, the level of torch's logger, and a process group only if it had one."""
    dist, logger = torch.distributed, logging.getLogger("torch.distributed.pipelining.schedules")
    before = sys.excepthook, logger.level

    def step(at: int) -> None:
        train_step([Does(fail, OwnError, "a wheel", "it was old", at=at)], gp.GPipe(1, 4), some_batch(), mse)

    step(at=1000)
    with pytest.raises(OwnError):
        step(at=3)
    assert (sys.excepthook, logger.level) == before
    assert not dist.is_initialized()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        step(at=1000)
        assert dist.is_initialized()
    finally:
        dist.destroy_process_group()


# Modules that keep something, or draw numbers


@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize("family", [gp.GPipe, gp.OneFOneB, gp.ZBH1])
def test_a_batch_norm_sees_each_microbatch_once(family, mode):
    """Neither the engine's first look at the shapes nor a recompute counts."""
    modules = [nn.Sequential(linear, nn.BatchNorm1d(3, dtype=torch.float64)) for linear in linears(3)]
    assert_like_autograd(modules, remat(family(3, 4), mode), some_batch(32))
    assert [module[1].num_batches_tracked.item() for module in modules] == [4] * 3


@pytest.mark.parametrize("family", [gp.GPipe, gp.ZBH1])
def test_dropout_is_recomputed_with_the_mask_that_it_had(family):
    def dropped(mode: str) -> StepResult:
        modules = [nn.Sequential(linear, nn.Dropout(0.5), nn.Tanh()) for linear in linears(2, 8)]
        torch.manual_seed(5)
        return train_step(modules, remat(family(2, 4), mode), some_batch(8, 8), mse)

    never, always = dropped("never"), dropped("always")
    assert_equal(always, never, 1e-12)
    assert (never.outputs == always.outputs).all() and (never.outputs == 0).any()


def test_a_module_is_run_in_the_mode_that_it_is_in():
    modules = [nn.Sequential(linear, nn.Dropout(0.5)).eval() for linear in linears(2)]
    assert_like_autograd(modules, gp.OneFOneB(2, 4), some_batch())
    assert not modules[0].training


# What a batch may be


def batches() -> dict:
    x, y = some_batch()
    frozen = x.copy()
    frozen.flags.writeable = False
    with torch.inference_mode():
        unfollowed = torch.tensor(x)
    return {
        "lists": (x.tolist(), y.tolist()),
        "read-only": (frozen, y),
        "a view": (np.repeat(x, 2, axis=0)[::2], y),
        "backwards twice": (x[::-1].copy()[::-1], y),
        "of Fortran": (np.asfortranarray(x), y),
        "of other bytes": (x.astype(">f8"), y),
        "tensors": (torch.tensor(x), torch.tensor(y)),
        "mixed": (torch.tensor(x), y),
        "of inference mode": (unfollowed, y),
        "asks for a gradient": (torch.tensor(x, requires_grad=True), y),
    }


@pytest.mark.parametrize("name", batches())
def test_a_batch_is_read_whatever_its_memory_is_like_and_not_changed(name):
    """A first stage may change what comes in."""

    def step(batch: tuple) -> StepResult:
        modules = [nn.Sequential(nn.Hardtanh(0, 1, inplace=True), *linears(1)), *linears(1)]
        return train_step(modules, gp.GPipe(2, 1), batch, mse)

    x, _ = batch = batches()[name]
    assert_equal(step(batch), step(some_batch()), 1e-14)
    assert (x if isinstance(x, list) else x.tolist()) == some_batch()[0].tolist()
    assert getattr(x, "grad", None) is None


def test_numbers_of_another_size_become_the_models():
    x, y = (part.astype(np.float32) for part in some_batch())
    step = train_step(linears(2), gp.OneFOneB(2, 4), (x, y), mse)
    assert step.outputs.dtype == np.float64
    single = [module.float() for module in linears(2)]
    assert train_step(single, gp.OneFOneB(2, 4), some_batch(), mse).outputs.dtype == np.float32


def with_tokens(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Whole numbers, on their way to an embedding."""
    return x, (x > 0).long().sum(1)


class Embeds(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(4, 3, dtype=torch.float64)

    def forward(self, x, tokens):
        return x + self.table(tokens)


@pytest.mark.skipif(torch.__version__ < "2.12", reason="torch 2.11 asks whole numbers for gradients")
@pytest.mark.parametrize("schedule", [gp.OneFOneB(2, 4), gp.ZBH1(2, 4)], ids=repr)
def test_whole_numbers_may_come_in_and_go_from_stage_to_stage(schedule):
    """A first step tries modules out on memory as it was found, in which a number may be any."""
    torch.manual_seed(0)
    assert_like_autograd([nn.Sequential(*linears(1), Gives(with_tokens)), Embeds()], schedule, some_batch())
    modules = [nn.Embedding(5, 3, dtype=torch.float64), *linears(1)]
    classes = cross_entropy, nn.functional.cross_entropy
    assert_like_autograd(modules, schedule, (np.arange(8) % 5, np.arange(8) % 3), classes)


def test_bfloat16_comes_back_as_float32():
    modules = [module.bfloat16() for module in linears(2)]
    step = train_step(modules, gp.OneFOneB(2, 4), some_batch(), mse)
    expected = train_step(linears(2), gp.OneFOneB(2, 4), some_batch(), mse)
    assert step.outputs.dtype == step.gradients[0, "weight"].dtype == np.float32
    assert modules[0].weight.grad.dtype == torch.bfloat16
    assert_equal(step, expected, 0.05)


# NumPy's layers as torch modules


def test_to_torch_copies_weights_in_their_own_type():
    layer = mlp([3, 2], dtype=np.float32)[0]
    (module,) = to_torch([layer])
    assert module.W.dtype == torch.float32 and tuple(module.W.shape) == (3, 2)
    layer.parameters["W"][:] = 0
    assert module.W.abs().min() > 0
    assert "3, 2" in repr(module)


def test_to_torch_makes_a_sequential_of_a_partition():
    modules = to_torch(gp.split(mlp([6, 5, 5, 4]), stages=2))
    assert [len(module) for module in modules] == [3, 2]
    assert all(isinstance(module, nn.Sequential) for module in modules)


def test_a_layer_without_counterpart_is_taken_once_one_is_named_as_the_refusal_says(monkeypatch):
    class Softsign(Tanh):
        pass

    with pytest.raises(TypeError) as refused:
        to_torch([Softsign()])
    assert str(refused.value) == (
        "to_torch knows no torch module for Softsign(); name one, here torch.nn.Softsign: "
        "torch_backend.COUNTERPARTS[Softsign] = lambda layer: torch.nn.Softsign()"
    )
    monkeypatch.setattr(gp.torch_backend.counterparts, "COUNTERPARTS", {**gp.torch_backend.COUNTERPARTS})
    monkeypatch.setattr(gp.torch_backend, "COUNTERPARTS", gp.torch_backend.counterparts.COUNTERPARTS)
    names = {"torch_backend": gp.torch_backend, "Softsign": Softsign, "torch": torch}
    exec(str(refused.value).partition("torch.nn.Softsign: ")[2], names)
    assert isinstance(to_torch([Softsign()])[0], nn.Softsign)


def test_every_counterpart_is_of_a_listed_layer():
    rooms = transformer, attention, blocks, llama
    listed = {*LAYERS, PaddingMask} | {getattr(room, name) for room in rooms for name in room.__all__}
    assert set(gp.torch_backend.COUNTERPARTS) == listed


# Stages


def test_layers_are_cut_evenly_or_by_balance():
    layers = linears(5)
    assert [len(stage) for stage in split(nn.Sequential(*layers), 2)] == [3, 2]
    cut = split(layers, balance=[1, 3, 1])
    assert [len(stage) for stage in cut] == [1, 3, 1]
    assert [layer for stage in cut for layer in stage] == layers
    with pytest.raises(ValueError, match="cannot cut 5 layers into 6 stages; at most 5"):
        split(layers, 6)
    with pytest.raises(TypeError, match="either stages=, how many, or balance="):
        split(layers)


def test_gradients_go_by_layer_along_the_model():
    """One ReLU may stand in it twice; what is no Sequential, or has a parameter of its own, is one layer."""
    relu = nn.ReLU()
    first, second, third = linears(3)
    modules = [
        nn.Sequential(first, relu, second, relu),
        nn.Sequential(third),
        torch_modules.Scaled(*linears(2)),
        Gives(torch.tanh),
    ]
    step = assert_like_autograd(modules, gp.OneFOneB(4, 4), some_batch())
    plain = [(layer, name) for layer in (0, 2, 4) for name in ("bias", "weight")]
    scaled = [(5, name) for name in ("0.bias", "0.weight", "1.bias", "1.weight", "scale")]
    assert list(step.gradients) == [*plain, *scaled, (6, "weight")]
    assert apart(step.gradients[5, "scale"], modules[2].scale.grad.numpy()) == 0


def test_devices_are_what_there_is_and_place_moves_modules_there():
    assert devices() == [f"cuda:{i}" for i in range(torch.cuda.device_count())] or devices() == ["cpu"]
    modules = linears(2)
    assert place(modules, gp.OneFOneB(2, 4), ["cpu", "cpu"]) == modules
    (placed,) = place(linears(1), gp.GPipe(1, 1))
    assert str(placed.weight.device) == devices()[0]


@pytest.mark.parametrize("names", [["cpu:0", "cpu:0"], [torch.device("cpu")] * 3, ("cpu", "cpu:1")], ids=str)
def test_the_cpu_is_one_device_by_whatever_name(names):
    step = train_step(linears(2), gp.OneFOneB(2, 4), some_batch(), mse, devices=names)
    assert_equal(step, train_step(linears(2), gp.OneFOneB(2, 4), some_batch(), mse), 1e-14)
