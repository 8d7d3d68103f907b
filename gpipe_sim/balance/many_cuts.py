"""One schedule under many cuts of one model, all of them timed at once.

A cut is a row of ends, (stages + 1,): stage s has the layers from ``ends[s]`` up to ``ends[s + 1]``. What an
action takes then is the difference of two running sums of what it takes for each layer.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from math import lcm
from numbers import Rational, Real

import numpy as np

from gpipe_sim.core.actions import Action, B, F, OverlapFB
from gpipe_sim.core.clock import timed
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.program import KINDS, Program

Column = np.ndarray
PAIR = "pair"  #: a kind of its own, where costs say what a pair takes
LARGEST = 1e308
AT_ONCE = 2_000_000  #: actions that are timed at once, in all cuts together


class Prices:
    """What layers, devices and messages take: 64-bit whole numbers of a ``unit`` if exact, else floats.

    ``sums[kind]`` are the running sums of what the layers take, (layers + 1,); ``slowness`` and ``overhead``
    are per device. A stage takes the difference of two sums times the slowness, and the overhead.
    """

    def __init__(self, program: Program, costs: Costs, layers: int):
        plain = replace(costs, speed=1, overhead=0)
        work = {kind: [plain.duration(Action(i, kind, 0)) for i in range(layers)] for kind in program.where}
        if program.paired and costs.overlap is not None:
            work[PAIR] = [plain.duration(OverlapFB(F(i, 0), B(i, 0))) for i in range(layers)]
        slowness = [1 / Fraction(speed) for speed in _each(costs.speed, program.devices)]
        overhead = _each(costs.overhead, program.devices)
        given = [costs.comm, *overhead, *(time for times in work.values() for time in times)]
        parts = lcm(*(slow.denominator for slow in slowness))
        self.unit = parts * lcm(*(Fraction(time).denominator for time in given))
        total = sum(Fraction(time) for times in work.values() for time in times)
        longest = program.size * (total * max(slowness) + 2 * Fraction(max(overhead)) + Fraction(costs.comm))
        rational = all(isinstance(number, Rational) for number in (*given, *_each(costs.speed, 1)))
        self.exact = rational and longest * self.unit * program.devices < 1 << 60
        kind = np.int64 if self.exact else np.float64
        if not self.exact:
            self.unit, parts = 1, 1
            if longest * program.devices > LARGEST:
                raise ValueError(
                    "a step of such costs may last longer than the largest float; use a larger unit"
                )
        self.sums = {
            name: np.array([0, *accumulate(time * (self.unit // parts) for time in times)], dtype=kind)
            for name, times in work.items()
        }
        self.slowness = np.array([slow * parts for slow in slowness], dtype=kind)
        self.overhead = np.array([time * self.unit for time in overhead], dtype=kind)
        self.comm = kind(costs.comm * self.unit)


def _each(value: Real | tuple[Real, ...], count: int) -> tuple[Real, ...]:
    return value if isinstance(value, tuple) else (value,) * count


def kinds_of(program: Program, prices: Prices) -> list[Hashable]:
    """For each part, whose price it is: its kind's; where pairs have their own, ``PAIR`` and then None."""
    kinds: list[Hashable] = [KINDS[code] for code in program.kind.tolist()]
    if PAIR in prices.sums:
        for part in program.parts[:-1][np.diff(program.parts) > 1].tolist():
            kinds[part : part + 2] = [PAIR, None]
    return kinds


def timer(program: Program, prices: Prices) -> Callable[[Column], Column]:
    """A function of cuts, (cuts, stages + 1), that gives the makespan of each."""
    kinds = kinds_of(program, prices)
    keys = list(zip(kinds, program.stage.tolist(), program.device.tolist(), strict=True))
    place = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    index = np.array([place[key] for key in keys])
    delays = np.full((int(program.crosses.sum()), 1), prices.comm)
    at_once = max(1, AT_ONCE // program.size)

    def priced(ends: Column) -> Iterator[Column]:
        for kind, stage, device in place:
            taken = prices.overhead[device]
            if kind is not None:
                sums = prices.sums[kind]
                work = sums[ends[:, stage + 1]] - sums[ends[:, stage]]
                taken = taken + work * prices.slowness[device]
            yield np.broadcast_to(taken, len(ends))

    def makespans(ends: Column) -> Column:
        found = []
        for first in range(0, len(ends), at_once):
            durations = np.stack(list(priced(ends[first : first + at_once])))[index]
            if program.paired:
                durations = np.add.reduceat(durations, program.parts[:-1])
            found.append(timed(program, durations, delays).end.max(axis=0))
        return np.concatenate(found)

    return makespans
