"""How a model is cut into partitions: in equal numbers of layers, by a balance, or by what layers take."""

import operator
from collections.abc import Callable, Hashable, Sequence
from numbers import Integral
from typing import Any

from gpipe_sim.core.hooks import Hook
from gpipe_sim.core.layers import Layer
from gpipe_sim.core.partition import Partition, require_distinct
from gpipe_sim.errors import got, listed, require_room, whole

NO_SAMPLE = "split needs a sample only for balance='time' or balance='size'"


#: How many layers each stage gets: (layers, stages, word, sample).
BY_WORD: Hook[Callable[[Sequence[Layer], int | None, str, Any], list[int]]] = Hook(
    "balance_by_word", 'split(..., balance="time")'
)


def split(
    layers: Sequence[Layer],
    *,
    stages: int | None = None,
    balance: Sequence[int] | str | None = None,
    sample: Any = None,
    devices: Sequence[Hashable] | None = None,
) -> list[Partition]:
    """Cut a model into partitions: ``stages`` of nearly equal numbers of layers, or by ``balance``.

    >>> partitions = gp.split(gp.mlp([64, 32, 32, 10]), stages=2)
    >>> [partition.layers for partition in partitions]
    [(Linear(64, 32), ReLU(), Linear(32, 32)), (ReLU(), Linear(32, 10))]
    >>> [len(partition.layers) for partition in gp.split(gp.mlp([64, 32, 32, 10]), balance=[1, 2, 2])]
    [1, 2, 2]

    Every entry of ``layers`` counts as one layer, an activation function too. ``balance=[2, 2, 1]`` gives
    three partitions of 2, 2 and 1 layers. ``stages=3, balance="time"`` runs the layers on a ``sample``, the
    inputs of one microbatch, and cuts so that the slowest partition is as fast as possible: see
    ``balance_by_time``. ``balance="size"`` counts their bytes for the sample, ``balance="parameters"`` their
    weights, without one.

    The partitions hold the layers of the list themselves, not copies. ``devices`` labels partition i with
    devices[i]: a device may be listed several times, surplus ones are unused, and too few are an IndexError,
    as in torchgpipe (Kim et al. 2020, arXiv:2004.09910). To run partitions that share a device, see
    ``colocate``. TypeError unless ``stages`` or a list ``balance`` is given, and not both; ValueError if they
    do not fit the layers.
    """
    require_distinct(layers)
    layers = list(layers)
    if isinstance(balance, str):
        balance, stages = BY_WORD.filled(layers, stages, balance, sample), None
    elif sample is not None:
        raise TypeError(NO_SAMPLE)
    balance = balanced(len(layers), stages, balance)
    labels = [None] * len(balance) if devices is None else require_room(len(balance), devices)
    starts = [sum(balance[:i]) for i in range(len(balance))]
    return [
        Partition(layers[start : start + size], start, label)
        for start, size, label in zip(starts, balance, labels, strict=False)
    ]


def balanced(layers: int, stages: int | None, balance: Sequence[int] | None) -> list[int]:
    """How many layers each stage gets: ``balance`` itself if it fits, or nearly equal numbers."""
    if stages is not None and balance is None:
        return _even(layers, stages)
    if stages is not None or balance is None:
        raise TypeError("split needs either stages=, how many, or balance=, how many layers each")
    return _read_balance(listed("split", "balance to list how many layers each stage gets", balance), layers)


def _even(layers: int, stages: int) -> list[int]:
    """Nearly equal numbers of layers, the larger ones first: 11 layers on 4 stages are 3, 3, 3, 2."""
    stages = whole("split", "stages", stages)
    if stages > layers:
        raise ValueError(f"split cannot cut {layers} layers into {stages} stages; at most {layers}")
    small, larger = divmod(layers, stages)
    return [small + (stage < larger) for stage in range(stages)]


def _read_balance(balance: list[int], layers: int) -> list[int]:
    """The sizes as Python's own ints, which add up to all layers; ValueError otherwise."""
    for size in balance:
        if isinstance(size, bool) or not isinstance(size, Integral) or size < 1:
            raise ValueError(f"all balance numbers must be positive integers {got(balance, 'balance: ')}")
    sizes = list(map(operator.index, balance))
    if sum(sizes) != layers:
        total = f"{sum(sizes)} {got(balance, 'balance: ')}"
        raise ValueError(f"the model has {layers} layers but the balance adds up to {total}")
    return sizes
