"""A model's layers as one of several tensor-parallel devices has them, and what has to be summed for that.

    attention          by heads: queries, keys and values by columns, the last product by rows
    Linear ... Linear  the first by columns, the second by rows, whatever is between them
    embedding, head    by tokens, where each of them is an end of the model

Where rows meet columns the forward sums its output over the devices, and the backward the gradient of its
input. Everything else every device has whole. Shoeybi et al. 2019, arXiv:1909.08053.
"""

from collections.abc import Iterator, Sequence
from copy import copy
from typing import NamedTuple

from gpipe_sim.core.layers import Layer, Linear
from gpipe_sim.core.meta_array import MetaArray
from gpipe_sim.replicas.tensor_parallel import BY_NUMBER, TensorParallel
from gpipe_sim.transformers.attention import Attention
from gpipe_sim.transformers.blocks import Chain
from gpipe_sim.transformers.llama import Head, SwiGLU
from gpipe_sim.transformers.transformer import Embedding


class Part(NamedTuple):
    """A layer on one device: how many sums of an array of its input's size a forward and a backward take."""

    layer: Layer
    forward: int = 0
    backward: int = 0


def tensor_parts(layers: Sequence[Layer], tensor: int) -> list[Part]:
    """Each layer of a model on one of so many devices. ValueError where the devices do not divide it."""
    alike: dict[str, Part] = {}
    found = []
    for i, layer in enumerate(layers):
        place = (i == 0) - (i == len(layers) - 1)
        name = f"{place} {layer!r} {_dtype(layer)}"
        if name not in alike:
            alike[name] = _part(layer, tensor, place) if tensor > 1 else Part(layer)
        found.append(alike[name])
    return found


def _dtype(layer: Layer) -> object:
    return next((array.dtype for array in layer.parameters.values()), None)


def _part(layer: Layer, tensor: int, place: int) -> Part:
    if place == 1 and isinstance(layer, Embedding):
        return Part(_by_tokens(layer, "E", 0, tensor), forward=1)
    if place == -1 and isinstance(layer, Linear):
        return Part(_by_tokens(layer, "W", 1, tensor), backward=1)
    if place == -1 and isinstance(layer, Head):
        return Part(_by_tokens(layer, "E", 0, tensor), backward=1)
    layer, sums = _cut(layer, tensor)
    return Part(layer, sums, sums)


def _by_tokens(layer: Layer, name: str, axis: int, tensor: int) -> Layer:
    """The layer with a part of the tokens; a vocabulary is padded, so that it can be dealt out."""
    part = copy(layer)
    full = layer.parameters[name].shape[axis]

    def dealt(key: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        at = axis if key == name else 0
        if shape[at] != full:
            return shape
        return (*shape[:at], -(-full // tensor), *shape[at + 1 :])

    part.parameters = {
        key: MetaArray(dealt(key, array.shape), array.dtype) for key, array in layer.parameters.items()
    }
    return part


def _cut(layer: Layer, tensor: int) -> tuple[Layer, int]:
    """(the layer on one device, how often it sums)."""
    if isinstance(layer, Attention | SwiGLU):
        return _divided([layer], tensor)[0], 1
    if not isinstance(layer, Chain):
        return layer, 0
    part = copy(layer)
    inner, sums = zip(*_cut_chain(layer.layers, tensor), strict=True)
    part.layers = tuple(inner)
    part.parameters = {
        f"{i}.{name}": array for i, each in enumerate(inner) for name, array in each.parameters.items()
    }
    return part, sum(sums)


def _cut_chain(layers: Sequence[Layer], tensor: int) -> Iterator[tuple[Layer, int]]:
    i = 0
    while i < len(layers):
        three = layers[i : i + 3]
        if [type(each) for each in three[::2]] == [Linear, Linear] and isinstance(three[1], BY_NUMBER):
            yield from zip(_divided(three, tensor), (0, 0, 1), strict=True)
            i += 3
        else:
            yield _cut(layers[i], tensor)
            i += 1


def _divided(layers: Sequence[Layer], tensor: int) -> list[Layer]:
    try:
        return list(TensorParallel(layers, tensor).parts[0].layers)
    except ValueError as error:
        raise ValueError(f"price cannot deal out {layers[0]!r} with tensor={tensor}: {error}") from None
