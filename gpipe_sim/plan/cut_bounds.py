"""How short a step is at the least, however a model is cut; found without trying the cuts.

A device cannot start on stage s before a forward has come through all stages before s. And after its last
backward, the gradient still has to go back through them:

    device k   [ forwards before s ][ all that it does for stage s ][ backwards before s ]

How long each of the three takes depends only on the layers that stage s has. So there is a table of it for
each stage, and no step is shorter than the largest entry of the cut whose largest entry is the smallest. Nor
is it shorter than the mean over the devices, in the cut where this is the smallest.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from numbers import Real

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gpipe_sim.plan.many_cuts import PAIR, Prices, kinds_of
from gpipe_sim.runtime.cuts import Search, most_even
from gpipe_sim.schedule.actions import Kind
from gpipe_sim.schedule.program import CODE, KINDS, Program

Column = np.ndarray
Table = np.ndarray
FORWARD = (CODE[Kind.F],)
BACKWARD = (CODE[Kind.I], CODE[Kind.B])  #: the shorter one first
ROUNDING = 1e-9  #: more than the sums of floats can be off, as a share


class Bounds:
    """What holds for every cut whose step is no longer than a ``limit``; some cut must keep it.

    Tables are (layers, width): a row for each layer that a stage may start with, a column for each number of
    layers that it may then have.
    """

    def __init__(self, program: Program, prices: Prices, layers: int, limit: Real):
        self.program, self.prices, self.layers = program, prices, layers
        self.never = 1 << 61 if prices.exact else np.inf
        self.kinds = kinds_of(program, prices)
        self.width = layers - program.stages + 1
        limit = limit if prices.exact else limit * (1 + ROUNDING)
        tables = [self._alone(stage) for stage in range(program.stages)]
        self.width = max(int(np.flatnonzero((each <= limit).any(axis=0))[-1]) + 1 for each in tables)
        self.alone = [np.where(each <= limit, each, self.never)[:, : self.width].copy() for each in tables]

    def least(self) -> Real:
        """No step is shorter."""
        slowest = self._best(self._of, np.maximum)
        sums = [self._best(partial(self._shared, drained), np.add) for drained in (False, True)]
        means = (
            -(-total // self.program.devices) if self.prices.exact else total / self.program.devices
            for total in sums
        )
        return max(slowest, *means)

    def cut(self) -> list[int]:
        """How many layers each stage gets where the largest entry is the smallest; the most even such cut."""
        limit = self._best(self._of, np.maximum)
        return most_even(self._of, self.width, self.layers, self.program.stages, limit)

    def _of(self, stage: int, width: int) -> Table:
        return self.alone[stage]

    def _best(self, table: Callable[[int, int], Table], together: Callable) -> Real:
        search = Search(table, self.width, self.layers, self.program.stages, self.never, together)
        return search.rest()[0][0]

    def count(self, limit: Real) -> list[Column]:
        """For each stage, how many cuts of it and those after it may be shorter; by where it starts."""
        found = [np.append(np.zeros(self.layers), 1.0)]
        for table in reversed(self.alone):
            after = np.append(found[-1][1:], np.zeros(self.width - 1))
            ways = ((table < limit) * sliding_window_view(after, self.width)).sum(axis=1)
            found.append(np.append(ways, 0.0))
        return found[::-1]

    def cuts(self, limit: Real) -> Column:
        """All cuts whose step may be shorter than the limit, as ends; (cuts, stages + 1)."""
        found = np.zeros((1, 1), int)
        for table, count in zip(self.alone, self.count(limit)[1:], strict=True):
            start = found[:, -1]
            end = np.minimum(start[:, None] + np.arange(1, self.width + 1), self.layers)
            cut, size = np.nonzero((table[start] < limit) & (count[end] > 0))
            found = np.column_stack([found[cut], start[cut] + size + 1])
        return found

    def _alone(self, stage: int) -> Table:
        """What each device with the stage takes at the least, if it had no other stage: the most of these."""
        return np.maximum.reduce(
            [
                self._taken(device, stage, drained, alone=True)
                for device, held in enumerate(self.program.placement)
                if stage in held
                for drained in (False, True)
            ]
        )

    def _shared(self, drained: bool, stage: int, width: int) -> Table:
        """What the stage adds to the time that all devices together work, or wait first and last."""
        devices = [device for device, held in enumerate(self.program.placement) if stage in held]
        total = sum(self._taken(device, stage, drained, alone=False) for device in devices)
        return np.where(self.alone[stage] < self.never, total, self.never)

    def _taken(self, device: int, stage: int, drained: bool, alone: bool) -> Table:
        """What a device does for a stage, after the forwards and, if ``drained``, up to its last backward and
        before the backwards of the stages before it; these wait for the device's own first and last actions,
        unless the stage were alone there.
        """
        row = self._row(device)
        mine = row[self.program.stage[row] == stage]
        row = mine if alone else row
        last = row[np.isin(self.program.kind[row], BACKWARD)][-1:]
        if drained and last.size:
            mine = mine[self.program.entry[mine] <= self.program.entry[last]]
        taken = self._work(mine, device)
        if mine.size and row[0] == mine[0]:
            taken = taken + self._before(FORWARD, stage, self.program.microbatch[row[0]])[:, None]
        if drained and last.size and self.program.stage[last] == stage:
            taken = taken + self._before(BACKWARD, stage, self.program.microbatch[last[0]])[:, None]
        return np.where(self._there, taken, self.never)

    def _row(self, device: int) -> Column:
        """The parts of a device, first to last."""
        first, end = self.program.parts[self.program.rows[device : device + 2]]
        return np.arange(first, end)

    def _work(self, parts: Column, device: int) -> Table:
        """What these actions of one stage take the device, for each run of layers that the stage may have."""
        total = np.full((self.layers, self.width), len(parts) * self.prices.overhead[device])
        for kind, times in Counter(self.kinds[part] for part in parts.tolist()).items():
            if kind is not None:
                sums = self.prices.sums[kind]
                total += (sums[self._end] - sums[: self.layers, None]) * self.prices.slowness[device] * times
        return total

    def _before(self, kinds: tuple[int, ...], stage: int, microbatch: int) -> Column:
        """What a microbatch takes at the least in all stages before this one; by the layer it starts with."""
        homes = np.max([self.program.homes(KINDS[code])[: stage + 1, microbatch] for code in kinds], axis=0)
        messages = np.count_nonzero(np.diff(homes)) * self.prices.comm
        if PAIR in self.prices.sums:  # it may take less as one of a pair
            return np.full(self.layers, messages)
        kind = next(KINDS[code] for code in kinds if KINDS[code] in self.prices.sums)
        work = self.prices.sums[kind][: self.layers] * self.prices.slowness.min()
        return work + stage * self.prices.overhead.min() + messages

    @property
    def _end(self) -> Column:
        return np.minimum(np.arange(self.layers)[:, None] + np.arange(1, self.width + 1), self.layers)

    @property
    def _there(self) -> Column:
        return np.arange(self.layers)[:, None] + np.arange(1, self.width + 1) <= self.layers
