"""An SVG page for charts: white, with a time axis, device names, a legend, and the marks that it explains."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from html import escape
from math import hypot
from numbers import Real
from os import PathLike
from typing import NamedTuple

from gpipe_sim.drawing.geometry import PHASES, ticks
from gpipe_sim.drawing.palette import FAINT, INK, PAPER, hatched
from gpipe_sim.errors import require
from gpipe_sim.schedule.actions import Kind
from gpipe_sim.simulation.timeline import number

WIDTH = 840  #: the most pixels that a chart takes from left to right
UNIT = 28  #: the most pixels for one unit of time, so that a short timeline is not blown up
LEFT, RIGHT, LEGEND = 66, 30, 28
LEGEND_LINE = 18  #: from one line of a legend to the next
NUMBER, FINER = 36, 9  #: pixels from one number of the axis to the next, and from one tick to the next
CHARACTER = 5.5  #: pixels per character of words at 11 px
TITLE_CHARACTER = 6.6  #: pixels per character of a title, at 13 px
HEAD = 7  #: pixels from the point of an arrow to its shaft
MESSAGE = "message"
CRITICAL = "critical path"
HATCHED = "weight-gradient"  #: the id of the white lines over a hatched box

Entry = tuple[Kind | None, str, str]  #: an entry of a legend: kind, colour, words


class Place(NamedTuple):
    """Where a chart is on its page, and how large; all in pixels."""

    top: float
    unit: float  #: width of one unit of time
    row: float  #: height of a row
    left: float = LEFT
    gap: float = 0  #: between two rows

    def x(self, time: Real) -> float:
        return self.left + float(time) * self.unit

    def y(self, rows: float) -> float:
        return self.top + rows * self.row + int(rows) * self.gap


class Svg:
    """A drawing: a notebook shows it, ``str`` gives the SVG text, ``save`` writes that to a file.

    A notebook gets it as an image with the words that it ``says``. That is shown in a fresh clone, too, where
    JupyterLab trusts no stored output, and shows an SVG of its own as text.
    """

    def __init__(self, text: str, says: str):
        self.text, self.says = text, says

    def _repr_html_(self) -> str:
        data = b64encode(self.text.encode()).decode()
        return f'<img alt="{escape(self.says)}" src="data:image/svg+xml;base64,{data}">'

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Svg of {self.says}>"

    def save(self, path: str) -> None:
        require("save", path, str | PathLike, "a path, such as 'timeline.svg'")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text)


def sheet(
    parts: Sequence[str], entries: Sequence[Entry], titles: Sequence[str], right: float, bottom: float
) -> Svg:
    """The drawing of these parts, which reach to ``right`` and ``bottom``, with a legend below them."""
    lines = list(_legend_lines(entries))
    below = [part for i, line in enumerate(lines) for part in _legend(line, bottom + 6 + i * LEGEND_LINE)]
    words = *map(_legend_width, lines), *map(_title_width, titles)
    width = max(right, LEFT + max(words)) + RIGHT
    height = bottom + (len(lines) - 1) * LEGEND_LINE + LEGEND
    return document([*_defined(entries), *parts, *below], width, height, "; ".join(titles))


def document(parts: Sequence[str], width: float, height: float, says: str, size: int = 11) -> Svg:
    """The drawing of these parts on white, in a font of ``size`` px; it shrinks on a narrower page."""
    body = "\n".join(parts)
    text = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{px(width)}" height="{px(height)}" '
        f'viewBox="0 0 {px(width)} {px(height)}" style="max-width:100%;height:auto" '
        f'font-family="Helvetica, Arial, sans-serif" font-size="{size}" role="img" '
        f'aria-label="{escape(says)}">\n<rect width="100%" height="100%" fill="{PAPER}"/>\n{body}\n</svg>'
    )
    return Svg(text, says)


def unit_for(until: Real, left: float = LEFT, fill: bool = False) -> float:
    """Pixels for one unit of time, for a chart up to time ``until``: not too wide, or ``fill`` the page."""
    wide = (WIDTH - left - RIGHT) / (float(until) or 1)
    return wide if fill else min(UNIT, wide)


def row_height(devices: int) -> float:
    """The height of a row in pixels; rows are lower if there are many devices."""
    return 24 if devices <= 8 else 18 if devices <= 16 else 12 if devices <= 32 else 8


def every_row(at: Place) -> int:
    """Of how many rows one has room for words."""
    return 1 if at.row >= 12 else 4


def device_names(rows: int, at: Place, each: int = 1) -> Iterator[str]:
    """The device's name on the left of each row that has room; of the first one, if a row has several."""
    for row in range(0, rows, every_row(at)):
        yield text(at.left - 8, at.y(row + 0.5) + 4, f"device {row * each}", "end")


def axis(until: Real, at: Place, *ends: Real) -> Iterator[str]:
    """The time axis, with as many ticks as there is room for their numbers; each of ``ends`` is marked."""
    wide = float(until) * at.unit
    yield f'<path d="M{px(at.left)} {px(at.top + 1)}h{px(wide)}" stroke="{FAINT}"/>'
    taken: list[float] = []
    for time, colour, long in (
        *((end, INK, 6) for end in sorted(ends, reverse=True)),
        *((time, FAINT, 4) for time in ticks(until, at_most=max(2, int(wide / NUMBER)))),
    ):
        x = at.x(time)
        yield f'<path d="M{px(x)} {px(at.top + 1)}v{long}" stroke="{colour}"/>'
        if all(abs(x - other) >= NUMBER for other in taken):
            taken.append(x)
            yield text(x, at.top + 16, number(time), "middle", colour=colour)
    finer = ticks(until, at_most=max(2, int(wide / FINER)))
    lines = "".join(f"M{px(at.x(time))} {px(at.top + 1)}v2" for time in finer)
    yield f'<path d="{lines}" stroke="{FAINT}"/>'


def _legend(entries: Sequence[Entry], top: float) -> Iterator[str]:
    x = LEFT
    for kind, colour, words in entries:
        if words == MESSAGE:
            yield arrow(x - 3, top + 5.5, x + 12, top + 5.5)
        elif words == CRITICAL:
            yield frame(f"M{px(x)} {px(top)}h11v11h-11z")
        elif words.endswith(PHASES):
            yield dashes(f"M{px(x + 5.5)} {px(top - 2)}v15")
        elif colour:
            yield f'<rect x="{px(x)}" y="{px(top)}" width="11" height="11" fill="{colour}"/>'
        if hatched(kind):
            yield hatch(f"M{px(x)} {px(top)}h11v11h-11z")
        yield text(x + 16 if colour else x, top + 10, words, "start")
        x += _entry_width(words)


def _legend_lines(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """The entries, line by line: as many on each as fit into the width of a chart."""
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


def _defined(entries: Sequence[Entry]) -> list[str]:
    """The SVG definition of the hatching, if any entry is hatched."""
    hatching = (
        f'<defs><pattern id="{HATCHED}" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)">'
        f'<path d="M0 0v6" stroke="{PAPER}" stroke-width="1.6"/></pattern></defs>'
    )
    return [hatching] if any(hatched(kind) for kind, _, _ in entries) else []


def hatch(outline: str) -> str:
    """White lines over a box."""
    return f'<path d="{outline}" fill="url(#{HATCHED})" pointer-events="none"/>'


def dashes(lines: str) -> str:
    """Lines between two phases."""
    return f'<path d="{lines}" stroke="{INK}" stroke-dasharray="3 2" fill="none"/>'


def frame(outline: str) -> str:
    """A dark edge round boxes: the critical path."""
    return f'<path d="{outline}" fill="none" stroke="{INK}" stroke-width="2" pointer-events="none"/>'


def arrow(x: float, y: float, tip_x: float, tip_y: float) -> str:
    """A line with an arrowhead: a message."""
    scale = HEAD / hypot(tip_x - x, tip_y - y)
    along_x, along_y = scale * (tip_x - x), scale * (tip_y - y)
    neck_x, neck_y = tip_x - along_x, tip_y - along_y
    left = f"{px(neck_x + along_y / 2)} {px(neck_y - along_x / 2)}"
    right = f"{px(neck_x - along_y / 2)} {px(neck_y + along_x / 2)}"
    return (
        f'<path d="M{px(x)} {px(y)}L{px(neck_x)} {px(neck_y)}" stroke="{INK}" fill="none"/>'
        f'<path d="M{px(tip_x)} {px(tip_y)}L{left}L{right}z" fill="{INK}"/>'
    )


def text(x: float, y: float, words: str, anchor: str, size: int = 11, colour: str = INK) -> str:
    """Words at a place. The caller escapes <, > and &."""
    sized = f' font-size="{size}"' if size != 11 else ""
    return f'<text x="{px(x)}" y="{px(y)}" text-anchor="{anchor}" fill="{colour}"{sized}>{words}</text>'


def px(value: float) -> str:
    """Pixels as text, to a tenth; without the point if they are whole."""
    return f"{value:.1f}".removesuffix(".0")
