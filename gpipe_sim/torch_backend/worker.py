"""What a local process does: call what it is told to call, until the caller has ended."""

import faulthandler
import gc
import math
import os
import pickle
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from gpipe_sim.torch_backend.ambient import set_ambient
from gpipe_sim.torch_backend.group import kept_near
from gpipe_sim.torch_backend.rank import Rank, Task
from gpipe_sim.torch_backend.sending import cloudpickle, understood, unpacked

LONGEST = 10 * 365 * 24 * 3600  #: seconds that a message may take: it is not to be what ends first


class Reply(NamedTuple):
    """What a process answers: a value; or an error with its traceback, and when."""

    ok: bool
    value: Any
    time: float = 0


def main() -> None:
    """Read calls from the connection that the command line names, and send the replies back."""
    handle, folder, caller = sys.argv[1:]
    threading.Thread(target=_end_with, args=(int(caller), folder), daemon=True).start()
    faulthandler.enable(file=2)  # what crashes says where
    gc.freeze()  # or every full collection looks through all of torch again, in the middle of a step
    end = Connection(int(handle))
    while True:
        try:
            timeout, order = end.recv()
            end.send_bytes(_answer(order, timeout))
        except (EOFError, OSError):
            return


def _end_with(caller: int, folder: str) -> None:
    while os.getppid() == caller:
        time.sleep(0.2)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _answer(order: bytes, timeout: float) -> bytes:
    """Call, and return the reply; an error that cannot travel goes as text.

    If it takes longer than the timeout, this process writes where it is, and ends, whoever is still there.
    """
    if math.isfinite(timeout):
        faulthandler.dump_traceback_later(timeout, exit=True, file=2)
    try:
        function, args = understood(lambda: pickle.loads(order))
        return cloudpickle.dumps(Reply(True, function(*args)))
    except Exception as error:
        return _failure(error, traceback.format_exc())
    finally:
        faulthandler.cancel_dump_traceback_later()


def _failure(error: Exception, trace: str) -> bytes:
    plain = RuntimeError(f"{type(error).__name__}: {error}")
    plain.__notes__ = getattr(error, "__notes__", [])
    reply = b""
    for one in (plain, error):
        with suppress(Exception):
            pickled = cloudpickle.dumps(Reply(False, (one, trace), time.monotonic()))
            pickle.loads(pickled)
            reply = pickled
    return reply


def meet(rank: int, size: int, device: torch.device, folder: Path) -> None:
    """Join the others, and from now on write what is printed to a file that the caller shows."""
    sys.stdout = sys.stderr = open(folder / f"{rank}.out", "a", buffering=1)  # noqa: SIM115
    handle = os.open(folder / f"{rank}.doing", os.O_WRONLY | os.O_CREAT)
    Held.tell = lambda doing: os.pwrite(handle, doing.ljust(32).encode(), 0)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // size))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    store = dist.FileStore(str(folder / "meet"), size)  # init_method="file://..." hangs on a space
    backend, longest = "nccl" if device.type == "cuda" else "gloo", timedelta(seconds=LONGEST)
    with kept_near():
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=longest)
        Held.groups = [dist.new_group(list(range(count + 1))) for count in range(size)]


class Build(NamedTuple):
    """A pipeline's part for one process, but for its numbers: modules and a loss as bytes, and the rest."""

    structure: bytes
    task: Task
    device: torch.device
    seed: int


class Held:
    """The part of the pipeline that this process runs now; another one takes its place.

    ``groups`` are those of the first process, the first two, and so on.
    """

    tell: Callable[[str], object]
    groups: Sequence[dist.ProcessGroup]
    rank: Rank
    own: list[Tensor]

    @classmethod
    def build(cls, build: Build, numbers: Sequence[Tensor]) -> None:
        torch.manual_seed(build.seed + dist.get_rank())
        (modules, loss), cls.own = unpacked(build.structure, numbers)
        homes, group = dict.fromkeys(modules, build.device), cls.groups[build.task.order.devices - 1]
        cls.rank = Rank(modules, build.task, loss, homes, group, cls.tell)


def step(build: Build | None, numbers: Sequence[Tensor], ambient: tuple, x: Tensor, targets: Tensor) -> tuple:
    """A step with the caller's numbers, of the pipeline that was built last or is built now.

    From when to when it ran, what came of it, and the buffers after it.
    """
    if build:
        Held.build(build, [number.to(build.device) for number in numbers])
    else:
        for own, number in zip(Held.own, numbers, strict=True):
            own.data = number.to(own.device)
    set_ambient(ambient)
    began = time.perf_counter()
    result = Held.rank.step(x, targets)
    ended = time.perf_counter()
    outputs = None if result.outputs is None else result.outputs.cpu()
    gradients = {key: gradient.cpu() for key, gradient in result.gradients.items()}
    buffers = {
        (stage, name): buffer.cpu()
        for stage, module in Held.rank.modules.items()
        for name, buffer in module.named_buffers()
    }
    return began, ended, result._replace(outputs=outputs, gradients=gradients), buffers
