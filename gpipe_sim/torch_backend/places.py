"""Which torch devices there are, which stage is on which of them, and how processes here reach each other."""

import os
import socket
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from gpipe_sim.errors import got, require_room
from gpipe_sim.schedule.base import Schedule, require_schedule
from gpipe_sim.torch_backend.modules import listed, require_stages

Names = Sequence[str | torch.device]
CPU = torch.device("cpu")  #: where batches and weights are before they go to local processes


def devices() -> list[str]:
    """The devices that torch finds: every CUDA device if there is one, else the CPU."""
    return [f"cuda:{i}" for i in range(torch.cuda.device_count())] or ["cpu"]


def chosen(schedule: Schedule, names: Names | None) -> list[torch.device]:
    """The torch device of each of the schedule's devices. Unless given, CUDA if there, else the CPU for all.

    A device may be listed again, surplus ones are unused. IndexError for too few, ValueError for one that
    this machine does not have.
    """
    if names is None:
        names = devices() if torch.cuda.is_available() else ["cpu"] * schedule.devices
    if isinstance(names, str) or not isinstance(names, Sequence):
        name = str(names) if isinstance(names, str | torch.device) else devices()[0]
        raise TypeError(
            f"devices lists one for each of {schedule!r}'s devices: [{name!r}] * {schedule.devices}, or is "
            f"LocalProcesses({schedule.devices}) {got(names)}"
        )
    require_room(schedule.devices, names)
    return [device_named(name) for name in names[: schedule.devices]]


def device_named(name: str | torch.device) -> torch.device:
    """The torch device, a GPU with its number; ValueError for one that this machine does not have."""
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"{name!r} is not a torch device; this machine has {devices()}") from error
    if device.type == "cuda":
        device = torch.device("cuda", device.index or 0)
        if str(device) not in devices():
            raise ValueError(f"there is no {device} here; this machine has {devices()}")
        return device
    if device.type != "cpu":
        raise ValueError(f"a pipeline runs on cpu or cuda devices (got {str(device)!r})")
    return CPU  # torch has one CPU, whatever its number


def require_own_gpus(of_process: Sequence[torch.device]) -> None:
    """ValueError unless processes with these devices can send to each other: a GPU for each, or none."""
    gpus, named = [device for device in of_process if device.type == "cuda"], [*map(str, of_process)]
    if len(set(gpus)) < len(gpus):
        raise ValueError(
            "NCCL wants a GPU for each process; to put several stages on one, stay in one process: "
            f"devices={named}"
        )
    if gpus and len(gpus) < len(named):
        raise ValueError(
            f"NCCL sends between GPUs, gloo between CPUs, and nothing between the two (got {named}); "
            "in one process stages can be on both"
        )


def by_stage(schedule: Schedule, of_device: Sequence[torch.device]) -> dict[int, torch.device]:
    """The torch device of each stage."""
    return {stage: of_device[k] for k, held in enumerate(schedule.placement) for stage in held}


def place(modules: Sequence[nn.Module], schedule: Schedule, names: Names | None = None) -> list[nn.Module]:
    """Move each stage's module to its device, as ``train_step`` with these ``devices`` wants them.

    TypeError or ValueError unless there is a module for each stage of the schedule.
    """
    require_schedule("place", schedule)
    modules = listed(modules)
    require_stages(modules, schedule)
    homes = by_stage(schedule, chosen(schedule, names))
    return [module.to(homes[stage]) for stage, module in enumerate(modules)]


def require_on(modules: dict[int, nn.Module], homes: dict[int, torch.device]) -> None:
    """ValueError unless every parameter and buffer is on its stage's device; it says which is where."""
    for stage, module in modules.items():
        elsewhere = [(name, found) for name, found in _where(module) if found != homes[stage]]
        if not elsewhere:
            continue
        name, found = elsewhere[0]
        if len({found for _, found in _where(module)}) > 1:
            raise ValueError(
                f"stage {stage} is on several devices: {name} is on {found}, but it belongs on "
                f"{homes[stage]}; move it whole: modules[{stage}].to({str(homes[stage])!r})"
            )
        raise ValueError(
            f"stage {stage} is on {found} ({name}), but it belongs on {homes[stage]}: "
            f"modules[{stage}].to({str(homes[stage])!r}), or place(modules, schedule, devices) for all stages"
        )


def _where(module: nn.Module) -> Iterator[tuple[str, torch.device]]:
    for named in (module.named_parameters(), module.named_buffers()):
        yield from ((name, tensor.device) for name, tensor in named)


def loopback() -> dict[str, str]:
    """What keeps gloo and NCCL on the network interface that no other machine sees, for ``os.environ``.

    Where there is none by a name that is known, it is empty, and a warning says so.
    """
    names = [name for _, name in socket.if_nameindex()] if hasattr(socket, "if_nameindex") else []
    own = next((name for name in names if name.startswith("lo")), None)
    if own is None:
        warnings.warn(
            f"this machine has no network interface called lo (it has {names}), so gloo and NCCL listen on one "
            "of their own choice, which other machines may see; GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME name it",
            stacklevel=2,
        )
        return {}
    return {"GLOO_SOCKET_IFNAME": own, "NCCL_SOCKET_IFNAME": own}


@contextmanager
def pinned_to_loopback() -> Iterator[None]:
    """Process groups that are made meanwhile stay on this machine, unless the environment says where to go."""
    added = {name: value for name, value in loopback().items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
