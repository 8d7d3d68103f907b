"""Charts as SVG text: what a notebook shows, the same bytes on every machine.

Hovering over a box shows its action and times if the page holds the SVG itself, such as a saved file in a
browser; JupyterLab shows it as an image. Labels are drawn where they fit, and nothing is drawn where a
device waits.
"""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

from gpipe_sim.drawing.geometry import (
    PHASES,
    Box,
    boxes,
    caption,
    has_pairs,
    legend,
    number,
    phase_lines,
)
from gpipe_sim.drawing.page import (
    CRITICAL,
    LEFT,
    MESSAGE,
    Entry,
    Place,
    Svg,
    arrow,
    axis,
    dashes,
    device_names,
    frame,
    hatch,
    px,
    row_height,
    sheet,
    text,
    unit_for,
)
from gpipe_sim.drawing.palette import IN_FLIGHT, INK, PAPER, hatched, ink
from gpipe_sim.errors import listed, require, require_flags
from gpipe_sim.simulation.critical_path import critical_path
from gpipe_sim.simulation.metrics import in_flight, peak_in_flight
from gpipe_sim.simulation.timeline import Timeline, of_timeline, require_timeline

FINE = 4  #: pixels; edges and phase lines are drawn if three quarters of the boxes are at least this wide
TITLE, AXIS = 26, 22  #: pixels of the line above a timeline, and of the axis below
DIGIT = 6.4  #: pixels per character at 11 px
PAIRED = 1.4  #: how much higher rows are with overlapped pairs, so that a number fits into half a row


@of_timeline
def to_svg(timeline: Timeline) -> str:
    """The SVG text of one timeline; TypeError for anything else."""
    return str(draw(timeline))


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
    """
    if not timelines:
        raise ValueError("draw needs at least one timeline")
    for timeline in timelines:
        require_timeline("draw", timeline)
    require_flags("draw", in_flight=in_flight, messages=messages, critical_path=critical_path)
    such_as = "titles, one for each timeline, such as titles=['GPipe']"
    titles = (
        [caption(timeline) for timeline in timelines] if titles is None else listed("draw", such_as, titles)
    )
    for title in titles:
        require("draw", title, str, such_as)
    if len(titles) != len(timelines):
        raise ValueError(f"draw needs a title for each of {len(timelines)} timelines (got {len(titles)})")
    until = max(timeline.makespan for timeline in timelines)
    unit = unit_for(until)
    most = max(max(peak_in_flight(timeline.schedule)) for timeline in timelines)
    parts, top = [], 0.0
    for timeline, title in zip(timelines, titles, strict=True):
        devices = timeline.schedule.devices
        at = Place(top + TITLE, unit, row_height(devices) * (PAIRED if has_pairs(timeline) else 1))
        parts += [
            text(LEFT, top + 17, escape(title), "start", 13),
            *device_names(devices, at),
            *chart(timeline, at),
            *(_critical(timeline, at) if critical_path else ()),
            *(_arrows(timeline, at) if messages else ()),
        ]
        top += TITLE + at.row * devices
        if in_flight:
            parts += _strips(timeline, at._replace(top=top + 8), most)
            top += 8 + at.row * devices
        parts += axis(until, at._replace(top=top))
        top += AXIS
    entries = explained(timelines, unit) + _asked(in_flight, messages, critical_path)
    return sheet(parts, entries, titles, LEFT + float(until) * unit, top)


def explained(timelines: Sequence[Timeline], unit: float) -> list[Entry]:
    """The legend's entries for the boxes, and for the lines between phases if any are drawn."""
    lines = any(_fine(timeline, unit) and any(phase_lines(timeline)) for timeline in timelines)
    return [entry for entry in legend(*timelines) if lines or not entry[2].endswith(PHASES)]


def _asked(strips: bool, arrows: bool, path: bool) -> list[Entry]:
    """The legend's entries for what was asked for in addition: strips, arrows, critical path."""
    entries = (
        (strips, (None, IN_FLIGHT, "microbatches in flight")),
        (arrows, (None, INK, MESSAGE)),
        (path, (None, INK, CRITICAL)),
    )
    return [entry for wanted, entry in entries if wanted]


def chart(timeline: Timeline, at: Place) -> Iterator[str]:
    """The boxes with their numbers, and the lines between the phases."""
    every = sorted(boxes(timeline), key=lambda box: box.fill)
    edge = f' stroke="{PAPER}" stroke-width="0.7"' if _fine(timeline, at.unit) else ""
    for fill, group in groupby(every, key=lambda box: box.fill):
        yield f'<g fill="{fill}"{edge}>'
        yield from (_rectangle(box, at) for box in group)
        yield "</g>"
    if over := [box for box in every if hatched(box.kind)]:
        yield hatch("".join(_outline(box, at) for box in over))
    labelled = [box for box in every if _fits(box, at)]
    for style, group in groupby(sorted(labelled, key=_lettering), key=_lettering):
        yield f'<g {style} text-anchor="middle" pointer-events="none">'
        yield from (_label(box, at) for box in group)
        yield "</g>"
    if _fine(timeline, at.unit):
        lines = (
            f"M{px(at.x(time))} {px(at.y(device))}v{px(at.row)}" for time, device in phase_lines(timeline)
        )
        yield dashes("".join(lines))


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


def _strips(timeline: Timeline, at: Place, most: int) -> Iterator[str]:
    """In-flight counts as filled steps, one strip per device, its peak on the right; ``most`` fills a row."""
    peaks = peak_in_flight(timeline.schedule)
    scale = (at.row - 4) / max(most, 1)
    right = at.x(timeline.makespan)
    yield from device_names(timeline.schedule.devices, at)
    for device, peak in enumerate(peaks):
        floor, outline = at.y(device + 1) - 2, ""
        for time, count in in_flight(timeline, device):
            outline += f"H{px(at.x(time))}V{px(floor - count * scale)}"
        yield (
            f'<path d="M{px(at.left)} {px(floor)}{outline}H{px(right)}V{px(floor)}z" '
            f'fill="{IN_FLIGHT}"><title>device {device}: at most {peak} in flight</title></path>'
        )
        yield text(right + 6, floor - 3, str(peak), "start")
