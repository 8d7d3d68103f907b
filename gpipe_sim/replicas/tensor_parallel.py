"""Tensor parallelism: each device holds a part of every weight matrix, and all of them work on all samples.

Two layers are cut so that a single sum over the devices joins them again. Of the network GELU(x A) B a device
holds some columns of A, and those rows of B that meet what its columns make:

           +--> x A0 --> GELU --> (...) B0 --+
    x --> all                                +--> all-reduce --> y: the sum of both
           +--> x A1 --> GELU --> (...) B1 --+

GELU works on each number alone, so nothing has to be sent in the middle; with rows first, the sum would
have to come before the GELU. In the backward dx is such a sum too, of what each part of A gives. Attention is
cut by heads: a device's columns are the queries, keys and values of its heads, and no head sees another.

Shoeybi et al. 2019, arXiv:1909.08053, section 3.
"""

from collections.abc import Sequence
from copy import copy
from itertools import pairwise
from math import gcd
from typing import NamedTuple

import numpy as np

from gpipe_sim.core.boundary import first
from gpipe_sim.core.layers import GELU, Context, Layer, Linear, ReLU, Tanh
from gpipe_sim.core.meta_array import MetaArray, Some
from gpipe_sim.core.partition import Gradients, Key, Partition, require_distinct, require_weights
from gpipe_sim.errors import got, numbers, require_few, whole
from gpipe_sim.replicas.ring import ring_all_reduce
from gpipe_sim.transformers.attention import Attention
from gpipe_sim.transformers.llama import SwiGLU

Array = np.ndarray
MOST_DEVICES = 10_000  #: each takes some time to make
BY_NUMBER = (GELU, ReLU, Tanh)  #: layers that work on each number alone


class Cut(NamedTuple):
    """An axis that is dealt out to the devices; where q, k and v lie along it, each of these stretches is."""

    axis: int
    stretches: tuple[int, ...] = ()


#: What is added to the sum is added once: one device has it, and the others have zeros.
ONCE = None


class TensorParallelStep(NamedTuple):
    """What a step gave, in the shapes of the layers before they were cut.

    ``gradients`` are {(layer, name): array}. ``sent`` has the bytes that each device sent in the all-reduce
    of the "forward", and in that of the "backward".
    """

    output: Array
    input_gradient: Array
    gradients: Gradients
    sent: dict[str, tuple[int, ...]]


class TensorParallel:
    """One network, [Linear, GELU, Linear] or [SwiGLU], or one [Attention], cut over simulated devices.

    ``parts`` are each device's layers, on arrays of their own; in all they take the bytes of the whole, and
    another last bias for each further device. In place of the GELU, ReLU or Tanh may stand. Layers on paper
    can be cut too, and their parts profiled, but not run.

    ValueError unless ``devices`` divides the features in the middle, or the heads of keys and values;
    TypeError for other layers. Shoeybi et al. 2019, arXiv:1909.08053.
    """

    def __init__(self, layers: Sequence[Layer], devices: int):
        devices = whole("TensorParallel", "devices", devices)
        require_distinct(layers)
        self.layers = tuple(layers)
        self.cuts = _cuts(self.layers, devices)
        require_few("TensorParallel", devices, "devices", most=MOST_DEVICES)
        self.parts = tuple(self._part(device, devices) for device in range(devices))

    def _part(self, device: int, devices: int) -> Partition:
        part = [copy(layer) for layer in self.layers]
        for number, layer in enumerate(part):
            layer.parameters = {
                name: _piece(array, self.cuts[number, name], device, devices)
                for name, array in layer.parameters.items()
            }
            if isinstance(layer, Attention):
                layer.heads //= devices
                layer.kv_heads //= devices
        return Partition(part)

    def step(self, x: Array, dy: Array) -> TensorParallelStep:
        """A forward on x, and the backward of dy, the gradient of its output; every device has both.

        ValueError or TypeError if they do not fit the layers; ValueError if these are on paper, or an
        attention with dropout.
        """
        x, dy = self._read(x, dy)
        gradients: list[Gradients] = [{} for _ in self.parts]

        ran = [part.forward(x.copy(), Context()) for part in self.parts]
        (output, *_), forward = ring_all_reduce([first(partial) for partial, _ in ran])
        if dy.shape != output.shape:
            raise ValueError(f"step needs dy in the shape of the output, {output.shape} (got {dy.shape})")
        back = [
            part.backward(saved, dy.copy(), into)
            for part, (_, saved), into in zip(self.parts, ran, gradients, strict=True)
        ]
        (input_gradient, *_), backward = ring_all_reduce(back)

        joined = {key: _whole([each[key] for each in gradients], cut) for key, cut in self.cuts.items()}
        sent = {"forward": forward, "backward": backward}
        return TensorParallelStep(output, input_gradient, joined, sent)

    def _read(self, x: Array, dy: Array) -> tuple[Array, Array]:
        require_weights(self.parts[0])
        for layer in self.layers:
            if isinstance(layer, Attention) and layer.dropout.rate:
                raise ValueError(
                    f"step needs an attention without dropout {got(layer.dropout)}: its entries are drawn "
                    "for all heads together, and a device with some of them would draw others"
                )
        return numbers("step", "x", x), numbers("step", "dy", dy)

    def __repr__(self) -> str:
        return f"TensorParallel({list(self.layers)}, devices={len(self.parts)})"


def _cuts(layers: tuple[Layer, ...], devices: int) -> dict[Key, Cut | None]:
    """How each weight is cut: columns then rows, or by heads. TypeError or ValueError if it cannot be."""
    kinds = [type(layer) for layer in layers]
    if len(layers) == 1 and type(layers[0]) is Attention:
        many, three = layers[0].kv_heads, layers[0].stretches
        of_what = "heads of keys and values" if many < layers[0].heads else "heads"
        cuts = {(0, "W"): Cut(1, three), (0, "b"): Cut(0, three), (0, "Wo"): Cut(0), (0, "bo"): ONCE}
        cuts = {key: cut for key, cut in cuts.items() if key[1] in layers[0].parameters}
    elif len(layers) == 1 and type(layers[0]) is SwiGLU:
        many, of_what = len(layers[0].parameters["Wo"]), "features in the middle"
        cuts = {(0, "W"): Cut(1, (many, many)), (0, "Wo"): Cut(0)}
    elif len(kinds) == 3 and kinds[::2] == [Linear, Linear] and kinds[1] in BY_NUMBER:
        many, of_what = layers[0].parameters["W"].shape[1], "features in the middle"
        if many != layers[2].parameters["W"].shape[0]:
            raise ValueError(f"TensorParallel needs layers that fit each other {got(list(layers))}")
        cuts = {(0, "W"): Cut(1), (0, "b"): Cut(0), (2, "W"): Cut(0), (2, "b"): ONCE}
    else:
        raise TypeError(
            "TensorParallel cuts [Linear, GELU, Linear], such as mlp([8, 32, 8], activation='gelu'), "
            f"[Attention] or [SwiGLU] {got(list(layers))}"
        )
    if many % devices:
        would = f"{gcd(many, devices)} would work"
        raise ValueError(f"TensorParallel needs devices that divide {many} {of_what}, {would} {got(devices)}")
    return cuts


def _piece(array: Some, cut: Cut | None, device: int, devices: int) -> Some:
    """A device's own part of an array."""
    if cut is ONCE:
        return array.copy() if device == 0 or isinstance(array, MetaArray) else np.zeros_like(array)
    many = array.shape[cut.axis]
    if isinstance(array, MetaArray):
        shape = [many // devices if axis == cut.axis else n for axis, n in enumerate(array.shape)]
        return MetaArray(tuple(shape), array.dtype)
    return array.take(_deal(many, cut, devices)[device], cut.axis)


def _deal(many: int, cut: Cut, devices: int) -> Array:
    """Which of so many rows or columns each device has: (devices, its own)."""
    ends = np.cumsum([0, *(cut.stretches or (many,))])
    own = [np.arange(a, b).reshape(devices, -1) for a, b in pairwise(ends.tolist())]
    return np.concatenate(own, axis=1)


def _whole(pieces: list[Array], cut: Cut | None) -> Array:
    """The devices' parts of a gradient, in the order of the whole."""
    if cut is ONCE:
        return pieces[0]
    joined = np.concatenate(pieces, cut.axis)
    order = _deal(joined.shape[cut.axis], cut, len(pieces)).ravel()
    return joined.take(np.argsort(order), cut.axis)
