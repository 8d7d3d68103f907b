"""What NumPy's layers and losses are on torch."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpipe_sim.core import layers as numpy_layers
from gpipe_sim.core.losses import Loss, cross_entropy, mse
from gpipe_sim.core.partition import Partition
from gpipe_sim.errors import got
from gpipe_sim.torch_backend import transformer as torch_transformer
from gpipe_sim.transformers import attention, blocks, llama, padding, transformer

MeanLoss = Callable[[Tensor, Tensor], Tensor]


class Linear(torch_transformer.Weights):
    """y = x W + b with W (inputs, outputs), as the NumPy layer has it, so that gradients compare as is."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.b, x, self.W) if x.ndim == 2 else x @ self.W + self.b

    def extra_repr(self) -> str:
        return ", ".join(map(str, self.W.shape))


#: What makes the torch module of a NumPy layer; a layer may do without. A module that names its parameters as
#: the layer does has gradients that compare as they are.
COUNTERPARTS: dict[type[numpy_layers.Layer], Callable[[Any], nn.Module]] = {
    numpy_layers.Linear: Linear,
    numpy_layers.ReLU: lambda _: nn.ReLU(),
    numpy_layers.Tanh: lambda _: nn.Tanh(),
    numpy_layers.GELU: lambda _: nn.GELU(approximate="tanh"),
    transformer.Embedding: torch_transformer.Embedding,
    transformer.Positions: torch_transformer.Positions,
    transformer.LayerNorm: torch_transformer.LayerNorm,
    transformer.BatchNorm: torch_transformer.BatchNorm,
    transformer.Dropout: lambda layer: nn.Dropout(layer.rate),
    attention.Attention: torch_transformer.Attention,
    llama.RMSNorm: torch_transformer.RMSNorm,
    llama.SwiGLU: torch_transformer.SwiGLU,
    llama.Head: torch_transformer.Head,
    transformer.SequenceMean: lambda _: torch_transformer.SequenceMean(),
    padding.PaddingMask: lambda layer: torch_transformer.PaddingMask(layer.padding),
    blocks.Checkpoint: lambda layer: torch_transformer.Chain(*to_torch(layer.layers)),
    blocks.Residual: lambda layer: torch_transformer.Residual(*to_torch(layer.layers)),
    blocks.TransformerBlock: lambda layer: torch_transformer.Chain(*to_torch(layer.layers)),
    llama.LlamaBlock: lambda layer: torch_transformer.Chain(*to_torch(layer.layers)),
}


def to_torch(layers: Sequence[numpy_layers.Layer | Partition]) -> list[nn.Module]:
    """A torch module for each NumPy layer, or an ``nn.Sequential`` for each partition, with copied weights.

    TypeError for a layer that ``COUNTERPARTS`` does not name; yours may be added there.
    """
    if isinstance(layers, Partition | numpy_layers.Layer):
        raise TypeError(f"to_torch takes a list of layers or partitions: to_torch([it]) {got(layers)}")
    return [
        torch_transformer.Chain(*to_torch(one.layers)) if isinstance(one, Partition) else _module(one)
        for one in layers
    ]


def _module(layer: numpy_layers.Layer) -> nn.Module:
    if not isinstance(layer, numpy_layers.Layer):
        raise TypeError(f"to_torch takes NumPy layers, and partitions of them {got(layer)}")
    if layer.tied:
        raise TypeError(f"to_torch ties no weights: on torch nobody would sum the gradients of {layer!r}")
    if type(layer) not in COUNTERPARTS:
        name = type(layer).__name__
        raise TypeError(
            f"to_torch knows no torch module for {layer!r}; name one, here torch.nn.{name}: "
            f"torch_backend.COUNTERPARTS[{name}] = lambda layer: torch.nn.{name}()"
        )
    return COUNTERPARTS[type(layer)](layer)


def mse_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """``mse``; a shape that torch would stretch is a ValueError, as with NumPy."""
    if outputs.shape != targets.shape:
        raise ValueError(f"mse needs targets of shape {tuple(outputs.shape)}, got {tuple(targets.shape)}")
    return functional.mse_loss(outputs, targets.to(outputs.dtype))


def cross_entropy_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """``cross_entropy``; what is no class number is refused, as with NumPy."""
    if outputs.ndim < 2 or targets.shape != outputs.shape[:-1]:
        raise ValueError(
            "cross_entropy needs outputs (batch, classes) and targets (batch,), "
            f"got {tuple(outputs.shape)} and {tuple(targets.shape)}"
        )
    if targets.is_floating_point() or targets.is_complex() or targets.dtype is torch.bool:
        raise TypeError(f"cross_entropy needs targets to be class numbers, got {targets.dtype}")
    targets = targets.long()  # torch itself takes int64 and uint8 only
    if targets.device.type == "cpu" and (targets.min() < 0 or targets.max() >= outputs.shape[-1]):
        raise ValueError(
            f"cross_entropy needs targets from 0 to {outputs.shape[-1] - 1}, "
            f"got {targets.min()} to {targets.max()}"
        )
    none = torch.iinfo(torch.long).min  # torch would leave out the class -100, unasked
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten(), ignore_index=none)


_LOSSES: dict[Loss, MeanLoss] = {mse: mse_loss, cross_entropy: cross_entropy_loss}


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


def mean_of(loss: MeanLoss, outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of a microbatch; TypeError or ValueError unless it is one number that autograd can follow."""
    if not isinstance(outputs, Tensor):
        raise TypeError(f"the last stage gives one tensor (got {type(outputs).__name__})")
    value = loss(outputs, targets)
    if not isinstance(value, Tensor) or value.ndim:
        found = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
        raise ValueError(f"a loss gives a tensor with one number, the mean over the microbatch (got {found})")
    if outputs.requires_grad and not value.requires_grad:
        raise ValueError(
            "the loss has no gradient: what it does to the outputs, such as .detach(), .item(), argmax or a "
            "comparison, autograd does not follow"
        )
    return value
