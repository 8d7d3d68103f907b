"""Charts of more actions than a page has room for: per row and column of the page, the share in use.

Such a chart has no box per action. Time is cut into columns of equal length, and each column of a device's
row shows what part of it the device spends on each kind of action, stacked from the floor of the row. So the
height says how busy the device is, and waiting is still what is not painted. Nothing here loops over
actions: the shares are sums over the columns of the timeline and its program.
"""

from collections.abc import Iterator
from math import ceil
from typing import NamedTuple

import numpy as np

from gpipe_sim.core.program import CODE
from gpipe_sim.core.timeline import Timeline, number
from gpipe_sim.drawing.geometry import Array, Rows, between, entry_of, kinds_drawn
from gpipe_sim.drawing.marks import Entry, Shape
from gpipe_sim.drawing.palette import KINDS

MOST_IN_ROW = 372  #: actions that a row shows as boxes: with more, a box is below 2 pixels
MOST_BOXES = 3000  #: boxes that a page shows: with more, it is beyond about 300 kB in a notebook
EXTRA, AXIS = 0.4, 24  #: how many boxes are as long to write as one of the extras, or as a further axis
MOST_ROWS, MOST_CELLS = 128, 24_000  #: rows of a page with boxes and strips; cells of one without boxes,
#: each as often as there are kinds, and patterns, in it; and as two kinds if there are strips


class Grain(NamedTuple):
    """How coarse a chart is: how long a column lasts."""

    column: float = 0  #: 0 in a chart with a box per action

    def edges(self, timeline: Timeline) -> Array:
        """Where columns begin and end; the last one ends with the timeline."""
        until = float(timeline.makespan)
        return np.minimum(np.arange(max(1, ceil(until / self.column)) + 1) * self.column, until)

    @property
    def notes(self) -> list[Entry]:
        """How to read such a chart, for its legend."""
        if not self.column:
            return []
        column = f"each column sums {number(self.column)} time units"
        return [Entry(50, f"{column}: as high as the device is busy")]


def grain_of(*timelines: Timeline, strips: bool = False, pushed: bool = False, others: int = 0) -> Grain:
    """How coarsely these timelines are drawn on one page.

    Whatever the page shows of an action besides its box counts as well: a step of a strip, the box pushed to
    the left, or one of so many ``others``: a frame, an arrow.

    Where there is room, a column lasts a whole number of times as long as the busiest device works on a
    microbatch: that is the rhythm of a steady state, which would otherwise flicker from column to column.
    """
    programs = [timeline.schedule.program for timeline in timelines]
    in_row = max(int(np.diff(program.rows).max()) for program in programs)
    boxes, rows = sum(len(program.kind) for program in programs), sum(each.devices for each in programs)
    written = boxes * (1 + EXTRA * (strips + pushed + others)) + AXIS * (len(timelines) * (1 + pushed) - 1)
    if in_row <= MOST_IN_ROW and written <= MOST_BOXES and not (strips and rows > MOST_ROWS):
        return Grain()
    looks = {KINDS[kind] for program in programs for kind in program.where}
    layers = len(looks) + sum(bool(look.pattern) for look in looks) + 2 * strips
    columns = min(MOST_IN_ROW, max(1, MOST_CELLS // (rows * max(1, layers))))
    shortest = (float(max(timeline.makespan for timeline in timelines)) or 1.0) / columns
    rhythm = max(map(_rhythm, timelines)) or shortest
    whole = ceil(shortest / rhythm) if rhythm < shortest else 1 / (rhythm // shortest)
    return Grain(rhythm * whole)


def _rhythm(timeline: Timeline) -> float:
    """How long the busiest device works on a microbatch, on average."""
    program = timeline.schedule.program
    busy = np.bincount(program.device[program.first], (timeline.end - timeline.start).astype(float))
    return float(busy.max()) / program.microbatches


def shares(timeline: Timeline, grain: Grain) -> Array:
    """(kinds, rows, columns): the share of each cell that each kind of a program takes.

    Times the length of the column, they sum to the busy time of that kind. Of an overlapped pair, each half
    takes half. Where measured actions overlap, they share what there is.
    """
    program, edges = timeline.schedule.program, grain.edges(timeline)
    shape = len(CODE), program.devices, len(edges) - 1
    row = program.kind.astype(np.int64) * shape[1] + program.device
    weight = 1 / np.diff(program.parts)[program.entry] if program.paired else None
    started, ended = (
        _time_after(times[program.entry].astype(float), row, weight, edges, shape)
        for times in (timeline.start, timeline.end)
    )
    found = np.maximum(started - ended, 0) / np.maximum(np.diff(edges), np.finfo(float).tiny)
    return found / np.maximum(found.sum(axis=0), 1)


def _time_after(times: Array, row: Array, weight: Array | None, edges: Array, shape: tuple) -> Array:
    """Per cell, the time from each of these moments to the end of its row, as far as it lies in the cell."""
    times = np.clip(times, 0, edges[-1])
    column = np.minimum((times / (edges[1] or 1)).astype(np.int64), len(edges) - 2)
    cell, rest = row * shape[2] + column, edges[column + 1] - times
    rest = rest if weight is None else rest * weight
    here, moments = (np.bincount(cell, each, np.prod(shape)).reshape(shape) for each in (rest, weight))
    return here + (moments.cumsum(axis=2) - moments) * np.diff(edges)


def areas(timeline: Timeline, grain: Grain, rows: Rows) -> Iterator[Shape]:
    """A shape per kind of action, in the order of the palette, and one for its pattern.

    Each has an outline, (corners, 2), for each row in which the kind occurs.
    """
    found, edges = shares(timeline, grain), grain.edges(timeline)
    below, ground = np.zeros(found.shape[1:]), np.array([[rows.y(row, 1)] for row in range(found.shape[1])])
    for kind in kinds_drawn(timeline):
        above = below + found[CODE[kind]]
        busy = np.flatnonzero(found[CODE[kind]].any(axis=1)).tolist()
        ceiling, floor = (ground - rows.height * level for level in (above, below))
        outlines = [between(edges, ceiling[row], floor[row]) for row in busy]
        yield Shape(outlines, KINDS[kind].colour, entry_of(kind))
        if pattern := KINDS[kind].pattern:
            yield Shape(outlines, "", pattern=pattern)
        below = above
