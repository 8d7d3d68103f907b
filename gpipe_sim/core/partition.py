"""One stage's layers."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from gpipe_sim.core.boundary import Boundary, apply_layer
from gpipe_sim.core.layers import Context, Layer
from gpipe_sim.core.meta_array import MetaArray
from gpipe_sim.errors import got, require, whole

Array = np.ndarray
Key = tuple[int, str]
Gradients = dict[Key, Array]
Look = Callable[[Any, Boundary | None], None]


def nobody(stays: Any, passes: Boundary | None = None) -> None:
    """Looks at nothing."""


class Partition:
    """A run of consecutive layers, numbered along the whole model from ``first_layer``.

    Its forward and backward methods run all of its layers, one after another; parameters and gradients are
    ``{(layer, name): array}``. ``device`` is the label that ``split`` was given for it, if any. ``look`` is
    called after each layer: with what stays of it until the action ends, and what passes on to the next.
    ValueError if a layer with weights occurs twice.
    """

    def __init__(self, layers: Sequence[Layer], first_layer: int = 0, device: Hashable = None):
        require_distinct(layers)
        self.layers = tuple(layers)
        self.first_layer = whole("Partition", "first_layer", first_layer, low=0)
        self.device = require("Partition", device, Hashable, "device to be a name, such as 'a'")

    @property
    def numbers(self) -> range:
        """The numbers of its layers along the whole model."""
        return range(self.first_layer, self.first_layer + len(self.layers))

    @property
    def parameters(self) -> dict[Key, Array]:
        """{(layer, name): array}: the arrays themselves, not copies."""
        numbered = zip(self.numbers, self.layers, strict=True)
        return {(i, name): array for i, layer in numbered for name, array in layer.parameters.items()}

    def forward(
        self, x: Boundary, ctx: Context, look: Look = nobody, keep: bool = True
    ) -> tuple[Boundary, list[Any]]:
        """(output, what each layer saved: nothing, unless ``keep``), both with what travels along."""
        kept = []
        training, seed, step, microbatch, *_ = ctx
        for i, layer in enumerate(self.layers, self.first_layer):
            x, saved = apply_layer(layer, layer.forward, x, Context(training, seed, step, microbatch, i))
            if keep:
                kept.append(saved)
            look(saved if keep else None, x)
        return x, kept

    def backward_input(self, saved: list[Any], dy: Array, look: Look = nobody) -> tuple[Array, list[Any]]:
        """The gradient of the input, and what each layer's weight gradient still needs."""
        kept = []
        for layer, layer_saved in zip(reversed(self.layers), reversed(saved), strict=True):
            dy, pending = layer.backward_input(layer_saved, dy)
            kept.append(pending)
            look(pending, dy)
        kept.reverse()
        return dy, kept

    def backward_weight(self, pending: list[Any], into: Gradients, look: Look = nobody) -> None:
        """Add the gradient of every parameter to ``into``, {(layer, name): array}, in place."""
        for i, layer, layer_pending in zip(self.numbers, self.layers, pending, strict=True):
            if layer.parameters:
                look(_add(i, layer.backward_weight(layer_pending), into), None)

    def backward(self, saved: list[Any], dy: Array, into: Gradients, look: Look = nobody) -> Array:
        """Both gradients at once, layer by layer: the same numbers, but fewer arrays exist at a time."""
        backwards = zip(reversed(self.numbers), reversed(self.layers), reversed(saved), strict=True)
        for i, layer, layer_saved in backwards:
            dy, pending = layer.backward_input(layer_saved, dy)
            new = _add(i, layer.backward_weight(pending), into) if layer.parameters else None
            del pending  # or it would take up memory while the next layer runs
            look(new, dy)
        return dy

    def __len__(self) -> int:
        return len(self.layers)

    def __repr__(self) -> str:
        return f"Partition({list(self.layers)}, first_layer={self.first_layer})"


def _add(layer: int, fresh: dict[str, Array], into: Gradients) -> list[Array]:
    """Add a layer's gradients in place; the arrays among them that are now in ``into``, as none was there."""
    new = []
    for name, gradient in fresh.items():
        key = layer, name
        if key in into:
            into[key] += gradient
        else:
            into[key] = gradient
            new.append(gradient)
    return new


def require_distinct(layers: Sequence[Layer]) -> None:
    if isinstance(layers, Partition | str) or not isinstance(layers, Sequence) or not layers:
        hint = "its layers are partition.layers" if isinstance(layers, Partition) else "such as mlp([64, 10])"
        raise TypeError(f"a model is a list of layers, {hint} {got(layers)}")
    holder: dict[int, int] = {}
    for number, layer in enumerate(layers):
        require("a model", layer, Layer, "layers, such as mlp([64, 10])")
        for name, array in layer.parameters.items():
            other = holder.setdefault(id(array), number)
            if other != number:
                same = "are the same" if layers[other] is layer else f"share the weights {name!r} of"
                raise ValueError(
                    f"layers {other} and {number} {same} {layer!r}; "
                    "devices share nothing, so every layer with weights must be one of its own"
                )


def require_partitions(
    owner: str, partitions: Sequence[Partition], stages: int = 2, *, runnable: bool = False
) -> None:
    """TypeError unless it is a list of partitions, ValueError if they should run and are on paper."""
    such_as = f"a list of partitions, as split(layers, stages={stages}) makes it"
    for partition in require(owner, partitions, Sequence, such_as) or [None]:
        require(owner, partition, Partition, such_as)
        if runnable:
            require_weights(partition)


def require_weights(partition: Partition) -> None:
    """ValueError for a layer on paper, which has no weights to run with."""
    for number, layer in zip(partition.numbers, partition.layers, strict=True):
        if any(isinstance(weight, MetaArray) for weight in layer.parameters.values()):
            raise ValueError(
                f"layer {number}, {layer!r}, is on paper and cannot run; give it a generator as rng=..., "
                "or ask profile(...) and predict_memory(...) what it would hold"
            )


def require_one_model(partitions: Sequence[Partition]) -> None:
    """ValueError unless the partitions are all of a model, in order, and share no layer."""
    end = 0
    for stage, partition in enumerate(partitions):
        if partition.first_layer != end:
            raise ValueError(
                f"partition {stage} starts at layer {partition.first_layer}, "
                f"but those before it end at {end}; "
                f"split(layers, stages={len(partitions)}) numbers them along the model"
            )
        end += len(partition)
    layers = [layer for partition in partitions for layer in partition.layers]
    if len(set(map(id, layers))) < len(layers):  # each partition alone was looked at when it was made
        require_distinct(layers)
