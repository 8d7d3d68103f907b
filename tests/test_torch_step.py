"""A step on PyTorch's engine, in this process, equals the NumPy executor's to 1e-10."""

import logging
import re
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from engine_cases import (  # noqa: E402
    EXPLICIT,
    assert_equal,
    batch_for,
    in_numpy,
    legal_orders,
    model,
    over_every_runnable,
    over_explicit,
    shuffled,
)
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from numeric import apart  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch_modules import OwnError, Raises, RaisesBackward, half_of_squares, linears, some_batch  # noqa: E402

import gpipe_sim as gp  # noqa: E402
from gpipe_sim import cross_entropy, mlp, mse, remat  # noqa: E402
from gpipe_sim.core.layers import Context  # noqa: E402
from gpipe_sim.torch_backend import Pipeline, devices, place, split, to_torch, train_step  # noqa: E402
from gpipe_sim.transformers import attention, blocks, transformer  # noqa: E402


def check(schedule, loss=cross_entropy, activation="tanh", dtype=np.float64, within=1e-10) -> gp.StepResult:
    layers, batch = model(activation, dtype), batch_for(schedule.microbatches, loss, dtype)
    modules = to_torch(gp.split(layers, stages=schedule.stages))
    step = train_step(modules, schedule, batch, loss, devices=["cpu"] * schedule.devices)
    assert_equal(step, in_numpy(layers, schedule, batch, loss), within)
    return step


# The same numbers as in NumPy


@over_every_runnable()
def test_every_schedule_gives_what_numpy_gives(schedule):
    check(schedule)


@pytest.mark.parametrize("mode", ["always", "except_last"])
@over_every_runnable([(1, 3), (2, 1), (3, 2), (4, 8)])
def test_recomputing_gives_the_same(schedule, mode):
    check(remat(schedule, mode))


@pytest.mark.parametrize("mode", ["never", "always", "except_last"])
@over_explicit
def test_orders_written_out_give_the_same(schedule, mode):
    check(remat(schedule, mode))


@over_every_runnable([(2, 3), (4, 10)])
def test_microbatches_under_other_numbers_give_the_same(schedule):
    if type(schedule) is gp.DualPipeV:
        schedule = EXPLICIT["out of order"]
    labels = np.random.default_rng(0).permutation(schedule.microbatches).tolist()
    check(shuffled(schedule, labels))


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@over_every_runnable([(2, 3), (3, 8)])
def test_other_layers_and_losses_give_the_same(schedule, activation):
    check(schedule, mse, activation)


@over_every_runnable([(2, 3), (4, 8)])
def test_float32_gives_the_same_within_float32(schedule):
    step = check(schedule, dtype=np.float32, within=1e-5)
    assert {gradient.dtype for gradient in step.gradients.values()} == {np.dtype(np.float32)}
    assert step.outputs.dtype == np.float32


@given(st.data())
def test_any_order_of_any_model_cut_anywhere_gives_the_same(data):
    """Stages without parameters, too: first, in the middle, last, or all of them but one."""
    schedule = data.draw(legal_orders())
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    count = schedule.stages + data.draw(st.integers(0, 3))
    kinds = data.draw(st.lists(st.sampled_from("LRTG"), min_size=count, max_size=count))
    kinds[data.draw(st.integers(0, count - 1))] = "L"
    widths = iter([4, *rng.integers(2, 6, kinds.count("L"))])
    layers, width = [], next(widths)
    for kind in kinds:
        if kind == "L":
            layers.append(gp.Linear(width, following := int(next(widths)), rng=rng))
            width = following
        else:
            layers.append({"R": gp.ReLU, "T": gp.Tanh, "G": gp.GELU}[kind]())
    cuts = np.sort(rng.choice(np.arange(1, count), schedule.stages - 1, replace=False))
    balance = np.diff([0, *cuts, count]).tolist()
    x = rng.normal(size=(2 * schedule.microbatches, 4))
    batch = x, rng.normal(size=(len(x), width))
    step = train_step(to_torch(gp.split(layers, balance=balance)), schedule, batch, mse)
    expected = gp.train_step(gp.split(layers, balance=balance), schedule, batch, mse, meter=False)
    assert step.loss == pytest.approx(expected.loss, rel=1e-10)
    assert np.allclose(step.outputs, expected.outputs, rtol=1e-10, atol=1e-12)
    assert step.gradients.keys() == expected.gradients.keys()
    for (
        key,
        gradient,
    ) in expected.gradients.items():  # a dead ReLU leaves zeros; a full tanh few digits of 1 - t²
        assert np.abs(step.gradients[key] - gradient).max() <= 1e-10 * np.abs(gradient).max() + 1e-13


@given(legal_orders(), st.data())
def test_whoever_learns_learns_what_plain_autograd_says(schedule, data):
    """Each parameter frozen or not: a split backward must not lose a gradient behind a frozen stage."""
    torch.manual_seed(0)
    modules = [nn.Sequential(nn.Linear(3, 3), nn.Tanh()).double() for _ in range(schedule.stages)]
    for parameter in nn.Sequential(*modules).parameters():
        parameter.requires_grad_(data.draw(st.booleans()))
    modules[-1][0].bias.requires_grad_(True)
    rng = np.random.default_rng(1)
    batch = rng.normal(size=(2 * schedule.microbatches, 3)), rng.normal(size=(2 * schedule.microbatches, 3))
    step = train_step(modules, schedule, batch, mse)
    expected = plain_gradients(modules, batch)
    assert step.gradients.keys() == expected.keys()
    for key, gradient in expected.items():
        assert apart(step.gradients[key], gradient) < 1e-10


def plain_gradients(modules: list[nn.Module], batch: tuple) -> dict:
    """By plain autograd, {(layer, name): array}."""
    whole = nn.Sequential(*(layer for module in modules for layer in module))
    asked = {name: p for name, p in whole.named_parameters() if p.requires_grad}
    value = functional.mse_loss(whole(torch.tensor(batch[0])), torch.tensor(batch[1]))
    gradients = torch.autograd.grad(value, list(asked.values()))
    return {
        (int(name.split(".")[0]), name.split(".")[1]): gradient.numpy()
        for name, gradient in zip(asked, gradients, strict=True)
    }


@pytest.mark.parametrize(
    "schedule", [gp.OneFOneB(3, 4), gp.ZBH1(3, 4), remat(gp.ZBH1(3, 4), "always")], ids=repr
)
def test_a_first_stage_that_learns_nothing_costs_the_second_no_gradient(schedule):
    """PyTorch's split backward leaves out the weights of a stage whose input needs no gradient."""
    for first in (nn.Identity(), nn.Linear(3, 3).requires_grad_(False)):
        modules = [nn.Sequential(first), nn.Sequential(nn.Linear(3, 3)), nn.Sequential(nn.Linear(3, 3))]
        modules = [module.double() for module in modules]
        batch = (np.random.default_rng(0).normal(size=(8, 3)),) * 2
        step, expected = train_step(modules, schedule, batch, mse), plain_gradients(modules, batch)
        assert (
            set(step.gradients) == set(expected) == {(1, "weight"), (1, "bias"), (2, "weight"), (2, "bias")}
        )
        assert max(apart(step.gradients[key], expected[key]) for key in expected) < 1e-10


def test_a_model_in_which_nothing_learns_still_runs():
    batch = batch_for(4, mse)
    step = train_step([nn.Identity(), nn.Tanh()], gp.OneFOneB(2, 4), (batch[0], batch[0]), mse)
    assert step.gradients == {}
    assert np.allclose(step.outputs, np.tanh(batch[0]))


def test_a_loss_of_ones_own_is_taken_as_it_is():
    layers, batch = model(), batch_for(4, mse)
    modules = to_torch(gp.split(layers, stages=2))
    step = train_step(modules, gp.OneFOneB(2, 4), batch, half_of_squares)
    expected = in_numpy(layers, gp.OneFOneB(2, 4), batch, mse)
    assert step.loss == pytest.approx(expected.loss / 2, rel=1e-12)
    assert max(apart(step.gradients[key], expected.gradients[key] / 2) for key in expected.gradients) < 1e-10


# ``.grad`` grows, weights stay, and a failure leaves no trace


@pytest.mark.parametrize("schedule", [gp.GPipe(2, 4), gp.ZBH1(2, 4)], ids=repr)
def test_grad_grows_by_the_gradient_and_what_was_there_is_not_scaled(schedule):
    modules, batch = linears(2), some_batch()
    pipeline = Pipeline(modules, schedule, mse)
    first = pipeline.step(batch).gradients
    for parameter in modules[1].parameters():
        parameter.grad = torch.full_like(parameter, 100)
    second = pipeline.step(batch).gradients
    assert all((first[key] == second[key]).all() for key in first), "a step's own, whatever was there"
    for (stage, name), gradient in first.items():
        before = 100 if stage else gradient
        assert np.allclose(modules[stage].get_parameter(name).grad, before + gradient, rtol=1e-14)


def test_grad_of_the_caller_and_the_result_share_no_memory():
    modules = linears(2)
    step = train_step(modules, gp.OneFOneB(2, 4), some_batch(), mse)
    kept = step.gradients[0, "weight"].copy()
    modules[0].weight.grad.zero_()
    assert (step.gradients[0, "weight"] == kept).all()


def test_weights_do_not_change_and_a_module_keeps_its_class_and_hooks():
    modules = linears(3)
    before = [{name: p.clone() for name, p in module.named_parameters()} for module in modules]
    train_step(modules, remat(gp.OneFOneB(3, 4), "always"), some_batch(), mse)
    for module, kept in zip(modules, before, strict=True):
        assert type(module) is nn.Linear and not module._forward_hooks
        assert all((p == kept[name]).all() for name, p in module.named_parameters())


@pytest.mark.parametrize("at", [0, 1, 3])
def test_a_step_that_fails_leaves_grad_as_it_was_and_the_next_one_works(at):
    modules, batch = linears(3), some_batch()
    modules[1] = nn.Sequential(modules[1], broken := Raises(OwnError("a wheel", "it was old"), at))
    kept = torch.full((3, 3), 7.0, dtype=torch.float64)
    modules[0].weight.grad = kept
    pipeline = Pipeline(modules, gp.OneFOneB(3, 4), mse)
    with pytest.raises(OwnError, match=r"(?m)^a wheel, it was old$"):
        pipeline.step(batch)
    assert modules[0].weight.grad is kept and (kept == 7).all()
    assert [p.grad for module in modules[1:] for p in module.parameters()] == [None] * 5
    broken.at = 1000
    found = pipeline.step(batch)
    expected = train_step(modules, gp.OneFOneB(3, 4), batch, mse)
    assert all((found.gradients[key] == expected.gradients[key]).all() for key in expected.gradients)
    assert found.loss == expected.loss


@pytest.mark.parametrize("schedule", [gp.OneFOneB(3, 4), gp.ZBH1(3, 4)], ids=repr)
@pytest.mark.parametrize("at", [1, 2])
def test_any_stage_whose_backward_fails_says_where(at, schedule):
    """Later releases of torch try the backwards out before the first step, but for the first stage's."""
    modules = linears(3)
    modules[at] = nn.Sequential(modules[at], RaisesBackward())
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="in the backward") as failure:
            train_step(modules, schedule, some_batch(), mse)
        (note,) = failure.value.__notes__
        assert re.fullmatch(rf"in the (backward|input gradient) of stage {at}, Sequential", note)


@pytest.mark.parametrize(
    "schedule, doing",
    [(gp.OneFOneB(2, 4), "backward"), (gp.ZBH1(2, 4), "weight gradient")],  # stage 0 leaves all of it to W
)
def test_a_backward_that_fails_leaves_grad_as_it_was_and_says_where(schedule, doing):
    modules = [nn.Sequential(linear, RaisesBackward()) for linear in linears(2)]
    modules[1] = modules[1][0]
    with pytest.raises(ZeroDivisionError, match="in the backward") as failure:
        train_step(modules, schedule, some_batch(), mse)
    assert failure.value.__notes__ == [f"in the {doing} of stage 0, Sequential"]
    assert all(p.grad is None for module in modules for p in module.parameters())


def test_a_step_that_fails_logs_no_table_of_what_was_to_come(caplog):
    logger = logging.getLogger("torch.distributed.pipelining.schedules")
    before = logger.level
    with pytest.raises(OwnError):
        train_step([Raises(OwnError("a wheel", "it was old"), at=3)], gp.GPipe(1, 4), some_batch(), mse)
    assert not [record for record in caplog.records if record.name == logger.name]
    assert logger.level == before


def test_steps_leave_the_hook_for_uncaught_errors_as_it_was():
    before = sys.excepthook
    train_step(linears(2), gp.OneFOneB(2, 4), some_batch(), mse)
    assert sys.excepthook is before


def test_no_process_group_is_left_behind_and_one_that_was_there_stays():
    dist = torch.distributed
    train_step(linears(2), gp.OneFOneB(2, 4), some_batch(), mse)
    assert not dist.is_initialized()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        train_step(linears(2), gp.OneFOneB(2, 4), some_batch(), mse)
        assert dist.is_initialized()
    finally:
        dist.destroy_process_group()


def test_an_optimizer_of_torch_trains_the_pipeline_as_it_trains_the_model():
    modules, alone, batch = linears(3), nn.Sequential(*linears(3)), some_batch()
    pipeline = Pipeline(modules, gp.OneFOneB(3, 4), mse)
    ours = torch.optim.Adam([p for module in modules for p in module.parameters()], lr=0.1)
    theirs = torch.optim.Adam(alone.parameters(), lr=0.1)
    for _ in range(5):
        ours.zero_grad(), theirs.zero_grad()
        found = pipeline.step(batch).loss
        value = functional.mse_loss(alone(torch.tensor(batch[0])), torch.tensor(batch[1]))
        value.backward()
        ours.step(), theirs.step()
        assert found == pytest.approx(value.item(), rel=1e-10)


# Modules that keep something, or draw numbers


@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize("family", [gp.GPipe, gp.OneFOneB, gp.ZBH1])
def test_a_batch_norm_sees_each_microbatch_once(family, mode):
    """Neither the engine's first look at the shapes nor a recompute counts."""
    modules = [nn.Sequential(linear, nn.BatchNorm1d(3, dtype=torch.float64)) for linear in linears(3)]
    alone = nn.Sequential(*(nn.Sequential(linear, nn.BatchNorm1d(3).double()) for linear in linears(3)))
    pipeline, batch = Pipeline(modules, remat(family(3, 4), mode), mse), some_batch()
    for steps in (1, 2):
        pipeline.step(batch)
        for piece in torch.tensor(batch[0]).split(2):
            alone(piece)
        for module, expected in zip(modules, alone, strict=True):
            assert module[1].num_batches_tracked == 4 * steps
            for name, buffer in expected.named_buffers():
                assert torch.allclose(module.get_buffer(name), buffer, rtol=1e-12)


@pytest.mark.parametrize("family", [gp.GPipe, gp.ZBH1])
def test_dropout_is_recomputed_with_the_mask_that_it_had(family):
    def dropped(mode: str) -> gp.StepResult:
        modules = [nn.Sequential(linear, nn.Dropout(0.5), nn.Tanh()) for linear in linears(2, 8)]
        torch.manual_seed(5)
        return train_step(modules, remat(family(2, 4), mode), some_batch(8, 8), mse)

    never, always = dropped("never"), dropped("always")
    assert (never.outputs == always.outputs).all()
    assert max(apart(always.gradients[key], never.gradients[key]) for key in never.gradients) < 1e-12
    assert (never.outputs == 0).any()


def test_a_module_is_run_in_the_mode_that_it_is_in():
    modules = [nn.Sequential(linear, nn.Dropout(0.5)).eval() for linear in linears(2)]
    step, expected = (
        train_step(modules, gp.OneFOneB(2, 4), some_batch(), mse),
        plain_gradients(modules, some_batch()),
    )
    assert max(apart(step.gradients[key], expected[key]) for key in expected) < 1e-10
    assert not modules[0].training


# What a batch may be


def batches() -> dict:
    x, y = some_batch()
    frozen = x.copy()
    frozen.flags.writeable = False
    return {
        "lists": (x.tolist(), y.tolist()),
        "read-only": (frozen, y),
        "a view": (np.repeat(x, 2, axis=0)[::2], y),
        "backwards twice": (x[::-1].copy()[::-1], y),
        "of Fortran": (np.asfortranarray(x), y),
        "of other bytes": (x.astype(">f8"), y),
        "tensors": (torch.tensor(x), torch.tensor(y)),
        "mixed": (torch.tensor(x), y),
    }


@pytest.mark.parametrize("name", batches())
def test_a_batch_is_read_whatever_its_memory_is_like(name):
    expected = train_step(linears(2), gp.OneFOneB(2, 4), some_batch(), mse)
    found = train_step(linears(2), gp.OneFOneB(2, 4), batches()[name], mse)
    assert_equal(found, expected, 1e-14)


def test_numbers_of_another_size_become_the_models():
    x, y = (part.astype(np.float32) for part in some_batch())
    step = train_step(linears(2), gp.OneFOneB(2, 4), (x, y), mse)
    assert step.outputs.dtype == np.float64
    single = [module.float() for module in linears(2)]
    assert train_step(single, gp.OneFOneB(2, 4), some_batch(), mse).outputs.dtype == np.float32


def test_whole_numbers_stay_whole_for_an_embedding():
    torch.manual_seed(0)
    modules = [nn.Sequential(nn.Embedding(5, 3)), nn.Sequential(nn.Linear(3, 4))]
    words, classes = np.arange(8) % 5, np.arange(8) % 4
    for schedule in (gp.OneFOneB(2, 4), gp.ZBH1(2, 4)):
        step = train_step(modules, schedule, (words, classes), cross_entropy)
        whole = nn.Sequential(*modules)
        value = functional.cross_entropy(whole(torch.tensor(words)), torch.tensor(classes))
        expected = torch.autograd.grad(value, list(whole.parameters()))
        assert step.loss == pytest.approx(value.item(), rel=1e-6)
        for found, gradient in zip(
            step.gradients.values(), [expected[0], expected[2], expected[1]], strict=True
        ):
            assert np.allclose(found, gradient.numpy(), atol=1e-6)


class Tokens(nn.Module):
    """Whole numbers, on their way to an embedding."""

    def forward(self, x):
        return x, (x > 0).long().sum(1)


class Embeds(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(4, 3, dtype=torch.float64)

    def forward(self, x, tokens):
        return x + self.table(tokens)


@pytest.mark.skipif(torch.__version__ < "2.12", reason="torch 2.11 asks whole numbers for gradients")
@pytest.mark.parametrize("schedule", [gp.OneFOneB(2, 4), gp.ZBH1(2, 4)], ids=repr)
def test_whole_numbers_may_go_from_stage_to_stage(schedule):
    """A first step tries modules out on memory as it was found, in which a number may be any."""
    torch.manual_seed(0)
    modules = [nn.Sequential(*linears(1), Tokens()), Embeds()]
    x, targets = some_batch()
    step = train_step(modules, schedule, (x, targets), mse)
    with torch.no_grad():
        assert apart(step.outputs, modules[1](*modules[0](torch.tensor(x))).numpy()) < 1e-12


def test_what_a_module_does_in_place_does_not_reach_the_callers_array():
    x, y = some_batch()
    kept = x.copy()
    train_step([nn.ReLU(inplace=True), *linears(2)], gp.OneFOneB(3, 1), (x, y), mse)
    assert (x == kept).all()


def test_a_pipeline_takes_batches_of_another_size():
    modules = linears(3)
    pipeline = Pipeline(modules, gp.OneFOneB(3, 4), mse)
    for samples in (8, 16, 4, 8):
        found = pipeline.step(some_batch(samples))
        assert_equal(found, train_step(modules, gp.OneFOneB(3, 4), some_batch(samples), mse), 1e-14)


def test_bfloat16_comes_back_as_float32():
    modules = [module.bfloat16() for module in linears(2)]
    step = train_step(modules, gp.OneFOneB(2, 4), some_batch(), mse)
    expected = train_step(linears(2), gp.OneFOneB(2, 4), some_batch(), mse)
    assert step.outputs.dtype == step.gradients[0, "weight"].dtype == np.float32
    assert modules[0].weight.grad.dtype == torch.bfloat16
    assert_equal(step, expected, 0.05)


# NumPy's layers as torch modules


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu"])
def test_to_torch_computes_what_the_numpy_layers_compute(activation):
    layers, (x, _) = model(activation), batch_for(4)
    for module, layer in zip(to_torch(layers), layers, strict=True):
        expected, _ = layer.forward(x, Context())
        assert np.allclose(module(torch.tensor(x)).detach().numpy(), expected, rtol=1e-14, atol=1e-14)
        x = expected


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


def test_a_layer_without_counterpart_is_refused():
    class Softsign(gp.Tanh):
        pass

    with pytest.raises(TypeError) as refused:
        to_torch([Softsign()])
    assert str(refused.value) == (
        "to_torch knows no torch module for Softsign(); name one, here torch.nn.Softsign: "
        "torch_backend.COUNTERPARTS[Softsign] = lambda layer: torch.nn.Softsign()"
    )
    with pytest.raises(
        TypeError, match=r"to_torch takes NumPy layers, and partitions of them \(got 'Linear'\)"
    ):
        to_torch(["Linear"])


def test_a_refused_layer_is_taken_once_its_counterpart_is_named_as_the_refusal_says(monkeypatch):
    class Softsign(gp.Tanh):
        pass

    with pytest.raises(TypeError) as refused:
        to_torch([Softsign()])
    monkeypatch.setattr(gp.torch_backend.counterparts, "COUNTERPARTS", {**gp.torch_backend.COUNTERPARTS})
    monkeypatch.setattr(gp.torch_backend, "COUNTERPARTS", gp.torch_backend.counterparts.COUNTERPARTS)
    names = {"torch_backend": gp.torch_backend, "Softsign": Softsign, "torch": torch}
    exec(str(refused.value).partition("torch.nn.Softsign: ")[2], names)
    (module,) = to_torch([Softsign()])
    assert isinstance(module, nn.Softsign)


def test_every_counterpart_is_of_a_listed_layer():
    listed = {*gp.LAYERS, *transformer.LAYERS, *attention.LAYERS, *blocks.LAYERS, gp.PaddingMask}
    assert set(gp.torch_backend.COUNTERPARTS) == listed


# Stages


def test_layers_are_cut_evenly_or_by_balance():
    layers = linears(5)
    assert [len(stage) for stage in split(nn.Sequential(*layers), 2)] == [3, 2]
    cut = split(layers, balance=[1, 3, 1])
    assert [len(stage) for stage in cut] == [1, 3, 1]
    assert [layer for stage in cut for layer in stage] == layers


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"stages": 6}, ValueError, "cannot cut 5 layers into 6 stages; at most 5"),
        ({"balance": [2, 2]}, ValueError, "has 5 layers but the balance adds up to 4"),
        ({"balance": [5, 0]}, ValueError, "must be positive integers"),
        ({}, TypeError, "either stages=, how many, or balance="),
        ({"stages": 2, "balance": [2, 3]}, TypeError, "either stages=, how many, or balance="),
    ],
)
def test_a_cut_that_does_not_fit_is_refused(options, error, says):
    with pytest.raises(error, match=says):
        split(nn.Sequential(*linears(5)), **options)


def test_only_what_runs_in_sequence_is_cut():
    with pytest.raises(TypeError, match=r"cuts an nn.Sequential, or a list of modules \(got Linear\)"):
        split(nn.Linear(2, 2), 1)


def test_gradients_go_by_layer_along_the_model_though_one_relu_stands_in_it_twice():
    relu = nn.ReLU()
    first, second, third = linears(3)
    modules = [nn.Sequential(first, relu, second, relu), nn.Sequential(third)]
    step = train_step(modules, gp.OneFOneB(2, 4), some_batch(), mse)
    assert [layer for layer, name in step.gradients if name == "bias"] == [0, 2, 4]


def test_a_module_that_is_no_sequential_is_one_layer():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = linears(1)[0]

        def forward(self, x):
            return self.inner(x)

    step = train_step([Block(), linears(1)[0]], gp.OneFOneB(2, 4), some_batch(), mse)
    assert list(step.gradients) == [(0, "inner.bias"), (0, "inner.weight"), (1, "bias"), (1, "weight")]


def test_devices_are_what_there_is_and_place_moves_modules_there():
    assert devices() == [f"cuda:{i}" for i in range(torch.cuda.device_count())] or devices() == ["cpu"]
    modules = linears(2)
    assert place(modules, gp.OneFOneB(2, 4), ["cpu", "cpu"]) == modules
    assert devices()[0] in {
        str(p.device) for module in place(linears(1), gp.GPipe(1, 1)) for p in module.parameters()
    }


@pytest.mark.parametrize("names", [["cpu:0", "cpu:0"], [torch.device("cpu")] * 3, ("cpu", "cpu:1")], ids=str)
def test_the_cpu_is_one_device_by_whatever_name(names):
    step = train_step(linears(2), gp.OneFOneB(2, 4), some_batch(), mse, devices=names)
    assert_equal(step, train_step(linears(2), gp.OneFOneB(2, 4), some_batch(), mse), 1e-14)
