"""Stages for the tests, plain or misbehaving: a local process can import what is here, and not a test."""

import ipaddress
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, ScheduleZBVZeroBubble

from gpipe_sim.torch_backend import LocalProcesses, worker


@cache
def four() -> LocalProcesses:
    """Four processes for every test that leaves them alive; they end with this Python."""
    return LocalProcesses(4)


def linears(count: int = 2, width: int = 3) -> list[nn.Module]:
    torch.manual_seed(count)
    return [nn.Linear(width, width, dtype=torch.float64) for _ in range(count)]


def some_batch(
    samples: int = 8, width: int = 3, shape: tuple[int, ...] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs of this width, or of this shape each; targets of this width."""
    rng = np.random.default_rng(samples)
    return rng.normal(size=(samples, *(shape or (width,)))), rng.normal(size=(samples, width))


class Gives(nn.Module):
    """What a function makes of the input, which may be anything."""

    def __init__(self, function: Callable):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, dtype=torch.float64))
        self.function = function

    def forward(self, x: Tensor):
        return self.function(x * self.weight)


class Does(nn.Module):
    """Passes on what it gets, times its weight; from forward number ``at`` on after a call of anything.

    Forwards are counted from 0, and the engine's look at its output is one of them.
    """

    def __init__(self, function: Callable, *args: Any, at: int = 0):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, dtype=torch.float64))
        self.call, self.at, self.runs = partial(function, *args), at, 0

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        if self.runs > self.at:
            self.call()
        return x * self.weight


class OwnError(Exception):
    """One that takes two arguments, and so cannot be unpickled as exceptions are pickled."""

    def __init__(self, what: str, why: str):
        super().__init__(f"{what}, {why}")


def fail(kind: type[Exception], *args: str) -> None:
    raise kind(*args)


class BrokenBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        raise ZeroDivisionError("in the backward")


def be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def exit_with_3() -> None:
    print("the last words", file=sys.stderr, flush=True)
    os._exit(3)


def print_in_python_and_below() -> None:
    """To where the replies go."""
    print("a module may print \u2013 once", flush=True)
    os.write(1, b"\x80\x04K\x07." * 100)


def told(x: Tensor) -> Tensor:
    """Shifted by whether autocast is on, and by the size of a new number."""
    return x + torch.is_autocast_enabled("cpu") + torch.empty(0).element_size()


def ran(script: str, folder: Path, *launch: str) -> subprocess.CompletedProcess:
    """A script that sees what this Python sees, and is told the folder that it is in."""
    path = folder / "script.py"
    path.write_text(script)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, sys.path)),
        "OMP_NUM_THREADS": "1",  # or torchrun says that it set it
    }
    command = [sys.executable, *launch, path, folder]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def half_of_squares(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss of one's own."""
    return ((outputs - targets) ** 2).mean() / 2


def doubled(module: nn.Module, args: tuple, output: Tensor) -> Tensor:
    """A hook on a forward."""
    return 2 * output


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
    return len(os.listdir("/proc/self/fd")), len(worker.Held.__dict__.get("own", ()))


class LastOf(nn.Module):
    """What a recurrent layer (batch, time, features) has in the end: a view."""

    def __init__(self, kind: type[nn.RNNBase]):
        super().__init__()
        self.recurrent = kind(3, 3, batch_first=True, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.recurrent(x)[0][:, -1]


class Counts(nn.Module):
    """Times a buffer, which it then raises by 1, and which no checkpoint of it would hold."""

    def __init__(self):
        super().__init__()
        self.register_buffer("factor", torch.ones(1, dtype=torch.float64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.factor.clone()
        self.factor += 1
        return y


class Shifted(nn.Linear):
    """With a number that is no buffer, and a tensor that is none."""

    factor, shift = 1, torch.zeros(3, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.factor + self.shift


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


def tied_ends() -> list[nn.Module]:
    """An embedding, stages of a layer each, and a head with the embedding's weights."""
    torch.manual_seed(0)
    embedding = nn.Embedding(11, 6, dtype=torch.float64)
    layers = [nn.Sequential(nn.Linear(6, 6, dtype=torch.float64), nn.Tanh()) for _ in range(2)]
    return [embedding, *layers, Head(embedding)]


def tokens() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.integers(0, 11, 16), rng.integers(0, 11, 16)


def tied_by_torch() -> Tensor:
    """The gradient of the tied weights by PyTorch's own ZB-V, on two processes, as it is by default."""
    modules, rank, cpu = tied_ends(), torch.distributed.get_rank(), torch.device("cpu")
    both = {"group": worker.Held.groups[1]}  # where an earlier pipeline was
    stages = [PipelineStage(modules[stage], stage, 4, cpu, **both) for stage in (rank, 3 - rank)]
    schedule = ScheduleZBVZeroBubble(stages, 8, loss_fn=nn.functional.cross_entropy)
    x, targets = map(torch.tensor, tokens())
    if rank:
        schedule.step()
    else:
        schedule.step(x, target=targets, losses=[])
    return modules[rank].weight.grad if rank == 0 else torch.zeros(1)
