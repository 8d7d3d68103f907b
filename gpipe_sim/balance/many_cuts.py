"""One schedule under many cuts of one model, all of them timed at once.

A cut is a row of ends, (stages + 1,): stage s has the layers from ``ends[s]`` up to ``ends[s + 1]``. What an
action takes then is the difference of two running sums of what it takes for each layer.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, chain

import numpy as np

from gpipe_sim.core.actions import Action, B, F, Kind, OverlapFB
from gpipe_sim.core.clock import time_program
from gpipe_sim.core.costs import Cost, Costs
from gpipe_sim.core.program import KINDS, Program
from gpipe_sim.errors import Real

Column = np.ndarray
PAIR = "pair"  #: a kind of its own, where costs say what a pair takes
LARGEST = 1e308
AT_ONCE = 2_000_000  #: actions that are timed at once, in all cuts together


class ManyCuts:
    """What layers, devices and messages take, in floats; and what a step takes in any number of cuts.

    ``sums[kind]`` are the running sums of what the layers take, (layers + 1,); ``slowness`` and ``overhead``
    are per device. A stage takes the difference of two sums times the slowness, and the overhead. ``delays``
    are those of the messages, and none takes less than ``comm``. ``kinds`` has the kind of each part of the
    program; where pairs have a price of their own, ``PAIR`` and then None.
    """

    def __init__(self, program: Program, costs: Costs, layers: int):
        self.program, self.layers = program, layers
        plain = replace(costs, speed=1, overhead=0)
        work: dict[Hashable, list[Real]] = {
            kind: [plain.duration(Action(i, kind, 0)) for i in range(layers)] for kind in program.where
        }
        self.kinds: list[Hashable] = [KINDS[code] for code in program.kind.tolist()]
        if program.paired and costs.overlap is not None:
            work[PAIR] = [plain.duration(OverlapFB(F(i, 0), B(i, 0))) for i in range(layers)]
            for part in program.first[np.diff(program.parts) > 1].tolist():
                self.kinds[part : part + 2] = [PAIR, None]
        slowness = [1 / Fraction(speed) for speed in per_device(costs.speed, program.devices)]
        overhead = per_device(costs.overhead, program.devices)
        total = max(slowness) * sum(Fraction(time) for time in chain(*work.values()))
        takes, index = costs.transfers(program)
        slowest = Fraction(max(takes, default=0))
        longest = program.size * (total + 2 * Fraction(max(overhead)) + slowest)
        if longest * program.devices > LARGEST:
            raise ValueError("a step of such costs may last longer than the largest float; use a larger unit")
        self.sums = {kind: np.array([0, *accumulate(map(float, times))]) for kind, times in work.items()}
        self.slowness, self.overhead = np.array(slowness, float), np.array(overhead, float)
        self.delays = np.array(list(map(float, takes)) or [0.0])[index][:, None]
        self.comm = float(self.delays.min(initial=float(slowest)))  # of any message at least

    def makespans(self, cuts: Column) -> Column:
        """What a step takes in each of these cuts, (cuts, stages + 1)."""
        program = self.program
        keys = list(zip(self.kinds, program.stage.tolist(), program.device.tolist(), strict=True))
        place = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        index = np.array([place[key] for key in keys])
        found = []
        for ends in np.array_split(cuts, -(-len(cuts) * program.size // AT_ONCE)):
            durations = np.stack(list(self._durations(place, ends)))[index]
            if program.paired:
                durations = np.add.reduceat(durations, program.first)
            found.append(self.length(time_program(program, durations, self.delays).end, ends))
        return np.concatenate(found)

    def length(self, end: Column, cuts: Column) -> Column:
        """What a step takes, from when every entry ends: (entries, cuts), of these cuts."""
        return end.max(axis=0)

    def _durations(self, keys: dict, ends: Column) -> Iterator[Column]:
        for kind, stage, device in keys:
            taken = np.full(len(ends), self.overhead[device])
            if kind is not None:
                sums = self.sums[kind]
                taken += (sums[ends[:, stage + 1]] - sums[ends[:, stage]]) * self.slowness[device]
            yield taken


def layer_times(costs: Costs, layers: int) -> list[list[Real]]:
    """What F, I and W of each layer take on a device of speed 1, without overhead."""
    plain = replace(costs, speed=1, overhead=0)
    return [[plain.duration(Action(i, kind, 0)) for i in range(layers)] for kind in (Kind.F, Kind.I, Kind.W)]


def per_device(cost: Cost, devices: int) -> Sequence[Real]:
    return cost if isinstance(cost, Sequence) else (cost,) * devices
