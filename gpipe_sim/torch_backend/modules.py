"""Torch modules: cut into stages, named as layers are, and what a pipeline asks of them."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from gpipe_sim.runtime.partition import Key, balanced
from gpipe_sim.schedule.base import Schedule
from gpipe_sim.torch_backend.tensors import Named, parameters_of


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


def labels(modules: Sequence[nn.Module]) -> dict[Named, Key]:
    """What a parameter is called: {(stage, name in the module): (layer, name in the layer)}.

    The children of an ``nn.Sequential`` are layers, any other module is one layer; numbered along the model.
    """
    named, first = {}, 0
    for stage, module in enumerate(modules):
        sequential = isinstance(module, nn.Sequential) and not list(module.parameters(recurse=False))
        layers = list(_children(module)) if sequential else [("", module)]
        for layer, (child, inside) in enumerate(layers, first):
            for name, _ in inside.named_parameters():
                named[stage, f"{child}.{name}".lstrip(".")] = layer, name
        first += len(layers)
    return named


def _children(module: nn.Sequential) -> Iterator[tuple[str, nn.Module]]:
    """Its layers by name; one that stands in it twice, as a ReLU may, counts twice."""
    for name, inside in module.named_modules(remove_duplicate=False):
        if name and "." not in name:
            yield name, inside


def listed(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """The modules, as a list; TypeError unless they are torch modules, each on one device."""
    if not isinstance(modules, Iterable):
        raise TypeError(
            f"a pipeline takes a list of torch modules, one per stage (got {type(modules).__name__}); "
            "split(nn.Sequential(...), stages=...) makes one"
        )
    modules = list(modules)
    for stage, module in enumerate(modules):
        if not isinstance(module, nn.Module):
            raise TypeError(
                f"stage {stage} must be a torch module (got {type(module).__name__}); "
                "to_torch(gp.split(layers, stages=...)) makes modules of NumPy layers"
            )
        if isinstance(module, DataParallel | DistributedDataParallel):
            raise TypeError(
                f"stage {stage} is wrapped in {type(module).__name__}, which runs it on several devices; "
                "a stage is on one: pass the module inside, .module"
            )
    return modules


def require_stages(modules: Sequence[nn.Module], schedule: Schedule) -> None:
    """ValueError unless there is one module per stage."""
    if len(modules) != schedule.stages:
        raise ValueError(
            f"{schedule!r} has {schedule.stages} stages, but there are {len(modules)} modules; "
            f"split(nn.Sequential(...), stages={schedule.stages}) would fit"
        )


def require_fit(modules: Sequence[nn.Module], schedule: Schedule) -> None:
    """ValueError unless there is one module per stage, and no device shares weights with another.

    Stages of one device may: the first and the last of a ZB-V, say, tied as embedding and head are.
    """
    require_stages(modules, schedule)
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
