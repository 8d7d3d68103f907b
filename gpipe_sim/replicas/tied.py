"""A weight that two layers share: the embedding's is the head's too, at the other end of the pipeline.

    device 0      E, the embedding      its gradient  --+
                                                        +-- all-reduce: both ends have the sum
    device K-1    E, the head           its gradient  --+

Both start with the same numbers and get the same gradient, so any optimizer keeps them the same. Where one
device has both ends, as in ZB-V, nothing is sent. Where a stage has copies, their gradients have been summed
before. Narayanan et al. 2021, arXiv:2104.04473, do it so in Megatron-LM.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from gpipe_sim.core.layers import Layer
from gpipe_sim.replicas.ring import ring_all_reduce
from gpipe_sim.transformers.transformer import Embedding


class End(NamedTuple):
    """A layer with a weight E, its number along the model, and what a device has as its gradient."""

    device: Any
    number: int
    layer: Layer
    gradient: np.ndarray

    @property
    def weight(self) -> np.ndarray:
        return self.layer.parameters["E"]


def sum_tied(devices: Sequence[Any]) -> None:
    """Sum the gradients of both ends of each tied weight, in place; each device notes what it sent.

    ValueError if a tied head finds no embedding of its shape or several, if there are not as many copies of
    it as of the embedding, or if somebody has changed one of the two weights.
    """
    ends = [*_ends(devices)]
    for number in sorted({end.number for end in ends if end.layer.tied}):
        heads = [end for end in ends if end.number == number]
        shape = heads[0].weight.shape
        embeddings = [end for end in ends if type(end.layer) is Embedding and end.weight.shape == shape]
        _require_pairs(embeddings, heads)
        for pair in zip(embeddings, heads, strict=True):
            _sum(*pair)


def _ends(devices: Sequence[Any]) -> Iterator[End]:
    """All that have a gradient."""
    for device in devices:
        for stage, partition in device.partitions.items():
            for number, layer in zip(partition.numbers, partition.layers, strict=True):
                if (number, "E") in device.gradients[stage]:
                    yield End(device, number, layer, device.gradients[stage][number, "E"])


def _require_pairs(embeddings: list[End], heads: list[End]) -> None:
    own, many = heads[0], len({end.number for end in embeddings})
    which = f"layer {own.number}, {own.layer!r}, is tied to one Embedding{own.weight.shape} of its model"
    if many != 1:
        raise ValueError(f"{which}, but there are {many} of this shape among its layers")
    if len(embeddings) != len(heads):
        raise ValueError(f"{which}, but there are {len(heads)} copies of it, and {len(embeddings)} of that")
    if not np.array_equal(embeddings[0].weight, own.weight, equal_nan=True):
        raise ValueError(f"{which}, but their weights are not the same any more")


def _sum(one: End, other: End) -> None:
    if one.device is other.device:
        one.gradient[...] = other.gradient[...] = one.gradient + other.gradient
        return
    around = ring_all_reduce([one.gradient, other.gradient])
    for end, total, sent in zip((one, other), *around, strict=True):
        end.gradient[...] = total
        end.device.ring_bytes += sent
