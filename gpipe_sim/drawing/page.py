"""A page of SVG: it paints marks, and lays titles, axis and legend around them."""

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from html import escape
from itertools import groupby
from math import hypot
from numbers import Real
from os import PathLike
from typing import NamedTuple

from gpipe_sim.drawing.geometry import rectangle, ticks
from gpipe_sim.drawing.marks import (
    DIGIT,
    FRAME,
    LETTER,
    MESSAGE,
    PHASE,
    Corner,
    Entry,
    Labels,
    Lines,
    Mark,
    Name,
    Panel,
    Scale,
    Shape,
    Style,
)
from gpipe_sim.drawing.palette import DARK, DOTS, FAINT, INK, LINES, ON_DARK, PAPER, Look
from gpipe_sim.errors import require
from gpipe_sim.simulation.timeline import Timeline, number

WIDTH = 700  #: the most pixels that a chart takes from left to right
UNIT = 28  #: the most pixels for one unit of time, so that a timeline of few actions is not blown up
FONT, TITLE_FONT = 12, 14
#: In a window so narrow that the page shrinks below this part of its width, words grow where they have room.
SHRUNK, LARGE, TITLE_LARGE = 0.68, 17, 20
GROWS, TITLE_GROWS = "n", "t"  #: the classes of these words
LEFT, RIGHT = 84, 24
TITLE, CAPTION, AXIS = 26, 17, 26  #: pixels of the lines above a panel, and of the axis below
BOLD = 1.08  #: how much wider bold letters are
LEGEND_LINE, SWATCH = 19, 12  #: from one line of a legend to the next, and the side of a swatch
NUMBER, FINER = 34, 9  #: pixels from one number of the axis to the next, and from one tick to the next
HEAD = 7  #: pixels from the point of an arrow to its shaft
DARKER = "".join(
    f'[{what}="{light}"]{{{what}:{dark}}}' for light, dark in DARK.items() for what in ("fill", "stroke")
)
#: In pixels; their ids are the names of the patterns.
PATTERNS = {
    LINES: '<pattern id="lines" width="5" height="5" patternUnits="userSpaceOnUse" '
    f'patternTransform="rotate(45)"><path d="M0 0v5" stroke="{ON_DARK}" stroke-width="3"/></pattern>',
    DOTS: '<pattern id="dots" width="4" height="4" patternUnits="userSpaceOnUse">'
    f'<circle cx="2" cy="2" r="1.3" fill="{ON_DARK}"/></pattern>',
}


class Place(NamedTuple):
    """Where a panel is on its page, and how large; all in pixels."""

    top: float
    unit: float  #: width of one unit of time
    row: float  #: height of a row
    left: float = LEFT

    def x(self, time: Real) -> float:
        return self.left + float(time) * self.unit

    def y(self, rows: float) -> float:
        return self.top + rows * self.row

    @property
    def scale(self) -> Scale:
        return Scale(self.unit, self.row, FONT)


PIXELS = Place(0, 1, 1, 0)  #: where a unit of time and a row are a pixel


class Svg:
    """A drawing: a notebook shows it, ``str`` gives the SVG text, ``save`` writes that to a file.

    A notebook gets it as an image with the words that it ``says``. That is shown in a fresh clone, too, where
    JupyterLab trusts no stored output, and shows an SVG of its own as text. An image has no hover and knows
    no theme, so it leaves out both; a saved file has them.
    """

    def __init__(
        self, parts: Callable[[bool], Iterator[str]], size: tuple[float, float], says: str, more: str = ""
    ):
        self._parts, self.size, self.says, self.more = parts, size, says, more

    @cached_property
    def text(self) -> str:
        """The file: with words under the mouse and for screen readers, dark for who prefers dark pages."""
        style = f"<style>@media(prefers-color-scheme:dark){{{DARKER}}}</style>"
        more = f"<desc>{escape(self.more)}</desc>" if self.more else ""
        return self._written([f"<title>{escape(self.says)}</title>{more}", style], hover=True)

    def _written(self, head: Sequence[str], hover: bool) -> str:
        width, height = map(px, self.size)
        grown = f".{GROWS}{{font-size:{LARGE}px}}.{TITLE_GROWS}{{font-size:{TITLE_LARGE}px}}"
        style = f"<style>@media(max-width:{px(SHRUNK * self.size[0])}px){{{grown}}}</style>"
        ground = f'<rect width="100%" height="100%" rx="6" fill="{PAPER}"/>'
        body = "\n".join([*head, style, ground, *self._parts(hover)])
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" style="max-width:100%;height:auto" '
            f'font-family="Helvetica, Arial, sans-serif" font-size="{FONT}" role="img">\n{body}\n</svg>'
        )

    def _repr_html_(self) -> str:
        data = b64encode(self._written([], hover=False).encode()).decode()
        return f'<img alt="{escape(self.says)}" src="data:image/svg+xml;base64,{data}">'

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Svg of {self.says}>"

    def save(self, path: str | PathLike) -> None:
        """Write the file. TypeError for anything but a path; OSError where none can be written."""
        require("save", path, str | PathLike, "a path, such as 'timeline.svg'")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text)


class Laid(NamedTuple):
    """A panel on its page, with the lines above it; ``ends`` are marked on the axis below it."""

    panel: Panel
    at: Place
    title: str
    caption: str = ""
    until: Real = 0
    ends: Sequence[Real] = ()


def sheet(laid: Sequence[Laid], entries: Sequence[Entry], right: float, says: str, more: str = "") -> Svg:
    """The page of these panels, which reach to ``right``, with a legend below them."""
    last = laid[-1]
    bottom = last.at.y(last.panel.height) + (AXIS if last.ends else 0)
    lines = list(_legend_lines(entries))
    words = [_room(each.title, TITLE_FONT * BOLD, TITLE_LARGE * BOLD) for each in laid]
    words += [_room(each.caption, FONT, LARGE) for each in laid]
    width = max(right, LEFT + max([*map(_legend_width, lines), *words])) + RIGHT
    height = bottom + len(lines) * LEGEND_LINE + 14

    def parts(hover: bool) -> Iterator[str]:
        used = {mark.pattern for each in laid for mark in each.panel.marks if isinstance(mark, Shape)} - {""}
        if used:
            yield f"<defs>{''.join(PATTERNS[pattern] for pattern in sorted(used))}</defs>"
        for each in laid:
            yield from _panel(each, hover)
        for i, line in enumerate(lines):
            yield from _legend(line, bottom + 6 + i * LEGEND_LINE)

    return Svg(parts, (width, height), says, more)


def above(title: str, caption: str) -> float:
    """Pixels of the lines above a panel: of the first, whichever it is, and of a caption below a title."""
    first = TITLE if title or caption else 0
    return first + (CAPTION if title and caption else 0)


def unit_for(timelines: Sequence[Timeline], fill: bool, left: float = LEFT, right: float = RIGHT) -> float:
    """Pixels for one unit of time, so that the longest timeline fits; with ``fill``, it takes all the room.

    Otherwise a unit takes at most ``UNIT`` pixels; if every action is shorter than that, as in a step that
    was measured in seconds, the longest action does.
    """
    wide = (WIDTH - left - right) / (float(max(each.makespan for each in timelines)) or 1)
    longest = max(float((each.end - each.start).max()) for each in timelines)
    return wide if fill else min(UNIT / (min(1, longest) or 1), wide)


def row_height(devices: int) -> float:
    """The height of a row in pixels; rows are lower if there are many devices."""
    return 24 if devices <= 8 else 18 if devices <= 16 else 12 if devices <= 32 else 8


def words_wide(words: str, font: float = FONT) -> float:
    return len(words) * LETTER * font


def _room(words: str, font: float, large: float) -> float:
    """The width that a line takes: enough for it to grow, if the page is wide enough for that."""
    return words_wide(words, large if _grows(words, large) else font)


def _grows(words: str, large: float) -> bool:
    return LEFT + words_wide(words, large) <= WIDTH - RIGHT


def _panel(laid: Laid, hover: bool) -> Iterator[str]:
    panel, at = laid.panel, laid.at
    if laid.title:
        line, grows = at.top - (CAPTION if laid.caption else 0) - 9, _grows(laid.title, TITLE_LARGE * BOLD)
        look = {"size": TITLE_FONT, "bold": True, "grows": TITLE_GROWS if grows else ""}
        yield text(LEFT, line, escape(laid.title), "start", **look)
    if laid.caption:
        grows = GROWS if _grows(laid.caption, LARGE) else ""
        yield text(LEFT, at.top - 8, escape(laid.caption), "start", colour=FAINT, grows=grows)
    for mark in panel.marks:
        yield from paint(mark, at, hover)
    yield from _names(panel.names, at.left - 8, at, "end")
    yield from _names(panel.peaks, at.x(laid.until) + 6, at, "start")
    if laid.ends:
        floor = at._replace(top=at.y(panel.height))
        yield text(at.left - 8, floor.top + 18, "time", "end", colour=FAINT, grows=GROWS)
        yield from axis(max(laid.ends), floor, *laid.ends)


def _names(names: Sequence[Name], x: float, at: Place, anchor: str) -> Iterator[str]:
    for (size, colour), alike in groupby(names, key=lambda name: (name.size, name.colour)):
        words = "".join(f'<text x="{px(x)}" y="{px(at.y(name.y) + 4)}">{name.words}</text>' for name in alike)
        look = _sized(size) or _class(GROWS if at.row >= LARGE else "")
        yield f'<g text-anchor="{anchor}" fill="{colour}"{look}>{words}</g>'


# Marks


def paint(mark: Mark, at: Place, hover: bool) -> Iterator[str]:
    """One mark in pixels; ``hover`` adds what it says under the mouse."""
    if isinstance(mark, Shape):
        yield from _shape(mark, at, hover)
    elif isinstance(mark, Lines):
        yield from _lines(mark, at, hover)
    else:
        yield from _labels(mark, at)


def _shape(mark: Shape, at: Place, hover: bool) -> Iterator[str]:
    if mark.fill:
        edge = f' stroke="{PAPER}" stroke-width="0.8"' if mark.edged else ""
        pale = f' fill-opacity="{mark.opaque}"' if mark.opaque < 1 else ""
        look = f'fill="{mark.fill}"{pale}{edge}'
        if hover and mark.says:
            drawn = zip((outline(path, at) for path in mark.outlines), mark.says, strict=True)
            paths = (f'<path d="{path}"><title>{words}</title></path>' for path, words in drawn if path)
            yield f"<g {look}>{''.join(paths)}</g>"
        else:
            yield f'<path d="{outline_all(mark.outlines, at)}" {look}/>'
    if mark.pattern:
        path = outline_all(mark.outlines, at)
        yield f'<path d="{path}" fill="url(#{mark.pattern})" pointer-events="none"/>'


def _lines(mark: Lines, at: Place, hover: bool) -> Iterator[str]:
    if mark.style is MESSAGE:
        arrows = [(at.x(x), at.y(y), at.x(tip_x), at.y(tip_y)) for (x, y), (tip_x, tip_y) in mark.paths]
        if hover and mark.says:
            for arrow, words in zip(arrows, mark.says, strict=True):
                yield f"<g><title>{words}</title>{_arrows(arrow)}</g>"
        else:
            yield _arrows(*arrows)
    elif mark.style is FRAME:
        yield _stroke(outline_all(mark.paths, at), FRAME)
    else:
        paths = (f"M{px(at.x(x))} {px(at.y(y))}v{px(at.y(end) - at.y(y))}" for (x, y), (_, end) in mark.paths)
        yield _stroke("".join(paths), mark.style)


def _labels(mark: Labels, at: Place) -> Iterator[str]:
    """The labels that fit; those grow in a narrow window that fit into their places even then."""
    if not (shown := mark.shown(at.scale)):
        return
    grows = {label for label in shown if mark.fits(label, at.scale._replace(font=LARGE))}
    all_grow = len(grows) == len(shown)
    look = _class(GROWS if all_grow else "")
    yield f'<g fill="{mark.colour}" text-anchor="middle" pointer-events="none"{look}>'
    for y, row in groupby(shown, key=lambda label: label.y):
        words = [
            (at.x(label.x), label.words, GROWS if label in grows and not all_grow else "") for label in row
        ]
        yield _line_of(words, at.y(y) + 4)
    yield "</g>"


def _line_of(words: Iterable[tuple[float, str, str]], y: float) -> str:
    """Words at several places of one line, each with its class."""
    placed = (f'<tspan x="{px(x)}"{_class(name)}>{each}</tspan>' for x, each, name in words)
    return f'<text y="{px(y)}">{"".join(placed)}</text>'


def outline(corners: Sequence[Corner], at: Place) -> str:
    return outline_all([corners], at)


def outline_all(outlines: Iterable[Sequence[Corner]], at: Place) -> str:
    """One path along the axes, in tenths of pixels; each outline begins relative to the one before it."""
    path, begin = [], (0, 0)
    for corners in outlines:
        points = _points(corners, at)
        if len(points) < 3:
            continue
        (x, y), *others = points
        path.append(f"{'m' if path else 'M'}{_tenths(x - begin[0])} {_tenths(y - begin[1])}")
        begin = x, y
        for to_x, to_y in others:
            path.append(f"v{_tenths(to_y - y)}" if to_x == x and to_y != y else f"h{_tenths(to_x - x)}")
            x, y = to_x, to_y
        path.append("z")
    return "".join(path)


def _points(corners: Sequence[Corner], at: Place) -> list[tuple[int, int]]:
    """The corners in tenths of pixels, without those that are none once they are rounded."""
    left, top, unit, row = 10 * at.left, 10 * at.top, 10 * at.unit, 10 * at.row
    points = [(round(left + x * unit), round(top + y * row)) for x, y in corners]
    return _turns(points) if len(points) > 4 else points


def _turns(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those points at which an outline turns."""
    points = [point for point, before in zip(points, [points[-1], *points], strict=False) if point != before]
    return [
        here
        for before, here, after in zip(
            [points[-1], *points], points, [*points[1:], *points[:1]], strict=False
        )
        if not (before[0] == here[0] == after[0] or before[1] == here[1] == after[1])
    ]


def _tenths(value: int) -> str:
    whole, tenth = divmod(abs(value), 10)
    return f"{'-' if value < 0 else ''}{whole}" + (f".{tenth}" if tenth else "")


def _stroke(path: str, style: Style) -> str:
    dashes = ' stroke-dasharray="3 2"' if style is PHASE else ""
    return (
        f'<path d="{path}" stroke="{INK}" stroke-width="{style.width}"{dashes} fill="none" '
        'pointer-events="none"/>'
    )


def _arrows(*arrows: tuple[float, float, float, float]) -> str:
    """Lines with arrowheads: messages."""
    shafts, heads = zip(*(_arrow(*each) for each in arrows), strict=True)
    return (
        f'<path d="{"".join(shafts)}" stroke="{INK}" fill="none"/><path d="{"".join(heads)}" fill="{INK}"/>'
    )


def _arrow(x: float, y: float, tip_x: float, tip_y: float) -> tuple[str, str]:
    scale = HEAD / hypot(tip_x - x, tip_y - y)
    along_x, along_y = scale * (tip_x - x), scale * (tip_y - y)
    neck_x, neck_y = tip_x - along_x, tip_y - along_y
    left = f"{px(neck_x + along_y / 2)} {px(neck_y - along_x / 2)}"
    right = f"{px(neck_x - along_y / 2)} {px(neck_y + along_x / 2)}"
    shaft = f"M{px(x)} {px(y)}L{px(neck_x)} {px(neck_y)}"
    return shaft, f"M{px(tip_x)} {px(tip_y)}L{left}L{right}z"


# Around the marks


def axis(until: Real, at: Place, *ends: Real) -> Iterator[str]:
    """The time axis, with as many ticks as there is room for their numbers; each of ``ends`` is marked."""
    wide = float(until) * at.unit
    numbered, finer = _numbered(until, wide), ticks(until, at_most=max(2, int(wide / FINER)))
    ground = f"M{px(at.left)} {px(at.top + 1)}h{px(wide)}"
    yield f'<path d="{ground}{_ticks(finer, at, 2)}{_ticks(numbered, at, 4)}" stroke="{FAINT}"/>'
    yield f'<path d="{_ticks(ends, at, 6)}" stroke="{INK}"/>'
    taken: list[tuple[float, str]] = []
    for times, look in (
        (sorted(ends, reverse=True), f'fill="{INK}" font-weight="bold"'),
        (numbered, f'fill="{FAINT}"'),
    ):
        words = []
        for time in times:
            x, said = at.x(time), number(time)
            if all(abs(x - other) >= _apart(said, beside) for other, beside in taken):
                taken.append((x, said))
                words.append((x, said, ""))
        yield f'<g text-anchor="middle" {look}{_class(GROWS)}>{_line_of(words, at.top + 18)}</g>'


def _numbered(until: Real, wide: float) -> list[Real]:
    """Round times on an axis of so many pixels, further apart where their numbers are long."""
    found = ticks(until, at_most=max(2, int(wide / NUMBER)))
    longest = max(map(number, found), key=len)
    return ticks(until, at_most=max(2, int(wide / _apart(longest, longest))))


def _apart(left: str, right: str) -> float:
    """Pixels between the middles of two numbers on an axis, at least."""
    return max(NUMBER, ((len(left) + len(right)) / 2 * DIGIT + 0.5) * FONT)


def _ticks(times: Sequence[Real], at: Place, long: int) -> str:
    return "".join(f"M{px(at.x(time))} {px(at.top + 1)}v{long}" for time in times)


def _legend(entries: Sequence[Entry], top: float) -> Iterator[str]:
    x = float(LEFT)
    for entry in entries:
        if isinstance(entry.swatch, Style):
            yield _line_swatch(entry.swatch, x, top)
        elif entry.swatch:
            yield from _swatch(entry.swatch, x, top)
        left = x + (SWATCH + 5 if entry.swatch else 0)
        yield text(left, top + 10, escape(entry.words), "start", grows=GROWS)
        x += _entry_width(entry)


def _swatch(look: Look, x: float, top: float) -> Iterator[str]:
    square = _square(x, top)
    yield f'<path d="{outline(square, PIXELS)}" fill="{look.colour}"/>'
    if look.pattern:
        band = _square(x, top + SWATCH * (1 - max(look.band, 0.5)), SWATCH * max(look.band, 0.5))
        yield f'<path d="{outline(band, PIXELS)}" fill="url(#{look.pattern})"/>'


def _square(x: float, top: float, height: float = SWATCH) -> list[Corner]:
    return rectangle(x, top, x + SWATCH, top + height)


def _line_swatch(style: Style, x: float, top: float) -> str:
    if style is MESSAGE:
        return _arrows((x - 3, top + SWATCH / 2, x + SWATCH + 1, top + SWATCH / 2))
    if style is FRAME:
        return _stroke(outline(_square(x, top), PIXELS), style)
    return _stroke(f"M{px(x + SWATCH / 2)} {px(top - 2)}v{SWATCH + 4}", style)


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
    return sum(map(_entry_width, entries))


def _entry_width(entry: Entry) -> float:
    return (SWATCH + 5 if entry.swatch else 0) + words_wide(entry.words, LARGE) + 15


def text(
    x: float,
    y: float,
    words: str,
    anchor: str,
    size: int = FONT,
    colour: str = INK,
    bold: bool = False,
    grows: str = "",
) -> str:
    """Words at a place; ``grows`` is their class in a narrow window. The caller escapes <, > and &."""
    look = _sized(size) + (' font-weight="bold"' if bold else "") + _class(grows)
    return f'<text x="{px(x)}" y="{px(y)}" text-anchor="{anchor}" fill="{colour}"{look}>{words}</text>'


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _sized(size: int) -> str:
    return f' font-size="{size}"' if size != FONT else ""


def px(value: float) -> str:
    """Pixels as text, to a tenth; without the point if they are whole."""
    return f"{value:.1f}".removesuffix(".0")
