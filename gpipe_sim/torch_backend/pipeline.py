"""Torch modules that run a schedule: in this process, on local processes, or under torchrun."""

import weakref
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import nn

from gpipe_sim.core.losses import Loss
from gpipe_sim.core.partition import Gradients, Key
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.step import StepResult
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.errors import require_flags
from gpipe_sim.torch_backend.counterparts import MeanLoss, mean_loss
from gpipe_sim.torch_backend.group import world
from gpipe_sim.torch_backend.local import Subprocess
from gpipe_sim.torch_backend.memory import MeasuredMemory, measured_memory
from gpipe_sim.torch_backend.modules import Names, labels, listed, require_fit
from gpipe_sim.torch_backend.private import version
from gpipe_sim.torch_backend.processes import LocalProcesses
from gpipe_sim.torch_backend.rank import RankResult, Task
from gpipe_sim.torch_backend.runner import InProcess, Job, Runner, Torchrun
from gpipe_sim.torch_backend.tensors import Batch, Named, as_array, as_tensor, dtype_of, require_even
from gpipe_sim.torch_backend.timeline import MILLISECONDS, EngineOrder, measured


def train_step(
    modules: Sequence[nn.Module],
    schedule: Schedule,
    batch: Batch,
    loss: Loss | MeanLoss,
    *,
    devices: Names | LocalProcesses | None = None,
    defer_pp_recv: bool = False,
    meter: bool = False,
) -> StepResult:
    """Run one step of a schedule on PyTorch's engine; it means what ``gpipe_sim.train_step`` means.

    A first step also sets up connections and warms up: for times, make a ``Pipeline`` and take a later step.
    Arguments, result and errors are those of ``Pipeline``.
    """
    options = {"defer_pp_recv": defer_pp_recv, "meter": meter}
    return Pipeline(modules, schedule, loss, devices=devices, **options).step(batch)


class Pipeline:
    """Torch modules, one per stage, that run a schedule step by step on PyTorch's engine.

    ``loss`` is one of this package, or a function (outputs, targets) -> the mean over a microbatch, and a
    step's loss is the mean of those. Where microbatches differ in how many tokens count, that is not the mean
    over all ``n_tokens`` of the batch. With M microbatches, this is: ``lambda outputs, targets:
    torch.nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="sum") * M /
    n_tokens``, in which ``ignore_index`` says which tokens do not count.

    ``devices`` is the torch device of each device of the schedule, or ``LocalProcesses``. Unless given, they
    are the CUDA devices, or the CPU for all. All are in this process, where they take turns: gradients are
    real, concurrency is not. Under torchrun, or once a script has made a process group of several,
    each process is one of them.

    Stages of one device may share parameters, as the first and the last of ZB-V do in a model whose
    embedding is its head. ``defer_pp_recv`` is the engine's own: it receives as late as it can (torch 2.13).

    ``meter=True`` counts bytes: a step's ``memory`` then has a ``MeasuredMemory`` for each device, which
    ``torch_backend.memory`` explains. It is slower, and empty otherwise.

    A hook on a tensor inside a stage may run twice where a backward is split: in I, and in W again. One that
    changes a gradient then changes it twice: use a schedule without I and W.

    ScheduleError for a schedule that the engine cannot run; ValueError, TypeError or IndexError if modules,
    devices and schedule do not fit; UnsupportedTorch for a torch whose engine is not the one that is known.
    """

    def __init__(
        self,
        modules: Sequence[nn.Module],
        schedule: Schedule,
        loss: Loss | MeanLoss,
        *,
        devices: Names | LocalProcesses | None = None,
        defer_pp_recv: bool = False,
        meter: bool = False,
    ):
        require_flags("Pipeline", meter=meter)
        self.modules, self.schedule = listed(modules), schedule
        self._order = order = EngineOrder(schedule)
        require_fit(self.modules, schedule)
        task = Task(order.plain, order.recomputed, defer_pp_recv, schedule.placement if meter else ())
        job = Job(self.modules, schedule, task, mean_loss(loss))
        if isinstance(devices, LocalProcesses):
            self._runner: Runner = Subprocess(job, devices)
        else:
            self._runner = (Torchrun if world() > 1 else InProcess)(job, devices)

    def step(self, batch: Batch) -> "MeasuredStep":
        """Run one step: loss, gradients by (layer, name), outputs, and a timeline, measured in milliseconds.

        Every parameter's ``.grad`` grows by its gradient, as after any backward; weights do not change. Under
        torchrun every process passes the same batch (the first step compares them), and gets the gradients of
        its own stages, and outputs if it holds the last one.
        ValueError for a batch that does not cut into equal microbatches, or tensors that are elsewhere.
        """
        require_even(batch, self.schedule.microbatches)
        dtype = dtype_of(self.modules)
        _keep_unread(self.modules)
        with torch.inference_mode(False), torch.enable_grad():
            x = as_tensor("inputs", batch[0], self._runner.first, dtype)
            targets = as_tensor("targets", batch[1], self._runner.last, dtype)
            results = self._runner.step(self._order.batch(x), self._order.batch(targets))
        return MeasuredStep(results, self.schedule, self._order, labels(self.modules), self._runner)

    def __getattr__(self, name: str):
        for stage, module in enumerate(vars(self).get("modules", ())):
            if hasattr(module, name):
                raise AttributeError(
                    f"a Pipeline has no attribute {name!r}, but the module of stage {stage} has: "
                    f"pipeline.modules[{stage}].{name}"
                )
        raise AttributeError(f"a Pipeline has no attribute {name!r}, and none of its modules has")

    def __repr__(self) -> str:
        return f"Pipeline of {self.schedule!r} on {self._runner}"


class MeasuredStep(StepResult):
    """A ``StepResult`` of PyTorch's engine: its arrays and its timeline are made when they are asked for.

    Until then gradients are where the step left them, which is in ``.grad`` if that was empty. A further step
    reads them first; if something else has changed them in place, asking for them is a RuntimeError. What
    torch does not count as a change, such as one through ``.grad.data``, goes unnoticed.

    ``moved`` is how many milliseconds went into copying numbers to local processes and gradients back, before
    and after what the timeline shows; 0 elsewhere.
    """

    def __init__(
        self,
        results: Sequence[RankResult],
        schedule: Schedule,
        order: EngineOrder,
        labels: dict[Named, Key],
        runner: Runner,
    ):
        tensors = {labels[key]: tensor for result in results for key, tensor in result.gradients.items()}
        loss = next(result.loss for result in results if result.loss is not None)
        vars(self)["loss"] = loss  # a field of StepResult, which is frozen
        self._tensors = {key: (tensors[key], version(tensors[key])) for key in sorted(tensors)}
        self._outputs = next((result.outputs for result in results if result.outputs is not None), None)
        self._noted = [timed for result in results for timed in result.spans]
        self._metered = {device: found for result in results for device, found in result.memory.items()}
        self._schedule, self._order, self._turns, self.moved = schedule, order, runner.turns, runner.moved
        _UNREAD.add(self)

    @cached_property
    def gradients(self) -> Gradients:
        changed = [key for key, (tensor, before) in self._tensors.items() if version(tensor) != before]
        if changed:
            layer, name = changed[0]
            raise RuntimeError(
                f"the gradient of {name} in layer {layer} was changed in place since this step, by "
                "clip_grad_norm_ or zero_grad(set_to_none=False), say: read step.gradients before that"
            )
        _UNREAD.discard(self)
        return {key: as_array(tensor) for key, (tensor, _) in self._tensors.items()}

    def __getstate__(self) -> dict:
        """What a copy or a pickle of it has: all that can be asked for, made by now."""
        return {
            name: getattr(self, name)
            for name in ("loss", "gradients", "outputs", "memory", "timeline", "moved")
        }

    @cached_property
    def outputs(self) -> np.ndarray | None:  # type: ignore[override]  # of a process without the last stage
        return None if self._outputs is None else as_array(self._order.outputs(self._outputs))

    @cached_property
    def timeline(self) -> Timeline:
        noted = [(self._order.named(action), start, end) for action, start, end in self._noted]
        return measured(self._schedule, noted, self._turns)

    @cached_property
    def memory(self) -> tuple[MeasuredMemory, ...]:
        zero = min(start for _, start, _ in self._noted)
        ends = {action: (end - zero) * MILLISECONDS for action, _, end in self._noted}
        found = (self._metered[device] for device in sorted(self._metered))
        return tuple(measured_memory(each, ends, self._order.named) for each in found)


_UNREAD: weakref.WeakSet[MeasuredStep] = weakref.WeakSet()  #: whose gradients nobody has asked for


def _keep_unread(modules: Sequence[nn.Module]) -> None:
    """Read the gradients of earlier steps that are in some ``.grad`` which is about to grow."""
    growing = {id(parameter.grad) for module in modules for parameter in module.parameters()}
    for step in list(_UNREAD):
        kept = step._tensors.values()
        if any(id(tensor) in growing for tensor, _ in kept) and all(version(t) == v for t, v in kept):
            _ = step.gradients
