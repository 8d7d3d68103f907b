"""A stage that takes time without a core: real messages, real gradients, and a clock known beforehand."""

import math
import time

import torch
from torch import Tensor, nn

from gpipe_sim.errors import require_in

MOST_LATE = 0.001  #: seconds that a sleep is shortened by at most

_late = 0.0  # how many seconds too late the last sleeps of this process would have ended


class Sleep(nn.Module):
    """y = x + weight + shift; ``forward``, ``input_grad`` and ``weight_grad`` are how many ms it sleeps.

    Several of them overlap on one core, so any laptop can be four devices. Both parameters are single zeros;
    ``shift`` makes the input gradient be computed on the first stage too, as within a deep stage.
    """

    def __init__(self, forward: float = 20, input_grad: float = 20, weight_grad: float = 20):
        super().__init__()
        self.times = forward, input_grad, weight_grad
        for name, took in zip(("forward", "input_grad", "weight_grad"), self.times, strict=True):
            require_in("Sleep", name, took, 0, math.inf)
        self.weight = nn.Parameter(torch.zeros(1))
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        forward, input_grad, weight_grad = self.times
        until = _after(forward)
        weight = _Through.apply(self.weight, until, weight_grad, False)
        return weight + _Through.apply(x + self.shift, until, input_grad, True)

    def extra_repr(self) -> str:
        return "forward={}, input_grad={}, weight_grad={}".format(*self.times)


class _Through(torch.autograd.Function):
    """The identity, which sleeps on its way back, and where told on its way there.

    What it computes comes before its sleep, and so is part of it: a process that has just slept is slow. It
    saves its input, as real work would, so that a checkpoint has something to recompute.
    """

    @staticmethod
    def forward(ctx, x: Tensor, until: float, back: float, sleeps: bool) -> Tensor:
        ctx.back = back
        ctx.save_for_backward(x)
        y = x.clone()
        if sleeps:
            _sleep(until)
        return y

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        _ = ctx.saved_tensors  # a checkpoint recomputes here, which takes its own time
        until = _after(ctx.back)
        passed = gradient.clone()
        _sleep(until)
        return passed, None, None, None


def _after(milliseconds: float) -> float:
    return time.perf_counter() + milliseconds / 1000


def _sleep(until: float) -> None:
    """Sleep until then. Sleeps end late, so each is cut short by as much as the last ones were late."""
    global _late
    time.sleep(max(0, until - time.perf_counter() - _late))
    _late = min(MOST_LATE, max(0, _late + (time.perf_counter() - until) / 4))
