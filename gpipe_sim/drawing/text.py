"""A timeline as text: one row per device, one column per unit of time."""

from fractions import Fraction
from math import gcd, lcm

import numpy as np

from gpipe_sim.core.actions import Action, Kind, OverlapFB
from gpipe_sim.core.program import MOST_WRITTEN, write_rows
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.timeline import Span, Timeline, number
from gpipe_sim.links.collective import collectives_of, names_of

MOST_COLUMNS = 200
IDLE, GOES_ON, TOGETHER = "·", "-", "="


def text_grid(timeline: Timeline) -> str:
    """The grid that ``print(timeline)`` shows; if the times fit no grid, a list of actions and times.

    Of a very long list, only the first actions of each device. Updates that take no time have no column; the
    last line says so.
    """
    program = timeline.schedule.program
    few = program.size <= MOST_WRITTEN and np.diff(program.rows).max() <= MOST_COLUMNS
    step = _unit(timeline) if few else None
    if step is None or timeline.makespan / step > MOST_COLUMNS:
        return _listed(timeline)
    columns = int(timeline.makespan / step)
    names = {span.action: short(span.action, timeline.schedule) for span in timeline.spans}
    width = max(map(len, [number(int(timeline.makespan)), *names.values()]))
    front = len(f"device {timeline.schedule.devices - 1}")
    clock = (number(step * i) for i in range(columns))
    head = (time.rjust(width) if len(time) <= width else " " * width for time in clock)
    lines = ["time".ljust(front) + " " + " ".join(head).rstrip()]
    for device, row in enumerate(timeline.rows):
        cells = [IDLE] * columns
        for each in collectives_of(timeline):
            if device in each.devices:
                first, last = int(each.start / step), int(each.end / step)
                cells[first:last] = [TOGETHER * width] * (last - first)
        for span in row:
            if _unseen(span):
                continue
            first, last = int(span.start / step), int(span.end / step)
            cells[first:last] = [names[span.action]] + [GOES_ON * width] * (last - first - 1)
        text = " ".join(cell.rjust(width) for cell in cells)
        lines.append(f"device {device}".ljust(front) + " " + text)
    if together := ", ".join(names_of(timeline)):
        lines.append(f"{TOGETHER * width}: {together}, where the device computes nothing")
    if unseen := sum(map(_unseen, timeline.spans)):
        what = "1 update that takes" if unseen == 1 else f"{unseen} updates that take"
        lines.append(f"not shown: {what} no time")
    return "\n".join(lines)


def _unseen(span: Span) -> bool:
    """Whether it is an update that takes no time."""
    return span.start == span.end and span.action.parts[-1].kind is Kind.U


def _unit(timeline: Timeline) -> Fraction | None:
    """The largest step of which every start and end is a multiple; None if some action takes no time.

    Updates may take none.
    """
    both = timeline.spans, timeline.collectives
    times = {Fraction(t) for each in both for one in each for t in (one.start, one.end)} - {0}
    if any(span.start == span.end and not _unseen(span) for span in timeline.spans) or not times:
        return None
    whole = lcm(*(time.denominator for time in times))
    return Fraction(gcd(*(int(time * whole) for time in times)), whole)


def _listed(timeline: Timeline) -> str:
    schedule, program = timeline.schedule, timeline.schedule.program

    def spell(entry: int) -> str:
        start, end = (number(times[entry]) for times in (timeline.start, timeline.end))
        return f"{short(program.entry_of(entry), schedule)} {start}-{end}"

    rows = write_rows(program, [f"device {device}" for device in range(schedule.devices)], spell, gap="  ")
    return "\n".join([rows, *map(str, timeline.collectives[:MOST_COLUMNS])])


def short(action: Action | OverlapFB, schedule: Schedule) -> str:
    """The action's spelling, without the stage if every device has only one."""
    if isinstance(action, Action) and not schedule.program.stacked:
        return f"{action.kind}{action.microbatch}"
    return "/".join(map(str, action.parts))
