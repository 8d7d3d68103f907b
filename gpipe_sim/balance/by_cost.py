"""How many layers each stage should get: what the layers cost, however that is counted, and the best cut.

costs      4   1   1   2   2   2
3 stages  [4] [1   1   2] [2   2]   the slowest takes 4, and no other cut has a faster slowest stage
"""

import numbers
import sys
from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from math import ceil, inf, lcm, nextafter
from numbers import Rational
from typing import NamedTuple

import numpy as np

from gpipe_sim.balance.cuts import most_even, slowest
from gpipe_sim.errors import Real, duration, got, listed, require_few, whole

MOST = 4_000  #: layers, which take some seconds
MOST_SPEED = 1_000_000  #: of the slowest
BITS = 50  #: to which floats are rounded, of the sum of the costs
OWNER = "balance_by_cost"
Each = Real | Sequence[Real]


def balance_by_cost(
    costs: "Sequence[Real]",
    stages: int,
    *,
    speeds: "Sequence[Real] | None" = None,
    sizes: "Sequence[Real] | None" = None,
    memory: "Each | None" = None,
) -> list[int]:
    """How many layers each stage gets, so that the slowest stage is as fast as it can be.

    >>> gp.balance_by_cost([1, 1, 1, 1, 1, 4], stages=3)
    [3, 2, 1]
    >>> gp.balance_by_cost([1, 1, 1, 1, 1, 4], stages=3, speeds=[1, 1, 2])
    [2, 2, 2]

    ``costs`` are the layers', in any unit; what an embedding or a head costs is added to the first or the
    last. No other cut into runs of layers, one or more for each stage, has a faster slowest stage. Of cuts
    that are as good it is the most even one: the sum of the stages' squared times is the smallest. On equal
    devices that is the least variance, which GPipe's partitioner wants (Huang et al. 2019,
    arXiv:1811.06965). Of these, earlier stages get more layers.

    - ``speeds``: how fast the device of each stage is. On one of speed 2, layers take half their costs.
    - ``memory``: what each stage may hold at most, one number or one for each; ``sizes`` are the layers', in
      the same unit. It is kept exactly, also where these are floats.

    The answer is exact for whole numbers and fractions. Among floats, costs are rounded to 2**-50 of their
    sum, so that equal layers stay equal.

    A thousand layers and 64 stages take some hundredths of a second, tenths if one layer costs more than most
    stages, and seconds if besides no two devices are alike. ValueError for more stages than layers, more than
    4,000 layers, numbers below 0 or NaN, lists of another length, or a memory that no cut keeps; TypeError
    for anything but numbers.
    """
    costs = _list("costs", costs)
    stages = read_stages(OWNER, len(costs), stages)
    units = _in_units(costs, _speeds(stages, speeds))
    table = _Table(units, _room(stages, len(costs), sizes, memory))
    limit, width = slowest(table.of, len(costs), stages, units.never, table.most)
    if limit >= units.never:
        raise _no_room(stages, sizes, memory)
    return most_even(table.of, width, len(costs), stages, limit)


def read_stages(owner: str, layers: int, stages: int) -> int:
    """The number of stages; ValueError, with torchgpipe's words, if there are fewer layers."""
    require_few(owner, layers, "layers", MOST)
    stages = whole(owner, "stages", stages)
    if stages > layers:
        raise ValueError(
            f"{owner} cannot cut {layers} layers into {stages} stages; at most {layers} "
            "(sequence is shorter than intended partitions)"
        )
    return stages


class _Units(NamedTuple):
    """What layers take, in numbers of one kind to calculate with; as the fastest device would take it."""

    sums: np.ndarray  #: of the costs of the layers before each, and of all
    slowness: Sequence[float]  #: of each stage, by which its layers' costs are multiplied
    never: float  #: more than anything takes


def _in_units(costs: list[Real], speeds: list[Real]) -> _Units:
    """Whole numbers, Python's own if a machine's are too small; or floats, with costs in whole numbers."""
    exact = all(isinstance(number, Rational) for number in (*costs, *speeds))
    slowness = [Fraction(max(speeds)) / Fraction(speed) for speed in speeds]
    unit = _denominator(costs) if exact else _grid(sum(Fraction(cost) for cost in costs))
    sums = [0, *accumulate(round(Fraction(cost) * unit) for cost in costs)]
    if not exact:
        return _Units(np.array(sums, float), list(map(float, slowness)), inf)
    parts = _denominator(slowness)
    whole_slowness = [int(slow * parts) for slow in slowness]
    never = sums[-1] * max(whole_slowness) + 1
    return _Units(np.array(sums, np.int64 if never < 1 << 62 else object), whole_slowness, never)


def _grid(total: Fraction | int) -> Fraction:
    """A power of two, so many of which are 1 that the total is about 2**50 in whole numbers."""
    return Fraction(2) ** (BITS - total.numerator.bit_length() + total.denominator.bit_length())


def _denominator(amounts: Sequence[Real]) -> int:
    return lcm(*(Fraction(amount).denominator for amount in amounts))


class _Table:
    """What a stage takes: a row for each layer that it starts with, a column for each number of layers."""

    def __init__(self, units: _Units, room: list[tuple[int, ...]]):
        self.units, self.room = units, room
        self._alike = lru_cache(maxsize=4)(self._made)

    def of(self, stage: int, width: int) -> np.ndarray:
        return self._alike(self.units.slowness[stage], self.room[stage], width)

    def _made(self, slowness: float, room: tuple[int, ...], width: int) -> np.ndarray:
        sums = self.units.sums
        start = np.arange(len(sums) - 1)[:, None]
        end = start + np.arange(1, width + 1)
        takes = (sums[np.minimum(end, len(sums) - 1)] - sums[start]) * slowness
        takes[end > np.array(room)[:, None]] = self.units.never
        return takes

    def most(self, limit: float) -> int:
        """How many layers a stage can have at most if it takes no longer than the limit."""
        sums, quickest = self.units.sums, min(self.units.slowness)
        ends = np.searchsorted(sums, sums + limit // quickest, side="right")
        return int((ends - np.arange(len(sums))).max())


def _room(
    stages: int, layers: int, sizes: Sequence[Real] | None, memory: Each | None
) -> list[tuple[int, ...]]:
    """For each stage, where it must end at the latest if it starts with a layer: for lack of memory."""
    if (sizes is None) != (memory is None):
        raise TypeError(f"{OWNER} needs both sizes=, of the layers, and memory=, of the devices, or neither")
    if memory is None:
        return [(layers,) * layers] * stages
    sizes = _list("sizes", sizes, layers, "layers")
    limits = _each("memory", memory, stages, "stages")
    unit = _denominator(sizes + limits)
    sums = [0, *accumulate(int(Fraction(size) * unit) for size in sizes)]
    exact = [int(Fraction(limit) * unit) for limit in limits]
    ends = {limit: tuple(bisect_right(sums, start + limit) - 1 for start in sums[:-1]) for limit in {*exact}}
    return [ends[limit] for limit in exact]


def _no_room(stages: int, sizes: Sequence[Real] | None, memory: Each | None) -> ValueError:
    """What the limit would have to be, and the layer that no stage has room for by itself."""
    sizes = _list("sizes", sizes)
    ends = [0, *accumulate(balance_by_cost(sizes, stages))]
    least = max(sum(Fraction(size) for size in sizes[a:b]) for a, b in pairwise(ends))
    largest, most = max(sizes), max(_each("memory", memory, stages, "stages"))
    alone = f"layer {sizes.index(largest)} alone has {_said(largest)}, and " if largest > most else ""
    return ValueError(
        f"{OWNER} finds no cut into {stages} stages that keeps memory {got(memory)}; {alone}"
        f"if all stages had the same, {_said(_as_given(least, sizes))} would do"
    )


def _said(number: Real) -> str:
    """As a message has it: a whole number may have too many digits."""
    return got(number, word="")[1:-1]


def _as_given(amount: Fraction | int, like: list[Real]) -> Real:
    """An exact sum as the kind of number that was added up; a float is not below it."""
    if all(isinstance(number, Rational) for number in like):
        return int(amount) if amount.denominator == 1 else amount
    if amount > sys.float_info.max:
        return ceil(amount)
    return float(amount) if Fraction(float(amount)) >= amount else nextafter(float(amount), inf)


def _speeds(stages: int, speeds: Sequence[Real] | None) -> list[Real]:
    found: list[Real] = [1] * stages if speeds is None else _list("speeds", speeds, stages, "stages")
    for speed in found:
        if not 0 < speed <= MOST_SPEED * min(found):
            raise ValueError(f"{OWNER} needs speeds > 0, and less than a million times apart {got(speeds)}")
    return found


def _each(name: str, value: Each | None, count: int, of_what: str) -> list[Real]:
    """One number for each, or the same for all."""
    if isinstance(value, numbers.Real):
        return [duration(OWNER, name, value)] * count
    return _list(name, value, count, of_what)


def _list(name: str, value: Each | None, count: int | None = None, of_what: str = "") -> list[Real]:
    """The numbers as Python's own; ValueError for another count."""
    found = listed(OWNER, f"{name} to list numbers", value)
    if count is not None and len(found) != count:
        raise ValueError(f"{OWNER} needs {name} for {count} {of_what}, but lists {len(found)} {got(value)}")
    return [duration(OWNER, name, number) for number in found]
