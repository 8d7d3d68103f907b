"""A timeline as text: one row per device, one column per unit of time."""

from fractions import Fraction
from math import gcd, lcm

from gpipe_sim.drawing.geometry import short
from gpipe_sim.simulation.timeline import Timeline, number

MOST_COLUMNS = 200
IDLE, GOES_ON = "·", "-"


def text_grid(timeline: Timeline) -> str:
    """The grid that ``print(timeline)`` shows; if the times fit no grid, a list of actions and times."""
    step = _unit(timeline)
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
        for span in row:
            first, last = int(span.start / step), int(span.end / step)
            cells[first:last] = [names[span.action]] + [GOES_ON * width] * (last - first - 1)
        text = " ".join(cell.rjust(width) for cell in cells)
        lines.append(f"device {device}".ljust(front) + " " + text)
    return "\n".join(lines)


def _unit(timeline: Timeline) -> Fraction | None:
    """The largest step of which every start and end is a multiple; None if some action takes no time."""
    times = {Fraction(t) for span in timeline.spans for t in (span.start, span.end)} - {0}
    if any(span.start == span.end for span in timeline.spans) or not times:
        return None
    whole = lcm(*(time.denominator for time in times))
    return Fraction(gcd(*(int(time * whole) for time in times)), whole)


def _listed(timeline: Timeline) -> str:
    rows = (
        "  ".join(
            f"{short(span.action, timeline.schedule)} {number(span.start)}-{number(span.end)}" for span in row
        )
        for row in timeline.rows
    )
    return "\n".join(f"device {device}: {row}" for device, row in enumerate(rows))
