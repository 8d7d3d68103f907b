"""A canary: before a first step two tiny ones, with every kind of action, are compared with plain autograd.

A torch whose engine does something else ends here in ``UnsupportedTorch``, if a small step shows it, and not
in gradients that are merely wrong. The canary goes the way of the user's own step, through the same
processes, once in a process group: 40 milliseconds in one process, 100 in two that take seconds to start.
"""

import copy
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gpipe_sim.core.explicit import Explicit
from gpipe_sim.torch_backend.ambient import ambient
from gpipe_sim.torch_backend.private import UnsupportedTorch, raised_in

if TYPE_CHECKING:
    from gpipe_sim.torch_backend.rank import Rank

_FLEW: set[tuple] = set()


def require_right(rank: "Rank") -> None:
    """UnsupportedTorch unless a canary on this rank's processes gives what plain autograd gives.

    All of them call it at once, and hear of it if another's numbers are wrong.
    """
    here = rank.group, frozenset(home.type for home in rank.homes.values())
    if here in _FLEW:
        return
    try:
        wrong = _wrong(rank)
    except Exception as error:
        apart = isinstance(error, RuntimeError) and raised_in(error, "torch.distributed")
        if apart and dist.get_world_size(rank.group) > 1:
            raise  # another process is gone, and has said why
        raise UnsupportedTorch(f"fails in a small step before the first ({error!r})") from error
    found: list[set[str]] = [set()] * dist.get_world_size(rank.group)
    dist.all_gather_object(found, wrong, group=rank.group)
    if wrong := set().union(*found):
        raise UnsupportedTorch(f"gives wrong {' and '.join(sorted(wrong))} in a small step before the first")
    _FLEW.add(here)


class _Both(torch.autograd.Function):
    """A node with two outputs, as an LSTM is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, weight)
        return x * weight, x + weight

    @staticmethod
    def backward(ctx: Any, product: Tensor, total: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return product * weight + total, (product * x + total).sum(0)


class _Layer(nn.Module):
    """Tokens in, or three tensors; out come three that differ, of which the next layer may leave out one.

    Rows of a microbatch need each other. ``square`` is used twice, ``row`` and ``other`` share their
    gradient, that of ``steep`` is infinite, and ``idle`` has none. ``mean`` runs along. ``saw`` is what its
    forwards found set, and drew.
    """

    def __init__(self, stage: int, last: int):
        super().__init__()
        self.last, self.uses_all, self.called = stage == last, True, 0
        self.saw: list[tuple] = []
        numbers = torch.arange(18 * stage, 18 * stage + 18, dtype=torch.float64, device="cpu").sin()
        self.square = nn.Parameter(numbers[:9].view(3, 3))
        self.row, self.other, self.scale = map(nn.Parameter, numbers[9:].view(3, 3))
        self.steep, self.idle = (nn.Parameter(torch.zeros_like(numbers[:3])) for _ in range(2))
        self.both = nn.Parameter(numbers[3:6].clone())
        self.register_buffer("mean", torch.zeros_like(numbers[:3]))
        self.train(stage % 2 == 0)

    def forward(self, x: Tensor, along: Tensor | None = None, spare: Tensor | float = 0.0) -> Any:
        self.saw.append((self.training, ambient(), torch.rand((), device="cpu").item()))
        if along is None:
            along = x = self.square[x]
        x = torch.tanh((x + spare if self.uses_all else x) @ self.square)
        y, along = torch.tanh(x @ self.square + (self.row + self.other)), along * self.scale
        product, total = _Both.apply(y, self.both)
        y = product + total.sin()
        y = y - y.mean(0) / 2 + self.steep.sqrt()
        self.mean.mul_(0.5).add_(y.detach().mean(0))
        return y * along if self.last else (y, along, x.sin())

    def count(self, _: Tensor) -> None:
        self.called += 1


def _loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return 100 * (outputs - targets).square().mean()  # so that whoever clips gradients, clips these


def order(devices: int) -> Explicit:
    """A V of two stages on each device: all forwards, then I, W and B; on device 0 a pair is overlapped.

    W comes before B, or nobody would see that torch gives two weights one tensor for a gradient.
    """
    last, rows = 2 * devices - 1, []
    for k in range(devices):
        forwards = [f"{stage}F{m}" for stage in (k, last - k) for m in range(3)]
        backwards = ("I0", "I1", "W0", "W1", "B2")
        rows.append([*forwards, *(f"{stage}{one}" for stage in (last - k, k) for one in backwards)])
    pair = f"({last}F2;{last}B1)OVERLAP_F_B"
    rows[0][5:11] = [f"{last}I0", f"{last}W0", pair, f"{last}I2", f"{last}W2"]
    return Explicit(rows, placement=[(k, last - k) for k in range(devices)])


def _wrong(rank: "Rank") -> set[str]:
    """What differs from plain autograd on this process, in two steps with other batches."""
    devices, own = dist.get_world_size(rank.group), dist.get_rank(rank.group)
    last, seed = 2 * devices - 1, torch.initial_seed()
    homes = {own: rank.homes[min(rank.homes)], last - own: rank.homes[max(rank.homes)]}
    layers = [_Layer(stage, last) for stage in range(last + 1)]
    if homes[own] == homes[last - own]:
        for stage in range(devices):
            layers[last - stage].scale = layers[stage].scale
    modules = copy.deepcopy({stage: layers[stage] for stage in homes})
    for stage, module in modules.items():
        module.to(homes[stage])
        if stage == 0:
            module.row.register_post_accumulate_grad_hook(module.count)
    tokens = torch.arange(6, device="cpu") % 3
    targets = torch.arange(18, device="cpu").view(6, 3) / 8  # every microbatch has another loss
    batches = (tokens, targets), (tokens.flip(0), targets.flip(0))
    all_kinds, recomputed = order(devices), {own: {2}, last - own: {2}}
    task = rank.task._replace(order=all_kinds, recomputed=recomputed, microbatches=3)
    fresh = type(rank)(modules, task, _loss, homes, rank.group)
    fresh.runtime = "none that fits"  # or it would ask for a canary, too
    results: list[Any] = []
    with torch.random.fork_rng(devices=[]):
        for x, y in batches:
            _use(modules.values(), not results)
            results.append(fresh.step(x, y))
        wrong = {"random numbers"} if torch.initial_seed() != seed else set()  # other threads may draw some
        for turn, (batch, result) in enumerate(zip(batches, results, strict=True)):
            _use(layers, not turn)
            wrong |= _differences(layers, modules, batch, result)
    if any(len({drawn for *_, drawn in module.saw}) not in (6, 7) for module in modules.values()):
        wrong.add("random numbers")
    if not all(_near(module.mean, layers[stage].mean) for stage, module in modules.items()):
        wrong.add("buffers")
    if 0 in modules and not modules[0].called:
        wrong.add("hooks")
    return wrong if all(stage.seen or stage.is_first for stage in fresh.runtime._stages) else wrong | {"ways"}


def _use(layers: Iterable[_Layer], everything: bool) -> None:
    for layer in layers:
        layer.uses_all = everything


def _differences(layers: Sequence[_Layer], modules: dict[int, _Layer], batch: tuple, result: Any) -> set[str]:
    """What is not as plain autograd has it, microbatch by microbatch."""
    nn.ModuleList(layers).zero_grad()
    losses, outputs = [], []
    for x, y in zip(*(whole.chunk(3) for whole in batch), strict=True):
        passed = (x,)
        for layer in layers:
            passed = layer(*passed)
        losses.append(_loss(passed, y) / 3)
        losses[-1].backward()
        outputs.append(passed)
    checks = []
    for stage, module in modules.items():
        for name, weight in layers[stage].named_parameters():
            checks.append(("gradients", _near(result.gradients.get((stage, name)), weight.grad)))
        checks.append(("settings", {see[:2] for see in module.saw} == {see[:2] for see in layers[stage].saw}))
        if module.last:
            total = torch.tensor(result.loss, dtype=torch.float64)
            both = (total, sum(losses)), (result.outputs, torch.cat(outputs))
            checks += [(name, _near(*pair)) for name, pair in zip(("loss", "outputs"), both, strict=True)]
    return {what for what, right in checks if not right}


def _near(found: Tensor | None, right: Tensor | None) -> bool:
    if found is None or right is None:
        return found is right
    return torch.allclose(found.cpu(), right, rtol=1e-9, atol=1e-12, equal_nan=True)
