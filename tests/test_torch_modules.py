"""What modules may be like, and what may happen around them: each once gave wrong numbers, or hung."""

import copy
import importlib
import pickle
import threading
from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch_modules  # noqa: E402
from engine_cases import assert_equal  # noqa: E402
from numeric import apart  # noqa: E402
from torch import nn  # noqa: E402
from torch_autograd import assert_like_autograd, by_autograd  # noqa: E402
from torch_modules import Counts, Gives, four, linears, some_batch, tied_ends, tokens  # noqa: E402

import gpipe_sim as gp  # noqa: E402
from gpipe_sim import cross_entropy, fit_costs, mse, remat  # noqa: E402
from gpipe_sim import torch_backend as tb  # noqa: E402
from gpipe_sim.torch_backend import LocalProcesses, Pipeline, Sleep, train_step  # noqa: E402
from gpipe_sim.torch_backend.counterparts import cross_entropy_loss, mse_loss  # noqa: E402
from gpipe_sim.torch_backend.stage import StageModule  # noqa: E402

over_both = pytest.mark.parametrize("schedule", [gp.OneFOneB(2, 4), gp.ZBH1(2, 4)], ids=repr)


# What a stage sends on


@over_both
@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_stage_that_autograd_does_not_follow_takes_no_gradient_from_the_next(at, mode, schedule):
    modules = linears(3)
    modules.insert(at, Gives(torch.no_grad()(torch.tanh)))
    assert_like_autograd(modules, remat(type(schedule)(4, 4), mode), some_batch())


@over_both
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_stage_may_end_in_a_view(at, schedule):
    """Of a split backward torch lets the output go, which it cannot do with a view."""
    modules = linears(3)
    modules[at] = nn.Sequential(nn.Unflatten(1, (1, 3)), modules[at], nn.Flatten())
    assert_like_autograd(modules, type(schedule)(3, 4), some_batch())


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """As convolutions may compute."""
    return x.contiguous(memory_format=torch.channels_last)


@over_both
def test_numbers_in_another_order_of_memory_go_from_process_to_process(schedule):
    """And their gradients go back: gloo takes contiguous memory only."""
    torch.manual_seed(0)
    convolution = nn.Conv2d(3, 3, 1, dtype=torch.float64).to(memory_format=torch.channels_last)
    turned = nn.Sequential(nn.Conv2d(3, 3, 1, dtype=torch.float64), Gives(channels_last))
    modules = [turned, nn.Sequential(convolution, nn.Flatten())]
    batch = np.random.default_rng(0).normal(size=(8, 3, 2, 2)), np.zeros((8, 12))
    assert_like_autograd(modules, schedule, batch, devices=four())


@over_both
def test_complex_numbers_stay_within_a_stage(schedule):
    """The engine sends no gradient of them back."""
    turned, back = Gives(lambda x: x * (1 + 1j)), Gives(lambda x: x.abs())
    with pytest.raises(TypeError, match=r"^stage 0, Gives gives complex numbers, .*send torch.view_as_real"):
        train_step([turned, back], schedule, some_batch(), mse)
    turned.function = lambda x: torch.view_as_real(x * (1 + 1j))
    back.function = lambda x: torch.view_as_complex(x).abs()
    assert_like_autograd([turned, back], schedule, some_batch())


def test_a_trial_is_made_with_tokens_that_there_are_whatever_memory_holds():
    """And what runs again after an action, as a recompute does, with its own."""
    seen, module = [], nn.Identity()
    module.register_forward_pre_hook(lambda _, given: seen.append(given[0].tolist()))
    inside = StageModule(module, 0, last=True)
    for inside.acting in (False, True, False):
        inside(torch.tensor([7, 140588822628520]))
    assert seen == [[0, 0], [7, 140588822628520], [7, 140588822628520]]


def test_a_last_stage_gives_one_tensor_and_says_so():
    modules = [*linears(1), nn.Sequential(*linears(1), Gives(lambda x: (x, x)))]
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


class Grows(nn.Module):
    """A buffer, by a number each time."""

    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(1))

    def forward(self, x):
        self.kept = torch.cat([self.kept, torch.ones(1)])
        return x


def test_a_parameter_that_a_forward_made_elsewhere_is_refused_and_a_buffer_that_grew_there_comes_back():
    with LocalProcesses(1) as processes:
        modules = [nn.Sequential(*linears(1), Grows())]
        train_step(modules, gp.GPipe(1, 4), some_batch(), mse, devices=processes)
        assert modules[0][1].kept.tolist() == [0, 1, 1, 1, 1]
        modules = [nn.Sequential(*linears(1), Makes())]
        with pytest.raises(ValueError, match=r"stage 0 made 1\.weight in its forward"):
            train_step(modules, gp.GPipe(1, 4), some_batch(), mse, devices=processes)


def trimmed(x: torch.Tensor) -> torch.Tensor:
    """As long as the first of its numbers says."""
    return x[:, : int(x[0, 0])].abs()


def test_microbatches_that_differ_in_size_between_processes_are_refused():
    x = np.repeat([3.0, 2.0, 1.0, 2.0], 2)[:, None] * np.ones(3)
    modules = [Gives(trimmed), nn.Identity()]
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


# Gradients


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda step: pickle.loads(pickle.dumps(step))])
def test_a_result_is_copied_whole_though_nobody_has_looked_at_it(copied):
    pipeline = Pipeline(linears(2), gp.OneFOneB(2, 4), mse)
    pipeline.step(some_batch())
    step = pipeline.step(some_batch())
    other = copied(step)
    assert other.moved == step.moved
    assert other.timeline.makespan == step.timeline.makespan
    assert_equal(other, step, 1e-300)


def test_grad_grows_in_the_tensor_that_it_is_and_a_steps_own_do_not():
    for devices in (["cpu"] * 2, four()):
        modules = linears(2)
        pipeline = Pipeline(modules, gp.OneFOneB(2, 4), mse, devices=devices)
        first = pipeline.step(some_batch())
        kept = [p.grad for module in modules for p in module.parameters()]
        before = [gradient.clone() for gradient in kept]
        second = pipeline.step(some_batch())
        for parameter, gradient, once in zip(nn.Sequential(*modules).parameters(), kept, before, strict=True):
            assert parameter.grad is gradient
            assert torch.allclose(gradient, 2 * once, rtol=1e-12)
        assert_equal(second, first, 1e-14)


def test_sparse_gradients_come_out_dense():
    torch.manual_seed(0)
    modules = [nn.Embedding(5, 3, sparse=True, dtype=torch.float64), *linears(1)]
    batch = np.arange(8) % 4, some_batch()[1]
    for devices in (["cpu"] * 2, four(), ["cpu"] * 2):  # ``.grad`` is sparse, then dense
        step = assert_like_autograd(modules, gp.OneFOneB(2, 4), batch, devices=devices)
        assert step.gradients[0, "weight"].shape == (5, 3)


# Losses refuse what they refuse on NumPy


def refusal(loss: Callable, outputs, targets) -> tuple[type, str]:
    with pytest.raises((ValueError, TypeError)) as refused:
        loss(outputs, targets)
    return refused.type, str(refused.value).replace("torch.", "")


SHAPES = [(4, 1), (1, 3), (3,), (4,), (4, 3, 1)]
NO_CLASSES = [[0.0, 1, 2, 0], [True, False, True, True], [0, -1, 2, 0], [0, 1, 3, 0], [[0], [1], [2], [0]]]


@pytest.mark.parametrize(
    ("loss", "torchs", "targets"),
    [
        *((mse, mse_loss, np.zeros(shape)) for shape in SHAPES),
        *((cross_entropy, cross_entropy_loss, np.array(targets)) for targets in NO_CLASSES),
    ],
)
def test_targets_that_would_be_stretched_or_are_no_classes_are_refused(loss, torchs, targets):
    outputs, modules = np.zeros((4, 3)), linears(2)
    kind, words = refusal(loss, outputs, targets)
    assert refusal(torchs, torch.tensor(outputs), torch.tensor(targets)) == (kind, words)
    if len(targets) == len(outputs):
        with pytest.raises(kind, match=f"{words.split()[0]} needs"):
            train_step(modules, gp.OneFOneB(2, 1), (outputs, targets), loss)
        assert all(p.grad is None for p in nn.Sequential(*modules).parameters())


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16])
def test_cross_entropy_takes_whole_numbers_of_any_size(dtype):
    loss = cross_entropy, lambda outputs, targets: nn.functional.cross_entropy(outputs, targets.long())
    batch = some_batch()[0], (np.arange(8) % 3).astype(dtype)
    assert_like_autograd(linears(2), gp.OneFOneB(2, 4), batch, loss)


def test_mse_takes_targets_of_any_number_type():
    loss = mse, lambda outputs, targets: nn.functional.mse_loss(outputs, targets.double())
    assert_like_autograd(linears(2), gp.OneFOneB(2, 4), (some_batch()[0], np.arange(24).reshape(8, 3)), loss)


# Local processes


def test_they_get_every_buffer_and_give_it_back():
    modules = [nn.Sequential(Counts(), linear) for linear in linears(2)]
    assert "0.factor" not in modules[0].state_dict()
    for factor in (5, -2):
        for stage in modules:
            stage[0].factor.fill_(factor)
        assert_like_autograd(modules, gp.OneFOneB(2, 4), some_batch(), devices=four())
        assert [stage[0].factor.item() for stage in modules] == [factor + 4] * 2


def test_the_callers_seed_decides_what_is_random_there():
    def dropped(seed: int) -> np.ndarray:
        modules = [nn.Sequential(linear, nn.Dropout(0.5)) for linear in linears(2, 8)]
        torch.manual_seed(seed)
        return train_step(modules, gp.OneFOneB(2, 4), some_batch(8, 8), mse, devices=four()).outputs

    one, again, other = dropped(1), dropped(1), dropped(2)
    assert (one == again).all()
    assert ((one == 0) != (other == 0)).any()


@pytest.mark.parametrize("placement", [[[3, 0], [2, 1]], [[0, 3], [2, 1]], [[3, 0], [1, 2]]], ids=str)
def test_stages_may_be_listed_in_any_order(placement):
    schedule = gp.Explicit(gp.ZBV(2, 3).actions, placement=placement)
    for devices in (["cpu"] * 2, four()):
        assert_like_autograd(linears(4), schedule, some_batch(samples=6), devices=devices)


# Stages that share a weight


TIED = cross_entropy, nn.functional.cross_entropy


def assert_tied_right(schedule: gp.core.Schedule, devices=None) -> None:
    """Two steps: ``.grad`` grows by the gradient of plain autograd once, and both stages tell of it."""
    modules = tied_ends()
    for _ in range(2):
        step = assert_like_autograd(modules, schedule, tokens(), TIED, devices=devices)
    (alone, *_), _, _ = by_autograd(modules, tokens(), schedule.microbatches, TIED[1])
    assert apart(step.gradients[0, "weight"], alone.weight.grad.numpy()) < 1e-14
    assert (step.gradients[5, "weight"] == step.gradients[0, "weight"]).all()


@pytest.mark.parametrize(
    "schedule",
    [gp.ZBV(2, 4), gp.families.DualPipeV(2, 4), gp.remat(gp.ZBV(2, 4), "always"), gp.families.VHalf(2, 8)],
    ids=repr,
)
def test_the_first_and_last_stage_of_one_device_may_be_tied(schedule):
    assert_tied_right(schedule)


@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="docs/torch.md says it of torch 2.13")
def test_so_they_may_on_a_local_process_where_torchs_own_class_gives_them_another_gradient():
    """As docs/torch.md says: 90% off."""
    assert_tied_right(gp.ZBV(2, 8), four())
    found, _ = four().run_each(torch_modules.tied_by_torch, [(), ()])
    (alone, *_), _, _ = by_autograd(tied_ends(), tokens(), 8, TIED[1])
    assert apart(found.numpy(), alone.weight.grad.numpy()) == pytest.approx(0.9, abs=0.01)


# Threads


@pytest.mark.parametrize("where", ["here", "there"])
def test_threads_take_turns(where):
    """Eight steps at once, each of a model of its own, as large as no other."""
    devices, found = ["cpu"] * 2 if where == "here" else four(), {}

    def learn(width: int) -> None:
        batch = np.ones((8, width)), np.zeros((8, width))
        pipeline = Pipeline(models[width], gp.OneFOneB(2, 4), mse, devices=devices)
        found[width] = [pipeline.step(batch).loss for _ in range(3)]

    models = {width: linears(2, width) for width in range(2, 10)}
    threads = [threading.Thread(target=learn, args=[width], daemon=True) for width in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for width, model in models.items():
        value = nn.Sequential(*model)(torch.ones(8, width, dtype=torch.float64)).square().mean().item()
        assert found[width] == [pytest.approx(value, rel=1e-12)] * 3
    assert not torch.distributed.is_initialized()


# Around a step


def test_an_older_torch_is_told_which_would_do(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.12.1+cpu")
    with pytest.raises(ImportError, match=r"needs torch 2\.13 or newer, and this is 2\.12\.1\+cpu"):
        importlib.reload(tb)


def test_devices_that_take_turns_wait_for_each_other_and_not_for_messages():
    """Every action sleeps 10 ms or more, so nearly any wait for another device would be as long."""
    modules = [Sleep(10, 10, 10) for _ in range(3)]
    pipeline = Pipeline(modules, gp.OneFOneB(3, 4), mse)
    batch = np.ones((8, 1)), np.ones((8, 1))
    pipeline.step(batch)
    assert 0 <= fit_costs(pipeline.step(batch).timeline).comm < 5
