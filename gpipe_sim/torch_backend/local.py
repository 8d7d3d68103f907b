"""A pipeline on local processes, told what to do from here."""

import time
import weakref
from itertools import count

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from gpipe_sim.torch_backend import worker
from gpipe_sim.torch_backend.ambient import Ambient
from gpipe_sim.torch_backend.modules import CPU, require_on
from gpipe_sim.torch_backend.private import has_hooks
from gpipe_sim.torch_backend.processes import LocalProcesses
from gpipe_sim.torch_backend.rank import RankResult
from gpipe_sim.torch_backend.runner import Job, Runner
from gpipe_sim.torch_backend.shared import Area, Packed, new_file, packed, size_of
from gpipe_sim.torch_backend.tensors import grow, parameters_of
from gpipe_sim.torch_backend.timeline import MILLISECONDS


class Subprocess(Runner):
    """Local processes: the numbers of all modules go there before a step, gradients and buffers come back.

    They are copied through memory that both sides see. What else belongs to a module goes there, too, when it
    has changed: attributes, modes, layers, hooks.
    """

    _numbers = count()

    def __init__(self, job: Job, processes: LocalProcesses):
        schedule = job.schedule
        if len(processes) < schedule.devices:
            raise IndexError(
                f"too few devices to hold given partitions (devices: {len(processes)}, "
                f"partitions: {schedule.devices}): LocalProcesses({schedule.devices}) starts enough"
            )
        self.job, self.processes, self.number = job, processes, next(self._numbers)
        self.held = [{stage: job.modules[stage] for stage in sorted(held)} for held in schedule.placement]
        self.first, self.last, self.end = CPU, CPU, schedule.stages - 1
        self._require_sendable()
        self.packed: list[Packed] = []
        packs = self._packs()
        weakref.finalize(self, processes.dropped.append, self.number)
        seed = int(torch.randint(2**31, ()))  # of the caller's generator, which torch.manual_seed sets
        processes.run(worker.enroll, schedule.devices, processes.forgotten(), seed)
        self._build(packs)

    def step(self, x: Tensor, targets: Tensor) -> list[RankResult]:
        self._require_sendable()
        packs = self._packs()
        if [pack for pack, _ in packs] != self.packed:
            self._build(packs)
        began = time.perf_counter()
        for (_, tensors), area in zip(packs, self.areas, strict=True):
            for tensor, place in zip(tensors, area.tensors, strict=True):
                place.copy_(tensor.detach())
        sent = time.perf_counter()
        orders = [self._order(modules, x, targets) for modules in self.held]
        replies = self.processes.run_each(worker.step, orders)
        came = time.perf_counter()
        parts = zip(self.held, packs, self.areas, replies, strict=True)
        results = [
            result._replace(gradients=_taken(modules, tensors, area, learned))
            for modules, (_, tensors), area, (result, learned) in parts
        ]
        for modules, result in zip(self.held, results, strict=True):
            grow(modules, result.gradients)
        self.moved = (time.perf_counter() - came + sent - began) * MILLISECONDS
        return results

    def _order(self, modules: dict[int, nn.Module], x: Tensor, targets: Tensor) -> tuple:
        """What one process is sent: the batch where it is needed, and its shape elsewhere."""
        x, targets = (
            whole if end in modules else whole.to("meta") for whole, end in ((x, 0), (targets, self.end))
        )
        return self.number, Ambient.here(), x, targets

    def _packs(self) -> list[tuple[Packed, list[Tensor]]]:
        return [packed((held, self.job.loss if self.end in held else None)) for held in self.held]

    def _build(self, packs: list[tuple[Packed, list[Tensor]]]) -> None:
        """Make the modules anew in all processes, which agree on what they send to each other."""
        self.packed = []
        paths = [new_file(size_of(pack.specs), self.processes.folder) for pack, _ in packs]
        try:
            self.areas = [Area(path, pack.specs) for path, (pack, _) in zip(paths, packs, strict=True)]
            each = zip(packs, paths, self.processes.devices, strict=False)
            orders = [(self.number, pack, path, device, self.job.task) for (pack, _), path, device in each]
            self.processes.run_each(worker.build, orders)
        finally:
            for path in paths:
                path.unlink(missing_ok=True)
        self.packed = [pack for pack, _ in packs]

    def _require_sendable(self) -> None:
        """ValueError unless everything is on the CPU, and no gradient is waited for by a hook."""
        modules = dict(enumerate(self.job.modules))
        require_on(modules, dict.fromkeys(modules, CPU))
        for (stage, name), parameter in parameters_of(modules):
            if is_lazy(parameter):
                raise ValueError(
                    f"{name} of stage {stage} has no shape yet, which a local process could not send back: "
                    "run the modules once beforehand, one after the other"
                )
            if has_hooks(parameter):
                raise ValueError(
                    f"{name} of stage {stage} has a hook, which no backward of a local process would call: "
                    "remove it, or stay in one process"
                )

    def __repr__(self) -> str:
        return repr(self.processes)


@torch.no_grad()
def _taken(modules: dict[int, nn.Module], tensors: list[Tensor], area: Area, learned: list[int]) -> dict:
    """Gradients by stage and name, of those that have one; and buffers, into the modules."""
    number = {id(tensor): index for index, tensor in enumerate(tensors)}
    for module in modules.values():
        for buffer in module.buffers():
            if id(buffer) in number:
                buffer.copy_(area.tensors[number[id(buffer)]])
    gradients = {index: area.gradients[index].clone() for index in learned}
    return {
        key: gradients[number[id(parameter)]]
        for key, parameter in parameters_of(modules)
        if number[id(parameter)] in gradients
    }
