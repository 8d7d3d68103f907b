"""Where the processes of a pipeline are: this one, or those that torchrun started."""

import os
from abc import ABC, abstractmethod
from typing import Any, NamedTuple
from zlib import crc32

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gpipe_sim.balance.colocate import colocate
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.torch_backend.counterparts import MeanLoss
from gpipe_sim.torch_backend.modules import (
    CPU,
    Names,
    by_stage,
    chosen,
    devices,
    require_on,
    require_own_gpus,
)
from gpipe_sim.torch_backend.rank import Rank, RankResult, Task
from gpipe_sim.torch_backend.tensors import as_array, grow


class Job(NamedTuple):
    """What a pipeline is to do: modules, a schedule and what each process is told of it, a loss."""

    modules: list[nn.Module]
    schedule: Schedule
    task: Task
    loss: MeanLoss


class Runner(ABC):
    """Runs a step wherever its processes are.

    ``first`` and ``last``: where inputs and targets are needed. ``turns``: whether its devices take turns.
    ``moved``: milliseconds that the last step spent on copies between processes, around its timeline.
    """

    first: torch.device
    last: torch.device
    turns = False
    moved = 0.0

    @abstractmethod
    def step(self, x: Tensor, targets: Tensor) -> list[RankResult]:
        """What each process got out of a step. Every ``.grad`` here has grown."""


class InProcess(Runner):
    """All in this process, in the order of a dependency-respecting merge of the rows."""

    def __init__(self, job: Job, names: Names | None):
        schedule, of_device = job.schedule, chosen(job.schedule, names)
        modules, homes = dict(enumerate(job.modules)), by_stage(schedule, of_device)
        require_on(modules, homes)
        merged = colocate(job.task.order, [0] * schedule.devices)
        self.rank = Rank(modules, job.task._replace(order=merged), job.loss, homes)
        self.first, self.last = homes[0], homes[schedule.stages - 1]
        self.turns = len(set(of_device)) == 1
        self.names = ", ".join(map(str, of_device))

    def step(self, x: Tensor, targets: Tensor) -> list[RankResult]:
        result = self.rank.step(x, targets)
        grow(self.rank.modules, result.gradients)
        return [result]

    def __repr__(self) -> str:
        return self.names


class Torchrun(Runner):
    """This process is one device, started by torchrun, say. Each learns the loss and the spans of all.

    How long it waits for another is up to the process group: ``init_process_group(timeout=...)``.
    """

    def __init__(self, job: Job, names: Names | None):
        schedule, count = job.schedule, dist.get_world_size()
        if count != schedule.devices:
            raise ValueError(
                f"{schedule!r} runs on {schedule.devices} processes, one per device, but there are {count}: "
                f"torchrun --nproc-per-node {schedule.devices} ..."
            )
        if os.environ.get("LOCAL_WORLD_SIZE", str(count)) != str(count):
            raise ValueError("a pipeline runs on one machine, whose clock its processes share")
        device = _named_device(schedule, names) if names is not None else _own_device()
        if device.type == "cuda":
            torch.cuda.set_device(device)
        modules = {stage: job.modules[stage] for stage in sorted(schedule.placement[dist.get_rank()])}
        self.rank = Rank(modules, job.task, job.loss, dict.fromkeys(modules, device))
        require_on(modules, self.rank.homes)
        self.first = self.last = device
        self.compared = False

    def step(self, x: Tensor, targets: Tensor) -> list[RankResult]:
        if not self.compared:  # by the first step only: it is read whole for that, by every process
            require_same(x, targets, bool(self.rank.meters))
            self.compared = True
        own = self.rank.step(x, targets)
        grow(self.rank.modules, own.gradients)
        others = _from_all(own._replace(outputs=None, gradients={}))
        return [own if rank == dist.get_rank() else other for rank, other in enumerate(others)]

    def __repr__(self) -> str:
        return f"{self.first}, process {dist.get_rank()} of {dist.get_world_size()}"


def _named_device(schedule: Schedule, names: Names) -> torch.device:
    of_process = chosen(schedule, names)
    require_own_gpus(of_process)
    return of_process[dist.get_rank()]


def _own_device() -> torch.device:
    """Under torchrun: a GPU for each process of this machine, or the CPU where there is no GPU at all."""
    if not torch.cuda.is_available():
        return CPU
    rank, here = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if here > torch.cuda.device_count():
        raise ValueError(
            f"torchrun started {here} processes here, but there are {len(devices())} GPUs, and NCCL wants "
            "one for each. In one process stages can share a GPU: devices=['cuda:0', 'cuda:0', ...]"
        )
    return torch.device("cuda", rank)


def require_same(x: Tensor, targets: Tensor, meter: bool) -> None:
    """ValueError on every process unless all were given the same batch: one takes inputs, one targets.

    And unless all count bytes or none does: they tell each other.
    """
    for rank, other in enumerate(found := _from_all((_checksum(x), _checksum(targets), meter))):
        if other[2] != found[0][2]:
            one, none = (rank, 0) if other[2] else (0, rank)
            raise ValueError(
                f"process {one} counts bytes, and process {none} does not: give every process the same meter="
            )
        if other != found[0]:
            raise ValueError(
                f"process {rank} was given another batch than process 0: every process passes the same one, "
                "of which the pipeline takes what it needs (data parallelism would take other batches)"
            )


def _checksum(tensor: Tensor) -> int:
    array = as_array(tensor)
    return crc32(array.tobytes(), crc32(f"{array.dtype} {array.shape}".encode()))


def _from_all(own: Any) -> list:
    """What every process has of this, by rank."""
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, own)
    return found
