"""Where to cut a row of layers: for any table of what stages take, the best of all cuts, found exactly.

How to cut the layers from i on into the stages s, s + 1, ... is found stage by stage, the last one first:
what is best for these stages stays the best, whatever comes before. A table has a row for each layer that a
stage may start with, and a column for each number of layers that it may then have:

           1 layer  2   3 ...
    layer 0   4     5   6
    layer 1   1     2   4
    layer 2   1     3   5

It is as wide as the largest stage has layers, so narrow tables are tried first: what they find says how many
layers can be worth looking at.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

Column = np.ndarray
Table = Callable[[int, int], np.ndarray]  #: (stage, width) -> what it takes; ``never`` where it cannot be
SQUARES = 1 << 60  #: more than the squares of all times together


class CutSearch(NamedTuple):
    """All cuts into so many stages that are no larger than the table is wide."""

    table: Table
    width: int
    layers: int
    stages: int
    never: float  #: more than any cut takes
    together: Callable = np.maximum  #: what a stage and those after it take together

    def rest(self) -> list[Column]:
        """For each stage, what it and those after it take at best; by the layer that it starts with."""
        found = [self._nothing_left()]
        for stage in reversed(range(self.stages)):
            found.append(self._at_best(self._with_rest(stage, found[-1]).min(axis=1)))
        return found[::-1]

    def best(self) -> list[int]:
        """How many layers each stage gets. Of cuts that are as good, earlier stages get more."""
        rest, chosen = self._nothing_left(), []
        for stage in reversed(range(self.stages)):
            ways = self._with_rest(stage, rest)
            best = ways.shape[1] - 1 - ways[:, ::-1].argmin(axis=1)  # the largest of those that are
            rest = self._at_best(ways[np.arange(len(ways)), best])
            chosen.append(best + 1)
        sizes: list[int] = []
        for count in reversed(chosen):
            sizes.append(int(count[sum(sizes)]))
        return sizes

    def _nothing_left(self) -> Column:
        """What no stages take: nothing, if no layer is left."""
        rest = np.full(self.layers + 1, self.never)
        rest[-1] = 0
        return rest

    def _at_best(self, best: Column) -> Column:
        return np.minimum(np.append(best, self.never), self.never)

    def _with_rest(self, stage: int, rest: Column) -> np.ndarray:
        """What the stage takes with those after it, as the table has it for the stage alone."""
        after = np.append(rest[1:], np.full(self.width - 1, self.never))
        return self.together(self.table(stage, self.width), sliding_window_view(after, self.width))


def slowest(
    table: Table, layers: int, stages: int, never: float, most: Callable[[float], int]
) -> tuple[float, int]:
    """(what the slowest stage of the best cut takes, a width for which tables have all cuts as good).

    ``most`` says how many layers a stage can have at the most that takes no longer than a limit. If there is
    no cut, ``never`` is what it takes.
    """
    width, widest = 0, layers - stages + 1
    needed = 2 * layers // stages
    while width < min(needed, widest):
        width = min(needed, widest)
        limit = CutSearch(table, width, layers, stages, never).rest()[0][0]
        needed = most(limit) if limit < never else widest
    return limit, width


def most_even(table: Table, width: int, layers: int, stages: int, limit: float) -> list[int]:
    """Of all cuts whose stages take at most the limit, the one with the least sum of squared times.

    Times count to eight digits there, so that squares fit a machine's number.
    """
    digits = 30 - -(-stages.bit_length() // 2)
    unit = 1 << max(0, int(limit).bit_length() - digits)

    def squared(stage: int, width: int) -> np.ndarray:
        takes = table(stage, width)
        fits = takes <= limit
        return np.where(fits, (np.where(fits, takes, 0) // unit).astype(np.int64) ** 2, SQUARES)

    return CutSearch(squared, width, layers, stages, SQUARES, np.add).best()
