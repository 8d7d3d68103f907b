"""How many layers each stage should get, by what real layers have or take: weights, seconds or bytes.

Each counts one thing of every layer and leaves the cut to ``balance_by_cost``, whose options it takes. The
names are torchgpipe's (Kim et al. 2020, arXiv:2004.09910), as is what a size is. Its cut is not: that one is
approximate, this one exact.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gpipe_sim.balance.by_cost import balance_by_cost, read_stages
from gpipe_sim.balance.stopwatch import seconds
from gpipe_sim.core.boundary import Boundary, apply_layer
from gpipe_sim.core.device import cut_batch
from gpipe_sim.core.layers import Context, Layer
from gpipe_sim.core.memory import roots
from gpipe_sim.core.meta_array import MetaArray
from gpipe_sim.core.partition import Partition, require_distinct
from gpipe_sim.core.split import NO_SAMPLE
from gpipe_sim.errors import got, numbers, one_of, whole

BY = ("parameters", "time", "size")  #: what a stage should have as little of as possible


def balance_by_parameters(layers: Sequence[Layer], stages: int, **options: Any) -> list[int]:
    """How many layers each stage gets, so that the one with the most weights has as few as possible.

    Weights are not time: a convolution has few and computes much, an embedding has many and computes nothing.
    A model on paper will do. ``options`` are those of ``balance_by_cost``: ``speeds``, ``sizes`` and
    ``memory``. ValueError for more stages than layers.
    """
    _require("balance_by_parameters", layers, stages)
    return balance_by_cost([_weights(layer, "size") for layer in layers], stages, **options)


def balance_by_time(
    layers: Sequence[Layer],
    stages: int,
    sample: np.ndarray,
    *,
    runs: int = 5,
    warmup: int = 1,
    **options: Any,
) -> list[int]:
    """How many layers each stage gets, so that the slowest stage is as fast as it can be on this computer.

    What a layer costs is the median time of ``runs`` forwards and backwards of the ``sample``, the inputs of
    one microbatch, after ``warmup`` runs that do not count. ``options`` are those of ``balance_by_cost``:
    ``speeds``, ``sizes`` and ``memory``. Another run may cut elsewhere, as times vary. ValueError for more
    stages than layers, for layers on paper, and for a sample that the layers do not take.
    """
    _require("balance_by_time", layers, stages)
    x = _read_sample("balance_by_time", sample)
    if isinstance(x, MetaArray):
        raise TypeError(f"balance_by_time needs a sample with contents {got(x)}")
    alone = [Partition([layer], number) for number, layer in enumerate(layers)]
    costs = map(sum, zip(*seconds(alone, x, runs, warmup), strict=True))
    return balance_by_cost(list(costs), stages, **options)


def balance_by_size(
    layers: Sequence[Layer],
    stages: int,
    sample: np.ndarray,
    *,
    microbatches: int = 1,
    **options: Any,
) -> list[int]:
    """How many layers each stage gets, so that the one with the most bytes has as few as possible.

    A layer's bytes are what its forward leaves of the largest of so many microbatches of the ``sample``, and
    its weights twice, for their gradients.
    Microbatches in flight are not counted; of those the first stages of 1F1B hold more than the last.

    Nothing is computed, so the layers and the sample may be on paper. ``options`` are those of
    ``balance_by_cost``: ``speeds``, ``sizes`` and ``memory``. ValueError for more stages than layers, or a
    sample that they do not take.
    """
    _require("balance_by_size", layers, stages)
    x = _read_sample("balance_by_size", sample)
    [largest, *_] = cut_batch(len(x), whole("balance_by_size", "microbatches", microbatches))
    x = MetaArray((largest.samples, *x.shape[1:]), x.dtype)
    weights = [_weights(layer, "nbytes") for layer in layers]
    costs = [2 * held + left for held, left in zip(weights, _left_by(layers, x), strict=True)]
    return balance_by_cost(costs, stages, **options)


def _left_by(layers: Sequence[Layer], x: Boundary) -> Iterator[int]:
    """The bytes that each layer's forward leaves and that were not there before."""
    for number, layer in enumerate(layers):
        there = {id(root) for root in roots((x, list(layer.parameters.values())))}
        y, saved = apply_layer(layer, layer.outline, x, Context(layer=number))
        yield sum(root.nbytes for root in roots((y, saved)) if id(root) not in there)
        x = y


def _weights(layer: Layer, what: str) -> int:
    return sum(getattr(array, what) for array in layer.parameters.values())


def _require(owner: str, layers: Sequence[Layer], stages: int) -> None:
    require_distinct(layers)
    read_stages(owner, len(layers), stages)


def _read_sample(owner: str, sample: Any) -> np.ndarray:
    x = sample if isinstance(sample, MetaArray) else numbers(owner, "sample", sample)
    if not x.shape or not len(x):
        raise ValueError(f"{owner} needs a sample of one microbatch's inputs, a row each {got(sample)}")
    return x


def balance_by_word(layers: Sequence[Layer], stages: int | None, by: str, sample: Any) -> list[int]:
    """What ``split(..., balance="time")`` means: how many layers each stage gets, by what a word says."""
    one_of("split", "balance to list layers, or", by, BY)
    if stages is None:
        raise TypeError(f"split needs stages=, how many, beside balance={by!r}")
    if (sample is None) == (by != "parameters"):
        needs = f"split needs sample=, the inputs of one microbatch, for balance={by!r}"
        raise TypeError(needs if sample is None else NO_SAMPLE)
    if sample is None:
        return balance_by_parameters(layers, stages)
    return (balance_by_time if by == "time" else balance_by_size)(layers, stages, sample)
