"""Charts of more actions than a page has room for: per row and column of the page, the share in use.

Such a chart has no box per action. Time is cut into columns of equal length, and each column of a device's
row shows what part of it the device spends on each kind of action, stacked from the floor of the row. So the
height says how busy the device is, and waiting is still what is not painted. Nothing here loops over
actions: the shares are sums over the columns of the timeline and its program.
"""

from collections.abc import Iterator
from math import ceil
from numbers import Real
from typing import NamedTuple

import numpy as np

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.program import CODE, KINDS
from gpipe_sim.core.timeline import Timeline, number
from gpipe_sim.drawing.geometry import Rows, between, kinds_drawn
from gpipe_sim.drawing.marks import Entry
from gpipe_sim.why.metrics import in_flight

MOST_IN_ROW = 372  #: actions that a row shows as boxes: with more, a box is below 2 pixels
MOST_BOXES = 3000  #: boxes that a page shows: with more, it is beyond about 300 kB in a notebook
EXTRA, AXIS = 0.4, 24  #: how many boxes are as long to write as one of the extras, or as a further axis
MOST_ROWS, MOST_CELLS = 128, 4000  #: of a page without boxes; and rows of one with strips

Array = np.ndarray


class Grain(NamedTuple):
    """How coarse a chart is: how long a column lasts, and how many devices a row sums."""

    column: float = 0  #: 0 in a chart with a box per action
    devices: int = 1

    def rows(self, timeline: Timeline) -> int:
        return ceil(timeline.schedule.devices / self.devices)

    def edges(self, timeline: Timeline) -> Array:
        """Where columns begin and end; the last one ends with the timeline."""
        until = float(timeline.makespan)
        return np.minimum(np.arange(max(1, ceil(until / self.column)) + 1) * self.column, until)

    @property
    def notes(self) -> list[Entry]:
        """How to read such a chart, for its legend."""
        if not self.column:
            return []
        of, busy = (f" of {self.devices} devices", "they are") if self.devices > 1 else ("", "the device is")
        return [Entry(50, f"each column sums {number(self.column)} time units{of}: as high as {busy} busy")]


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
    summed = ceil(rows / MOST_ROWS)
    columns = min(MOST_IN_ROW, MOST_CELLS // ceil(rows / summed))
    shortest = (float(max(timeline.makespan for timeline in timelines)) or 1.0) / columns
    rhythm = max(map(_rhythm, timelines)) or shortest
    whole = ceil(shortest / rhythm) if rhythm < shortest else 1 / (rhythm // shortest)
    return Grain(rhythm * whole, summed)


def _rhythm(timeline: Timeline) -> float:
    """How long the busiest device works on a microbatch, on average."""
    program = timeline.schedule.program
    busy = np.bincount(program.device[program.first], (timeline.end - timeline.start).astype(float))
    return float(busy.max()) / program.microbatches


def shares(timeline: Timeline, grain: Grain) -> Array:
    """(kinds, rows, columns): the share of each cell that each of ``KINDS`` takes.

    Times the length of the column and the devices in the row, they sum to the busy time of that kind. Of an
    overlapped pair, each half takes half. Where measured actions overlap, they share what there is.
    """
    program, edges = timeline.schedule.program, grain.edges(timeline)
    shape = len(KINDS), grain.rows(timeline), len(edges) - 1
    row = program.kind.astype(np.int64) * shape[1] + program.device // grain.devices
    weight = 1 / np.diff(program.parts)[program.entry] if program.paired else None
    started, ended = (
        _time_after(times[program.entry].astype(float), row, weight, edges, shape)
        for times in (timeline.start, timeline.end)
    )
    devices = np.bincount(np.arange(program.devices) // grain.devices)
    room = np.outer(devices, np.maximum(np.diff(edges), np.finfo(float).tiny))
    found = np.maximum(started - ended, 0) / room
    return found / np.maximum(found.sum(axis=0), 1)


def _time_after(times: Array, row: Array, weight: Array | None, edges: Array, shape: tuple) -> Array:
    """Per cell, the time from each of these moments to the end of its row, as far as it lies in the cell."""
    times = np.clip(times, 0, edges[-1])
    column = _column(times, edges)
    cell, rest = row * shape[2] + column, edges[column + 1] - times
    rest = rest if weight is None else rest * weight
    here, moments = (np.bincount(cell, each, np.prod(shape)).reshape(shape) for each in (rest, weight))
    return here + (moments.cumsum(axis=2) - moments) * np.diff(edges)


def _column(times: Array, edges: Array) -> Array:
    return np.minimum((times / (edges[1] or 1)).astype(np.int64), len(edges) - 2)


def areas(timeline: Timeline, grain: Grain, rows: Rows) -> Iterator[tuple[Kind, list[Array]]]:
    """Per kind, in the order of the palette: an outline, (corners, 2), for each row in which it occurs."""
    found, edges = shares(timeline, grain), grain.edges(timeline)
    below, ground = np.zeros(found.shape[1:]), rows.y(np.arange(found.shape[1])[:, None], 1)
    for kind in kinds_drawn(timeline):
        above = below + found[CODE[kind]]
        busy = np.flatnonzero(found[CODE[kind]].any(axis=1)).tolist()
        ceiling, floor = (ground - rows.height * level for level in (above, below))
        yield kind, [between(edges, ceiling[row], floor[row]) for row in busy]
        below = above


def in_flight_steps(timeline: Timeline, grain: Grain) -> Iterator[list[tuple[Real, int]]]:
    """Per row, (time, count) steps of what is in flight; in a coarse chart, the most in each column."""
    if grain.column:
        since = grain.edges(timeline)[:-1]
        for counts in _most_in_flight(timeline, grain):
            changes = np.flatnonzero(np.diff(counts, prepend=-1))
            yield list(zip(since[changes].tolist(), counts[changes].tolist(), strict=True))
    else:
        yield from (in_flight(timeline, device) for device in range(timeline.schedule.devices))


def _most_in_flight(timeline: Timeline, grain: Grain) -> Array:
    """(rows, columns): the most that a device of the row has in flight at any time of the column."""
    edges, devices = grain.edges(timeline), []
    for device in range(timeline.schedule.devices):
        times, held = map(np.array, zip(*in_flight(timeline, device), strict=True))
        at = np.searchsorted(times[1:], edges)
        devices.append(np.maximum(np.maximum.reduceat(held, at[:-1]), held[at[1:]]))
    return np.maximum.reduceat(devices, range(0, len(devices), grain.devices))
