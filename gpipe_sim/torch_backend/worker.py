"""What a local process does: meet the others, then call what it is told to call, until its input ends."""

import faulthandler
import gc
import math
import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from gpipe_sim.torch_backend.ambient import Ambient
from gpipe_sim.torch_backend.rank import Rank, RankResult, Task
from gpipe_sim.torch_backend.shared import Area, Packed, cloudpickle, understood, unpacked
from gpipe_sim.torch_backend.tensors import parameters_of

STARTING = 120  #: seconds in which processes start and meet, at most
LONGEST = 10 * 365 * 24 * 3600  #: seconds that a message may take: it is not to be what ends first
_WIDTH = 32  #: how many bytes say what is being done

_RANKS: dict[int, "Held"] = {}
_GROUPS: dict[int, dist.ProcessGroup] = {}  # by size: of the first so many processes


class Told(NamedTuple):
    """What a process is told when it starts."""

    rank: int
    size: int
    device: str
    folder: Path
    timeout: float

    def file(self, kind: str) -> Path:
        """Its own file: "log" of what is written below Python, "out" of what is printed, "doing"."""
        return self.folder / f"{self.rank}.{kind}"


def main() -> None:
    rank, size, device, folder, timeout = sys.argv[1:]
    told = Told(int(rank), int(size), device, Path(folder), float(timeout))
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what user code prints goes to a file, not between the replies
    orders = os.fdopen(os.dup(0), "rb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # what user code reads is not what it is ordered
    sys.stdout = sys.stderr = open(told.file("out"), "a", buffering=1)  # noqa: SIM115
    Held.tell = _teller(told)
    faulthandler.enable(file=2)  # what crashes says where
    gc.freeze()  # or every full collection looks through all of torch again, in the middle of a step
    _answer(replies, _meet, (told,), STARTING)
    while True:
        try:
            function, args = understood(lambda: pickle.load(orders))
        except EOFError:
            return
        except Exception as error:
            function, args = _fail, (error,)
        _answer(replies, function, args, told.timeout)


def _teller(told: Told) -> Callable[[str], object]:
    """Says what is being done, in a file that the caller reads when nothing else is heard of this process."""
    handle = os.open(told.file("doing"), os.O_WRONLY | os.O_CREAT)
    return lambda doing: os.pwrite(handle, doing.ljust(_WIDTH).encode(), 0)


def _meet(told: Told) -> None:
    device = torch.device(told.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = "nccl" if device.type == "cuda" else "gloo"
    store = dist.FileStore(str(told.folder / "meet"), told.size)  # init_method="file://..." hangs on a space
    longest = timedelta(seconds=LONGEST)
    dist.init_process_group(backend, store=store, rank=told.rank, world_size=told.size, timeout=longest)


def _fail(error: Exception) -> None:
    raise error


def _answer(replies: Any, function: Callable, args: tuple, timeout: float) -> None:
    """Call, and reply with the result or with the error; an error that cannot travel goes as text.

    If it takes longer than the timeout, this process writes where it is, and ends, whoever is still there.
    """
    if math.isfinite(timeout):
        faulthandler.dump_traceback_later(timeout, exit=True, file=2)
    try:
        reply = cloudpickle.dumps((True, function(*args)))
    except Exception as error:
        reply = _pickled_failure(error, traceback.format_exc())
    faulthandler.cancel_dump_traceback_later()
    replies.write(reply)
    replies.flush()


def _pickled_failure(error: Exception, trace: str) -> bytes:
    try:
        reply = cloudpickle.dumps((False, (error, trace), time.monotonic()))
        pickle.loads(reply)
    except Exception:
        plain = RuntimeError(f"{type(error).__name__}: {error}")
        for note in getattr(error, "__notes__", ()):
            plain.add_note(note)
        return pickle.dumps((False, (plain, trace), time.monotonic()))
    return reply


class Held:
    """The stages of one pipeline that this process has, in memory that the caller sees."""

    tell: Callable[[str], object]

    def __init__(self, rank: Rank, area: Area, own: list[Tensor]):
        self.rank, self.area, self.own = rank, area, own
        number = {id(tensor): index for index, tensor in enumerate(own)}
        self.parameters = {key: number[id(one)] for key, one in parameters_of(rank.modules)}
        self.buffers = {
            (stage, name): number[id(buffer)]
            for stage, module in rank.modules.items()
            for name, buffer in module.named_buffers()
            if id(buffer) in number
        }

    @torch.no_grad()
    def load(self) -> None:
        """The caller's numbers; on a CPU they are there already."""
        for made, memory in zip(self.own, self.area.tensors, strict=True):
            if made.data_ptr() != memory.data_ptr():
                made.copy_(memory)

    @torch.no_grad()
    def leave(self, result: RankResult) -> list[int]:
        """Leave gradients and buffers where the caller sees them; return whose gradients these are."""
        for key, gradient in result.gradients.items():
            if key not in self.parameters:
                raise ValueError(
                    f"stage {key[0]} made {key[1]} in its forward, and it is not in the caller's module: "
                    "run the modules once beforehand, one after the other"
                )
            self.area.gradients[self.parameters[key]].copy_(
                gradient.to_dense() if gradient.is_sparse else gradient
            )
        for (stage, name), index in self.buffers.items():
            buffer = self.rank.modules[stage].get_buffer(name)
            if buffer.shape != self.area.tensors[index].shape:
                raise ValueError(
                    f"{name} of stage {stage} changed its shape from {tuple(self.area.tensors[index].shape)} "
                    f"to {tuple(buffer.shape)}, but local processes give back buffers as large as they were"
                )
            if buffer.data_ptr() != self.area.tensors[index].data_ptr():
                self.area.tensors[index].copy_(buffer)
        return sorted({self.parameters[key] for key in result.gradients})


def enroll(size: int, forget: Sequence[int], seed: int) -> None:
    """Before a pipeline: what is random here follows from the caller's seed, and is each process's own."""
    torch.manual_seed(seed + dist.get_rank())
    for gone in forget:
        _RANKS.pop(gone, None)
    if size not in _GROUPS:
        _GROUPS[size] = dist.new_group(list(range(size)))


def build(number: int, packed: Packed, path: Path, device: torch.device, task: Task) -> None:
    """Make what this process does in a pipeline, from modules and a loss as bytes and their memory."""
    area = Area(path, packed.specs)
    path.unlink()
    memory = area.tensors if device.type == "cpu" else [tensor.to(device) for tensor in area.tensors]
    (modules, loss), own = unpacked(packed.data, memory)
    homes, group = dict.fromkeys(modules, device), _GROUPS[task.order.devices]
    rank = Rank(modules, task, loss, homes, group, Held.tell)
    _RANKS[number] = Held(rank, area, own)


def step(number: int, ambient: Ambient, x: Tensor, targets: Tensor) -> tuple[RankResult, list[int]]:
    """A step with the caller's numbers: what it gave, and which of them have gradients."""
    held = _RANKS[number]
    held.load()
    with ambient.applied():
        result = held.rank.step(x, targets)
    learned = held.leave(result)
    outputs = None if result.outputs is None else result.outputs.cpu()
    return result._replace(outputs=outputs, gradients={}), learned
