"""A canary: before a first step two tiny ones, with every kind of action, are compared with plain autograd.

A torch whose engine does something else ends here in ``UnsupportedTorch``, whatever it is that it does, and
not in gradients that are merely wrong. The canary goes the way of the user's own step, through the same
processes, once in a process group: 15 milliseconds in one process, 90 in two that take seconds to start.
"""

import copy
from itertools import product
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gpipe_sim.core.explicit import Explicit
from gpipe_sim.torch_backend.ambient import Ambient
from gpipe_sim.torch_backend.private import UnsupportedTorch, raised_in

if TYPE_CHECKING:
    from gpipe_sim.torch_backend.rank import Rank

_FLEW: set[tuple] = set()


def require_right(rank: "Rank") -> None:
    """UnsupportedTorch unless a canary on this rank's processes gives what plain autograd gives.

    All of them call it at once, and hear of it if another's numbers are wrong.
    """
    task, kinds = rank.task, frozenset(home.type for home in rank.homes.values())
    here = rank.group, kinds, task.defer_pp_recv, bool(task.metered)
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


class _Layer(nn.Module):
    """Tokens in, or two tensors; out come two that differ. ``row`` and ``other`` share their gradient.

    ``under`` is what its forwards found set.
    """

    def __init__(self, stage: int, last: int):
        super().__init__()
        self.last, self.under = stage == last, set[tuple]()
        numbers = torch.arange(18 * stage, 18 * stage + 18, dtype=torch.float64, device="cpu").sin()
        self.square = nn.Parameter(numbers[:9].view(3, 3))
        self.row, self.other, self.scale = map(nn.Parameter, numbers[9:].view(3, 3))

    def forward(self, x: Tensor, along: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        self.under.add((self.training, Ambient.here()))
        if along is None:
            along = x = self.square[x]
        y, along = torch.tanh(x @ self.square + (self.row + self.other)), along * self.scale
        return y * along if self.last else (y, along)


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
    """What differs from plain autograd on this process, in two steps."""
    devices, own = dist.get_world_size(rank.group), dist.get_rank(rank.group)
    last, seed = 2 * devices - 1, torch.initial_seed()
    homes = {own: rank.homes[min(rank.homes)], last - own: rank.homes[max(rank.homes)]}
    layers = [_Layer(stage, last) for stage in range(last + 1)]
    modules = {stage: copy.deepcopy(layers[stage]).to(home) for stage, home in homes.items()}
    tokens = torch.arange(6, device="cpu") % 3
    targets = torch.arange(18, device="cpu").view(6, 3) / 8  # every microbatch has another loss
    all_kinds, recomputed = order(devices), {own: {2}, last - own: {2}}
    metered = rank.task.metered and all_kinds.placement
    task = rank.task._replace(order=all_kinds, recomputed=recomputed, metered=metered, microbatches=3)
    fresh = type(rank)(modules, task, _loss, homes, rank.group)
    fresh.runtime = "none that fits"  # or it would ask for a canary, too
    results = [fresh.step(tokens, targets) for _ in range(2)]

    passed = (tokens,)
    for layer in layers:
        passed = layer(*passed)
    loss = _loss(passed, targets)
    loss.backward()
    checks = [("random numbers", torch.initial_seed() == seed)]  # other threads may draw some
    checks += [("ways", bool(stage.seen) or stage.is_first) for stage in fresh.runtime._stages]
    for stage, result in product(modules, results):
        named = layers[stage].named_parameters()
        checks += [("gradients", _near(result.gradients[stage, name], one.grad)) for name, one in named]
        checks.append(("settings", modules[stage].under == layers[stage].under))
        if stage == last:
            found = torch.tensor(result.loss, dtype=loss.dtype)
            checks += [("loss", _near(found, loss)), ("outputs", _near(result.outputs, passed))]
    return {what for what, right in checks if not right}


def _near(found: Tensor, right: Tensor | None) -> bool:
    return right is not None and torch.allclose(found.cpu(), right, rtol=1e-9, atol=1e-12)
