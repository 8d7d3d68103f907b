"""A canary: before a first step a tiny one, with every kind of action, is compared with plain autograd.

A torch whose engine does something else ends here in ``UnsupportedTorch``, whatever it is that it does, and
not in gradients that are merely wrong. The canary goes the way of the user's own step, through the same
processes, once in a process group, and takes milliseconds.
"""

import copy
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gpipe_sim.core.explicit import Explicit
from gpipe_sim.torch_backend.private import UnsupportedTorch, raised_in
from gpipe_sim.torch_backend.tensors import parameters_of

if TYPE_CHECKING:
    from gpipe_sim.torch_backend.rank import Rank, RankResult

MICROBATCHES = 3
_FLEW: set[tuple] = set()


def require_right(rank: "Rank") -> None:
    """UnsupportedTorch unless a canary on this rank's processes gives what plain autograd gives.

    All of them call it at once, and hear of it if another's numbers are wrong.
    """
    here = rank.group, frozenset(home.type for home in rank.homes.values()), rank.task.defer_pp_recv
    if here not in _FLEW:
        _FLEW.add(here)  # the canary's own step asks, too
        try:
            _fly(rank)
        except BaseException:
            _FLEW.remove(here)
            raise


def _fly(rank: "Rank") -> None:
    try:
        wrong = _wrong(rank)
    except UnsupportedTorch:
        raise
    except Exception as error:
        apart = isinstance(error, RuntimeError) and raised_in(error, "torch.distributed")
        if apart and dist.get_world_size(rank.group) > 1:
            raise  # another process is gone, and has said why
        raise UnsupportedTorch(f"fails in a small step before the first ({error!r})") from error
    found: list[set[str]] = [set()] * dist.get_world_size(rank.group)
    dist.all_gather_object(found, wrong, group=rank.group)
    if all_wrong := sorted(set().union(*found)):
        raise UnsupportedTorch(f"gives wrong {' and '.join(all_wrong)} in a small step before the first")


class _Layer(nn.Module):
    """Tokens in, or two tensors; out come two that differ. ``row`` and ``other`` share their gradient."""

    def __init__(self, stage: int, last: int):
        super().__init__()
        self.last = stage == last
        numbers = torch.arange(18 * stage, 18 * stage + 18, dtype=torch.float64, device="cpu").sin()
        self.square = nn.Parameter(numbers[:9].view(3, 3))
        self.row, self.other, self.scale = map(nn.Parameter, numbers[9:].view(3, 3))
        self.register_buffer("forwards", torch.zeros(1, device="cpu"))

    def forward(self, x: Tensor, along: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        self.forwards += 1
        if along is None:
            along = x = self.square[x]
        y, along = torch.tanh(x @ self.square + (self.row + self.other)), along * self.scale
        return y * along if self.last else (y, along)


def _loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().mean()


def order(devices: int) -> Explicit:
    """A V of two stages on each device: all forwards, then B, I and W; on device 0 a pair is overlapped."""
    last, rows = 2 * devices - 1, []
    for held in ((k, last - k) for k in range(devices)):
        forwards = [f"{stage}F{m}" for stage in held for m in range(MICROBATCHES)]
        backwards = [f"{stage}{rest}" for stage in held[::-1] for rest in ("B0", "I1", "I2", "W1", "W2")]
        rows.append(forwards + backwards)
    rows[0][5:7] = [f"({last}F2;{last}B0)OVERLAP_F_B"]
    return Explicit(rows, placement=[[k, last - k] for k in range(devices)])


def _wrong(rank: "Rank") -> set[str]:
    """What differs from plain autograd on this process."""
    devices, own = dist.get_world_size(rank.group), dist.get_rank(rank.group)
    last = 2 * devices - 1
    homes = {own: rank.homes[min(rank.homes)], last - own: rank.homes[max(rank.homes)]}
    layers = [_Layer(stage, last) for stage in range(last + 1)]
    modules = {stage: copy.deepcopy(layers[stage]).to(home) for stage, home in homes.items()}
    tokens = torch.arange(2 * MICROBATCHES, device="cpu") % 3
    targets = torch.arange(6 * MICROBATCHES, device="cpu").view(-1, 3) / 8  # so losses differ
    task = rank.task._replace(order=order(devices), recomputed=dict.fromkeys(homes, {2}), metered=())
    result = type(rank)(modules, task, _loss, homes, rank.group).step(tokens, targets)

    outputs = []
    for x in tokens.tensor_split(MICROBATCHES):
        passed = (x,)
        for layer in layers[:-1]:
            passed = layer(*passed)
        outputs.append(layers[-1](*passed))
    loss = _loss(torch.cat(outputs), targets)
    loss.backward()
    wanted = dict(parameters_of(dict(enumerate(layers))))
    pairs = [("gradients", result.gradients[key], wanted[key].grad) for key, _ in parameters_of(modules)]
    pairs += [("buffers", module.forwards, layers[stage].forwards) for stage, module in modules.items()]
    if last in modules:
        pairs += [("loss", torch.tensor(result.loss, dtype=loss.dtype), loss), ("outputs", result.outputs, torch.cat(outputs))]
    return {
        what
        for what, found, right in pairs
        if not torch.allclose(found.to("cpu", torch.float64), right.to(torch.float64), rtol=1e-9, atol=1e-12)
    }
