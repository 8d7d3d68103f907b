"""What PyTorch's split backward gets wrong with some modules: put right, or refused by name."""

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch_autograd import assert_like_autograd  # noqa: E402
from torch_modules import Gives, LastOf, linears, some_batch  # noqa: E402

import gpipe_sim as gp  # noqa: E402
from gpipe_sim import mse, remat  # noqa: E402
from gpipe_sim.core.step import StepResult  # noqa: E402
from gpipe_sim.errors import ScheduleError  # noqa: E402
from gpipe_sim.torch_backend import train_step  # noqa: E402

COUNTS_ONCE = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
needs_zeros = pytest.mark.skipif(not COUNTS_ONCE, reason="torch before 2.13 wants an output to be used")
NEEDS_NO_INPUT = pytest.mark.skipif(not COUNTS_ONCE, reason="torch before 2.13 wants an input to be used")
either_mode = pytest.mark.parametrize("mode", ["never", "always"])


class Ways(nn.Module):
    """Weights of several kinds, of which a function (module, x) uses some in its own way."""

    def __init__(self, function: Callable):
        super().__init__()
        torch.manual_seed(0)
        self.function, self.norm = function, nn.LayerNorm(3, dtype=torch.float64)
        self.left, self.right = (nn.Linear(3, 3, dtype=torch.float64) for _ in range(2))
        self.square = nn.Parameter(torch.randn(3, 3, dtype=torch.float64))
        self.row, self.other = (nn.Parameter(torch.randn(3, dtype=torch.float64)) for _ in range(2))

    def forward(self, *given):
        return self.function(self, *given)


def summed() -> Ways:
    return Ways(lambda own, *parts: sum(parts))


def assert_refused(modules, schedule, says: str, shape: tuple[int, ...] = ()) -> None:
    """A ScheduleError that says so, and ``.grad`` as it was. Whole backwards work."""
    with pytest.raises(ScheduleError, match=f"{says}: use a schedule without I and W"):
        train_step(modules, schedule, some_batch(shape=shape), mse)
    assert all(p.grad is None for stage in modules for p in stage.parameters())
    assert_like_autograd(modules, gp.OneFOneB(len(modules), 4), some_batch(shape=shape))


# A weight that is used more than once


def used_twice() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    """Modules, and the shape of an input that is theirs."""
    torch.manual_seed(0)
    layer = linears(1)[0]
    return {
        "the same layer twice": (nn.Sequential(layer, nn.Tanh(), layer), (3,)),
        "RNN": (LastOf(nn.RNN), (4, 3)),
        "LSTM": (LastOf(nn.LSTM), (4, 3)),
    }


@either_mode
@pytest.mark.parametrize("name", used_twice())
def test_a_weight_used_more_than_once_counts_so_where_backwards_are_whole_or_it_is_refused(name, mode):
    """Nothing asks for the gradient of a first stage's input, so its backward is never split."""
    module, shape = used_twice()[name]
    batch, split = some_batch(shape=shape), remat(gp.ZBH1(2, 4), mode)
    assert_like_autograd([module, *linears(1)], split, batch)
    modules = [*linears(1), used_twice()[name][0]]
    if COUNTS_ONCE:
        assert_like_autograd(modules, remat(gp.OneFOneB(2, 4), mode), batch)
        assert_like_autograd(modules, split, batch)
    else:
        assert_refused(modules, split, r"at stage 1 .* may count the gradient of .*\w more than once", shape)


# A weight that no way to the stage's input meets, or not all of them


@either_mode
@pytest.mark.parametrize(
    ("function", "lost"),
    [
        (lambda own, x: (own.left(x), own.row.expand_as(x) * 2), "row"),
        (lambda own, x: (own.left(x) + own.row, own.row.expand_as(x)), "row"),
        (lambda own, x: (own.left(x), own.row), "row"),
        (lambda own, x: (own.left(x) * own.row, own.left(x.detach())), "left.weight"),
        pytest.param(lambda own, x: own.row.expand_as(x) * 2 + 0 * x.detach(), "row", marks=NEEDS_NO_INPUT),
    ],
    ids=["an output of its own", "expanded", "itself", "detached", "nothing of the input"],
)
def test_a_weight_apart_from_the_input_in_some_output_is_not_lost(function, lost, mode):
    modules = [*linears(1), Ways(function), summed()]
    assert_refused(modules, remat(gp.ZBH1(3, 4), mode), f"at stage 1 .* may lose gradient that {lost} gets")
    assert all(parameter.requires_grad for parameter in modules[1].parameters())


def apart() -> Ways:
    return Ways(lambda own, x: (own.left(x) + own.row, own.row.expand_as(x)))


@either_mode
@needs_zeros
def test_a_weight_apart_in_an_output_that_nobody_uses_loses_nothing(mode):
    modules = [*linears(1), apart(), Ways(lambda own, x, unused: x.tanh())]
    assert_like_autograd(modules, remat(gp.ZBH1(3, 4), mode), some_batch())


def test_a_first_stage_may_have_one_and_so_may_any_if_it_does_not_learn():
    assert_like_autograd([apart(), summed()], gp.ZBH1(2, 4), some_batch())
    modules = [*linears(1), apart(), summed()]
    modules[1].row.requires_grad_(False)
    assert_like_autograd(modules, gp.ZBH1(3, 4), some_batch())


class Remembers(torch.autograd.Function):
    """A function of one's own may keep what it likes under the name that autograd's leaves have."""

    @staticmethod
    def forward(ctx, x):
        ctx.variable = [1]
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def test_what_a_function_remembers_is_no_weight():
    modules = [*linears(1), nn.Sequential(*linears(1), Gives(Remembers.apply)), *linears(1)]
    assert_like_autograd(modules, gp.ZBH1(3, 4), some_batch())


# Weights whose ways meet the input's more than once, or have one gradient


def twice_with_two_biases(own: Ways, x: torch.Tensor) -> torch.Tensor:
    inner = functional.linear(x, own.square, own.row).tanh()
    return functional.linear(inner, own.square, own.other)


def branches(own: Ways, x: torch.Tensor) -> torch.Tensor:
    x = own.norm(x)
    return own.left(x).tanh() * own.right(x)


@either_mode
@pytest.mark.parametrize(
    "function",
    [
        lambda own, x: torch.tanh(x @ own.square) @ own.square.T,
        twice_with_two_biases,
        branches,
        lambda own, x: own.left(x * own.row) * own.row,
    ],
    ids=["autoencoder", "two biases", "branches", "scaled twice"],
)
def test_weights_in_several_places_count_once_or_are_refused(function, mode):
    """Which of the two depends on the release of torch; never a wrong number."""
    modules, schedule = [*linears(1), Ways(function)], remat(gp.ZBH1(2, 4), mode)
    try:
        assert_like_autograd(modules, schedule, some_batch())
    except ScheduleError:
        assert_refused(modules, schedule, r"at stage 1 .* may (count|lose).* \w+")
    except RuntimeError as error:
        assert "second time" in str(error) and "use a schedule without I and W" in "".join(error.__notes__)
    else:
        assert_like_autograd(modules, gp.OneFOneB(2, 4), some_batch())


@pytest.mark.parametrize("schedule", [gp.OneFOneB(3, 4), gp.ZBH1(3, 4), gp.families.ZBH2(3, 5)], ids=repr)
def test_parameters_with_one_gradient_each_get_their_own(schedule):
    modules = [Ways(lambda own, x: torch.tanh(own.left(x + (own.row + own.other)))) for _ in range(3)]
    assert_like_autograd(modules, schedule, some_batch(2 * schedule.microbatches))


# A hook that waits for a whole gradient


def test_a_hook_that_no_w_would_call_is_refused():
    """Stage 0 is never split, so its hook is called once for each microbatch, as without I and W."""
    modules, called = linears(2), []
    modules[0].bias.register_post_accumulate_grad_hook(called.append)
    train_step(modules, gp.ZBH1(2, 4), some_batch(), mse)
    assert len(called) == 4
    modules[1].weight.register_post_accumulate_grad_hook(called.append)
    with pytest.raises(ScheduleError, match=r"^weight of stage 1 has a hook .* schedule without I and W$"):
        train_step(modules, gp.ZBH1(2, 4), some_batch(), mse)
    assert len(called) == 4
    train_step(modules, gp.OneFOneB(2, 4), some_batch(), mse)
    assert len(called) == 12


class Squares(nn.Module):
    """What a compiler may save for the backward, and let go of in it."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3, dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(self.inner(x))


def compiled_step(donated: bool) -> StepResult:
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
