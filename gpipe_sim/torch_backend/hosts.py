"""Where the processes of a pipeline are: here, on this machine, or wherever torchrun started them."""

import atexit
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import count

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gpipe_sim.actions import Kind
from gpipe_sim.schedule import Explicit, Schedule
from gpipe_sim.share import require_room, share
from gpipe_sim.torch_backend import remote
from gpipe_sim.torch_backend.devices import HOST, Names, by_stage, chosen, devices, require_on
from gpipe_sim.torch_backend.engine import Engine, Part, alone
from gpipe_sim.torch_backend.gather import gathered
from gpipe_sim.torch_backend.gradients import add_gradients
from gpipe_sim.torch_backend.losses import MeanLoss
from gpipe_sim.torch_backend.processes import LocalProcesses


def host(
    modules: Sequence[nn.Module], schedule: Schedule, loss: MeanLoss, names: Names | LocalProcesses | None
) -> "Host":
    """The host that ``devices=`` asks for."""
    if isinstance(names, LocalProcesses):
        return _Local(modules, schedule, loss, names)
    if _world() > 1:
        return _Launched(modules, schedule, loss, names)
    return _Here(modules, schedule, loss, names)


class Host(ABC):
    """Runs a step wherever its processes are. ``first`` and ``last``: where inputs and targets are needed."""

    first: torch.device
    last: torch.device

    @abstractmethod
    def step(self, x: Tensor, targets: Tensor) -> list[Part]:
        """What each process that reports here got out of a step."""


class _Here(Host):
    """All in this process, in the order of a dependency-respecting merge of the rows."""

    def __init__(self, modules: Sequence[nn.Module], schedule: Schedule, loss: MeanLoss, names: Names | None):
        of_device = chosen(schedule, names)
        homes = by_stage(schedule, of_device)
        held = dict(enumerate(modules))
        require_on(held, homes)
        merged = share(_plain(schedule), [0] * schedule.devices)
        self.engine = Engine(held, merged, _recomputed(schedule), loss, homes)
        self.first, self.last = homes[0], homes[schedule.stages - 1]
        self.names = ", ".join(map(str, of_device))

    def step(self, x: Tensor, targets: Tensor) -> list[Part]:
        return [self.engine.step(x, targets)]

    def __repr__(self) -> str:
        return self.names


class _Launched(Host):
    """This process is one device, started by torchrun or like it; the results of all are gathered on each."""

    def __init__(self, modules: Sequence[nn.Module], schedule: Schedule, loss: MeanLoss, names: Names | None):
        rank, world = dist.get_rank(), dist.get_world_size()
        if world != schedule.devices:
            raise ValueError(
                f"{schedule!r} runs on {schedule.devices} processes, one per device, but there are {world}: "
                f"torchrun --nproc-per-node {schedule.devices} ..."
            )
        if os.environ.get("LOCAL_WORLD_SIZE", str(world)) != str(world):
            raise ValueError("a pipeline runs on one machine, whose clock its processes share")
        device = chosen(schedule, names)[rank] if names is not None else _own_device()
        if device.type == "cuda":
            torch.cuda.set_device(device)
        held = {stage: modules[stage] for stage in sorted(schedule.placement[rank])}
        require_on(held, dict.fromkeys(held, device))
        self.engine = Engine(held, _plain(schedule), _recomputed(schedule), loss, dict.fromkeys(held, device))
        self.first = self.last = device
        self.most = max(sum(len(action.parts) for action in row) for row in schedule.actions)

    def step(self, x: Tensor, targets: Tensor) -> list[Part]:
        return gathered(self.engine.step(x, targets), self.most, self.first)

    def __repr__(self) -> str:
        return f"{self.first}, process {dist.get_rank()} of {dist.get_world_size()}"


class _Local(Host):
    """Local processes, told what to do from here: weights go there, gradients come back."""

    _numbers = count()

    def __init__(
        self, modules: Sequence[nn.Module], schedule: Schedule, loss: MeanLoss, processes: LocalProcesses
    ):
        require_room(schedule.devices, processes.devices)
        held = [{stage: modules[stage] for stage in sorted(held)} for held in schedule.placement]
        require_on(dict(enumerate(modules)), dict.fromkeys(range(schedule.stages), HOST))
        self.held = held + [{}] * (len(processes) - len(held))
        self.processes, self.number = processes, next(self._numbers)
        self.first, self.last, self.end = HOST, HOST, schedule.stages - 1
        weakref.finalize(self, processes.dropped.append, self.number)
        order, common = (_plain(schedule), _recomputed(schedule), loss), (processes.forgotten(), _seed())
        processes.run_each(
            remote.build,
            [
                (self.number, modules, *order, device, *common)
                for modules, device in zip(self.held, processes.devices, strict=True)
            ],
        )

    def step(self, x: Tensor, targets: Tensor) -> list[Part]:
        x, targets = (whole.detach().clone() for whole in (x, targets))  # or all that it is cut from would go
        replies = self.processes.run_each(
            remote.step, [self._order(modules, x, targets) for modules in self.held]
        )
        parts = []
        for modules, (part, buffers) in zip(self.held, filter(None, replies), strict=False):
            add_gradients(modules, part.gradients)
            for (stage, name), buffer in buffers.items():
                modules[stage].get_buffer(name).copy_(buffer)
            parts.append(part)
        return parts

    def _order(self, modules: dict[int, nn.Module], x: Tensor, targets: Tensor) -> tuple:
        """What one process is sent: the batch where it is needed, and its shape elsewhere."""
        states = {stage: remote.State.of(module) for stage, module in modules.items()}
        x, targets = (
            whole if end in modules else whole.to("meta") for whole, end in ((x, 0), (targets, self.end))
        )
        return self.number, states, x, targets

    def __repr__(self) -> str:
        return repr(self.processes)


def _seed() -> int:
    """A fresh seed from the caller's generator, which ``torch.manual_seed`` sets."""
    return int(torch.randint(2**31, ()))


def _plain(schedule: Schedule) -> Schedule:
    """The order without R, which is no action of the engine's."""
    if not _recomputed(schedule):
        return schedule
    rows = [[action for action in row if action.parts[0].kind is not Kind.R] for row in schedule.actions]
    return Explicit(rows, placement=schedule.placement, microbatches=schedule.microbatches)


def _recomputed(schedule: Schedule) -> dict[int, set[int]]:
    """{stage: microbatches} of what is recomputed."""
    found: dict[int, set[int]] = {}
    for slot, device in enumerate(schedule.located[Kind.R]):
        if device is not None:
            stage, microbatch = divmod(slot, schedule.microbatches)
            found.setdefault(stage, set()).add(microbatch)
    return found


def _world() -> int:
    """How many processes this one belongs to; under torchrun it joins them first."""
    launched = {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys()
    if launched and int(os.environ["WORLD_SIZE"]) > 1 and not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
        atexit.register(_leave)
    with alone:  # or another thread's group may go between the two
        return dist.get_world_size() if dist.is_initialized() else 1


def _leave() -> None:
    if dist.is_initialized():  # the script may have left already
        dist.destroy_process_group()


def _own_device() -> torch.device:
    """Under torchrun: a GPU for each process of this machine, or the CPU where there is no GPU at all."""
    if not torch.cuda.is_available():
        return HOST
    rank, here = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if here > torch.cuda.device_count():
        raise ValueError(
            f"torchrun started {here} processes here, but there are {len(devices())} GPUs, and NCCL wants "
            "one for each. In one process stages can share a GPU: devices=['cuda:0', 'cuda:0', ...]"
        )
    return torch.device("cuda", rank)
