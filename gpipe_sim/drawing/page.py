"""A page of SVG: panels below each other, and around them titles, axes and a legend."""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from textwrap import wrap
from typing import NamedTuple

from gpipe_sim.core.timeline import Timeline, number
from gpipe_sim.drawing.document import (
    FONT,
    GROWS,
    HEADLINE,
    LARGE,
    WORDS,
    Font,
    Svg,
    css_class,
    font_size,
    px,
    text,
    words_wide,
)
from gpipe_sim.drawing.geometry import rectangle, ticks
from gpipe_sim.drawing.marks import DIGIT, Corner, Entry, Lines, Name, Panel, Shape, Style, in_grey, legend
from gpipe_sim.drawing.paint import PATTERNS, PIXELS, Place, line_of, outline_all, paint
from gpipe_sim.drawing.palette import FAINT, INK, Look
from gpipe_sim.errors import Real, require_in

WIDTH = 850  #: the most pixels that a chart takes from left to right
UNIT = 28  #: the most pixels for one unit of time, so that a timeline of few actions is not blown up
LEFT, RIGHT = 84, 24
NARROWEST, MARGIN = 20, 10  #: a width that is asked for, in sizes of its font; what is left of words in it
EDGE = 6  #: pixels above the first title
TITLE, CAPTION, AXIS = 26, 17, 26  #: pixels of the lines above a panel, and of the axis below
LEGEND_LINE, SWATCH = 19, 12  #: from one line of a legend to the next, and the side of a swatch
NUMBER, FINER = 34, 9  #: pixels from one number of the axis to the next, and from one tick to the next


class Sheet(NamedTuple):
    """The width of a page, in pixels before it is drawn ``scale`` times as large, and whether it is ``grey``.

    Without a scale nobody asked for this width: a page may be wider or less wide, and its words may grow.
    """

    width: float = WIDTH
    scale: float | None = None
    grey: bool = False

    @property
    def left(self) -> float:
        """Where words begin: at the lanes, or at the edge of a page that is narrow."""
        return LEFT if self.width >= WIDTH else MARGIN

    def wrapped(self, words: str, font: Font, more: float = 0) -> str:
        """The words, in as many lines as they need on a page of a width that was asked for."""
        if self.scale is None:
            return words
        room = self.width - self.left - MARGIN - more
        return "\n".join(line for part in words.split("\n") for line in wrap(part, _letters(room, font)))


def read_sheet(owner: str, width: float | None, font_size: float | None) -> Sheet:
    """The page that is asked for; TypeError or ValueError for what is no size."""
    if width is None and font_size is None:
        return Sheet()
    letters = float(require_in(owner, "font_size", FONT if font_size is None else font_size, 4, 100))
    wide = require_in(owner, "width", WIDTH if width is None else width, NARROWEST * letters, 10_000)
    return Sheet(float(wide) * FONT / letters, letters / FONT)


class Laid(NamedTuple):
    """A panel on its page, with the lines above it; ``ends`` are marked on the axis below it."""

    panel: Panel
    at: Place
    title: str
    caption: str = ""
    until: Real = 0
    ends: Sequence[Real] = ()

    @property
    def floor(self) -> float:
        """Where the next panel, or the legend, begins."""
        return self.at.y(self.panel.height) + (AXIS if self.ends else 0)


def sheet(laid: Sequence[Laid], right: float, says: str, more: str = "", page: Sheet = Sheet()) -> Svg:  # noqa: B008
    """The page of these panels, which reach to ``right``, with a legend below them."""
    bottom = laid[-1].floor
    laid = [each._replace(panel=in_grey(each.panel)) for each in laid] if page.grey else laid
    lines = list(_legend_lines(legend((each.panel, each.at.scale) for each in laid), page))
    words = [_room(each.title, HEADLINE) for each in laid] + [_room(each.caption, WORDS) for each in laid]
    widths = (_legend_width(line, page) for line in lines)
    width = max(right, LEFT + max([*widths, *words])) + RIGHT if page.scale is None else page.width
    height = bottom + len(lines) * LEGEND_LINE + 14

    def parts(hover: bool) -> Iterator[str]:
        used = {mark.pattern for each in laid for mark in each.panel.marks if isinstance(mark, Shape)} - {""}
        if used:
            yield f"<defs>{''.join(PATTERNS[pattern] for pattern in sorted(used))}</defs>"
        for each in laid:
            yield from _panel(each, hover, page.left)
        for i, line in enumerate(lines):
            yield from _legend(line, bottom + 6 + i * LEGEND_LINE, page)

    return Svg(parts, (width, height), says, more, page.scale, dark=not page.grey)


def above(title: str, caption: str) -> float:
    """Pixels of the lines above a panel: of the first, whichever it is, and of the others below it."""
    lines = len(title.splitlines()) + len(caption.splitlines())
    return TITLE + CAPTION * (lines - 1) if lines else 0


def unit_for(
    timelines: Sequence[Timeline], fill: bool, left: float = LEFT, right: float = RIGHT, width: float = WIDTH
) -> float:
    """Pixels for one unit of time, so that the longest timeline fits; with ``fill``, it takes all the room.

    Otherwise a unit takes at most ``UNIT`` pixels; if every action is shorter than that, as in a step that
    was measured in seconds, the longest action does.
    """
    wide = (width - left - right) / (float(max(each.makespan for each in timelines)) or 1)
    longest = max(float((each.end - each.start).max()) for each in timelines)
    return wide if fill else min(UNIT / (min(1, longest) or 1), wide)


def row_height(devices: int) -> float:
    """The height of a row in pixels; rows are lower if there are many devices."""
    return 24 if devices <= 8 else 18 if devices <= 16 else 12 if devices <= 32 else 8


def _room(words: str, font: Font) -> float:
    """The width that a line takes: enough for it to grow, if the page is wide enough for that."""
    return words_wide(words, font.wide * (font.large if _grows(words, font) else font.size))


def _grows(words: str, font: Font) -> str:
    """The class of words that have room to grow."""
    return font.grows if LEFT + words_wide(words, font.large * font.wide) <= WIDTH - RIGHT else ""


def _letters(room: float, font: Font) -> int:
    """How many letters there is room for."""
    return int(room / words_wide("n", font.size * font.wide))


def _panel(laid: Laid, hover: bool, left: float) -> Iterator[str]:
    panel, at = laid.panel, laid.at
    titles, captions = laid.title.splitlines(), laid.caption.splitlines()
    for i, words in enumerate(titles):
        line, grows = at.top - CAPTION * (len(captions) + len(titles) - 1 - i) - 9, _grows(words, HEADLINE)
        yield text(left, line, escape(words), "start", HEADLINE.size, bold=True, grows=grows)
    for i, words in enumerate(captions):
        line, grows = at.top - CAPTION * (len(captions) - 1 - i) - 8, _grows(words, WORDS)
        yield text(left, line, escape(words), "start", colour=FAINT, grows=grows)
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
        look = font_size(size) or css_class(GROWS if at.row >= LARGE else "")
        yield f'<g text-anchor="{anchor}" fill="{colour}"{look}>{words}</g>'


def axis(until: Real, at: Place, *ends: Real) -> Iterator[str]:
    """The time axis, with as many ticks as there is room for their numbers; each of ``ends`` is marked."""
    wide = float(until) * at.unit
    numbered, finer = _numbered(until, wide), ticks(until, at_most=max(2, int(wide / FINER)))
    ground = f"M{px(at.left)} {px(at.top + 1)}h{px(wide)}"
    yield f'<path d="{ground}{_ticks(finer, at, 2)}{_ticks(numbered, at, 4)}" stroke="{FAINT}"/>'
    yield f'<path d="{_ticks(ends, at, 6)}" stroke="{INK}"/>'
    taken: list[tuple[float, str, str]] = []
    bold = f'fill="{INK}" font-weight="bold"'
    for times, look in ((sorted(ends, reverse=True), bold), (numbered, f'fill="{FAINT}"')):
        before = len(taken)
        for x, said in ((at.x(time), number(time)) for time in times):
            if all(abs(x - other) >= _apart(said, beside) for other, beside, _ in taken):
                taken.append((x, said, ""))
        yield f'<g text-anchor="middle" {look}{css_class(GROWS)}>{line_of(taken[before:], at.top + 18)}</g>'


def _numbered(until: Real, wide: float) -> list[float]:
    """Round times on an axis of so many pixels, further apart where their numbers are long."""
    found = ticks(until, at_most=max(2, int(wide / NUMBER)))
    longest = max(map(number, found), key=len)
    return ticks(until, at_most=max(2, int(wide / _apart(longest, longest))))


def _apart(left: str, right: str) -> float:
    """Pixels between the middles of two numbers on an axis, at least."""
    return max(NUMBER, ((len(left) + len(right)) / 2 * DIGIT + 0.5) * FONT)


def _ticks(times: Sequence[Real], at: Place, long: int) -> str:
    return "".join(f"M{px(at.x(time))} {px(at.top + 1)}v{long}" for time in times)


def _legend(entries: Sequence[Entry], top: float, page: Sheet) -> Iterator[str]:
    x = float(page.left)
    for entry in entries:
        if isinstance(entry.swatch, Style):
            yield from _line_swatch(entry.swatch, x, top)
        elif entry.swatch:
            yield from _swatch(entry.swatch, x, top)
        left = x + (SWATCH + 5 if entry.swatch else 0)
        yield text(left, top + 10, escape(entry.words), "start", grows=GROWS)
        x += _entry_width(entry, page)


def _swatch(look: Look, x: float, top: float) -> Iterator[str]:
    yield from paint(Shape([_square(x, top)], look.colour), PIXELS, hover=False)
    if look.pattern:
        band = _square(x, top + SWATCH * (1 - max(look.band, 0.5)), SWATCH * max(look.band, 0.5))
        yield f'<path d="{outline_all([band], PIXELS)}" fill="url(#{look.pattern})"/>'


def _square(x: float, top: float, height: float = SWATCH) -> list[Corner]:
    return rectangle(x, top, x + SWATCH, top + height)


def _line_swatch(style: Style, x: float, top: float) -> Iterator[str]:
    middle, y = x + SWATCH / 2, top + SWATCH / 2
    path = {
        Style.FRAME: _square(x, top),
        Style.MESSAGE: [(x - 3, y), (x + SWATCH + 1, y)],
        Style.PHASE: [(middle, top - 2), (middle, top + SWATCH + 2)],
        Style.QUEUE: [(x, y), (x + SWATCH, y)],
        Style.JOINED: [(middle, top - 2), (middle, top + SWATCH + 2)],
    }[style]
    return paint(Lines([path], style), PIXELS, hover=False)


def _legend_lines(entries: Sequence[Entry], page: Sheet) -> Iterator[Sequence[Entry]]:
    """The entries, line by line: as many on each as fit into the width of a chart."""
    line: list[Entry] = []
    for entry in entries:
        first, *more = page.wrapped(entry.words, WORDS, SWATCH + 20).split("\n")
        for part in (entry._replace(words=first), *(Entry(entry.rank, words) for words in more)):
            if line and _legend_width([*line, part], page) > page.width - page.left:
                yield line
                line = []
            line.append(part)
    yield line


def _legend_width(entries: Sequence[Entry], page: Sheet) -> float:
    return sum(_entry_width(entry, page) for entry in entries)


def _entry_width(entry: Entry, page: Sheet) -> float:
    words = words_wide(entry.words, LARGE if page.scale is None else FONT)
    return (SWATCH + 5 if entry.swatch else 0) + words + 15
