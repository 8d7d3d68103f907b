"""A timeline with every row pushed to the left: the same work, and the waiting of all devices as one block.

It keeps no order between devices, so it is a picture of amounts, not of times.
"""

from collections.abc import Iterator, Sequence
from numbers import Real

import numpy as np

from gpipe_sim.core.program import CODE
from gpipe_sim.core.timeline import Span, Timeline, number
from gpipe_sim.drawing.coarse import Grain, shares
from gpipe_sim.drawing.geometry import Rows, boxes, kinds_drawn, rectangle
from gpipe_sim.drawing.marks import FRAME, Corner, Label, Labels, Lines, Panel, Scale, Shape
from gpipe_sim.drawing.palette import INK, KINDS, LANE
from gpipe_sim.drawing.panel import box_marks, device_names, entry_of, is_fine, lanes

WAITING = "waiting: "  #: left out where there is no room for it
TITLE = "The same work, pushed left: the waiting is one block"


def pushed(timeline: Timeline, grain: Grain, scale: Scale) -> Panel:
    """Every lane with its work and no wait in it, and a frame around what is left of all lanes."""
    rows, devices, until = Rows(), grain.rows(timeline), float(timeline.makespan)
    coarse = grain.column > 0
    work = list(_sums(timeline, grain, rows) if coarse else _boxes(timeline, scale, rows))
    ends = [0.0] * devices
    for shape in work:
        for outline in shape.outlines:
            row = int(np.mean(outline, axis=0)[1])
            ends[row] = max(ends[row], *(x for x, _ in outline))
    marks = [lanes(timeline, grain, rows), *work]
    if min(ends) < until:
        block, room = _staircase(ends, until, rows), until - max(ends)
        label = Label(until - room / 2, devices / 2, _left(timeline), room, 1)
        words = Labels([label], INK)
        if not words.shown(scale):
            words = Labels([label._replace(words=label.words.removeprefix(WAITING))], INK)
        marks += [Shape([block], LANE), Lines([block], FRAME), words]
    return Panel(marks, devices, device_names(timeline, grain, rows, scale))


def _boxes(timeline: Timeline, scale: Scale, rows: Rows) -> Iterator[Shape]:
    waited: dict[Span, Real] = {}
    for row in timeline.rows:
        waited |= zip(row, _waited(row), strict=True)
    every = [box._replace(x=box.x - waited[box.span]) for box in boxes(timeline, rows)]
    for shape in box_marks(every, None, is_fine(every, scale)):
        yield shape._replace(says=())  # they would say when, and this is not where


def _waited(row: Sequence[Span]) -> Iterator[Real]:
    """For each span, how long the device had waited by then.

    Measured spans may overlap; that is no wait, and so they still overlap when they are pushed.
    """
    total = reached = 0
    for span in row:
        total += max(0, span.start - reached)
        reached = max(reached, span.end)
        yield total


def _sums(timeline: Timeline, grain: Grain, rows: Rows) -> Iterator[Shape]:
    """Where there are too many boxes: per row one box for all actions of a kind."""
    time = shares(timeline, grain) @ np.diff(grain.edges(timeline))
    ends = time[[CODE[kind] for kind in kinds_drawn(timeline)]].cumsum(axis=0)
    starts = np.vstack([np.zeros(ends.shape[1]), ends[:-1]])
    for kind, left, right in zip(kinds_drawn(timeline), starts, ends, strict=True):
        outlines = [
            rectangle(a, rows.y(row), b, rows.y(row, 1))
            for row, (a, b) in enumerate(zip(left, right, strict=True))
        ]
        yield Shape(outlines, KINDS[kind].colour, entry_of(kind))


def _staircase(ends: Sequence[float], until: float, rows: Rows) -> list[Corner]:
    """The outline of what is left: down the right side, and up along the ends of the rows."""
    last = len(ends) - 1
    edges = [rows.y(0), *map(float, range(1, last + 1)), rows.y(last, 1)]
    corners = [(until, edges[0]), (until, edges[-1])]
    for row in reversed(range(last + 1)):
        corners += [(ends[row], edges[row + 1]), (ends[row], edges[row])]
    return corners


def _left(timeline: Timeline) -> str:
    """What is left: how much of each device's time if all have the same; otherwise the share of all time."""
    until = timeline.makespan
    waits = [_waits(row, until) for row in timeline.rows]
    if len(set(waits)) == 1:
        return f"{WAITING}{number(waits[0])} of {number(until)}"
    return f"{WAITING}{float(sum(waits) / (len(waits) * until)):.1%}"


def _waits(row: Sequence[Span], until: Real) -> Real:
    """How long a device waits from 0 to ``until``."""
    *_, before = [0, *_waited(row)]
    return before + until - max((span.end for span in row), default=0)
