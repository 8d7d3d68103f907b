"""Charts as SVG text: what a notebook shows, the same bytes on every machine.

Hovering over a box names its action and times, where a page shows the SVG itself (a saved file in a
browser; JupyterLab shows it as an image). Labels are drawn where they fit, and nothing is drawn
where a device waits.
"""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from math import hypot
from numbers import Real
from typing import NamedTuple

from gpipe_sim import explain, metrics
from gpipe_sim.actions import Kind
from gpipe_sim.chart import (
    IN_FLIGHT_COLOUR,
    INK,
    PHASES,
    Box,
    boxes,
    caption,
    has_pairs,
    ink,
    legend,
    number,
    phase_lines,
    ticks,
)
from gpipe_sim.schedule import peak_in_flight
from gpipe_sim.simulate import Timeline, of_timeline, require_timeline

WIDTH = 840  #: the most pixels that a chart takes from left to right
UNIT = 28  #: the most pixels for one unit of time, so that a short timeline is not blown up
FINE = 4  #: pixels from which boxes, but for the narrowest quarter, get edges and phases their lines
LEFT, RIGHT, TITLE, AXIS, LEGEND = 66, 30, 26, 22, 28
LEGEND_LINE = 18  #: from one line of a legend to the next
DIGIT = 6.4  #: pixels per character at 11 px
CHARACTER = 5.5  #: pixels per character of words at 11 px
TITLE_CHARACTER = 6.6  #: pixels per character of a title, at 13 px
PAIRED = 1.4  #: how much higher rows are with overlapped pairs, so that half a box has room for its number
FAINT = "#777777"
HEAD = 7  #: pixels from the point of an arrow to its shaft
MESSAGE = "message"
CRITICAL = "critical path"
HATCHED = "weight-gradient"  #: the id of the white lines that tell W from the other kinds without its colour

Entry = tuple[Kind | None, str, str]  #: of a legend: kind, colour, words


class Place(NamedTuple):
    """Where a chart stands on its sheet, and how large it is; all in pixels."""

    top: float
    unit: float  #: of time
    row: float
    left: float = LEFT
    gap: float = 0  #: between two rows

    def x(self, time: Real) -> float:
        return self.left + float(time) * self.unit

    def y(self, rows: float) -> float:
        return self.top + rows * self.row + int(rows) * self.gap


class Svg:
    """A drawing: shown by a notebook, ``str`` gives the SVG text, ``save`` writes it."""

    def __init__(self, text: str, says: str):
        self.text, self.says = text, says

    def _repr_svg_(self) -> str:
        return self.text

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Svg of {self.says}>"

    def save(self, path: str) -> None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text)


@of_timeline
def to_svg(timeline: Timeline) -> str:
    """The SVG text of one timeline."""
    return str(draw(timeline))


def draw(
    *timelines: Timeline,
    in_flight: bool = False,
    messages: bool = False,
    critical_path: bool = False,
    titles: Sequence[str] | None = None,
) -> Svg:
    """One or more timelines under each other, on one time axis.

    ``in_flight=True`` adds, below each, how many microbatches every device holds over time, with its peak
    on the right. ``messages=True`` adds an arrow for each message, from the end of the action that made it
    to where and when it arrives. ``critical_path=True`` outlines the chain of actions that sets the makespan.
    ``titles`` replaces the line above each timeline.
    """
    if not timelines:
        raise ValueError("draw needs at least one timeline")
    for timeline in timelines:
        require_timeline("draw", timeline)
    titles = [caption(timeline) for timeline in timelines] if titles is None else list(titles)
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


def unit_for(until: Real, left: float = LEFT) -> float:
    """Pixels for one unit of time, so that a chart up to this time is not too wide."""
    return min(UNIT, (WIDTH - left - RIGHT) / float(until)) if until else UNIT


def explained(timelines: Sequence[Timeline], unit: float) -> list[Entry]:
    """What the legend says of the boxes, and of the lines that part the phases where they are drawn."""
    lines = any(_fine(timeline, unit) and any(phase_lines(timeline)) for timeline in timelines)
    return [entry for entry in legend(*timelines) if lines or not entry[2].endswith(PHASES)]


def _asked(strips: bool, arrows: bool, path: bool) -> list[Entry]:
    """What the legend says of whatever was asked for besides."""
    entries = (
        (strips, (None, IN_FLIGHT_COLOUR, "microbatches in flight")),
        (arrows, (None, INK, MESSAGE)),
        (path, (None, INK, CRITICAL)),
    )
    return [entry for wanted, entry in entries if wanted]


def sheet(
    parts: Sequence[str], entries: Sequence[Entry], titles: Sequence[str], right: float, bottom: float
) -> Svg:
    """The drawing made of these parts, which end at ``right`` and ``bottom``, and a legend below them."""
    lines = list(_legend_lines(entries))
    below = [part for i, line in enumerate(lines) for part in _legend(line, bottom + 6 + i * LEGEND_LINE)]
    words = *map(_legend_width, lines), *map(_title_width, titles)
    width = max(right, LEFT + max(words)) + RIGHT
    height = bottom + (len(lines) - 1) * LEGEND_LINE + LEGEND
    return document([*_defined(entries), *parts, *below], width, height, "; ".join(titles))


def document(parts: Sequence[str], width: float, height: float, says: str, size: int = 11) -> Svg:
    """The drawing made of these parts: on white, in a font of ``size`` px, narrower where a page is."""
    body = "\n".join(parts)
    text = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_px(width)}" height="{_px(height)}" '
        f'viewBox="0 0 {_px(width)} {_px(height)}" style="max-width:100%;height:auto" '
        f'font-family="Helvetica, Arial, sans-serif" font-size="{size}" role="img" '
        f'aria-label="{escape(says)}">\n<rect width="100%" height="100%" fill="#fff"/>\n{body}\n</svg>'
    )
    return Svg(text, says)


def row_height(devices: int) -> float:
    return 24 if devices <= 8 else 18 if devices <= 16 else 12 if devices <= 32 else 8


def chart(timeline: Timeline, at: Place) -> Iterator[str]:
    """The boxes with their numbers, and the lines that part the phases."""
    every = sorted(boxes(timeline), key=lambda box: box.fill)
    edge = ' stroke="#fff" stroke-width="0.7"' if _fine(timeline, at.unit) else ""
    for fill, group in groupby(every, key=lambda box: box.fill):
        yield f'<g fill="{fill}"{edge}>'
        yield from (_rectangle(box, at) for box in group)
        yield "</g>"
    if weights := [box for box in every if box.kind is Kind.W]:
        yield _hatch("".join(_outline(box, at) for box in weights))
    labelled = [box for box in every if _fits(box, at)]
    for style, group in groupby(sorted(labelled, key=_lettering), key=_lettering):
        yield f'<g {style} text-anchor="middle" pointer-events="none">'
        yield from (_label(box, at) for box in group)
        yield "</g>"
    if _fine(timeline, at.unit):
        lines = (
            f"M{_px(at.x(time))} {_px(at.y(device))}v{_px(at.row)}" for time, device in phase_lines(timeline)
        )
        yield _dashes("".join(lines))


def _fine(timeline: Timeline, unit: float) -> bool:
    """Whether boxes are wide enough for edges: all but the narrowest quarter, of those that take any time."""
    widths = sorted(span.end - span.start for span in timeline.spans if span.end > span.start)
    return bool(widths) and float(widths[len(widths) // 4]) * unit >= FINE


def _rectangle(box: Box, at: Place) -> str:
    return f'<path d="{_outline(box, at)}"><title>{box.title}</title></path>'


def _outline(box: Box, at: Place) -> str:
    width = _px(float(box.width) * at.unit)
    return f"M{_px(at.x(box.x))} {_px(at.y(box.y))}h{width}v{_px(box.height * at.row)}h-{width}z"


def _hatch(outline: str) -> str:
    return f'<path d="{outline}" fill="url(#{HATCHED})" pointer-events="none"/>'


def _defined(entries: Sequence[Entry]) -> list[str]:
    """The hatching of weight gradients, where there are any."""
    hatching = (
        f'<defs><pattern id="{HATCHED}" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><path d="M0 0v6" stroke="#fff" stroke-width="1.6"/></pattern></defs>'
    )
    return [hatching] if any(kind is Kind.W for kind, _, _ in entries) else []


def _dashes(lines: str) -> str:
    return f'<path d="{lines}" stroke="{INK}" stroke-dasharray="3 2" fill="none"/>'


def _fits(box: Box, at: Place) -> bool:
    wide = len(box.label) * DIGIT + 3
    return float(box.width) * at.unit >= wide and box.height * at.row >= 11


def _lettering(box: Box) -> str:
    """How the box's number is drawn: over hatching, the box's own colour keeps the lines off its digits."""
    clear = f' stroke="{box.fill}" stroke-width="4" stroke-linejoin="round" paint-order="stroke"'
    return f'fill="{ink(box.fill)}"' + (clear if box.kind is Kind.W else "")


def _label(box: Box, at: Place) -> str:
    x, y = at.x(box.x + box.width / 2), at.y(box.y + box.height / 2) + 4
    return f'<text x="{_px(x)}" y="{_px(y)}">{box.label}</text>'


def device_names(devices: int, at: Place) -> Iterator[str]:
    """On the left of each row, or of every fourth where rows are low."""
    every = 1 if at.row >= 12 else 4
    for device in range(0, devices, every):
        yield text(at.left - 8, at.y(device + 0.5) + 4, f"device {device}", "end")


def _critical(timeline: Timeline, at: Place) -> Iterator[str]:
    """The boxes of the critical path, framed; of an overlapped pair both halves."""
    chain = set(explain.critical_path(timeline))
    yield _frame("".join(_outline(box, at) for box in boxes(timeline) if box.span in chain))


def _frame(outline: str) -> str:
    return f'<path d="{outline}" fill="none" stroke="{INK}" stroke-width="2" pointer-events="none"/>'


def _arrows(timeline: Timeline, at: Place) -> Iterator[str]:
    """One arrow per message, between the facing sides of two rows, so that it covers few numbers."""
    for action, source, target, start, end in timeline.messages:
        side = 0.25 if target > source else -0.25
        x, y = at.x(start), at.y(source + 0.5 + side)
        tip = at.x(end), at.y(target + 0.5 - side)
        says = f"{action} from device {source} to {target}, {number(start)}\u2013{number(end)}"
        yield f"<g><title>{says}</title>{_arrow(x, y, *tip)}</g>"


def _arrow(x: float, y: float, tip_x: float, tip_y: float) -> str:
    scale = HEAD / hypot(tip_x - x, tip_y - y)
    along_x, along_y = scale * (tip_x - x), scale * (tip_y - y)
    neck_x, neck_y = tip_x - along_x, tip_y - along_y
    left = f"{_px(neck_x + along_y / 2)} {_px(neck_y - along_x / 2)}"
    right = f"{_px(neck_x - along_y / 2)} {_px(neck_y + along_x / 2)}"
    return (
        f'<path d="M{_px(x)} {_px(y)}L{_px(neck_x)} {_px(neck_y)}" stroke="{INK}" fill="none"/>'
        f'<path d="M{_px(tip_x)} {_px(tip_y)}L{left}L{right}z" fill="{INK}"/>'
    )


def _strips(timeline: Timeline, at: Place, most: int) -> Iterator[str]:
    """In-flight counts as filled steps, one strip per device; ``most`` fills a row, the peak on the right."""
    peaks = peak_in_flight(timeline.schedule)
    scale = (at.row - 4) / max(most, 1)
    right = at.x(timeline.makespan)
    yield from device_names(timeline.schedule.devices, at)
    for device, peak in enumerate(peaks):
        floor, outline = at.y(device + 1) - 2, ""
        for time, count in metrics.in_flight(timeline, device):
            outline += f"H{_px(at.x(time))}V{_px(floor - count * scale)}"
        yield (
            f'<path d="M{_px(at.left)} {_px(floor)}{outline}H{_px(right)}V{_px(floor)}z" '
            f'fill="{IN_FLIGHT_COLOUR}"><title>device {device}: at most {peak} in flight</title></path>'
        )
        yield text(right + 6, floor - 3, str(peak), "start")


def axis(until: Real, at: Place) -> Iterator[str]:
    """The time axis, with ticks where there is room for their numbers."""
    wide = float(until) * at.unit
    yield f'<path d="M{_px(at.left)} {_px(at.top + 1)}h{_px(wide)}" stroke="{FAINT}"/>'
    for time in ticks(until, at_most=max(2, int(wide / 60))):
        x = at.x(time)
        yield f'<path d="M{_px(x)} {_px(at.top + 1)}v4" stroke="{FAINT}"/>'
        yield text(x, at.top + 16, number(time), "middle", colour=FAINT)


def _legend(entries: Sequence[Entry], top: float) -> Iterator[str]:
    x = LEFT
    for kind, colour, words in entries:
        if words == MESSAGE:
            yield _arrow(x - 3, top + 5.5, x + 12, top + 5.5)
        elif words == CRITICAL:
            yield _frame(f"M{_px(x)} {_px(top)}h11v11h-11z")
        elif words.endswith(PHASES):
            yield _dashes(f"M{_px(x + 5.5)} {_px(top - 2)}v15")
        else:
            yield f'<rect x="{_px(x)}" y="{_px(top)}" width="11" height="11" fill="{colour}"/>'
        if kind is Kind.W:
            yield _hatch(f"M{_px(x)} {_px(top)}h11v11h-11z")
        yield text(x + 16, top + 10, words, "start")
        x += _entry_width(words)


def _legend_lines(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """The entries on one line; where that is wider than a chart, each line as full as it can be."""
    line: list[Entry] = []
    for entry in entries:
        if line and _legend_width([*line, entry]) > WIDTH - LEFT:
            yield line
            line = []
        line.append(entry)
    yield line


def _legend_width(entries: Sequence[Entry]) -> float:
    return sum(_entry_width(words) for _, _, words in entries)


def _entry_width(words: str) -> float:
    return 16 + len(words) * CHARACTER + 18


def _title_width(title: str) -> float:
    return len(title) * TITLE_CHARACTER


def text(x: float, y: float, words: str, anchor: str, size: int = 11, colour: str = INK) -> str:
    sized = f' font-size="{size}"' if size != 11 else ""
    return f'<text x="{_px(x)}" y="{_px(y)}" text-anchor="{anchor}" fill="{colour}"{sized}>{words}</text>'


def _px(value: float) -> str:
    """Pixels to a tenth, as short as can be."""
    return f"{value:.1f}".removesuffix(".0")
