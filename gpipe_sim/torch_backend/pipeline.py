"""Torch modules that run a schedule: in this process, on local processes, or in a process group."""

from collections.abc import Sequence
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from gpipe_sim.core.losses import Loss
from gpipe_sim.core.partition import Key
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.step import StepResult
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.errors import ScheduleError, require_flags
from gpipe_sim.replicas.replicate import replicate
from gpipe_sim.torch_backend.counterparts import MeanLoss, mean_loss
from gpipe_sim.torch_backend.group import one_of_alike, place_in, world
from gpipe_sim.torch_backend.local import Subprocess
from gpipe_sim.torch_backend.modules import Names, labels, listed, require_fit
from gpipe_sim.torch_backend.processes import LocalProcesses
from gpipe_sim.torch_backend.rank import RankResult, Task
from gpipe_sim.torch_backend.runner import InProcess, Job, Runner, Torchrun
from gpipe_sim.torch_backend.tensors import Batch, Named, as_array, as_tensor, dtype_of, grow
from gpipe_sim.torch_backend.timeline import EngineOrder, measured
from gpipe_sim.traces.notes import Timed
from gpipe_sim.traces.process_clocks import clocks


def train_step(
    modules: Sequence[nn.Module], schedule: Schedule, batch: Batch, loss: Loss | MeanLoss, **options: Any
) -> StepResult:
    """Run one step of a schedule on PyTorch's engine; it means what ``gpipe_sim.train_step`` means.

    A first step also sets up connections and warms up: for times, make a ``Pipeline`` and take a later step.
    Arguments, options, result and errors are those of ``Pipeline``: ``devices=["cpu"] * 4``, say.
    """
    return Pipeline(modules, schedule, loss, **options).step(batch)


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
    each process is one of them; its other stages may be None, or on meta. On one machine gloo and NCCL then
    stay on its loopback, on several they choose.

    ``group`` is a process group of so many, or a ``DeviceMesh`` with a dimension called pp for the pipeline.
    Along its other dimension, if it has two, there are copies of the pipeline, each with a batch of its own:
    every gradient is summed over them, so that it is that of the mean loss over all. With
    ``gp.replicate(schedule, n)``, which needs no mesh, batches are whole: each copy takes its share, and has
    the outputs of that. Buffers, such as running statistics, are each copy's own.

    ``measure=False`` trains only: no process learns the others' loss and times, and there is no timeline.

    Stages of one device may share parameters, as the first and the last of ZB-V do in a model whose
    embedding is its head.

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
        group: dist.ProcessGroup | DeviceMesh | None = None,
        measure: bool = True,
    ):
        require_flags("Pipeline", measure=measure)
        (inner, copies), elsewhere, place = one_of_alike(schedule), set[int](), None
        order = EngineOrder(inner)
        if not isinstance(devices, LocalProcesses) and (world() > 1 or group is not None):
            place = place_in(group, schedule)
            elsewhere = set(range(inner.stages)) - set(inner.placement[place.device])
        elif copies > 1 or group is not None:
            raise ScheduleError(
                f"copies of a pipeline, and group=, are for processes that torchrun starts, one for each of "
                f"{schedule.devices} devices: torchrun --nproc-per-node {schedule.devices} ..."
            )
        self.modules, self.schedule, self._order = listed(modules, elsewhere), schedule, order
        require_fit(self.modules, inner)
        self._whole = schedule
        if place and place.pipelines > copies:
            self._whole = replicate(schedule, place.pipelines)
        task = Task(order.plain, order.recomputed, self._whole.microbatches, measure)
        job = Job(self.modules, inner, task, mean_loss(loss))
        if isinstance(devices, LocalProcesses):
            self._runner: Runner = Subprocess(job, devices)
        else:
            self._runner = Torchrun(job, devices, place) if place else InProcess(job, devices)

    def step(self, batch: Batch) -> "MeasuredStep":
        """Run one step: loss, gradients by (layer, name), outputs, and a timeline, measured in milliseconds.

        Every parameter's ``.grad`` grows by its gradient, as after any backward; weights do not change. Under
        torchrun every process passes the same batch (the first step compares them), and gets the gradients of
        its own stages, and outputs if it holds the last one. Inputs may be None on a process without the
        first stage, targets on one without the last; then all steps have batches of one size.
        ValueError for a batch that does not cut into equal microbatches, or tensors that are elsewhere.
        """
        runner = self._runner
        runner.agree(batch, self.schedule.microbatches)
        dtype = dtype_of(self.modules) or runner.dtype or torch.get_default_dtype()
        with torch.inference_mode(False), torch.enable_grad():
            places = zip(("inputs", "targets"), batch, (runner.first, runner.last), strict=True)
            x, targets = (self._share(as_tensor(name, part, home, dtype)) for name, part, home in places)
            results = runner.step(x, targets)
            for result in results:
                grow(dict(enumerate(self.modules)), result.gradients)
        return MeasuredStep(results, self._whole, self._order, labels(self.modules, runner.layers), runner)

    def _share(self, whole: torch.Tensor | None) -> torch.Tensor | None:
        """What this copy of the pipeline takes, its microbatches as the engine counts them."""
        if whole is None:
            return None
        copies = self.schedule.microbatches // self._order.plain.microbatches
        return self._order.batch(whole.tensor_split(copies)[self._runner.copy % copies])

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
    """A ``StepResult`` of PyTorch's engine. Its timeline and outputs are made when they are asked for.

    ``moved`` is how many milliseconds went into sending numbers to local processes and back, before and after
    what the timeline shows; 0 elsewhere. With ``measure=False`` gradients are in ``.grad`` only, ``loss`` is
    None but on processes that hold the last stage, and asking for gradients or times is a ValueError.
    """

    def __init__(
        self,
        results: Sequence[RankResult],
        schedule: Schedule,
        order: EngineOrder,
        labels: dict[Named, Key],
        runner: Runner,
    ):
        own = next((result for result in results if result.outputs is not None), None)
        loss = next((result.loss for result in results if result.loss is not None), None)
        vars(self).update(loss=loss, moved=runner.moved)  # a StepResult is frozen
        self._outputs = None if own is None else order.outputs(own.outputs)
        if any(result.spans for result in results):
            found = {labels[key]: tensor for result in results for key, tensor in result.gradients.items()}
            vars(self)["gradients"] = {key: as_array(found[key]) for key in sorted(found)}
        self._results = [result._replace(gradients={}, outputs=None) for result in results]
        self._schedule, self._order, self._turns = schedule, order, runner.turns

    def __getattr__(self, name: str):
        if name == "gradients":
            raise ValueError("this step has no gradients of its own: measure=False leaves them in .grad")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @cached_property
    def outputs(self) -> np.ndarray | None:  # type: ignore[override]  # of a process without the last stage
        return None if self._outputs is None else as_array(self._outputs)

    @cached_property
    def _noted(self) -> list[list[Timed]]:
        """What each process noted, under the names of the whole schedule, on the clock of the first."""
        noted = [
            [(self._order.named(action, result.first), start, end) for action, start, end in result.spans]
            for result in self._results
        ]
        if not any(noted):
            raise ValueError("this step has no times: Pipeline(..., measure=False) takes none")
        if len({result.node for result in self._results}) == 1:
            return noted
        added = clocks(self._schedule, noted, self._known()).tolist()
        return [
            [(action, start + more, end + more) for action, start, end in spans]
            for spans, more in zip(noted, added, strict=True)
        ]

    def _known(self) -> np.ndarray:
        """What machines and meetings say of the clocks: nobody leaves one before all have come."""
        results, devices = self._results, self._order.plain.devices
        apart = np.full((len(results), len(results)), -np.inf)
        for (i, one), (j, other) in product(enumerate(results), repeat=2):
            if one.node == other.node:
                apart[i, j] = 0
            for met, same in enumerate((i // devices == j // devices, (i - j) % devices == 0)):
                if same and one.node != other.node:
                    pairs = zip(one.met[met], other.met[met], strict=True)
                    apart[i, j] = max(apart[i, j], *(came - left for (came, _), (_, left) in pairs))
        return apart

    @cached_property
    def timeline(self) -> Timeline:
        return measured(self._schedule, [timed for spans in self._noted for timed in spans], self._turns)
