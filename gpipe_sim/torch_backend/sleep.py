"""A stage that takes time without a core: real messages, real gradients, and a clock known beforehand."""

import time

import torch
from torch import Tensor, nn

AWAKE = 0.0003  #: seconds before the end at which a sleeper wakes up, because sleeps end late


class Sleep(nn.Module):
    """y = x + weight + shift; ``forward``, ``input_grad`` and ``weight_grad`` are how many ms it sleeps.

    Several of them overlap on one core, so any laptop can be four devices. Both parameters are single zeros;
    ``shift`` makes the input gradient be computed on the first stage too, as within a deep stage.
    """

    def __init__(self, forward: float = 20, input_grad: float = 20, weight_grad: float = 20):
        super().__init__()
        self.times = forward, input_grad, weight_grad
        self.weight = nn.Parameter(torch.zeros(1))
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        forward, input_grad, weight_grad = self.times
        passed = _Through.apply(x + self.shift, forward, input_grad)
        return passed + _Through.apply(self.weight, 0, weight_grad)

    def extra_repr(self) -> str:
        return "forward={}, input_grad={}, weight_grad={}".format(*self.times)


class _Through(torch.autograd.Function):
    """The identity, which sleeps on its way there and on its way back.

    It saves its input, as real work would, so that a checkpoint has something to recompute.
    """

    @staticmethod
    def forward(ctx, x: Tensor, there: float, back: float) -> Tensor:
        ctx.back = back
        ctx.save_for_backward(x)
        _sleep(there)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None, None]:
        _ = ctx.saved_tensors
        _sleep(ctx.back)
        return gradient.clone(), None, None


def _sleep(milliseconds: float) -> None:
    """Sleep, and look at the clock for the last moment of it, giving way to others meanwhile."""
    end = time.perf_counter() + milliseconds / 1000
    time.sleep(max(0, milliseconds / 1000 - AWAKE))
    while time.perf_counter() < end:
        time.sleep(0)
