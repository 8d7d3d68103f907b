"""Torch modules that run a schedule: in this process, on local processes, or under torchrun."""

from collections.abc import Sequence

import torch
from torch import nn

from gpipe_sim.export.torch_csv import require_torch
from gpipe_sim.nn.losses import Loss
from gpipe_sim.runtime.step import StepResult
from gpipe_sim.schedule.base import Schedule
from gpipe_sim.torch_backend.batch import Batch, as_tensor, dtype_of, require_even
from gpipe_sim.torch_backend.engine import Part
from gpipe_sim.torch_backend.hosts import Here, Host
from gpipe_sim.torch_backend.launched import Launched, world
from gpipe_sim.torch_backend.local import Local
from gpipe_sim.torch_backend.losses import MeanLoss, mean_loss
from gpipe_sim.torch_backend.measured import measured
from gpipe_sim.torch_backend.modules import labels, listed, require_fit
from gpipe_sim.torch_backend.places import Names
from gpipe_sim.torch_backend.processes import LocalProcesses


def train_step(
    modules: Sequence[nn.Module],
    schedule: Schedule,
    batch: Batch,
    loss: Loss | MeanLoss,
    *,
    devices: Names | LocalProcesses | None = None,
) -> StepResult:
    """Run one step of a schedule on PyTorch's engine; it means what ``gpipe_sim.train_step`` means.

    A first step also sets up connections and warms up: for times, make a ``Pipeline`` and take a later step.
    Arguments, result and errors are those of ``Pipeline``.
    """
    return Pipeline(modules, schedule, loss, devices=devices).step(batch)


class Pipeline:
    """Torch modules, one per stage, that run a schedule step by step on PyTorch's engine.

    ``loss`` is one of this package, or a function (outputs, targets) -> the mean over a microbatch.
    ``devices`` is the torch device of each device of the schedule, or ``LocalProcesses``. Unless given, they
    are the CUDA devices, or the CPU for all. All are in this process, where they take turns: gradients are
    real, concurrency is not. Under torchrun, or once a script has made a process group of several,
    each process is one of them.

    On local processes weights, buffers and modes follow the modules given; after a change of their structure
    or number type, make another pipeline. Hooks on parameters stay here, where no backward runs.

    A hook on a tensor inside a stage may run twice where a backward is split: in I, and in W again. One that
    changes a gradient then changes it twice: use a schedule without I and W.

    ScheduleError for a schedule that the engine cannot run; ValueError, TypeError or IndexError if modules,
    devices and schedule do not fit.
    """

    def __init__(
        self,
        modules: Sequence[nn.Module],
        schedule: Schedule,
        loss: Loss | MeanLoss,
        *,
        devices: Names | LocalProcesses | None = None,
    ):
        self.modules, self.schedule = listed(modules), schedule
        require_torch(schedule)
        require_fit(self.modules, schedule)
        self._labels = labels(self.modules)
        kind = Local if isinstance(devices, LocalProcesses) else Launched if world() > 1 else Here
        self._host: Host = kind(self.modules, schedule, mean_loss(loss), devices)

    def step(self, batch: Batch) -> StepResult:
        """Run one step: loss, gradients by (layer, name), outputs, and a timeline, measured in milliseconds.

        Every parameter's ``.grad`` grows by its gradient, as after any backward; weights do not change. Under
        torchrun every process passes the same batch, and gets the gradients of its own stages, and outputs if
        it holds the last one.
        ValueError for a batch that does not cut into equal microbatches, or tensors that are elsewhere.
        """
        require_even(batch, self.schedule.microbatches)
        dtype = dtype_of(self.modules)
        with torch.inference_mode(False), torch.enable_grad():
            x = as_tensor("inputs", batch[0], self._host.first, dtype)
            targets = as_tensor("targets", batch[1], self._host.last, dtype)
            return self._result(self._host.step(x, targets))

    def _result(self, parts: Sequence[Part]) -> StepResult:
        gradients = {self._labels[key]: g for part in parts for key, g in part.gradients.items()}
        loss = next(part.loss for part in parts if part.loss is not None)
        outputs = next((part.outputs for part in parts if part.outputs is not None), None)
        noted = [timed for part in parts for timed in part.spans]
        timeline = measured(self.schedule, noted, self._host.turns)
        return StepResult(loss, dict(sorted(gradients.items())), outputs, timeline=timeline)

    def __getattr__(self, name: str):
        for stage, module in enumerate(vars(self).get("modules", ())):
            if hasattr(module, name):
                raise AttributeError(
                    f"a Pipeline has no attribute {name!r}, but the module of stage {stage} has: "
                    f"pipeline.modules[{stage}].{name}"
                )
        raise AttributeError(f"a Pipeline has no attribute {name!r}, and none of its modules has")

    def __repr__(self) -> str:
        return f"Pipeline of {self.schedule!r} on {self._host}"
