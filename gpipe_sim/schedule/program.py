"""A schedule lowered to columns of whole numbers; all code that needs an order reads it here.

A device's row is a list of entries; each entry is an action or an overlapped pair of two. The plain actions
inside are called parts: one per action, two per pair. Entries are numbered row by row, and so are parts. In
an order without pairs, entries and parts are the same. Columns are NumPy arrays that cannot be written to.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from typing import TYPE_CHECKING

import numpy as np

from gpipe_sim.errors import got
from gpipe_sim.schedule.actions import Action, Kind, OverlapFB, plain
from gpipe_sim.schedule.levels import Levels, find_levels
from gpipe_sim.schedule.placement import read_placement
from gpipe_sim.schedule.rules import NEEDS

if TYPE_CHECKING:
    from gpipe_sim.schedule.base import Schedule

Column = np.ndarray
KINDS = tuple(Kind)  #: the columns store a kind as its place in this tuple
CODE = {kind: code for code, kind in enumerate(KINDS)}
CHUNK = 1 << 16  #: about how many actions exist as objects at the same time while an order is lowered
_CODE_OF_LETTER = np.zeros(128, np.int8)
_CODE_OF_LETTER[[ord(kind) for kind in KINDS]] = range(len(KINDS))


@dataclass(frozen=True, eq=False)
class Program:
    """The columns of a schedule. ``schedule.program`` makes it once.

    Per part: ``kind`` (its place in ``KINDS``), ``stage``, ``microbatch``, ``device``, ``entry`` (the one
    that it belongs to), and ``position``, the place of that entry in the device's row.
    Device k has the entries ``rows[k]`` up to, not including, ``rows[k + 1]``; entry e has the parts from
    ``parts[e]`` up to ``parts[e + 1]``, and the needs from ``needs_from[e]`` up to ``needs_from[e + 1]``.
    Per need: ``needs``, the part that is needed; ``crosses``, whether it is a message from another device.
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

    @property
    def owner(self) -> Column:
        """For each need, the entry that has it."""
        return np.repeat(np.arange(self.size), np.diff(self.needs_from))

    @cached_property
    def actions(self) -> tuple[tuple[Action | OverlapFB, ...], ...]:
        """The order as objects again: one row per device."""
        kinds = map(KINDS.__getitem__, self.kind.tolist())
        parts = list(map(Action, self.stage.tolist(), kinds, self.microbatch.tolist()))
        if self.paired:
            ends = self.parts.tolist()
            entries = [_joined(parts[a:b]) for a, b in pairwise(ends)]
        else:
            entries = parts
        ends = self.rows.tolist()
        return tuple(tuple(entries[a:b]) for a, b in pairwise(ends))

    @cached_property
    def levels(self) -> Levels:
        """The entries in an order in which they can run, and which devices get stuck."""
        return find_levels(self.rows, self.needs_from, self.entry[self.needs])

    def part_of(self, action: Action) -> int:
        """The number of the part that is this action, the first one if there are several; -1 if none is."""
        stage, kind, microbatch = action
        if kind not in self.where or not (0 <= stage < self.stages and 0 <= microbatch < self.microbatches):
            return -1
        return int(self.where[kind][stage * self.microbatches + microbatch])

    def action_of(self, part: int) -> Action:
        """A part as an action."""
        return Action(int(self.stage[part]), KINDS[self.kind[part]], int(self.microbatch[part]))

    def entry_of(self, entry: int) -> Action | OverlapFB:
        """An entry as an action or a pair."""
        return _joined([self.action_of(part) for part in range(self.parts[entry], self.parts[entry + 1])])

    def homes(self, kind: Kind) -> Column:
        """The device of each action of this kind, (stages, microbatches); -1 where there is none."""
        shape = self.stages, self.microbatches
        if kind not in self.where:
            return np.full(shape, -1, np.int32)
        found = self.where[kind]
        homes = self.device[found]
        homes[found < 0] = -1
        return homes.reshape(shape)

    def same_order(self, other: "Program") -> bool:
        """Whether both have the same entries, in the same rows."""
        names = ("rows", "parts", "kind", "stage", "microbatch")
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)


def _joined(parts: list[Action]) -> Action | OverlapFB:
    return parts[0] if len(parts) == 1 else OverlapFB(*parts)


def lower(schedule: "Schedule") -> Program:
    """Turn a schedule into columns. Each device's order is read once, in pieces; no objects are kept.

    TypeError or ValueError for a row that lists anything but actions, or a bad placement.
    """
    placement = read_placement(type(schedule).__name__, schedule.placement, schedule.devices)
    stages, microbatches = 1 + max(stage for held in placement for stage in held), schedule.microbatches
    lengths: list[int] = []
    pieces = list(_pieces(schedule, lengths))
    stage, kind, microbatch, sizes = map(np.concatenate, zip(*pieces, strict=True))
    rows, parts = _offsets(lengths), _offsets(sizes)
    entry = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    device = np.repeat(np.arange(schedule.devices, dtype=np.int32), lengths)[entry]
    labelled = (stage >= 0) & (stage < stages) & (microbatch >= 0) & (microbatch < microbatches)
    slot = stage.astype(np.int64) * microbatches + microbatch
    where = {
        code: _where(np.flatnonzero((kind == code) & labelled), slot, stages * microbatches)
        for code in np.flatnonzero(np.bincount(kind)).tolist()
    }
    needs_from, needs = _needs(kind, stage, slot, labelled, where, stages, microbatches)
    program = Program(
        placement, stages, microbatches, rows, parts, kind, stage, microbatch,
        device=device,
        position=entry - rows[device],
        entry=entry,
        in_range=bool(labelled.all()),
        where={KINDS[code]: table for code, table in where.items()},
        needs_from=needs_from[parts],
        needs=needs,
        crosses=device[needs] != np.repeat(device, needs_from[1:] - needs_from[:-1]),
    )  # fmt: skip
    for column in (*vars(program).values(), *where.values()):
        if isinstance(column, np.ndarray):
            column.flags.writeable = False
    return program


def _pieces(schedule: "Schedule", lengths: list[int]) -> Iterator[tuple[Column, Column, Column, Column]]:
    """Columns (stage, kind, microbatch, parts per entry), about ``CHUNK`` actions at a time.

    Appends the number of entries of each device's row to ``lengths``.
    """
    parts, sizes = [], []
    for device in range(schedule.devices):
        owner, length = f"{type(schedule).__name__}.order({device})", 0
        cells = _cells(owner, schedule.order(device))
        while chunk := list(islice(cells, CHUNK)):
            length += len(chunk)
            if {*map(type, chunk)} == {Action}:
                sizes += [1] * len(chunk)
                parts += chunk
            else:
                entries = [_read(owner, cell) for cell in chunk]
                sizes += [len(entry.parts) for entry in entries]
                parts += [part for entry in entries for part in entry.parts]
            if len(parts) >= CHUNK:
                yield _columns(parts, sizes)
                parts, sizes = [], []
        lengths.append(length)
    yield _columns(parts, sizes)


def _columns(parts: list[Action], sizes: list[int]) -> tuple[Column, Column, Column, Column]:
    stages, kinds, microbatches = zip(*parts, strict=True) if parts else ((), (), ())
    if not ({*map(type, stages), *map(type, microbatches)} <= {int} and {*map(type, kinds)} <= {Kind}):
        return _columns(list(map(plain, parts)), sizes)
    letters = np.frombuffer("".join(kinds).encode(), np.uint8)
    return _whole(stages), _CODE_OF_LETTER[letters], _whole(microbatches), np.array(sizes, np.int8)


def _cells(owner: str, row: str | Iterable) -> Iterator:
    if isinstance(row, Action | OverlapFB) or not isinstance(row, Iterable):
        raise TypeError(f"{owner} needs to list actions, such as [F(0, 0), B(0, 0)] or '0F0 0B0' {got(row)}")
    return iter(row.split() if isinstance(row, str) else row)


def read_row(owner: str, row: str | Iterable) -> list[Action | OverlapFB]:
    """The actions of a row, given as text ("0F0 0B0") or as a list; TypeError or ValueError otherwise."""
    return [_read(owner, cell) for cell in _cells(owner, row)]


def _read(owner: str, cell: object) -> Action | OverlapFB:
    """One cell of a row as an action or a pair; the cell may also be its spelling, such as '0F0'."""
    if type(cell) is Action and type(cell.stage) is type(cell.microbatch) is int and type(cell.kind) is Kind:
        return cell
    if isinstance(cell, str):
        return Action.parse(cell)
    if isinstance(cell, OverlapFB) and all(isinstance(part, Action) for part in cell):
        return OverlapFB(*map(plain, cell))
    if isinstance(cell, Action):
        return plain(cell)
    raise TypeError(f"{owner} takes actions or their spelling, such as '0F0' {got(cell)}")


def _whole(labels: tuple[int, ...]) -> Column:
    """The labels as a column of 32 bits; of 64 only if one is so large that it is surely wrong."""
    least, most = min(labels, default=0), max(labels, default=0)
    if least < -(1 << 63) or most >= 1 << 63:
        raise ValueError(f"a stage or microbatch has a label of {len(str(max(-least, most)))} digits")
    return np.array(labels, np.int64 if least < -(1 << 31) or most >= 1 << 31 else np.int32)


def _offsets(sizes: Sequence[int]) -> Column:
    """For runs of these sizes, one after the other: where each begins, and last where the final one ends."""
    ends = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=ends[1:])
    return ends


def _where(parts: Column, slot: Column, slots: int) -> Column:
    """slot -> the part of one kind in it, or -1. If an action stands in the order twice, the first counts."""
    table = np.full(slots, -1, np.int32)
    table[slot[parts[::-1]]] = parts[::-1]
    return table


def _needs(
    kind: Column,
    stage: Column,
    slot: Column,
    labelled: Column,
    where: dict[int, Column],
    stages: int,
    size: int,
) -> tuple[Column, Column]:
    """``NEEDS`` looked up for every part: where the needs of each part begin, and the parts that it needs."""
    wanted = {
        code: [(CODE[source], step) for source, step in NEEDS[KINDS[code]] if CODE[source] in where]
        for code in where
    }
    table = np.full((len(kind), max(map(len, wanted.values()), default=0)), -1, np.int32)
    for code, sources in wanted.items():
        parts = np.flatnonzero((kind == code) & labelled)
        for column, (source, step) in enumerate(sources):
            inside = parts[stage[parts] != (stages - 1 if step > 0 else 0)] if step else parts
            table[inside, column] = where[source][slot[inside] + step * size]
    there = table >= 0
    return _offsets(there.sum(axis=1)), table[there]
