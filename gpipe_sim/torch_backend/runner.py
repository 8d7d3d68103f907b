"""Where the processes of a pipeline are: this one, or those that torchrun started."""

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from gpipe_sim.balance.colocate import colocate
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.torch_backend.counterparts import MeanLoss
from gpipe_sim.torch_backend.group import Place
from gpipe_sim.torch_backend.modules import (
    Names,
    by_stage,
    chosen,
    device_named,
    layers_of,
    require_on,
    require_own_gpus,
)
from gpipe_sim.torch_backend.rank import Rank, RankResult, Task
from gpipe_sim.torch_backend.tensors import (
    Batch,
    Given,
    as_array,
    dtype_of,
    parameters_of,
    require_even,
    shape_of,
)


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
    ``copy``: the number of the pipeline, where there are several. What other processes know of the model:
    ``layers`` in each stage, and the ``dtype`` of its numbers.
    """

    first: torch.device
    last: torch.device
    turns = False
    moved = 0.0
    copy = 0
    layers: Mapping[int, int] = MappingProxyType({})
    dtype: torch.dtype | None = None

    def agree(self, batch: Batch, microbatches: int) -> None:
        """ValueError unless a batch is one that can be run, and all processes can do that together."""
        require_even(batch, microbatches)

    @abstractmethod
    def step(self, x: Any, targets: Any) -> Sequence[RankResult]:
        """What each process got out of a step."""


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
        return [self.rank.step(x, targets)]

    def __repr__(self) -> str:
        return self.names


class Known(NamedTuple):
    """What a process tells the others before their first step; a number each for its batch and weights."""

    rank: int
    node: str
    copy: int
    device: int
    batch: list[int | None]
    weights: int
    same: dict[str, Any]
    layers: dict[int, int]
    dtype: torch.dtype | None


class Torchrun(Runner):
    """This process is one device, in its place among others. If they measure, each learns what all noted.

    How long it waits for another is up to the process group: ``init_process_group(timeout=...)``.
    """

    def __init__(self, job: Job, names: Names | None, place: Place):
        schedule, self.place, self.copy = job.schedule, place, place.copy
        self.same = {"schedule": repr(schedule), "measure": job.task.measured}
        if names is None and torch.cuda.is_available():  # one for each process of this machine
            device = device_named(f"cuda:{os.environ.get('LOCAL_RANK', 0)}")
        else:
            require_own_gpus(named := chosen(schedule, names))
            device = named[place.device]
        if device.type == "cuda":
            torch.cuda.set_device(device)
        modules = {stage: job.modules[stage] for stage in sorted(schedule.placement[place.device])}
        self.rank = Rank(modules, job.task, job.loss, dict.fromkeys(modules, device), place.pipeline)
        require_on(modules, self.rank.homes)
        self.first = self.last = device
        self.node = os.environ.get("GROUP_RANK", socket.gethostname())  # torchrun counts its machines
        self.sizes: tuple | None = None

    def agree(self, batch: Batch, microbatches: int) -> None:
        """Before a first step all compare what they have, read whole for that."""
        require_even(batch, microbatches, partial=True)
        if self.sizes:
            return
        held = list(self.rank.modules.values())
        known = Known(
            dist.get_rank(),
            self.node,
            self.copy,
            self.place.device,
            [None if part is None else _checksum([part]) for part in batch],
            _checksum(p for module in held for p in module.parameters()) if self.place.copies else 0,
            self.same,
            {stage: len(layers_of(module)) for stage, module in self.rank.modules.items()},
            dtype_of(held),
        )
        found = self.place.from_all(known)
        _require_together(found, self.rank.last)
        self.layers = {stage: count for one in found for stage, count in one.layers.items()}
        self.dtype = next((one.dtype for one in found if one.dtype), None)
        self.apart = len({one.node for one in found}) > 1
        self.fixed = any(one.batch[0] is None for one in found)

    def step(self, x: Tensor | None, targets: Tensor | None) -> list[RankResult]:
        sizes = shape_of(x), shape_of(targets)
        self.sizes = self.sizes or sizes
        if sizes != self.sizes and (self.fixed or None in sizes):
            raise ValueError(
                f"where some processes are given None, every batch is like the first: {self.sizes} in each "
                f"pipeline here (got {sizes}); pass inputs to all processes, or make a new Pipeline"
            )
        own = self.rank.step(x, targets)._replace(first=self.copy * self.rank.task.order.microbatches)
        if self.place.copies:
            own = self._summed(own)
        if not self.rank.task.measured:
            return [own]
        own = own._replace(node=self.node, met=self.place.meet(self.first) if self.apart else ())
        others = self.place.from_all(own._replace(outputs=None, gradients={}))
        mine = self.copy * dist.get_world_size(self.place.pipeline) + self.place.device
        return [*others[:mine], own, *others[mine + 1 :]]

    def _summed(self, own: RankResult) -> RankResult:
        """Loss and gradients summed over the copies; a parameter has one if it has one in any of them.

        Stages with a parameter in common have its gradient in common.
        """
        learning = {key: p for key, p in parameters_of(self.rank.modules) if p.requires_grad}
        numbers = [own.loss or 0.0, *(float(key in own.gradients) for key in learning)]
        loss, *has = self._sum(torch.tensor(numbers, dtype=torch.float64, device=self.first)).tolist()
        found = {
            parameter: own.gradients.get(key, torch.zeros_like(parameter)).to_dense()
            for (key, parameter), some in zip(learning.items(), has, strict=True)
            if some
        }
        for dtype in dict.fromkeys(gradient.dtype for gradient in found.values()):  # in every process's order
            alike = [gradient for gradient in found.values() if gradient.dtype == dtype]
            whole = self._sum(torch.cat([gradient.reshape(-1) for gradient in alike]))
            for gradient, piece in zip(alike, whole.split([each.numel() for each in alike]), strict=True):
                gradient.copy_(piece.view_as(gradient))
        return own._replace(
            loss=None if own.loss is None else loss,
            gradients={key: found[parameter] for key, parameter in learning.items() if parameter in found},
        )

    def _sum(self, tensor: Tensor) -> Tensor:
        dist.all_reduce(tensor, group=self.place.copies)
        return tensor

    def __repr__(self) -> str:
        return f"{self.first}, process {dist.get_rank()} of {dist.get_world_size()}"


def _require_together(found: Sequence[Known], last: int) -> None:
    """ValueError unless each has the inputs or targets that it needs, and none has others than the rest."""
    for one in found:
        needed = ("inputs", 0), ("targets", last)
        for part, (name, stage) in zip(one.batch, needed, strict=True):
            if part is None and stage in one.layers:
                raise ValueError(f"process {one.rank} holds stage {stage}, which needs {name} (got None)")
        for name, value in one.same.items():
            if value != (first := found[0].same[name]):
                raise ValueError(
                    f"process {one.rank} has {name}={value}, and process {found[0].rank} has {name}={first}: "
                    f"give every process the same {name}"
                )
    for i, one in enumerate(found):
        for other in found[:i]:
            both = zip(one.batch, other.batch, strict=True)
            if one.copy == other.copy and any(a != b for a, b in both if None not in (a, b)):
                raise ValueError(
                    f"process {one.rank} was given another batch than process {other.rank}: every process of "
                    "a pipeline passes the same one, of which it takes what it needs (for data parallelism "
                    "there is gp.replicate, and group=)"
                )
            if one.device == other.device and one.weights != other.weights:
                raise ValueError(
                    f"processes {other.rank} and {one.rank} hold copies of the same stages, but with other "
                    "weights: make them from one seed, or load the same state_dict"
                )


def _checksum(parts: Iterable[Given]) -> int:
    found = 0
    for part in parts:
        array = as_array(part) if isinstance(part, Tensor) else np.asarray(part)
        found = crc32(array.tobytes(), crc32(f"{array.dtype} {array.shape}".encode(), found))
    return found
