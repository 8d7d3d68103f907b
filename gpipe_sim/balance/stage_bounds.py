"""Lower bounds on the makespan: how short a step can be, whatever layers all stages but one have.

The device of a stage goes through its row. A microbatch has come through the layers before the stage's own
when its forward starts. Before its backward starts it has been through those after, there and back; and once
that is done, it goes back through those before. Which stages these layers belong to does not matter:

    stage s          [ layers before ][ F3 ][ what it does meanwhile ][ waits ][ B3 ][ layers before ]
    stages after it                         [ forward of 3 ][ backward of 3 ]

So for any first and last layer of a single stage, its device's row can be timed alone. No step is shorter
than the longest of a cut's stages; nor than the mean of what the devices do.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gpipe_sim.balance.cuts import CutSearch, most_even
from gpipe_sim.balance.many_cuts import PAIR, ManyCuts
from gpipe_sim.core.actions import Kind
from gpipe_sim.core.program import CODE, KINDS
from gpipe_sim.errors import Real

Column = np.ndarray
Table = np.ndarray
FORWARD = (CODE[Kind.F],)
BACKWARD = (CODE[Kind.I], CODE[Kind.B])  #: the shorter one first
ROUNDING = 1e-9  #: more than the sums of floats can be off, as a share
FINE = 1e12  #: parts of the longest stage's time that squares are counted in


class _Way(NamedTuple):
    """One direction through the model, as fast as a microbatch can go."""

    work: Column  #: of the layers before each, and of all
    messages: Table  #: (stages, microbatches): what those before each stage take


class TableCuts:
    """Cuts by what a table says of their single stages: for each stage, a time that no step is shorter than.

    ``tables`` are (stages, layers, width): a row for each layer that a stage may start with, a column for
    each number of layers that it may then have; infinite where these cannot be.
    """

    tables: Sequence[Table]
    width: int
    layers: int

    def __init__(self, tables: Sequence[Table]):
        self.tables, (self.layers, self.width) = tables, tables[0].shape

    def slowest(self) -> float:
        """What the longest stage takes at the least."""
        return float(self._search.rest()[0][0])

    def cut(self) -> list[int]:
        """How many layers each stage gets where the longest stage is the shortest; the most even such cut."""
        limit = self.slowest()
        unit = limit / FINE if 0 < limit < np.inf else 1.0

        def fine(stage: int, width: int) -> Table:
            return self.tables[stage] / unit

        return most_even(fine, self.width, self.layers, len(self.tables), limit / unit * (1 + ROUNDING))

    @property
    def _search(self) -> CutSearch:
        return CutSearch(
            lambda stage, _: self.tables[stage], self.width, self.layers, len(self.tables), np.inf
        )

    def count(self, limit: Real) -> float:
        """How many cuts there are whose step may be shorter than the limit."""
        return self._ways(self._below(limit))[0][0]

    def cuts(self, limit: Real) -> Column:
        """All cuts whose step may be shorter than the limit, as ends; (cuts, stages + 1)."""
        found = np.zeros((1, 1), int)
        for cells in self._reached(self._below(limit)):
            cut, more = np.nonzero(cells[found[:, -1]])
            found = np.column_stack([found[cut], found[cut, -1] + more + 1])
        return found

    def _below(self, limit: Real) -> list[Table]:
        return [table < limit * (1 - ROUNDING) for table in self.tables]

    def _ways(self, allowed: list[Table]) -> list[Column]:
        """For each stage, how many cuts there are of it and those after it; by where it starts."""
        found = [np.append(np.zeros(self.layers), 1.0)]
        for table in reversed(allowed):
            after = np.append(found[-1][1:], np.zeros(self.width - 1))
            found.append(np.append((table * sliding_window_view(after, self.width)).sum(axis=1), 0.0))
        return found[::-1]

    def _reached(self, allowed: list[Table]) -> list[Table]:
        """Of what each stage is allowed, what some cut of all the layers has."""
        end = np.minimum(np.arange(self.layers)[:, None] + np.arange(1, self.width + 1), self.layers)
        start, found = np.arange(self.layers + 1) == 0, []
        for table, ways in zip(allowed, self._ways(allowed)[1:], strict=True):
            found.append(table & start[:-1, None] & (ways[end] > 0))
            start = np.isin(np.arange(self.layers + 1), end[found[-1]])
        return found


class StageBounds(TableCuts):
    """What holds for every cut whose step is no longer than a ``limit``; some cut must keep it.

    ``tables`` has one for each stage, (layers, width): a row for each layer that it may start with, a column
    for each number of layers that it may then have. An entry is a time that no such step is shorter than.
    """

    def __init__(self, timed: ManyCuts, limit: Real):
        self.timed, self.program, self.layers = timed, timed.program, timed.layers
        self.forward, self.backward = self._way(FORWARD), self._way(BACKWARD)
        limit = limit * (1 + ROUNDING)
        short = [self._alone(stage) <= limit for stage in range(self.program.stages)]
        self.width = max(int(np.flatnonzero(table.any(axis=0))[-1]) + 1 for table in short)
        self.tables = []
        for stage, cells in enumerate(self._reached([table[:, : self.width] for table in short])):
            start, more = np.nonzero(cells)
            rows = [self._row(stage, device, start, start + more + 1) for device in self._holding(stage)]
            least = np.maximum.reduce(rows)
            table = np.full(cells.shape, np.inf)
            table[start, more] = np.where(least <= limit, least, np.inf)
            self.tables.append(table)

    def least(self) -> float:
        """No step is shorter."""
        return float(max(self.slowest(), self._mean()))

    def _way(self, kinds: tuple[int, ...]) -> _Way:
        """As a part of a pair, an action may take any time."""
        sums, homes = self.timed.sums, np.max([self.program.homes(KINDS[code]) for code in kinds], axis=0)
        priced = [KINDS[code] for code in kinds if KINDS[code] in sums]
        work = sums[priced[0]] * self.timed.slowness.min() if priced and PAIR not in sums else 0
        crossed = np.cumsum(np.diff(homes, axis=0) != 0, axis=0)
        passed = np.arange(self.program.stages)[:, None] * self.timed.overhead.min()
        messages = passed + np.vstack([np.zeros(crossed.shape[1]), crossed]) * self.timed.comm
        return _Way(work + np.zeros(self.layers + 1), messages)

    def _alone(self, stage: int) -> Table:
        """The forwards of the layers before, and then all that a device does for the stage."""
        first, width = np.arange(self.layers)[:, None], self.layers - self.program.stages + 1
        end = first + np.arange(1, width + 1)
        there = (end <= self.layers - (self.program.stages - 1 - stage)) & (first >= stage)
        end = np.minimum(end, self.layers)
        found = [self._work(stage, device, first, end) for device in self._holding(stage)]
        return np.where(there, self.forward.work[first] + np.maximum.reduce(found), np.inf)

    def _work(self, stage: int, device: int, first: Column, end: Column) -> Table:
        total = 0
        for kind, times in self._counts(stage, device).items():
            sums = self.timed.sums[kind]
            total = total + (sums[end] - sums[first]) * (self.timed.slowness[device] * times)
        return total + 0.0 * end

    def _counts(self, stage: int, device: int) -> Counter:
        """How often a device runs each kind of action of a stage."""
        mine = (self.program.stage == stage) & (self.program.device == device)
        kinds = Counter(self.timed.kinds[part] for part in np.flatnonzero(mine).tolist())
        return Counter({kind: times for kind, times in kinds.items() if kind is not None})

    def _holding(self, stage: int) -> list[int]:
        return [device for device, held in enumerate(self.program.placement) if stage in held]

    def _mean(self) -> Real:
        """What a device does on average, if each layer is where it costs least."""
        program, timed = self.program, self.timed
        each = {kind: np.diff(sums) for kind, sums in timed.sums.items()}
        counts = [
            sum((self._counts(s, k) for k in self._holding(s)), Counter()) for s in range(program.stages)
        ]
        none = np.zeros(self.layers)
        work = [sum((each[kind] * times for kind, times in count.items()), none) for count in counts]
        parts = np.bincount(program.device, minlength=program.devices)
        total = np.min(work, axis=0).sum() + (parts * timed.overhead / timed.slowness).sum()
        return total / (1 / timed.slowness).sum()

    def _row(self, stage: int, device: int, start: Column, end: Column) -> Column:
        """What a step takes at the least if the stage has the layers from ``start`` up to ``end``.

        The row of a device is timed from first to last; its other stages have their cheapest layers.
        """
        program, timed, forward, backward = self.program, self.timed, self.forward, self.backward
        own = {kind: sums[end] - sums[start] for kind, sums in timed.sums.items()}
        after = sum(way.work[-1] - way.work[end] for way in (forward, backward))
        turn = sum(way.messages[-1] - way.messages[stage] for way in (forward, backward))
        forwards: dict[int, Column] = {}
        free = longest = np.zeros(len(start))
        for entry in range(*program.rows[device : device + 2].tolist()):
            parts = range(program.parts[entry], program.parts[entry + 1])
            mine = [(part, program.microbatch[part]) for part in parts if program.stage[part] == stage]
            for part, m in mine:
                if program.kind[part] in FORWARD:
                    free = np.maximum(free, forward.work[start] + forward.messages[stage, m])
                elif program.kind[part] in BACKWARD and m in forwards:
                    free = np.maximum(free, forwards[m] + after + turn[m])
            for part in parts:
                kind, at = timed.kinds[part], int(program.stage[part])
                work = 0 if kind is None else own[kind] if at == stage else self._cheapest(kind, at)
                free = free + work * timed.slowness[device] + timed.overhead[device]
            for part, m in mine:
                if program.kind[part] in FORWARD:
                    forwards[m] = free
                elif program.kind[part] in BACKWARD:
                    longest = np.maximum(longest, free + backward.work[start] + backward.messages[stage, m])
        return np.maximum(longest, free)

    def _cheapest(self, kind: Hashable, stage: int) -> Real:
        """The layer that a stage has at the least: any one, or the first or the last of the model."""
        each = np.diff(self.timed.sums[kind])
        return {0: each[0], self.program.stages - 1: each[-1]}.get(stage, each.min())
