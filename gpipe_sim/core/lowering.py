"""How a schedule's order becomes the columns of a ``Program``, without keeping its actions as objects."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from gpipe_sim.core.actions import Action, Kind, plain, require_labels
from gpipe_sim.core.hooks import Hook
from gpipe_sim.core.placement import read_placement
from gpipe_sim.core.program import CODE, KINDS, Column, Program
from gpipe_sim.core.rows import cells, read_action
from gpipe_sim.core.rules import NEEDS
from gpipe_sim.errors import require_few

if TYPE_CHECKING:
    from gpipe_sim.core.schedule import Schedule

CHUNK = 1 << 16  #: about how many actions exist as objects at the same time while an order is lowered
Piece = tuple[Column, Column, Column, Column]  #: stage, kind, microbatch of parts; parts of each entry
_CODE_OF_LETTER = np.zeros(128, np.int8)
_CODE_OF_LETTER[[ord(kind) for kind in KINDS]] = range(len(KINDS))


#: An update also needs the last gradient of each copy of its stage: (needs_from, needs, kind, stage, device).
NEEDS_OF_UPDATES: Hook[Callable[[Column, Column, Column, Column, Column], tuple[Column, Column]]] = Hook(
    "needs_of_updates", "a schedule with updates, such as 0U0,"
)


def lower(schedule: "Schedule") -> Program:
    """Turn a schedule into columns. Each device's order is read once, in pieces; no objects are kept.

    TypeError or ValueError for a row that lists anything but actions, or a bad placement.
    """
    placement = read_placement(type(schedule).__name__, schedule.placement, schedule.devices)
    stages, microbatches = _count_stages(schedule, placement), schedule.microbatches
    lengths: list[int] = []
    pieces = list(_pieces(schedule, lengths, max(CHUNK, len(KINDS) * stages * microbatches)))
    stage, kind, microbatch, sizes = map(np.concatenate, zip(*pieces, strict=True))
    rows, parts = offsets(lengths), offsets(sizes)
    entry = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    device = np.repeat(np.arange(schedule.devices, dtype=np.int32), lengths)[entry]
    labelled = (stage >= 0) & (stage < stages) & (microbatch >= 0) & (microbatch < microbatches)
    slot = stage.astype(np.int64) * microbatches + microbatch
    where = {
        code: _where(np.flatnonzero((kind == code) & labelled), slot, stages * microbatches)
        for code in np.flatnonzero(np.bincount(kind)).tolist()
    }
    needs_from, needs = _needs(kind, stage, slot, labelled, where, stages, microbatches)
    if CODE[Kind.U] in where:
        needs_from, needs = NEEDS_OF_UPDATES.filled(needs_from, needs, kind, stage, device)
    asks = np.repeat(np.arange(len(kind)), np.diff(needs_from))  # the part that has each need
    program = Program(
        placement, stages, microbatches, rows, parts, kind, stage, microbatch,
        device=device,
        position=entry - rows[device],
        entry=entry,
        in_range=bool(labelled.all()),
        where={KINDS[code]: table for code, table in where.items()},
        needs_from=needs_from[parts],
        needs=needs,
        crosses=(device[needs] != device[asks]) & (kind[asks] != CODE[Kind.U]),
    )  # fmt: skip
    for column in (*vars(program).values(), *where.values()):
        if isinstance(column, np.ndarray):
            column.flags.writeable = False
    return program


def _count_stages(schedule: "Schedule", placement: tuple[tuple[int, ...], ...]) -> int:
    held = [stage for stages in placement for stage in stages]
    if not held or min(held) < 0:
        found = f"stage {min(held)}" if held else "no stage"
        raise ValueError(f"{schedule!r} has a placement with {found}; stages are numbered 0, 1, 2, ...")
    return 1 + max(held)


def _pieces(schedule: "Schedule", lengths: list[int], most: int) -> Iterator[Piece]:
    """Columns (stage, kind, microbatch, parts per entry), about ``CHUNK`` actions at a time.

    Appends the number of entries of each device's row to ``lengths``. ValueError for one of more than
    ``most``, which may be endless.
    """
    parts, sizes = [], []
    for device in range(schedule.devices):
        owner, length = f"{type(schedule).__name__}.order({device})", 0
        row = cells(owner, schedule.order(device))
        while chunk := list(islice(row, CHUNK)):
            require_few(owner, length := length + len(chunk), "actions", most)
            if {*map(type, chunk)} == {Action}:
                sizes += [1] * len(chunk)
                parts += chunk
            else:
                entries = [read_action(owner, cell) for cell in chunk]
                sizes += [len(entry.parts) for entry in entries]
                parts += [part for entry in entries for part in entry.parts]
            if len(parts) >= CHUNK:
                yield _columns(schedule, parts, sizes)
                parts, sizes = [], []
        lengths.append(length)
    yield _columns(schedule, parts, sizes)


def _columns(schedule: "Schedule", parts: list[Action], sizes: list[int]) -> Piece:
    stages, kinds, microbatches = zip(*parts, strict=True) if parts else ((), (), ())
    if not ({*map(type, stages), *map(type, microbatches)} <= {int} and {*map(type, kinds)} <= {Kind}):
        return _columns(schedule, list(map(plain, parts)), sizes)
    letters = np.frombuffer("".join(kinds).encode(), np.uint8)
    labels = _whole(schedule, stages), _whole(schedule, microbatches)
    return labels[0], _CODE_OF_LETTER[letters], labels[1], np.array(sizes, np.int8)


def _whole(schedule: "Schedule", labels: tuple[int, ...]) -> Column:
    """The labels as a column of 32 bits; of 64 only if one is so large that it is surely wrong."""
    least, most = min(labels, default=0), max(labels, default=0)
    require_labels(repr(schedule), (least, most))
    return np.array(labels, np.int64 if least < -(1 << 31) or most >= 1 << 31 else np.int32)


def offsets(sizes: Sequence[int] | Column) -> Column:
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
    return offsets(there.sum(axis=1)), table[there]
