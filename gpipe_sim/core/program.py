"""A schedule lowered to columns of whole numbers; all code that needs an order reads it here.

A device's row is a list of entries. An entry is one action, or a pair of two that run as one block. A part is
a plain action: an entry has one, a pair has two. Entries are numbered row by row, and so are parts. In
an order without pairs, entries and parts are the same. Columns are NumPy arrays that cannot be written to.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

import numpy as np

from gpipe_sim.core.actions import Action, Kind, OverlapFB
from gpipe_sim.core.levels import Levels, find_levels

Column = np.ndarray
T = TypeVar("T")
KINDS = tuple(Kind)  #: the columns store a kind as its place in this tuple
CODE = {kind: code for code, kind in enumerate(KINDS)}
MOST_WRITTEN, FIRST = 10_000, 100  #: a text of more entries has only the first rows, and the first of each


@dataclass(frozen=True, eq=False)
class Program:
    """The columns of a schedule. ``schedule.program`` makes it once.

    Per part: ``kind`` (its place in ``KINDS``), ``stage``, ``microbatch``, ``device``, ``entry`` (the one
    that it belongs to), and ``position``, the place of that entry in the device's row.
    Device k has the entries ``rows[k]:rows[k + 1]``; entry e has the parts ``parts[e]:parts[e + 1]``, and its
    needs are ``needs[needs_from[e]:needs_from[e + 1]]``.
    Per need: ``needs``, the part that is needed (``rules.NEEDS``, looked up for every part by ``lower``);
    ``crosses``, whether it is a message from another device.
    Here entries and parts are numbers. ``entry_of`` and ``action_of`` turn them into objects; where other
    code says action and its type is ``Action | OverlapFB``, it means an entry.
    """

    placement: tuple[tuple[int, ...], ...]
    stages: int
    microbatches: int
    rows: Column
    parts: Column
    kind: Column
    stage: Column
    microbatch: Column
    device: Column
    position: Column
    entry: Column
    in_range: bool  #: whether every label is a stage and a microbatch of the schedule
    where: dict[Kind, Column]  #: kind -> at stage * microbatches + microbatch, that action's part, or -1
    needs_from: Column
    needs: Column
    crosses: Column
    kept: dict = field(default_factory=dict)  #: see ``once``

    @property
    def devices(self) -> int:
        return len(self.placement)

    @property
    def size(self) -> int:
        """How many entries there are."""
        return len(self.parts) - 1

    @property
    def paired(self) -> bool:
        """Whether any entry is an overlapped pair."""
        return len(self.kind) > self.size

    @property
    def stacked(self) -> bool:
        """Whether some device holds several stages."""
        return any(len(held) > 1 for held in self.placement)

    @property
    def first(self) -> Column:
        """The first part of each entry."""
        return self.parts[:-1]

    @cached_property
    def makes_gradients(self) -> Column:
        """For each part, whether it makes gradients of weights: B and W do."""
        return np.isin(self.kind, (CODE[Kind.B], CODE[Kind.W]))

    @property
    def owner(self) -> Column:
        """For each need, the entry that has it."""
        return np.repeat(np.arange(self.size), np.diff(self.needs_from))

    @property
    def target(self) -> Column:
        """For each need, the device that waits for it: where a message goes."""
        return self.device[self.first][self.owner]

    @property
    def ways(self) -> Iterator[tuple[Action, int, int]]:
        """(what is sent, from which device, to which), for each need that crosses."""
        needed = self.needs[self.crosses]
        devices = self.device[needed].tolist(), self.target[self.crosses].tolist()
        return zip(map(self.action_of, needed.tolist()), *devices, strict=True)

    @cached_property
    def actions(self) -> tuple[tuple[Action | OverlapFB, ...], ...]:
        """The order as objects again: one row per device."""
        kinds = map(KINDS.__getitem__, self.kind.tolist())
        parts = list(map(Action, self.stage.tolist(), kinds, self.microbatch.tolist()))
        entries: Sequence[Action | OverlapFB] = parts
        if self.paired:
            entries = [_joined(parts[a:b]) for a, b in pairwise(self.parts.tolist())]
        return tuple(tuple(entries[a:b]) for a, b in pairwise(self.rows.tolist()))

    @cached_property
    def levels(self) -> Levels:
        """The entries in an order in which they can run, and which devices get stuck."""
        return find_levels(self.rows, self.needs_from, self.entry[self.needs])

    def once(self, make: Callable[["Program"], T]) -> T:
        """What a chapter makes of this program, made on first use and then kept."""
        if make not in self.kept:
            self.kept[make] = make(self)
        return self.kept[make]

    def needs_of(self, entry: int) -> list[int]:
        """The parts that an entry needs."""
        return self.needs[self.needs_from[entry] : self.needs_from[entry + 1]].tolist()

    def part_of(self, action: Action) -> int:
        """The number of the part that is this action, the first one if there are several; -1 if none is."""
        stage, kind, microbatch = action
        if kind not in self.where or not (0 <= stage < self.stages and 0 <= microbatch < self.microbatches):
            return -1
        return int(self.where[kind][stage * self.microbatches + microbatch])

    def find(self, action: Action | OverlapFB) -> int:
        """As ``part_of``; for a pair, the number of its forward, if the two run as one block."""
        part = self.part_of(action.parts[0])
        found = part >= 0 and (len(action.parts) == 1 or self.entry_of(int(self.entry[part])) == action)
        return part if found else -1

    def action_of(self, part: int) -> Action:
        """A part as an action."""
        return Action(int(self.stage[part]), KINDS[self.kind[part]], int(self.microbatch[part]))

    def entry_of(self, entry: int) -> Action | OverlapFB:
        """An entry as an action or a pair."""
        return _joined([self.action_of(part) for part in range(self.parts[entry], self.parts[entry + 1])])

    def homes(self, kind: Kind) -> Column:
        """The device of each action of this kind, (stages, microbatches); -1 where there is none."""
        homes = np.full(self.stages * self.microbatches, -1, np.int32)
        if kind in self.where:
            there = self.where[kind] >= 0
            homes[there] = self.device[self.where[kind][there]]
        return homes.reshape(self.stages, self.microbatches)


def write_rows(program: Program, heads: Sequence[str], spell: Callable[[int], str], gap: str = " ") -> str:
    """A text with a row per device: after its head, its entries as ``spell`` writes them.

    If there are very many, it has only the first ones and says how many it leaves out.
    """
    most = program.size if program.size <= MOST_WRITTEN else FIRST
    lines = []
    for head, (a, b) in zip(heads[:most], pairwise(program.rows.tolist()), strict=False):
        cells = [spell(entry) for entry in range(a, min(b, a + most))]
        lines.append(f"{head}: {gap.join([*cells, *_more(b - a - most)])}".rstrip())
    return "\n".join([*lines, *_more(len(heads) - most, " devices")])


def _more(left_out: int, what: str = "") -> list[str]:
    return [f"... and {left_out:,} more{what}"] if left_out > 0 else []


def _joined(parts: list[Action]) -> Action | OverlapFB:
    return parts[0] if len(parts) == 1 else OverlapFB(*parts)
