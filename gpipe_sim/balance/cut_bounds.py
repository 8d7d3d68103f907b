"""What holds for all cuts of a model at once, without simulating them: how short a step is at the least.

There is a table for each stage of what it makes a step last at the least, by the layers that it has
(``plan.stage_times``). So no step is shorter than the largest entry of the cut whose largest entry is the
smallest. Nor is it shorter than the mean over the devices, in the cut where this is the smallest. All cuts
whose entries stay below a limit can be counted, and listed if they are few.
"""

from collections.abc import Callable
from functools import partial
from numbers import Real

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gpipe_sim.balance.cuts import Search, most_even
from gpipe_sim.balance.many_cuts import Prices
from gpipe_sim.balance.stage_bounds import WINDOWS, StageTimes
from gpipe_sim.core.program import Program

Column = np.ndarray
Table = np.ndarray
ROUNDING = 1e-9  #: more than the sums of floats can be off, as a share


class Bounds:
    """What holds for every cut whose step is no longer than a ``limit``; some cut must keep it.

    Tables are (layers, width): a row for each layer that a stage may start with, a column for each number of
    layers that it may then have.
    """

    def __init__(self, program: Program, prices: Prices, layers: int, limit: Real):
        self.program, self.prices, self.layers = program, prices, layers
        self.never = 1 << 61 if prices.exact else np.inf
        self.below = 1 if prices.exact else 1 - ROUNDING  #: a share of a limit that is below it for certain
        limit = limit if prices.exact else limit * (1 + ROUNDING)
        self.times = StageTimes(program, prices, layers, limit)
        self.width = self.times.width
        self.alone = [
            np.where((table <= limit) & self.times.there, table, self.never)
            for table in map(self.times.alone, range(program.stages))
        ]

    def least(self) -> Real:
        """No step is shorter."""
        sums = [self._best(partial(self._shared, window), np.add) for window in WINDOWS]
        devices = self.program.devices
        means = [-(-total // devices) if self.prices.exact else total / devices for total in sums]
        return max(self._best(self._of, np.maximum), *means)

    def cut(self) -> list[int]:
        """How many layers each stage gets where the largest entry is the smallest; the most even such cut."""
        limit = self._best(self._of, np.maximum)
        return most_even(self._of, self.width, self.layers, self.program.stages, limit)

    def _of(self, stage: int, width: int) -> Table:
        return self.alone[stage]

    def _shared(self, window: tuple, stage: int, width: int) -> Table:
        return np.where(self.alone[stage] < self.never, self.times.shared(stage, window), self.never)

    def _best(self, table: Callable[[int, int], Table], together: Callable) -> Real:
        search = Search(table, self.width, self.layers, self.program.stages, self.never, together)
        return search.rest()[0][0]

    def count(self, limit: Real) -> float:
        """How many cuts there are whose step may be shorter than the limit."""
        return self._ways(limit)[0][0]

    def _ways(self, limit: Real) -> list[Column]:
        """For each stage, how many such cuts there are of it and those after it; by where it starts."""
        found = [np.append(np.zeros(self.layers), 1.0)]
        for table in reversed(self.alone):
            after = np.append(found[-1][1:], np.zeros(self.width - 1))
            ways = ((table < limit * self.below) * sliding_window_view(after, self.width)).sum(axis=1)
            found.append(np.append(ways, 0.0))
        return found[::-1]

    def cuts(self, limit: Real) -> Column:
        """All cuts whose step may be shorter than the limit, as ends; (cuts, stages + 1)."""
        found = np.zeros((1, 1), int)
        for table, count in zip(self.alone, self._ways(limit)[1:], strict=True):
            start = found[:, -1]
            end = np.minimum(start[:, None] + np.arange(1, self.width + 1), self.layers)
            cut, size = np.nonzero((table[start] < limit * self.below) & (count[end] > 0))
            found = np.column_stack([found[cut], start[cut] + size + 1])
        return found
