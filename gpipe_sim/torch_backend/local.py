"""A pipeline on local processes, told what to do from here."""

import weakref
from collections.abc import Sequence
from itertools import count

from torch import Tensor, nn

from gpipe_sim.errors import require_room
from gpipe_sim.schedule.base import Schedule
from gpipe_sim.torch_backend import remote
from gpipe_sim.torch_backend.engine import Part
from gpipe_sim.torch_backend.gradients import add_gradients
from gpipe_sim.torch_backend.hosts import Host, plain, recomputed
from gpipe_sim.torch_backend.losses import MeanLoss
from gpipe_sim.torch_backend.places import CPU, require_on
from gpipe_sim.torch_backend.processes import LocalProcesses


class Local(Host):
    """Local processes, told what to do from here: weights go there, gradients come back."""

    _numbers = count()

    def __init__(
        self, modules: Sequence[nn.Module], schedule: Schedule, loss: MeanLoss, processes: LocalProcesses
    ):
        require_room(schedule.devices, processes.devices)
        held = [{stage: modules[stage] for stage in sorted(held)} for held in schedule.placement]
        require_on(dict(enumerate(modules)), dict.fromkeys(range(schedule.stages), CPU))
        self.held = held + [{}] * (len(processes) - len(held))
        self.modules = dict(enumerate(modules))
        self.structure = _structure(self.modules)
        self.processes, self.number = processes, next(self._numbers)
        self.first, self.last, self.end = CPU, CPU, schedule.stages - 1
        weakref.finalize(self, processes.dropped.append, self.number)
        order = plain(schedule), recomputed(schedule), loss
        common = processes.forgotten(), remote.fresh_seed()
        processes.run_each(
            remote.build,
            [
                (self.number, modules, *order, device, *common)
                for modules, device in zip(self.held, processes.devices, strict=True)
            ],
        )

    def step(self, x: Tensor, targets: Tensor) -> list[Part]:
        _require_unchanged(self.structure, _structure(self.modules))
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


def _structure(modules: dict[int, nn.Module]) -> dict[str, str]:
    """Which layers there are, and which parameters and buffers of which shapes and number types."""
    kinds = {
        f"{name or 'the module'} of stage {stage}": type(inside).__name__
        for stage, module in modules.items()
        for name, inside in module.named_modules()
    }
    return kinds | {
        f"{name} of stage {stage}": f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
        for stage, module in modules.items()
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]
    }


def _require_unchanged(before: dict[str, str], now: dict[str, str]) -> None:
    """ValueError, with the first difference, if modules are no longer built as they were."""
    for what in [*before, *now]:
        if before.get(what) != now.get(what):
            raise ValueError(
                f"{what} was {before.get(what, 'not there')} when this pipeline was made, and is now "
                f"{now.get(what, 'gone')}: make another Pipeline"
            )
