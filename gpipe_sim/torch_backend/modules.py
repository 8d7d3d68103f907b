"""Torch modules: made from NumPy layers, cut into stages, and what a pipeline asks of them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DataParallel, DistributedDataParallel

from gpipe_sim import layers as numpy_layers
from gpipe_sim.losses import Loss, cross_entropy, mse
from gpipe_sim.partition import Key, Partition, balanced
from gpipe_sim.schedule import Schedule

MeanLoss = Callable[[Tensor, Tensor], Tensor]


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


_MAKE: dict[type, Callable[[numpy_layers.Layer], nn.Module]] = {
    numpy_layers.Linear: Linear,
    numpy_layers.ReLU: lambda _: nn.ReLU(),
    numpy_layers.Tanh: lambda _: nn.Tanh(),
    numpy_layers.GELU: lambda _: nn.GELU(approximate="tanh"),
}


def mse_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """``mse``; a shape that torch would stretch is a ValueError, as with NumPy."""
    if outputs.shape != targets.shape:
        raise ValueError(f"mse needs targets of shape {tuple(outputs.shape)}, got {tuple(targets.shape)}")
    return functional.mse_loss(outputs, targets.to(outputs.dtype))


def cross_entropy_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """``cross_entropy``; what is no class number is refused, as with NumPy."""
    if outputs.ndim != 2 or targets.shape != outputs.shape[:1]:
        raise ValueError(
            "cross_entropy needs outputs (batch, classes) and targets (batch,), "
            f"got {tuple(outputs.shape)} and {tuple(targets.shape)}"
        )
    if targets.is_floating_point() or targets.is_complex() or targets.dtype is torch.bool:
        raise TypeError(f"cross_entropy needs targets to be class numbers, got {targets.dtype}")
    targets = targets.long()  # torch itself takes int64 and uint8 only
    if targets.device.type == "cpu" and (targets.min() < 0 or targets.max() >= outputs.shape[1]):
        raise ValueError(
            f"cross_entropy needs targets from 0 to {outputs.shape[1] - 1}, "
            f"got {targets.min()} to {targets.max()}"
        )
    return functional.cross_entropy(outputs, targets)


_LOSSES: dict[Loss, MeanLoss] = {mse: mse_loss, cross_entropy: cross_entropy_loss}


def to_torch(layers: Sequence[numpy_layers.Layer | Partition]) -> list[nn.Module]:
    """A torch module for each NumPy layer, or an ``nn.Sequential`` for each partition, with copied weights.

    TypeError for a layer that has no counterpart here.
    """
    return [
        nn.Sequential(*to_torch(one.layers)) if isinstance(one, Partition) else _module(one) for one in layers
    ]


def _module(layer: numpy_layers.Layer) -> nn.Module:
    if type(layer) not in _MAKE:
        known = ", ".join(kind.__name__ for kind in _MAKE)
        raise TypeError(
            f"to_torch knows {known} and partitions of them (got {layer!r}); write its torch module"
        )
    return _MAKE[type(layer)](layer)


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
    layers = list(model)
    ends = [0]
    for size in balanced(len(layers), stages, balance):
        ends.append(ends[-1] + size)
    return [nn.Sequential(*layers[a:b]) for a, b in pairwise(ends)]


def mean_loss(loss: Loss | MeanLoss) -> MeanLoss:
    """The torch function for a loss of this package; a function of your own is taken as it is."""
    if isinstance(loss, Loss):
        if loss not in _LOSSES:
            raise TypeError(
                f"on torch a step knows mse and cross_entropy (got {loss!r}); "
                "give a function (outputs, targets) -> mean over the microbatch instead"
            )
        return _LOSSES[loss]
    if not callable(loss):
        raise TypeError(f"a step needs a loss, such as cross_entropy or mse (got {loss!r})")
    return loss


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


def as_array(tensor: Tensor) -> np.ndarray:
    """A copy of a tensor; bfloat16, which NumPy does not have, as float32."""
    tensor = tensor.detach().cpu()
    tensor = tensor.to_dense() if tensor.is_sparse else tensor
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy().copy()


def gradients_of(modules: dict[int, nn.Module]) -> dict[tuple[int, str], np.ndarray]:
    """Copies of what is in ``.grad``, as {(stage, parameter name): array}."""
    return {
        (stage, name): as_array(parameter.grad)
        for stage, module in modules.items()
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }


def add_gradients(modules: dict[int, nn.Module], gradients: dict[tuple[int, str], np.ndarray]) -> None:
    """Let ``.grad`` grow by gradients that were computed elsewhere, {(stage, parameter name): array}."""
    for stage, module in modules.items():
        for name, parameter in module.named_parameters():
            if (stage, name) in gradients:
                fresh = torch.tensor(gradients[stage, name], device=parameter.device, dtype=parameter.dtype)
                parameter.grad = grown(parameter.grad, fresh)


def grown(kept: Tensor | None, fresh: Tensor | None) -> Tensor | None:
    """A gradient grown in place, as autograd does; only a sparse one cannot hold a dense one."""
    if kept is None or fresh is None:
        return fresh if kept is None else kept
    return fresh + kept if kept.is_sparse and not fresh.is_sparse else kept.add_(fresh)


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


def require_fit(modules: Sequence[nn.Module], schedule: Schedule) -> None:
    """ValueError unless there is one module per stage and none shares weights with another."""
    if len(modules) != schedule.stages:
        raise ValueError(
            f"{schedule!r} has {schedule.stages} stages, but there are {len(modules)} modules; "
            f"split(nn.Sequential(...), stages={schedule.stages}) would fit"
        )
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
