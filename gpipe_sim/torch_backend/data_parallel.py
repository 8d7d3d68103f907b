"""For contrast, the other way to use several devices: a copy of the model on each, gradients averaged."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor, nn

from gpipe_sim.nn.losses import Loss
from gpipe_sim.runtime.step import StepResult
from gpipe_sim.schedule.actions import B, F
from gpipe_sim.schedule.explicit import Explicit
from gpipe_sim.torch_backend import remote
from gpipe_sim.torch_backend.batch import Batch, as_tensor, dtype_of, require_even
from gpipe_sim.torch_backend.gradients import add_gradients
from gpipe_sim.torch_backend.losses import MeanLoss, mean_loss
from gpipe_sim.torch_backend.measured import measured
from gpipe_sim.torch_backend.modules import labels, listed
from gpipe_sim.torch_backend.places import CPU, require_on
from gpipe_sim.torch_backend.processes import LocalProcesses


def data_parallel_step(
    modules: Sequence[nn.Module], batch: Batch, loss: Loss | MeanLoss, *, devices: LocalProcesses
) -> StepResult:
    """The same step under ``DistributedDataParallel``: each process runs all modules on its share of a batch.

    The result reads as a pipeline's does, and ``.grad`` grows as there. In the timeline a process is a device
    that holds the whole model as one stage, and its share is a microbatch; averaging gradients is part of B.
    It is the second of two steps, as the first sets up. Buffers here stay as they are. ValueError for a batch
    that has no equal shares.
    """
    if not isinstance(devices, LocalProcesses):
        raise TypeError(f"data_parallel_step needs local processes: LocalProcesses(4) (got {devices!r})")
    modules, count = listed(modules), len(devices)
    require_even(batch, count, "shares")
    require_on(dict(enumerate(modules)), dict.fromkeys(range(len(modules)), CPU))
    if not any(parameter.requires_grad for module in modules for parameter in module.parameters()):
        raise ValueError("no parameter of these modules asks for a gradient, so there is none to average")
    dtype = dtype_of(modules)
    x, targets = (
        as_tensor(name, part, CPU, dtype) for name, part in zip(("inputs", "targets"), batch, strict=True)
    )
    shares = zip(devices.devices, *(own_shares(whole, count) for whole in (x, targets)), strict=True)
    told = modules, mean_loss(loss), remote.fresh_seed()
    parts = devices.run_each(remote.replica, [(*told, *share) for share in shares])
    gradients = parts[0].gradients
    add_gradients(dict(enumerate(modules)), gradients)
    copies = Explicit([[F(0, k), B(0, k)] for k in range(count)], placement=[[0]] * count)
    return StepResult(
        sum(part.loss for part in parts) / count,
        {label: gradients[key] for key, label in labels(modules).items() if key in gradients},
        np.concatenate([part.outputs for part in parts]),
        timeline=measured(copies, [timed for part in parts for timed in part.spans]),
    )


def own_shares(whole: Tensor, count: int) -> list[Tensor]:
    """Equal parts, each with memory of its own: what is sent is a whole memory."""
    return [part.clone() for part in whole.detach().tensor_split(count)]
