"""Torch modules: made from NumPy layers, cut into stages, and what a pipeline asks of them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from gpipe_sim.errors import got
from gpipe_sim.nn import layers as numpy_layers
from gpipe_sim.runtime.partition import Key, Partition, balanced
from gpipe_sim.schedule.base import Schedule


class Linear(nn.Module):
    """y = x W + b with W (inputs, outputs), as the NumPy layer has it, so that gradients compare as is."""

    def __init__(self, layer: numpy_layers.Linear):
        super().__init__()
        self.W = nn.Parameter(torch.tensor(layer.parameters["W"]))
        self.b = nn.Parameter(torch.tensor(layer.parameters["b"]))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.b, x, self.W)

    def extra_repr(self) -> str:
        return ", ".join(map(str, self.W.shape))


#: What makes the torch module of a NumPy layer; a layer may do without. A module that names its parameters as
#: the layer does has gradients that compare as they are.
COUNTERPARTS: dict[type[numpy_layers.Layer], Callable[[numpy_layers.Layer], nn.Module]] = {
    numpy_layers.Linear: Linear,
    numpy_layers.ReLU: lambda _: nn.ReLU(),
    numpy_layers.Tanh: lambda _: nn.Tanh(),
    numpy_layers.GELU: lambda _: nn.GELU(approximate="tanh"),
}


def to_torch(layers: Sequence[numpy_layers.Layer | Partition]) -> list[nn.Module]:
    """A torch module for each NumPy layer, or an ``nn.Sequential`` for each partition, with copied weights.

    TypeError for a layer that ``COUNTERPARTS`` does not name; yours may be added there.
    """
    if isinstance(layers, Partition | numpy_layers.Layer):
        raise TypeError(f"to_torch takes a list of layers or partitions: to_torch([it]) {got(layers)}")
    return [
        nn.Sequential(*to_torch(one.layers)) if isinstance(one, Partition) else _module(one) for one in layers
    ]


def _module(layer: numpy_layers.Layer) -> nn.Module:
    if not isinstance(layer, numpy_layers.Layer):
        raise TypeError(f"to_torch takes NumPy layers, and partitions of them {got(layer)}")
    if type(layer) not in COUNTERPARTS:
        name = type(layer).__name__
        raise TypeError(
            f"to_torch knows no torch module for {layer!r}; name one, here torch.nn.{name}: "
            f"torch_backend.COUNTERPARTS[{name}] = lambda layer: torch.nn.{name}()"
        )
    return COUNTERPARTS[type(layer)](layer)


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


def labels(modules: Sequence[nn.Module]) -> dict[tuple[int, str], Key]:
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
    """ValueError unless there is one module per stage and none shares weights with another."""
    require_stages(modules, schedule)
    home: dict[int, tuple[int, str]] = {}
    for stage, name, parameter in _parameters(modules):
        other, its_name = home.setdefault(id(parameter), (stage, name))
        if other != stage:
            raise ValueError(
                f"stages {other} and {stage} share a parameter ({its_name} and {name}); "
                "devices share nothing, so every stage needs parameters of its own"
            )


def _parameters(modules: Sequence[nn.Module]) -> Iterator[tuple[int, str, nn.Parameter]]:
    for stage, module in enumerate(modules):
        for name, parameter in module.named_parameters():
            yield stage, name, parameter
