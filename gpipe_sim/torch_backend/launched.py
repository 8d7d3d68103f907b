"""A pipeline of processes that torchrun started, each of which is one device."""

import atexit
import os
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gpipe_sim.schedule.base import Schedule
from gpipe_sim.torch_backend.engine import Engine, Part, alone
from gpipe_sim.torch_backend.gather import gathered, require_same
from gpipe_sim.torch_backend.hosts import Host, plain, recomputed
from gpipe_sim.torch_backend.losses import MeanLoss
from gpipe_sim.torch_backend.places import CPU, Names, chosen, devices, require_on, require_own_gpus


def world() -> int:
    """How many processes this one belongs to; under torchrun it joins them first."""
    if dist.is_torchelastic_launched() and int(os.environ["WORLD_SIZE"]) > 1 and not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
        atexit.register(_leave)
    with alone:  # or another thread's group may go between the two
        return dist.get_world_size() if dist.is_initialized() else 1


def _leave() -> None:
    if dist.is_initialized():  # the script may have left already
        dist.destroy_process_group()


class Launched(Host):
    """This process is one device, started by torchrun, say; the results of all are gathered on each."""

    def __init__(self, modules: Sequence[nn.Module], schedule: Schedule, loss: MeanLoss, names: Names | None):
        rank, world = dist.get_rank(), dist.get_world_size()
        if world != schedule.devices:
            raise ValueError(
                f"{schedule!r} runs on {schedule.devices} processes, one per device, but there are {world}: "
                f"torchrun --nproc-per-node {schedule.devices} ..."
            )
        if os.environ.get("LOCAL_WORLD_SIZE", str(world)) != str(world):
            raise ValueError("a pipeline runs on one machine, whose clock its processes share")
        device = _named_device(schedule, names) if names is not None else _own_device()
        if device.type == "cuda":
            torch.cuda.set_device(device)
        held = {stage: modules[stage] for stage in sorted(schedule.placement[rank])}
        require_on(held, dict.fromkeys(held, device))
        self.engine = Engine(held, plain(schedule), recomputed(schedule), loss, dict.fromkeys(held, device))
        self.first = self.last = device
        self.most = max(sum(len(action.parts) for action in row) for row in schedule.actions)

    def step(self, x: Tensor, targets: Tensor) -> list[Part]:
        require_same(x, targets, self.first)
        return gathered(self.engine.step(x, targets), self.most, self.first)

    def __repr__(self) -> str:
        return f"{self.first}, process {dist.get_rank()} of {dist.get_world_size()}"


def _named_device(schedule: Schedule, names: Names) -> torch.device:
    of_process = chosen(schedule, names)
    require_own_gpus(of_process)
    return of_process[dist.get_rank()]


def _own_device() -> torch.device:
    """Under torchrun: a GPU for each process of this machine, or the CPU where there is no GPU at all."""
    if not torch.cuda.is_available():
        return CPU
    rank, here = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if here > torch.cuda.device_count():
        raise ValueError(
            f"torchrun started {here} processes here, but there are {len(devices())} GPUs, and NCCL wants "
            "one for each. In one process stages can share a GPU: devices=['cuda:0', 'cuda:0', ...]"
        )
    return torch.device("cuda", rank)
