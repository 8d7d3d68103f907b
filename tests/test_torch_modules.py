"""What modules may be like, and what may happen around them: each once gave wrong numbers, or hung."""

import copy
import importlib
import pickle
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from numeric import apart  # noqa: E402
from torch import nn  # noqa: E402
from torch_autograd import assert_like_autograd, by_autograd  # noqa: E402
from torch_modules import (  # noqa: E402
    Counts,
    Gives,
    LastOf,
    Pair,
    Scaled,
    Unfollowed,
    linears,
    some_batch,
    tied_by_torch,
    tied_ends,
    tokens,
)

import gpipe_sim as gp  # noqa: E402
from gpipe_sim import cross_entropy, fit_costs, mse, remat  # noqa: E402
from gpipe_sim import torch_backend as tb  # noqa: E402
from gpipe_sim.torch_backend import LocalProcesses, Pipeline, Sleep, train_step  # noqa: E402
from gpipe_sim.torch_backend.counterparts import cross_entropy_loss, mse_loss  # noqa: E402
from gpipe_sim.torch_backend.stage import StageModule  # noqa: E402

over_both = pytest.mark.parametrize("schedule", [gp.OneFOneB(2, 4), gp.ZBH1(2, 4)], ids=repr)


@pytest.fixture(scope="module")
def two():
    with LocalProcesses(2) as processes:
        yield processes


# What a stage sends on


@over_both
@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_stage_that_autograd_does_not_follow_takes_no_gradient_from_the_next(at, mode, schedule):
    modules = linears(3)
    modules.insert(at, Unfollowed())
    assert_like_autograd(modules, remat(type(schedule)(4, 4), mode), some_batch())


@over_both
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_stage_may_end_in_a_view(at, schedule):
    """Of a split backward torch lets the output go, which it cannot do with a view."""
    modules = linears(3)
    modules[at] = nn.Sequential(nn.Unflatten(1, (1, 3)), modules[at], nn.Flatten())
    assert_like_autograd(modules, type(schedule)(3, 4), some_batch())


@over_both
def test_a_stage_may_send_on_the_last_of_a_sequence(schedule):
    torch.manual_seed(0)
    assert_like_autograd([LastOf(nn.RNN), *linears(1)], schedule, some_batch(shape=(4, 3)))


class Turned(nn.Module):
    """Channels last, as convolutions may compute, and back."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x).contiguous(memory_format=torch.channels_last)


@over_both
def test_numbers_in_another_order_of_memory_go_from_process_to_process(two, schedule):
    """And their gradients go back: gloo takes contiguous memory only."""
    torch.manual_seed(0)
    convolution = nn.Conv2d(3, 3, 1, dtype=torch.float64).to(memory_format=torch.channels_last)
    modules = [Turned(nn.Conv2d(3, 3, 1, dtype=torch.float64)), nn.Sequential(convolution, nn.Flatten())]
    batch = np.random.default_rng(0).normal(size=(8, 3, 2, 2)), np.zeros((8, 12))
    assert_like_autograd(modules, schedule, batch, devices=two)


@over_both
def test_complex_numbers_stay_within_a_stage(schedule):
    """The engine sends no gradient of them back."""
    turned, back = Gives(lambda x: x * (1 + 1j)), Gives(lambda x: x.abs())
    with pytest.raises(TypeError, match=r"^stage 0, Gives gives complex numbers, .*send torch.view_as_real"):
        train_step([turned, back], schedule, some_batch(), mse)
    turned.function = lambda x: torch.view_as_real(x * (1 + 1j))
    back.function = lambda x: torch.view_as_complex(x).abs()
    assert_like_autograd([turned, back], schedule, some_batch())


class Sees(nn.Module):
    """Remembers what came in."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, tokens):
        self.seen.append(tokens.tolist())
        return tokens.double()


def test_a_trial_is_made_with_tokens_that_there_are_whatever_memory_holds():
    """And what runs again after an action, as a recompute does, with its own."""
    module = Sees()
    inside = StageModule(module, 0, last=True)
    for inside.acting in (False, True, False):
        inside(torch.tensor([7, 140588822628520]))
    assert module.seen == [[0, 0], [7, 140588822628520], [7, 140588822628520]]


def test_a_last_stage_gives_one_tensor_and_says_so():
    modules = [*linears(1), nn.Sequential(*linears(1), Pair())]
    modules[0].weight.grad = kept = torch.ones(3, 3, dtype=torch.float64)
    for loss in (mse, lambda outputs, targets: ((outputs[0] - targets) ** 2).mean()):
        with pytest.raises(TypeError, match=r"the last stage gives one tensor \(got tuple\)"):
            train_step(modules, gp.OneFOneB(2, 4), some_batch(), loss)
        assert modules[0].weight.grad is kept and (kept == 1).all()
        assert modules[0].bias.grad is modules[1][0].weight.grad is None


# What a forward changes


class Replaces(Counts):
    """Another buffer every time, where ``Counts`` changes the one that there is."""

    def forward(self, x):
        y = x * self.factor
        self.factor = self.factor + x.detach().mean()
        return y


@pytest.mark.parametrize("kind", [Counts, Replaces])
@pytest.mark.parametrize("schedule", [gp.OneFOneB(2, 4), gp.ZBH1(2, 4), gp.ZBV(1, 4)], ids=repr)
def test_a_recompute_finds_the_buffers_that_its_forward_found(kind, schedule):
    modules = [nn.Sequential(linear, kind()) for linear in linears(2)]
    assert_like_autograd(modules, remat(schedule, "always"), some_batch())


class Makes(nn.Module):
    """A parameter, once it sees what comes in."""

    def forward(self, x):
        if not hasattr(self, "weight"):
            self.weight = nn.Parameter(torch.ones_like(x[0]))
        return x * self.weight


def test_a_parameter_that_a_forward_makes_counts_from_then_on():
    modules = [Makes(), *linears(1)]
    pipeline = Pipeline(modules, gp.OneFOneB(2, 4), mse)
    first = pipeline.step(some_batch())
    assert (first.gradients[0, "weight"] == modules[0].weight.grad.numpy()).all()
    pipeline.step(some_batch())
    assert apart(modules[0].weight.grad.numpy(), 2 * first.gradients[0, "weight"]) < 1e-14


def test_a_layer_that_is_added_between_two_steps_counts_from_then_on():
    modules = [nn.Sequential(linear) for linear in linears(2)]
    pipeline = Pipeline(modules, gp.OneFOneB(2, 4), mse)
    pipeline.step(some_batch())
    modules[0].extend(linears(1))
    assert list(pipeline.step(some_batch()).gradients)[2:4] == [(1, "bias"), (1, "weight")]


@pytest.mark.parametrize(
    ("modules", "says"),
    [
        (lambda: [Makes(), *linears(1)], "stage 0 made weight in its forward, and it is not in the caller's"),
        (lambda: [nn.LazyLinear(3, dtype=torch.float64), *linears(1)], "weight of stage 0 has no shape yet"),
        (lambda: [Grows(), *linears(1)], r"kept of stage 0 changed its shape from \(1,\) to \(5,\)"),
    ],
)
def test_what_cannot_come_back_from_a_process_is_refused(modules, says):
    with LocalProcesses(2) as processes, pytest.raises(ValueError, match=says):
        train_step(modules(), gp.OneFOneB(2, 4), some_batch(), mse, devices=processes)


class Trims(nn.Module):
    """As long as the first of its numbers says."""

    def forward(self, x):
        return x[:, : int(x[0, 0])]


def test_microbatches_that_differ_in_size_between_processes_are_refused():
    """By us, or before torch 2.12 by torch, whose error is none of the usual kinds."""
    x = np.repeat([3.0, 2.0, 1.0, 2.0], 2)[:, None] * np.ones(3)
    modules = [nn.Sequential(Trims(), Gives(abs)), nn.Identity()]
    with (
        LocalProcesses(2) as processes,
        pytest.raises(Exception, match=r"every microbatch has one size and type|has a shape mismatch"),
    ):
        train_step(modules, gp.OneFOneB(2, 4), (x, x), lambda y, _: y.mean(), devices=processes)


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_compiled_script_is_a_stage():
    modules = linears(2)
    scripted = [torch.jit.script(module) for module in modules]
    found = train_step(scripted, gp.GPipe(2, 4), some_batch(), mse)
    assert found.loss == train_step(modules, gp.GPipe(2, 4), some_batch(), mse).loss


class Grows(nn.Module):
    """A buffer, by a number each time."""

    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(1))

    def forward(self, x):
        self.kept = torch.cat([self.kept, torch.ones(1)])
        return x


# Gradients


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda step: pickle.loads(pickle.dumps(step))])
def test_a_result_is_copied_whole_though_nobody_has_looked_at_it(copied):
    pipeline = Pipeline(linears(2), gp.OneFOneB(2, 4), mse)
    pipeline.step(some_batch())
    step = pipeline.step(some_batch())
    other = copied(step)
    assert (other.loss, other.moved) == (step.loss, step.moved)
    assert other.timeline.makespan == step.timeline.makespan
    assert (other.outputs == step.outputs).all()
    assert all((other.gradients[key] == gradient).all() for key, gradient in step.gradients.items())


def test_grad_grows_in_the_tensor_that_it_is(two):
    for devices in (["cpu"] * 2, two):
        modules = linears(2)
        pipeline = Pipeline(modules, gp.OneFOneB(2, 4), mse, devices=devices)
        pipeline.step(some_batch())
        kept = [p.grad for module in modules for p in module.parameters()]
        before = [gradient.clone() for gradient in kept]
        pipeline.step(some_batch())
        for parameter, gradient, once in zip(nn.Sequential(*modules).parameters(), kept, before, strict=True):
            assert parameter.grad is gradient
            assert torch.allclose(gradient, 2 * once, rtol=1e-12)


def test_sparse_gradients_come_out_dense(two):
    torch.manual_seed(0)
    modules = [nn.Embedding(5, 3, sparse=True, dtype=torch.float64), *linears(1)]
    batch = np.arange(8) % 4, some_batch()[1]
    (expected, *_) = by_autograd(modules, batch, 4, nn.functional.mse_loss)
    wanted = expected.weight.grad.to_dense()
    for times, devices in enumerate([["cpu"] * 2, two, ["cpu"] * 2], 1):
        step = train_step(modules, gp.OneFOneB(2, 4), batch, mse, devices=devices)
        assert apart(step.gradients[0, "weight"], wanted.numpy()) < 1e-10
        assert torch.allclose(modules[0].weight.grad.to_dense(), times * wanted, rtol=1e-10)


def test_layers_with_a_parameter_of_their_own_are_one_layer():
    modules = [Scaled(*linears(2)), *linears(1)]
    step = train_step(modules, gp.OneFOneB(2, 4), some_batch(), mse)
    first = ["0.bias", "0.weight", "1.bias", "1.weight", "scale"]
    assert list(step.gradients) == [*((0, name) for name in first), (1, "bias"), (1, "weight")]
    assert apart(step.gradients[0, "scale"], modules[0].scale.grad.numpy()) == 0


# Losses refuse what they refuse on NumPy


def refusal(loss: Callable, outputs, targets) -> tuple[type, str]:
    with pytest.raises((ValueError, TypeError)) as refused:
        loss(outputs, targets)
    return refused.type, str(refused.value).replace("torch.", "")


@pytest.mark.parametrize("shape", [(4, 1), (1, 3), (3,), (4,), (4, 3, 1)], ids=str)
def test_mse_stretches_no_targets(shape):
    outputs, targets = np.zeros((4, 3)), np.zeros(shape)
    expected = refusal(mse, outputs, targets)
    assert expected[0] is ValueError
    assert refusal(mse_loss, torch.tensor(outputs), torch.tensor(targets)) == expected
    if len(targets) == 4:
        with pytest.raises(ValueError, match="mse needs targets of shape"):
            train_step(linears(2), gp.OneFOneB(2, 2), (outputs, targets), mse)


@pytest.mark.parametrize(
    "targets", [[0.0, 1, 2, 0], [True, False, True, True], [0, -1, 2, 0], [0, 1, 3, 0], [[0], [1], [2], [0]]]
)
def test_cross_entropy_takes_class_numbers_only(targets):
    outputs, targets = np.zeros((4, 3)), np.array(targets)
    expected = refusal(cross_entropy, outputs, targets)
    assert refusal(cross_entropy_loss, torch.tensor(outputs), torch.tensor(targets)) == expected
    modules = linears(2)
    with pytest.raises(expected[0], match="cross_entropy needs"):
        train_step(modules, gp.OneFOneB(2, 1), (outputs, targets), cross_entropy)
    assert all(p.grad is None for p in nn.Sequential(*modules).parameters())


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16])
def test_cross_entropy_takes_whole_numbers_of_any_size(dtype):
    x, classes = some_batch()[0], np.arange(8) % 3
    loss = cross_entropy, lambda outputs, targets: nn.functional.cross_entropy(outputs, targets.long())
    assert_like_autograd(linears(2), gp.OneFOneB(2, 4), (x, classes.astype(dtype)), loss)


def test_mse_takes_targets_of_any_number_type():
    targets = np.arange(24).reshape(8, 3)
    whole, fractions = (
        train_step(linears(2), gp.OneFOneB(2, 4), (some_batch()[0], kind), mse)
        for kind in (targets, targets.astype(float))
    )
    assert whole.loss == fractions.loss


# Local processes


def test_they_get_every_buffer_and_give_it_back(two):
    modules = [nn.Sequential(Counts(), linear) for linear in linears(2)]
    for stage in modules:
        assert "0.factor" not in stage.state_dict()
    here = copy.deepcopy(modules)
    there = Pipeline(modules, gp.OneFOneB(2, 4), mse, devices=two)
    for factor, after in ((5, 9), (-2, 2)):
        for stage in (*modules, *here):
            stage[0].factor.fill_(factor)
        found, expected = there.step(some_batch()), train_step(here, gp.OneFOneB(2, 4), some_batch(), mse)
        assert found.loss == pytest.approx(expected.loss, rel=1e-12)
        assert [stage[0].factor.item() for stage in (*modules, *here)] == [after] * 4


def test_the_callers_seed_decides_what_is_random_there(two):
    def dropped(seed: int) -> np.ndarray:
        modules = [nn.Sequential(linear, nn.Dropout(0.5)) for linear in linears(2, 8)]
        torch.manual_seed(seed)
        x = np.random.default_rng(0).normal(size=(8, 8))
        return train_step(modules, gp.OneFOneB(2, 4), (x, x), mse, devices=two).outputs

    one, again, other = dropped(1), dropped(1), dropped(2)
    assert (one == again).all()
    assert ((one == 0) != (other == 0)).any()


@pytest.mark.parametrize("placement", [[[3, 0], [2, 1]], [[0, 3], [2, 1]], [[3, 0], [1, 2]]], ids=str)
def test_stages_may_be_listed_in_any_order(two, placement):
    schedule = gp.Explicit(gp.ZBV(2, 3).actions, placement=placement)
    for devices in (["cpu"] * 2, two):
        assert_like_autograd(linears(4), schedule, some_batch(samples=6), devices=devices)


@pytest.mark.parametrize("order", [(False, True, False), (True, False, True)], ids=str)
def test_autocast_may_be_on_in_one_step_and_off_in_the_next(two, order):
    """What is received has another type of number then."""
    modules = [linear.float() for linear in linears(2, 8)]
    here, there = (Pipeline(modules, gp.OneFOneB(2, 4), squares, devices=d) for d in (["cpu"] * 2, two))
    batch = tuple(part.astype("float32") for part in some_batch(width=8))
    for on in order:
        with torch.autocast("cpu", torch.bfloat16, enabled=on):
            expected, found = here.step(batch), there.step(batch)
        assert found.loss == pytest.approx(expected.loss, rel=1e-5)
        assert all(apart(found.gradients[key], expected.gradients[key]) < 1e-5 for key in expected.gradients)


def squares(outputs, targets):
    return ((outputs.float() - targets) ** 2).mean()


# Stages that share a weight


def assert_tied_right(schedule: gp.Schedule, devices=None) -> None:
    """Two steps: of each the gradient is that of plain autograd, and ``.grad`` grows by it once."""
    modules, alone = tied_ends(), nn.Sequential(*tied_ends())
    pipeline = Pipeline(modules, schedule, gp.cross_entropy, devices=devices)
    x, targets = map(torch.tensor, tokens())
    nn.functional.cross_entropy(alone(x), targets).backward()
    for times in (1, 2):
        step = pipeline.step(tokens())
        for parameter, expected in zip(nn.Sequential(*modules).parameters(), alone.parameters(), strict=True):
            assert apart(parameter.grad.numpy(), times * expected.grad.numpy()) < 1e-14
        assert apart(step.gradients[0, "weight"], alone[0].weight.grad.numpy()) < 1e-14
        assert (step.gradients[5, "weight"] == step.gradients[0, "weight"]).all()


@pytest.mark.parametrize(
    "schedule",
    [gp.ZBV(2, 4), gp.DualPipeV(2, 4), gp.remat(gp.ZBV(2, 4), "always"), gp.VHalf(2, 8)],
    ids=repr,
)
def test_the_first_and_last_stage_of_one_device_may_be_tied(schedule):
    assert_tied_right(schedule)


@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="README says it of torch 2.13")
def test_torchs_own_class_gives_them_another_gradient(two):
    """As the README says: 90% off."""
    alone = nn.Sequential(*tied_ends())
    x, targets = map(torch.tensor, tokens())
    nn.functional.cross_entropy(alone(x), targets).backward()
    found, _ = two.run(tied_by_torch)
    assert apart(found.numpy(), alone[0].weight.grad.numpy()) == pytest.approx(0.9, abs=0.01)


def test_so_they_may_on_a_local_process(two):
    assert_tied_right(gp.ZBV(2, 8), two)


# Threads


@pytest.mark.parametrize("where", ["here", "there"])
def test_threads_take_turns(two, where):
    """Eight steps at once, each of a model of its own, as large as no other."""
    devices = ["cpu"] * 2 if where == "here" else two
    found, expected = {}, {}

    def learn(width: int) -> None:
        batch = np.ones((8, width)), np.zeros((8, width))
        pipeline = Pipeline(models[width], gp.OneFOneB(2, 4), mse, devices=devices)
        found[width] = [pipeline.step(batch).loss for _ in range(5)]

    models = {width: linears(2, width) for width in range(2, 10)}
    threads = [threading.Thread(target=learn, args=[width], daemon=True) for width in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for width, model in models.items():
        value = nn.Sequential(*model)(torch.ones(8, width, dtype=torch.float64)).square().mean().item()
        expected[width] = [pytest.approx(value, rel=1e-12)] * 5
    assert found == expected
    assert not torch.distributed.is_initialized()


# Around a step


def test_a_torch_without_pipelines_is_told_by_its_version(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.distributed.pipelining", None)
    with pytest.raises(ImportError) as error:
        importlib.reload(tb)
    assert type(error.value) is ImportError
    assert str(error.value) == (
        f"torch {torch.__version__} has no torch.distributed.pipelining; torch 2.11 or newer has"
    )


def test_devices_that_take_turns_wait_for_each_other_and_not_for_messages():
    """Every action sleeps 10 ms or more, so nearly any wait for another device would be as long."""
    modules = [Sleep(10, 10, 10) for _ in range(3)]
    pipeline = Pipeline(modules, gp.OneFOneB(3, 4), mse)
    batch = np.ones((8, 1)), np.ones((8, 1))
    pipeline.step(batch)
    assert 0 <= fit_costs(pipeline.step(batch).timeline).comm < 5
