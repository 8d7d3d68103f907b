"""Torch modules: cut into stages, named as layers are, and put on devices."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.nn.parallel import DataParallel, DistributedDataParallel

from gpipe_sim.core.actions import W
from gpipe_sim.core.partition import Key
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.core.split import balanced
from gpipe_sim.errors import ScheduleError, got, require_room
from gpipe_sim.torch_backend.private import awaits_gradient
from gpipe_sim.torch_backend.tensors import Named, parameters_of

Names = Sequence[str | torch.device]
_SPREAD = DataParallel, DistributedDataParallel, FullyShardedDataParallel, FSDPModule
CPU = torch.device("cpu")  #: where batches and weights are before they go to local processes


def split(
    model: nn.Sequential | Sequence[nn.Module],
    stages: int | None = None,
    *,
    balance: Sequence[int] | None = None,
) -> list[nn.Sequential]:
    """Cut torch layers into stages, as ``gpipe_sim.split`` cuts NumPy's: ``stages=4`` or ``balance=[2, 3]``.

    TypeError unless it is an ``nn.Sequential`` or a list of modules; ValueError for a cut that does not fit.
    """
    if isinstance(model, nn.Module) and not isinstance(model, nn.Sequential):
        raise TypeError(f"split cuts an nn.Sequential, or a list of modules (got {type(model).__name__})")
    layers = listed(model)
    ends = [0]
    for size in balanced(len(layers), stages, balance):
        ends.append(ends[-1] + size)
    return [nn.Sequential(*layers[a:b]) for a, b in pairwise(ends)]


def labels(modules: Sequence[nn.Module], counts: Mapping[int, int]) -> dict[Named, Key]:
    """What a parameter is called: {(stage, name in the module): (layer, name in the layer)}.

    The children of an ``nn.Sequential`` are layers, any other module is one layer; numbered along the model.
    ``counts``: how many layers stages have that are not here.
    """
    named, first = {}, 0
    for stage, module in enumerate(modules):
        layers = layers_of(module)
        for layer, (child, inside) in enumerate(layers, first):
            for name, _ in inside.named_parameters():
                named[stage, f"{child}.{name}".lstrip(".")] = layer, name
        first += counts.get(stage, len(layers))
    return named


def layers_of(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Its layers by name; one that stands in it twice, as a ReLU may, counts twice."""
    if not isinstance(module, nn.Sequential) or list(module.parameters(recurse=False)):
        return [("", module)]
    inside = module.named_modules(remove_duplicate=False)
    return [(name, layer) for name, layer in inside if name and "." not in name]


def listed(modules: Iterable[nn.Module | None], elsewhere: Collection[int] = ()) -> list[nn.Module]:
    """The modules, as a list; TypeError unless they are torch modules, each on one device.

    Those of stages that other processes hold may be None, for which something empty stands in.
    """
    if not isinstance(modules, Iterable):
        raise TypeError(
            f"a pipeline takes a list of torch modules, one per stage (got {type(modules).__name__}); "
            "split(nn.Sequential(...), stages=...) makes one"
        )
    found = [nn.Identity() if m is None and stage in elsewhere else m for stage, m in enumerate(modules)]
    for stage, module in enumerate(found):
        if not isinstance(module, nn.Module):
            raise TypeError(
                f"stage {stage} must be a torch module (got {type(module).__name__}); "
                "to_torch(gp.split(layers, stages=...)) makes modules of NumPy layers"
            )
        for wrapper in (kind for one in module.modules() for kind in _SPREAD if isinstance(one, kind)):
            raise TypeError(
                f"stage {stage} is wrapped in {wrapper.__name__}, which spreads it over several devices; a "
                "stage is on one: pass the module inside, .module, or do not call fully_shard"
            )
    return found


def require_fit(modules: Sequence[nn.Module], schedule: Schedule) -> None:
    """ValueError unless there is one module per stage, and no device shares weights with another.

    Stages of one device may: the first and the last of a ZB-V, say, tied as embedding and head are.
    """
    if len(modules) != schedule.stages:
        raise ValueError(
            f"{schedule!r} has {schedule.stages} stages, but there are {len(modules)} modules; "
            f"split(nn.Sequential(...), stages={schedule.stages}) would fit"
        )
    devices = {stage: device for device, held in enumerate(schedule.placement) for stage in held}
    first: dict[nn.Parameter, Named] = {}
    for (stage, name), parameter in parameters_of(dict(enumerate(modules))):
        other, its_name = first.setdefault(parameter, (stage, name))
        if devices[other] != devices[stage]:
            raise ValueError(
                f"stages {other} and {stage} share a parameter ({its_name} and {name}), but are on devices "
                f"{devices[other]} and {devices[stage]}, which share nothing: give each its own, or use a "
                "schedule that has both on one device, as ZB-V has the first and the last stage"
            )


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
        raise TypeError(
            f"devices lists one for each of {schedule!r}'s devices: [{devices()[0]!r}] * {schedule.devices}, "
            f"or is LocalProcesses({schedule.devices}) {got(names)}"
        )
    require_room(schedule.devices, names)
    return [device_named(name) for name in names[: schedule.devices]]


def device_named(name: str | torch.device) -> torch.device:
    """The torch device, a GPU with its number; ValueError for one that this machine does not have."""
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"{name!r} is not a torch device; this machine has {devices()}") from error
    if device.type == "cpu":
        return CPU  # torch has one CPU, whatever its number
    device = torch.device(device.type, device.index or 0)
    if str(device) not in devices():
        raise ValueError(f"a pipeline runs on cpu or cuda devices that are here {got(name)}: {devices()}")
    return device


def require_own_gpus(of_process: Sequence[torch.device]) -> None:
    """ValueError unless processes with these devices can send to each other: a GPU for each, or none."""
    gpus, named = {device for device in of_process if device.type == "cuda"}, [*map(str, of_process)]
    if gpus and len(gpus) < len(named):
        raise ValueError(
            "NCCL wants a GPU for each process, and sends to no CPU; in one process stages can share a GPU, "
            f"and be on both: devices={named}"
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
    require_fit(modules, schedule)
    homes = by_stage(schedule, chosen(schedule, names))
    return [module.to(homes[stage]) for stage, module in enumerate(modules)]


def require_on(modules: dict[int, nn.Module], homes: dict[int, torch.device]) -> None:
    """ValueError unless every parameter and buffer is on its stage's device; it says which is where."""
    for stage, module in modules.items():
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if tensor.device != homes[stage]:
                raise ValueError(
                    f"stage {stage} is on {tensor.device} ({name}), but it belongs on {homes[stage]}: "
                    f"modules[{stage}].to({str(homes[stage])!r}), or place(modules, schedule, devices) "
                    "for all stages"
                )


def require_called(modules: Mapping[int, nn.Module], schedule: Schedule) -> None:
    """ScheduleError if a hook waits for a gradient that W adds up: torch would never call it."""
    waiting = [key for key, parameter in parameters_of(modules) if awaits_gradient(parameter)]
    for stage, name in waiting:
        if stage and any(schedule.program.find(W(stage, m)) >= 0 for m in range(schedule.microbatches)):
            raise ScheduleError(
                f"{name} of stage {stage} has a hook (register_post_accumulate_grad_hook) that torch's split "
                "backward never calls: remove it, or use a schedule without I and W"
            )
