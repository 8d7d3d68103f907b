"""The same schedules on PyTorch's own pipeline engine: on CPU processes, on one GPU, or on one GPU each.

    modules = to_torch(split(mlp([64, 32, 32, 10]), stages=4))     # or any torch modules, one per stage
    step = train_step(modules, OneFOneB(4, 8), (x, y), cross_entropy, devices=["cpu"] * 4)
    step.loss, step.gradients, step.timeline                       # the timeline is measured, in milliseconds

``devices`` says where: names of torch devices, all in this process; ``LocalProcesses(4)``, a process for
each; or nothing under ``torchrun --nproc-per-node 4``, where every process is one device, on one machine or
on several. There ``gp.replicate(schedule, 2)``, or ``group=`` a ``DeviceMesh``, is data parallelism.
"""

try:
    import torch as _torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError(
        "gpipe_sim.torch_backend needs torch, which is not installed: pip install 'gpipe_sim[torch]' "
        "(in a clone: pip install -e '.[torch]'); everything else works without it"
    ) from None
if tuple(map(int, _torch.__version__.split(".")[:2])) < (2, 13):
    raise ImportError(f"gpipe_sim.torch_backend needs torch 2.13 or newer, and this is {_torch.__version__}")

from gpipe_sim.torch_backend.counterparts import COUNTERPARTS, to_torch
from gpipe_sim.torch_backend.labels import labelled
from gpipe_sim.torch_backend.modules import devices, place, split
from gpipe_sim.torch_backend.pipeline import Pipeline, train_step
from gpipe_sim.torch_backend.private import UnsupportedTorch
from gpipe_sim.torch_backend.processes import LocalProcesses
from gpipe_sim.torch_backend.rank import program
from gpipe_sim.torch_backend.sleep import Sleep

__all__ = [
    "COUNTERPARTS",
    "LocalProcesses",
    "Pipeline",
    "Sleep",
    "UnsupportedTorch",
    "devices",
    "labelled",
    "place",
    "program",
    "split",
    "to_torch",
    "train_step",
]
