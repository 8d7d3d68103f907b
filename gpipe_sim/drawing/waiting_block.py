"""A timeline with every row pushed to the left: the same work, and the waiting of all devices as one block.

An action no longer waits for the one that it needs, so the picture shows how much, and no longer when.
"""

from collections.abc import Iterator
from itertools import accumulate

import numpy as np

from gpipe_sim.core.timeline import Span, Timeline, number
from gpipe_sim.drawing.geometry import Rows, between, boxes
from gpipe_sim.drawing.marks import Label, Labels, Lines, Mark, Panel, Scale, Shape, Style
from gpipe_sim.drawing.palette import INK, LANE
from gpipe_sim.drawing.panel import box_marks, device_names, is_fine, lanes
from gpipe_sim.errors import Real
from gpipe_sim.why.metrics import waits

WAITING = "waiting: "  #: left out where there is no room for it
TITLE = "The same work, pushed left: the waiting is one block"


def pushed(timeline: Timeline, scale: Scale) -> Panel:
    """Every lane with its work and no wait in it, and a frame around what is left of all lanes."""
    rows, devices, until = Rows(), timeline.schedule.devices, float(timeline.makespan)
    work = list(_boxes(timeline, scale, rows))
    ends = [0.0] * devices
    for shape in work:
        for outline in shape.outlines:
            row = int(np.mean(outline, axis=0)[1])
            ends[row] = max(ends[row], *(x for x, _ in outline))
    marks: list[Mark] = [lanes(timeline, rows), *work]
    if min(ends) < until:
        edges = [rows.y(0), *range(1, devices), rows.y(devices - 1, 1)]
        block, room = between(edges, [until] * devices, ends)[:, ::-1], until - max(ends)
        label = Label(until - room / 2, devices / 2, _left(timeline), room, 1)
        words = Labels([label], INK)
        if not words.shown(scale):
            words = Labels([label._replace(words=label.words.removeprefix(WAITING))], INK)
        marks += [Shape([block], LANE), Lines([block], Style.FRAME), words]
    return Panel(marks, devices, device_names(timeline, rows, scale))


def _boxes(timeline: Timeline, scale: Scale, rows: Rows) -> Iterator[Shape]:
    """Each box as far to the left as its device has waited until then."""
    waited: dict[Span, Real] = {}
    for device, row in enumerate(timeline.rows):
        waited |= zip(row, _waited(timeline, device), strict=False)
    every = [box._replace(x=box.x - waited[box.span]) for box in boxes(timeline, rows)]
    for shape in box_marks(every, None, is_fine(every, scale)):
        yield shape._replace(says=())  # they would say when, and this is not where


def _waited(timeline: Timeline, device: int) -> list[Real]:
    """How long the device had waited before each of its spans, and at the makespan."""
    return list(accumulate(max(0, end - start) for start, end in waits(timeline, device)))


def _left(timeline: Timeline) -> str:
    """What is left: how much of each device's time if all have the same; otherwise the share of all time."""
    until, waited = timeline.makespan, [_waited(timeline, k)[-1] for k in range(timeline.schedule.devices)]
    if len(set(waited)) == 1:
        return f"{WAITING}{number(waited[0])} of {number(until)}"
    return f"{WAITING}{float(sum(waited) / (len(waited) * until)):.1%}"
