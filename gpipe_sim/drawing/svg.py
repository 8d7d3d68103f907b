"""Charts as SVG text: what a notebook shows, the same bytes on every machine.

Hovering over a box shows its action and times if the page holds the SVG itself, such as a saved file in a
browser; JupyterLab shows it as an image. Labels are drawn where they fit, and nothing is drawn where a
device waits.
"""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

import numpy as np

from gpipe_sim.drawing.coarse import Area, Grain, areas, grain_of, in_flight_steps
from gpipe_sim.drawing.geometry import (
    PHASES,
    ROW_FILL,
    Box,
    boxes,
    caption,
    has_pairs,
    legend,
    long_waits,
    number,
    numbered,
    phase_lines,
)
from gpipe_sim.drawing.page import (
    CHARACTER,
    CRITICAL,
    LEFT,
    MESSAGE,
    WIDTH,
    Entry,
    Place,
    Svg,
    arrow,
    axis,
    dashes,
    device_names,
    document,
    every_row,
    frame,
    hatch,
    px,
    row_height,
    sheet,
    text,
    unit_for,
)
from gpipe_sim.drawing.palette import IN_FLIGHT, INK, KINDS, LANE, PAPER, hatched, ink
from gpipe_sim.errors import ScheduleError, listed, require, require_flags
from gpipe_sim.schedule.base import Schedule
from gpipe_sim.simulation.critical_path import critical_path
from gpipe_sim.simulation.metrics import peak_in_flight
from gpipe_sim.simulation.simulate import simulate
from gpipe_sim.simulation.timeline import Timeline, of_timeline, require_timeline

FINE = 4  #: pixels; edges and phase lines are drawn if three quarters of the boxes are at least this wide
TITLE, AXIS = 26, 22  #: pixels of the line above a timeline, and of the axis below
DIGIT = 6.4  #: pixels per character at 11 px
PAIRED = 1.4  #: how much higher rows are with overlapped pairs, so that a number fits into half a row

STRIPS = "microbatches in flight"
EXTRAS = {STRIPS: IN_FLIGHT, MESSAGE: INK, CRITICAL: INK}  #: what can be added to a chart, as its legend says
MOST_TIMED = 300_000  #: actions that are timed unasked
MOST_ARROWS = 800  #: messages that a page shows


@of_timeline
def to_svg(timeline: Timeline) -> str:
    """The SVG text of one timeline; TypeError for anything else."""
    return str(draw(timeline))


def at_unit_costs(schedule: Schedule) -> Svg | None:
    """What a notebook shows of a schedule: its timeline for unit costs, None for one that cannot run.

    A notebook shows it without being asked, so a schedule that takes long to time is only described.
    """
    stages, microbatches = schedule.stages, schedule.microbatches
    if 2 * stages * microbatches > MOST_TIMED:
        says = f"{stages:,} stages x {microbatches:,} microbatches take a while to time."
        lines = escape(repr(schedule)), says, "gp.draw(gp.simulate(schedule)) does it, and draws them."
        parts = [text(8, 16 + 18 * i, line, "start") for i, line in enumerate(lines)]
        return document(parts, WIDTH, 62, f"{schedule!r}: {says}")
    try:
        return draw(simulate(schedule))
    except ScheduleError:
        return None


def draw(
    *timelines: Timeline,
    in_flight: bool = False,
    messages: bool = False,
    critical_path: bool = False,
    titles: Sequence[str] | None = None,
) -> Svg:
    """Draw one or more timelines below each other, on one time axis.

    ``in_flight=True`` adds, below each, how many microbatches every device holds over time, with its peak
    on the right. ``messages=True`` adds an arrow for each message, from the end of the action that made it
    to where and when it arrives. ``critical_path=True`` outlines the chain of actions that sets the makespan.
    ``titles`` replaces the line above each timeline. ValueError without a timeline, or for another number of
    titles; TypeError for anything but timelines.

    With too many actions for a box each, the chart shows how much of its time each device spends on what, and
    the legend says so; it leaves out what is too fine to see: messages and the critical path.
    """
    if not timelines:
        raise ValueError("draw needs at least one timeline")
    for timeline in timelines:
        require_timeline("draw", timeline)
    require_flags("draw", in_flight=in_flight, messages=messages, critical_path=critical_path)
    titles = _titles(timelines, titles)
    wanted = zip(EXTRAS, (in_flight, messages, critical_path), strict=True)
    extras, grain = [words for words, is_wanted in wanted if is_wanted], grain_of(*timelines)
    drawn = [words for words in extras if _has_room(words, timelines, grain)]
    until = max(timeline.makespan for timeline in timelines)
    unit = unit_for(until, fill=grain.column > 0)
    most = max(max(peak_in_flight(each.schedule)) for each in timelines) if in_flight else 0
    parts, top = [], 0.0
    for timeline, title in zip(timelines, titles, strict=True):
        rows = grain.rows(timeline)
        at = Place(top + TITLE, unit, row_height(rows) * (PAIRED if has_pairs(timeline) else 1))
        parts += _titled(timeline, title, at, grain, drawn)
        top = at.y(rows)
        if in_flight:
            at = at._replace(top=top + 8)
            parts += _strips(timeline, at, grain, most)
            top = at.y(rows)
        parts += axis(until, at._replace(top=top), timeline.makespan)
        top += AXIS
    entries = explained(timelines, unit, grain) + _added(extras, drawn, grain)
    right = LEFT + float(until) * unit + max(0, DIGIT * len(str(most)) - 24)  # beyond it is room for a peak
    return sheet(parts, entries, titles, right, top)


def _titles(timelines: Sequence[Timeline], titles: Sequence[str] | None) -> list[str]:
    """A title for each timeline: the given ones, or the captions."""
    such_as = "titles, one for each timeline, such as titles=['GPipe']"
    if titles is None:
        titles = [caption(timeline) for timeline in timelines]
    titles = [require("draw", title, str, such_as) for title in listed("draw", such_as, titles)]
    if len(titles) != len(timelines):
        raise ValueError(f"draw needs a title for each of {len(timelines)} timelines (got {len(titles)})")
    return titles


def _has_room(words: str, timelines: Sequence[Timeline], grain: Grain) -> bool:
    """Strips always have; messages and the critical path only between boxes, and messages only if few."""
    arrows = sum(int(timeline.schedule.program.crosses.sum()) for timeline in timelines)
    return words == STRIPS or (not grain.column and (words != MESSAGE or arrows <= MOST_ARROWS))


def _titled(timeline: Timeline, title: str, at: Place, grain: Grain, extras: Sequence[str]) -> Iterator[str]:
    """One timeline below its title, with its messages and its critical path where they are wanted."""
    yield text(LEFT, at.top - TITLE + 17, escape(title), "start", 13)
    yield from device_names(grain.rows(timeline), at, grain.devices)
    yield from chart(timeline, at, grain)
    if CRITICAL in extras:
        yield from _critical(timeline, at)
    if MESSAGE in extras:
        yield from _arrows(timeline, at)


def explained(timelines: Sequence[Timeline], unit: float, grain: Grain) -> list[Entry]:
    """The legend's entries for what is painted, and for the lines between phases if any are drawn."""
    if grain.column:
        return [*legend(*timelines, coarse=True), (None, "", grain.words)]
    lines = any(_fine(timeline, unit) and any(phase_lines(timeline)) for timeline in timelines)
    return [entry for entry in legend(*timelines) if lines or not entry[2].endswith(PHASES)]


def _added(extras: Sequence[str], drawn: Sequence[str], grain: Grain) -> list[Entry]:
    """The legend's entries for what was asked for in addition; in words for what is too fine to draw."""
    most = ", the most in each column" if grain.column else ""
    entries = [(None, EXTRAS[words], words + most * (words == STRIPS)) for words in drawn]
    if missing := [words for words in extras if words not in drawn]:
        entries.append((None, "", f"too fine to draw: any {' or '.join(missing)}"))
    return entries


def chart(timeline: Timeline, at: Place, grain: Grain) -> Iterator[str]:
    """What the devices do, each on its lane: boxes, or areas if the grain is coarse."""
    wide, high = px(float(timeline.makespan) * at.unit), px(at.row * ROW_FILL)
    lanes = (
        f"M{px(at.left)} {px(at.y(row + (1 - ROW_FILL) / 2))}h{wide}v{high}h-{wide}z"
        for row in range(grain.rows(timeline))
    )
    yield f'<path d="{"".join(lanes)}" fill="{LANE}"/>'
    yield from _areas(timeline, at, grain) if grain.column else _boxes(timeline, at)


def _areas(timeline: Timeline, at: Place, grain: Grain) -> Iterator[str]:
    """One path per kind of action."""
    for kind, found in groupby(areas(timeline, grain), key=lambda area: area.kind):
        path = "".join(_steps(area, at) for area in found)
        yield f'<path d="{path}" fill="{KINDS[kind].colour}"/>'
        if hatched(kind):
            yield hatch(path)


def _steps(area: Area, at: Place) -> str:
    """The outline of an area, without those corners that are none once pixels are rounded to tenths."""
    x, y = area.outline.T
    points = np.column_stack([at.left + x * at.unit, at.y(area.row) + (y - area.row) * at.row])
    points = np.rint(10 * points).astype(int)
    points = points[(points != np.roll(points, 1, axis=0)).any(axis=1)]
    straight = points == np.roll(points, 1, axis=0)
    points = points[~(straight & np.roll(straight, -1, axis=0)).any(axis=1)]
    if not len(points):
        return ""
    moves = (f"h{dx / 10:g}" if dx else f"v{dy / 10:g}" for dx, dy in np.diff(points, axis=0).tolist())
    return f"M{px(points[0, 0] / 10)} {px(points[0, 1] / 10)}{''.join(moves)}z"


def _boxes(timeline: Timeline, at: Place) -> Iterator[str]:
    """The boxes with their numbers, and the lines between the phases."""
    every = sorted(boxes(timeline), key=lambda box: box.fill)
    edge = f' stroke="{PAPER}" stroke-width="0.7"' if _fine(timeline, at.unit) else ""
    for fill, group in groupby(every, key=lambda box: box.fill):
        yield f'<g fill="{fill}"{edge}>'
        yield from (_rectangle(box, at) for box in group)
        yield "</g>"
    if over := [box for box in every if hatched(box.kind)]:
        yield hatch("".join(_outline(box, at) for box in over))
    yield from _waits(timeline, at)
    labelled = numbered(every, lambda box: _fits(box, at))
    for style, group in groupby(sorted(labelled, key=_lettering), key=_lettering):
        yield f'<g {style} text-anchor="middle" pointer-events="none">'
        yield from (_label(box, at) for box in group)
        yield "</g>"
    if _fine(timeline, at.unit):
        lines = (
            f"M{px(at.x(time))} {px(at.y(device))}v{px(at.row)}" for time, device in phase_lines(timeline)
        )
        yield dashes("".join(lines))


def _waits(timeline: Timeline, at: Place) -> Iterator[str]:
    """How long the long waits are, where there is room to say it."""
    for wait in long_waits(timeline) if at.row >= 12 else ():
        if float(wait.end - wait.start) * at.unit >= len(wait.label) * CHARACTER + 6:
            x, y = at.x((wait.start + wait.end) / 2), at.y(wait.device + 0.5) + 4
            yield text(x, y, wait.label, "middle")


def _fine(timeline: Timeline, unit: float) -> bool:
    """Whether three quarters of the boxes (of those that take any time) are wide enough for edges."""
    widths = sorted(span.end - span.start for span in timeline.spans if span.end > span.start)
    return bool(widths) and float(widths[len(widths) // 4]) * unit >= FINE


def _rectangle(box: Box, at: Place) -> str:
    return f'<path d="{_outline(box, at)}"><title>{box.title}</title></path>'


def _outline(box: Box, at: Place) -> str:
    width = px(float(box.width) * at.unit)
    return f"M{px(at.x(box.x))} {px(at.y(box.y))}h{width}v{px(box.height * at.row)}h-{width}z"


def _fits(box: Box, at: Place) -> bool:
    wide = len(box.label) * DIGIT + 3
    return float(box.width) * at.unit >= wide and box.height * at.row >= 11


def _lettering(box: Box) -> str:
    """How a box's number is drawn: on hatched boxes with a halo in the box's colour, to keep lines away."""
    clear = f' stroke="{box.fill}" stroke-width="4" stroke-linejoin="round" paint-order="stroke"'
    return f'fill="{ink(box.fill)}"' + (clear if hatched(box.kind) else "")


def _label(box: Box, at: Place) -> str:
    x, y = at.x(box.x + box.width / 2), at.y(box.y + box.height / 2) + 4
    return f'<text x="{px(x)}" y="{px(y)}">{box.label}</text>'


def _critical(timeline: Timeline, at: Place) -> Iterator[str]:
    """Frames around the boxes of the critical path; around both halves of an overlapped pair."""
    chain = set(critical_path(timeline))
    yield frame("".join(_outline(box, at) for box in boxes(timeline) if box.span in chain))


def _arrows(timeline: Timeline, at: Place) -> Iterator[str]:
    """One arrow per message, between the sides of the two rows that face each other: it hides few numbers."""
    for action, source, target, start, end in timeline.messages:
        side = 0.25 if target > source else -0.25
        x, y = at.x(start), at.y(source + 0.5 + side)
        tip = at.x(end), at.y(target + 0.5 - side)
        says = f"{action} from device {source} to {target}, {number(start)}\u2013{number(end)}"
        yield f"<g><title>{says}</title>{arrow(x, y, *tip)}</g>"


def _strips(timeline: Timeline, at: Place, grain: Grain, most: int) -> Iterator[str]:
    """In-flight counts as filled steps, one strip per row, its peak on the right; ``most`` fills a row."""
    scale = (at.row - 4) / max(most, 1)
    right = at.x(timeline.makespan)
    yield from device_names(grain.rows(timeline), at, grain.devices)
    for row, steps in enumerate(in_flight_steps(timeline, grain)):
        floor, peak = at.y(row + 1) - 2, max(count for _, count in steps)
        outline = "".join(f"H{px(at.x(time))}V{px(floor - count * scale)}" for time, count in steps)
        yield (
            f'<path d="M{px(at.left)} {px(floor)}{outline}H{px(right)}V{px(floor)}z" '
            f'fill="{IN_FLIGHT}"><title>device {row * grain.devices}: at most {peak} in flight</title></path>'
        )
        if row % every_row(at) == 0:
            yield text(right + 6, floor - 3, str(peak), "start")
