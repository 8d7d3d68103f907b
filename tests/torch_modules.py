"""Stages for the tests, plain or misbehaving: a local process can import what is here, and not a test."""

import ipaddress
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, ScheduleZBVZeroBubble

from gpipe_sim.torch_backend import worker


def linears(count: int = 2, width: int = 3) -> list[nn.Module]:
    torch.manual_seed(count)
    return [nn.Linear(width, width, dtype=torch.float64) for _ in range(count)]


def some_batch(
    samples: int = 8, width: int = 3, shape: tuple[int, ...] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs of this width, or of this shape each; targets of this width."""
    rng = np.random.default_rng(samples)
    return rng.normal(size=(samples, *(shape or (width,)))), rng.normal(size=(samples, width))


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


class Prints(Stage):
    """To where the replies go, in Python and below it."""

    def act(self) -> None:
        print("a module may print \u2013 once", flush=True)
        os.write(1, b"\x80\x04K\x07." * 100)


class Waits(Stage):
    """Long enough for the test to do something meanwhile."""

    def act(self) -> None:
        time.sleep(60)


class Hangs(Stage):
    """In its second microbatch; the engine's look at its output is a forward, too."""

    def __init__(self):
        super().__init__()
        self.runs = 0

    def act(self) -> None:
        self.runs += 1
        while self.runs > 2:
            time.sleep(0.01)


class Tells(Stage):
    """Shifts by whether autocast is on, and by the size of a new number."""

    def __init__(self):
        super().__init__()
        self.float()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + torch.is_autocast_enabled("cpu") + torch.empty(0).element_size()


class Asks(Stage):
    """As a breakpoint would."""

    def act(self) -> None:
        input("continue?")


def half_of_squares(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss of one's own."""
    return ((outputs - targets) ** 2).mean() / 2


def doubled(module: nn.Module, args: tuple, output: Tensor) -> Tensor:
    """A hook on a forward."""
    return 2 * output


def rank() -> int:
    return torch.distributed.get_rank()


def listening() -> list[str]:
    """The addresses on which this process waits for others to connect."""
    own = {
        os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.exists() or path.is_symlink()
    }
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/self/net", table).read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in own:
                words = bytes.fromhex(local.split(":")[0])  # of four bytes, each the other way round
                address = b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4))
                found.append(str(ipaddress.ip_address(address)))
    return found


def files_and_engines() -> tuple[int, int]:
    """How many files this process has open, and how many pipelines it remembers."""
    return len(os.listdir("/proc/self/fd")), len(worker._RANKS)


class Tied(nn.Module):
    """One weight, used twice."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.inner(x).tanh())


class LastOf(nn.Module):
    """What a recurrent layer (batch, time, features) has in the end: a view."""

    def __init__(self, kind: type[nn.RNNBase]):
        super().__init__()
        self.recurrent = kind(3, 3, batch_first=True, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.recurrent(x)[0][:, -1]


class Unfollowed(nn.Module):
    """Autograd sees nothing of it."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3, dtype=torch.float64)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


class Counts(nn.Module):
    """Times a buffer, which it then raises by 1, and which no checkpoint of it would hold."""

    def __init__(self):
        super().__init__()
        self.register_buffer("factor", torch.ones(1, dtype=torch.float64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.factor.clone()
        self.factor += 1
        return y


class Gives(Stage):
    """What a function makes of the input, which may be anything."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor):
        return self.function(x * self.weight)


class Idle(nn.Linear):
    """With a parameter that it does not use."""

    def __init__(self):
        super().__init__(3, 3, dtype=torch.float64)
        self.idle = nn.Parameter(torch.ones(1, dtype=torch.float64))


class Unreadable:
    """It can be sent, and not be read."""

    def __reduce__(self):
        return _unreadable, ()


def _unreadable() -> None:
    raise ValueError("nobody can read this")


class Pair(nn.Module):
    """Two tensors, where a loss expects one."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


class Scaled(nn.Sequential):
    """Layers, and a parameter of their own."""

    def __init__(self, *layers: nn.Module):
        super().__init__(*layers)
        self.scale = nn.Parameter(torch.ones(1, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.scale


class Head(nn.Module):
    """Scores for each token, by the weights of the embedding that it is tied to."""

    def __init__(self, embedding: nn.Embedding):
        super().__init__()
        self.weight = embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T


def tied_ends(between: int = 2) -> list[nn.Module]:
    """An embedding, stages of a layer each, and a head with the embedding's weights."""
    torch.manual_seed(0)
    embedding = nn.Embedding(11, 6, dtype=torch.float64)
    layers = [nn.Sequential(nn.Linear(6, 6, dtype=torch.float64), nn.Tanh()) for _ in range(between)]
    return [embedding, *layers, Head(embedding)]


def tokens(samples: int = 16) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.integers(0, 11, samples), rng.integers(0, 11, samples)


def tied_by_torch() -> Tensor:
    """The gradient of the tied weights by PyTorch's own ZB-V, on two processes, as it is by default."""
    modules, rank = tied_ends(), torch.distributed.get_rank()
    stages = [PipelineStage(modules[stage], stage, 4, torch.device("cpu")) for stage in (rank, 3 - rank)]
    schedule = ScheduleZBVZeroBubble(stages, 8, loss_fn=nn.functional.cross_entropy)
    x, targets = map(torch.tensor, tokens())
    if rank:
        schedule.step()
    else:
        schedule.step(x, target=targets, losses=[])
    return modules[rank].weight.grad if rank == 0 else torch.zeros(1)
