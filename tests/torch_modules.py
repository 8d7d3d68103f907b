"""Stages that misbehave, in a file of their own: a local process can import what is here, and not a test."""

import os
import signal
import sys
import time

import torch
from torch import Tensor, nn


class Stage(nn.Module):
    """Passes on what it gets, times its weight, after doing what it is for."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        self.act()
        return x * self.weight

    def act(self) -> None:
        pass


class OwnError(Exception):
    """One that takes two arguments, and so cannot be unpickled as exceptions are pickled."""

    def __init__(self, what: str, why: str):
        super().__init__(f"{what}, {why}")


class Raises(Stage):
    """Raises at its forward number ``at``, counted from 0; the engine's look at its output is one of them."""

    def __init__(self, error: Exception, at: int = 0):
        super().__init__()
        self.error, self.at, self.runs = error, at, 0

    def act(self) -> None:
        self.runs += 1
        if self.runs > self.at:
            raise self.error


class RaisesOwnError(Stage):
    def act(self) -> None:
        raise OwnError("the disk is full", "as it was yesterday")


class RaisesBackward(Stage):
    """Its forward is fine."""

    def forward(self, x: Tensor) -> Tensor:
        return _Broken.apply(x * self.weight)


class _Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        raise ZeroDivisionError("in the backward")


class Killed(Stage):
    def act(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Exits(Stage):
    def act(self) -> None:
        print("the last words", file=sys.stderr, flush=True)
        os._exit(3)


class Quits(Stage):
    def act(self) -> None:
        sys.exit(5)


class Prints(Stage):
    """To where the replies go, in Python and below it."""

    def act(self) -> None:
        print("a module may print", flush=True)
        os.write(1, b"\x80\x04K\x07." * 100)
        sys.stdin.read(0)


class Waits(Stage):
    """Long enough for the test to do something meanwhile."""

    def act(self) -> None:
        time.sleep(60)


class Elsewhere(nn.Linear):
    """Pickled under the name of a module that is nowhere."""

    def __reduce__(self):
        return _from_nowhere, ()


def _from_nowhere() -> None:
    raise AssertionError("never called")


_from_nowhere.__module__ = "torch_modules"


def half_of_squares(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss of one's own."""
    return ((outputs - targets) ** 2).mean() / 2


def rank() -> int:
    return torch.distributed.get_rank()


def raises_key_error() -> None:
    raise KeyError("asked for it")
