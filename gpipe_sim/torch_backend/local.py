"""A pipeline on local processes, told what to do from here."""

import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gpipe_sim.torch_backend import worker
from gpipe_sim.torch_backend.ambient import ambient
from gpipe_sim.torch_backend.modules import CPU, require_on
from gpipe_sim.torch_backend.private import has_hooks
from gpipe_sim.torch_backend.processes import LocalProcesses
from gpipe_sim.torch_backend.rank import RankResult
from gpipe_sim.torch_backend.runner import Job, Runner
from gpipe_sim.torch_backend.sending import packed
from gpipe_sim.torch_backend.tensors import parameters_of
from gpipe_sim.torch_backend.timeline import MILLISECONDS


class Subprocess(Runner):
    """Local processes: the numbers of all modules go there before a step, gradients and buffers come back.

    What else belongs to a module goes there, too, when it has changed: attributes, modes, layers, hooks.
    """

    def __init__(self, job: Job, processes: LocalProcesses):
        schedule = job.schedule
        if len(processes) < schedule.devices:
            raise IndexError(
                f"too few devices to hold given partitions (devices: {len(processes)}, "
                f"partitions: {schedule.devices}): LocalProcesses({schedule.devices}) starts enough"
            )
        self.job, self.processes, self.token = job, processes, object()
        self.held = [{stage: job.modules[stage] for stage in sorted(held)} for held in schedule.placement]
        self.first, self.last, self.end = CPU, CPU, schedule.stages - 1
        self._packs()

    def step(self, x: Tensor, targets: Tensor) -> Sequence[RankResult]:
        began = time.perf_counter()
        packs, there, devices = self._packs(), self.processes.built, self.processes.devices
        built = self.token, [structure for structure, _ in packs]
        seed = None if there == built else int(torch.randint(2**31, ()))  # of the caller's generator
        orders = [
            (
                None if seed is None else worker.Build(structure, self.job.task, device, seed),
                [tensor.detach().clone() for tensor in tensors],
                ambient(),
                x if 0 in modules else x.to("meta"),
                targets if self.end in modules else targets.to("meta"),
            )
            for modules, (structure, tensors), device in zip(self.held, packs, devices, strict=False)
        ]
        self.processes.built = None
        replies = self.processes.run_each(worker.step, orders)
        self.processes.built = built
        begins, ends, results, buffers = zip(*replies, strict=True)
        for modules, result in zip(self.held, results, strict=True):
            _require_known(modules, result)
        for modules, after in zip(self.held, buffers, strict=True):
            _take_buffers(modules, after)
        self.moved = (time.perf_counter() - began - max(ends) + min(begins)) * MILLISECONDS
        return results

    def _packs(self) -> list[tuple[bytes, list[Tensor]]]:
        self._require_sendable()
        return [packed((held, self.job.loss if self.end in held else None)) for held in self.held]

    def _require_sendable(self) -> None:
        """ValueError unless everything is on the CPU, and no gradient is waited for by a hook."""
        modules = dict(enumerate(self.job.modules))
        require_on(modules, dict.fromkeys(modules, CPU))
        for (stage, name), parameter in parameters_of(modules):
            if has_hooks(parameter):
                raise ValueError(
                    f"{name} of stage {stage} has a hook, which no backward of a local process would call: "
                    "remove it, or stay in one process"
                )

    def __repr__(self) -> str:
        return repr(self.processes)


def _require_known(modules: dict[int, nn.Module], result: RankResult) -> None:
    known = {key for key, _ in parameters_of(modules)}
    for stage, name in result.gradients:
        if (stage, name) not in known:
            raise ValueError(
                f"stage {stage} made {name} in its forward, and it is not in the caller's module: run the "
                "modules once beforehand, one after the other"
            )


@torch.no_grad()
def _take_buffers(modules: dict[int, nn.Module], buffers: dict[tuple[int, str], Tensor]) -> None:
    for stage, module in modules.items():
        for name, buffer in module.named_buffers():
            if (stage, name) in buffers:
                fresh = buffers[stage, name]
                buffer.resize_as_(fresh).copy_(fresh)
