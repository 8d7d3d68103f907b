"""What PyTorch's split backward gets wrong with some modules: put right, or refused by name."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch_autograd import assert_like_autograd  # noqa: E402
from torch_modules import LastOf, Tied, linears, some_batch  # noqa: E402

import gpipe_sim as gp  # noqa: E402
from gpipe_sim import mse, remat  # noqa: E402
from gpipe_sim.torch_backend import train_step  # noqa: E402

COUNTS_ONCE = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
needs_zeros = pytest.mark.skipif(not COUNTS_ONCE, reason="torch before 2.13 wants an output to be used")
NEEDS_NO_INPUT = pytest.mark.skipif(not COUNTS_ONCE, reason="torch before 2.13 wants an input to be used")
either_mode = pytest.mark.parametrize("mode", ["never", "always"])


def weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape, dtype=torch.float64))


def assert_refused(modules, schedule, says: str, shape: tuple[int, ...] = ()) -> None:
    """A ScheduleError that says so, and ``.grad`` as it was."""
    with pytest.raises(gp.ScheduleError, match=f"{says}: use a schedule without I and W"):
        train_step(modules, schedule, some_batch(shape=shape), mse)
    assert all(p.grad is None for stage in modules for p in stage.parameters())


def assert_whole_backwards_work(modules, shape: tuple[int, ...] = ()) -> None:
    assert_like_autograd(modules, gp.OneFOneB(len(modules), 4), some_batch(shape=shape))


# A weight that is used more than once


def used_twice() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    """Modules, and the shape of an input that is theirs."""
    torch.manual_seed(0)
    layer = linears(1)[0]
    return {
        "tied": (Tied(), (3,)),
        "the same layer twice": (nn.Sequential(layer, nn.Tanh(), layer), (3,)),
        "RNN": (LastOf(nn.RNN), (4, 3)),
        "LSTM": (LastOf(nn.LSTM), (4, 3)),
    }


@pytest.mark.parametrize("name", used_twice())
def test_a_first_stage_may_use_a_weight_more_than_once(name):
    """Nothing asks for the gradient of its input, so its backward is never split."""
    module, shape = used_twice()[name]
    assert_like_autograd([module, *linears(1)], gp.ZBH1(2, 4), some_batch(shape=shape))


@pytest.mark.parametrize("schedule", [gp.OneFOneB(2, 4), remat(gp.OneFOneB(2, 4), "always")], ids=repr)
@pytest.mark.parametrize("name", used_twice())
def test_any_stage_may_where_backwards_are_whole(name, schedule):
    module, shape = used_twice()[name]
    assert_like_autograd([*linears(1), module], schedule, some_batch(shape=shape))


@pytest.mark.parametrize("schedule", [gp.ZBH1(2, 4), remat(gp.ZBH1(2, 4), "always")], ids=repr)
@pytest.mark.parametrize("name", used_twice())
def test_a_split_backward_counts_it_once_or_not_at_all(name, schedule):
    module, shape = used_twice()[name]
    modules, batch = [*linears(1), module], some_batch(shape=shape)
    if COUNTS_ONCE:
        assert_like_autograd(modules, schedule, batch)
        return
    assert_refused(modules, schedule, r"at stage 1 .* may count the gradient of .*\w more than once", shape)


# A weight that no way to the stage's input meets


class Learned(nn.Module):
    """A table that is learned, and after it what the stage was given, of which it may see nothing."""

    def __init__(self, looks: bool):
        super().__init__()
        self.looks, self.inner, self.table = looks, nn.Linear(3, 3, dtype=torch.float64), weight(3)

    def forward(self, x):
        table = self.table.expand_as(x) * 2
        return (self.inner(x), table) if self.looks else table + 0 * x.detach()


class Both(nn.Module):
    def forward(self, *parts):
        return sum(parts[0] if len(parts) == 1 else parts)


@either_mode
@pytest.mark.parametrize("looks", [True, pytest.param(False, marks=NEEDS_NO_INPUT)])
def test_a_weight_apart_from_the_input_is_not_lost(looks, mode):
    torch.manual_seed(0)
    modules = [*linears(1), Learned(looks), nn.Sequential(*linears(1), nn.Tanh())]
    if looks:
        modules[2] = Both()
    assert_refused(modules, remat(gp.ZBH1(3, 4), mode), "at stage 1 .* may lose gradient that table gets")
    assert_whole_backwards_work(modules)


class Partly(nn.Module):
    """A weight that one output owes to the input too, and the other does not."""

    def __init__(self, how: str):
        super().__init__()
        self.how, self.inner, self.scale = how, nn.Linear(3, 3, dtype=torch.float64), weight(3)

    def forward(self, x):
        if self.how == "expanded":
            return self.inner(x) + self.scale, self.scale.expand_as(x)
        if self.how == "itself":
            return self.inner(x), self.scale
        return self.inner(x) * self.scale, self.inner(x.detach())


@either_mode
@pytest.mark.parametrize("how", ["expanded", "itself", "detached"])
def test_a_weight_that_is_apart_in_one_output_only_is_not_lost_in_part(how, mode):
    torch.manual_seed(0)
    modules = [*linears(1), Partly(how), Both()]
    name = "inner.weight" if how == "detached" else "scale"
    assert_refused(modules, remat(gp.ZBH1(3, 4), mode), f"at stage 1 .* may lose gradient that {name} gets")
    assert all(parameter.requires_grad for parameter in modules[1].parameters())
    assert_whole_backwards_work(modules)


class Unused(nn.Module):
    """Of two, the first."""

    def forward(self, *parts):
        return (parts[0] if len(parts) == 1 else parts)[0].tanh()


@either_mode
@needs_zeros
def test_a_weight_apart_in_an_output_that_nobody_uses_loses_nothing(mode):
    torch.manual_seed(0)
    modules = [*linears(1), Partly("expanded"), Unused()]
    assert_like_autograd(modules, remat(gp.ZBH1(3, 4), mode), some_batch())


class Remembers(nn.Module):
    """A function of one's own may keep what it likes under the name that autograd's leaves have."""

    def forward(self, x):
        return _Remembers.apply(x)


class _Remembers(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.variable = [1]
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def test_what_a_function_remembers_is_no_weight():
    modules = [*linears(1), nn.Sequential(*linears(1), Remembers()), *linears(1)]
    assert_like_autograd(modules, gp.ZBH1(3, 4), some_batch())


def test_a_first_stage_may_have_one():
    torch.manual_seed(0)
    assert_like_autograd([Learned(True), Both()], gp.ZBH1(2, 4), some_batch())


def test_so_may_any_stage_if_it_does_not_learn():
    torch.manual_seed(0)
    modules = [*linears(1), Learned(True), Both()]
    modules[1].table.requires_grad_(False)
    assert_like_autograd(modules, gp.ZBH1(3, 4), some_batch())


# Weights whose ways meet the input's more than once


class Autoencoder(nn.Module):
    """There by a weight, and back by its transpose."""

    def __init__(self):
        super().__init__()
        self.weight = weight(3, 3)

    def forward(self, x):
        return torch.tanh(x @ self.weight) @ self.weight.T


class TwoBiases(nn.Module):
    """One weight, with a bias of its own each time."""

    def __init__(self):
        super().__init__()
        self.weight, self.before, self.after = weight(3, 3), weight(3), weight(3)

    def forward(self, x):
        inner = nn.functional.linear(x, self.weight, self.before).tanh()
        return nn.functional.linear(inner, self.weight, self.after)


class Branches(nn.Module):
    """What a norm gives goes two ways."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(3, dtype=torch.float64)
        self.left, self.right = (nn.Linear(3, 3, dtype=torch.float64) for _ in range(2))

    def forward(self, x):
        x = self.norm(x)
        return self.left(x).tanh() * self.right(x)


class ScaledTwice(nn.Module):
    """One scale, before a layer and after it."""

    def __init__(self):
        super().__init__()
        self.scale, self.inner = weight(3), nn.Linear(3, 3, dtype=torch.float64)

    def forward(self, x):
        return self.inner(x * self.scale) * self.scale


@either_mode
@pytest.mark.parametrize("kind", [Autoencoder, TwoBiases, Branches, ScaledTwice])
def test_weights_in_several_places_count_once_or_are_refused(kind, mode):
    """Which of the two depends on the release of torch; never a wrong number, nor words of autograd's."""
    torch.manual_seed(0)
    modules = [*linears(1), kind()]
    schedule = remat(gp.ZBH1(2, 4), mode)
    assert_whole_backwards_work(modules)
    for module in modules:
        module.zero_grad()
    try:
        assert_like_autograd(modules, schedule, some_batch())
    except gp.ScheduleError:
        assert_refused(modules, schedule, r"at stage 1 .* may (count|go|lose).* \w+")


# Several weights with one gradient


class Summed(nn.Module):
    """Two parameters that autograd gives one and the same gradient."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3, dtype=torch.float64)
        self.position, self.kind = (nn.Parameter(torch.ones(3, dtype=torch.float64)) for _ in range(2))

    def forward(self, x):
        return torch.tanh(self.inner(x + (self.position + self.kind)))


@pytest.mark.parametrize("schedule", [gp.OneFOneB(3, 4), gp.ZBH1(3, 4), gp.ZBH2(3, 5)], ids=repr)
def test_parameters_with_one_gradient_each_get_their_own(schedule):
    assert_like_autograd([Summed() for _ in range(3)], schedule, some_batch(2 * schedule.microbatches))


class Squares(nn.Module):
    """What a compiler may save for the backward, and let go of in it."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3, dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(self.inner(x))


def compiled_step(donated: bool) -> gp.StepResult:
    torch._dynamo.reset()
    modules = [torch.compile(Squares(), backend="aot_eager") for _ in range(2)]
    with torch._functorch.config.patch(donated_buffer=donated):
        return train_step(modules, gp.ZBH1(2, 4), some_batch(), mse)


def test_a_compiled_stage_is_told_what_makes_it_work():
    """A compiler may give memory of the forward away in the backward: I then leaves none to W."""
    with pytest.raises(RuntimeError) as error:
        compiled_step(donated=True)
    assert any("torch._functorch.config.donated_buffer = False" in note for note in error.value.__notes__)


@pytest.mark.skipif(not COUNTS_ONCE, reason="torch before 2.13 splits no compiled backward")
def test_and_that_does_make_it_work():
    torch.manual_seed(0)
    found = compiled_step(donated=False)
    torch.manual_seed(0)
    assert found.loss == train_step([Squares() for _ in range(2)], gp.GPipe(2, 4), some_batch(), mse).loss
