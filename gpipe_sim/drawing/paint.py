"""Marks as SVG: areas, lines and labels, each in its place on a page."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from math import hypot
from typing import NamedTuple

import numpy as np

from gpipe_sim.drawing.document import FONT, GROWS, LARGE, css_class, px
from gpipe_sim.drawing.marks import Labels, Lines, Mark, Outline, Scale, Shape, Style
from gpipe_sim.drawing.palette import DOTS, INK, LINES, PAPER
from gpipe_sim.errors import Real

DASHES = {Style.PHASE: "3 2", Style.QUEUE: "1.4 2"}  #: pixels of line and gap
HEAD = 7  #: pixels from the point of an arrow to its shaft
#: In pixels; their ids are the names of the patterns.
PATTERNS = {
    LINES: '<pattern id="lines" width="5" height="5" patternUnits="userSpaceOnUse" '
    f'patternTransform="rotate(45)"><path d="M0 0v5" stroke="{PAPER}" stroke-width="3"/></pattern>',
    DOTS: '<pattern id="dots" width="4" height="4" patternUnits="userSpaceOnUse">'
    f'<circle cx="2" cy="2" r="1.3" fill="{PAPER}"/></pattern>',
}


class Place(NamedTuple):
    """Where a panel is on its page, and how large; all in pixels."""

    top: float
    unit: float  #: width of one unit of time
    row: float  #: height of a row
    left: float

    def x(self, time: Real) -> float:
        return self.left + float(time) * self.unit

    def y(self, rows: float) -> float:
        return self.top + rows * self.row

    @property
    def scale(self) -> Scale:
        return Scale(self.unit, self.row, FONT)


PIXELS = Place(0, 1, 1, 0)  #: where a unit of time and a row are a pixel


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
            drawn = zip((outline_all([path], at) for path in mark.outlines), mark.says, strict=True)
            paths = (f'<path d="{path}"><title>{words}</title></path>' for path, words in drawn if path)
            yield f"<g {look}>{''.join(paths)}</g>"
        else:
            yield f'<path d="{outline_all(mark.outlines, at)}" {look}/>'
    if mark.pattern:
        path = outline_all(mark.outlines, at)
        yield f'<path d="{path}" fill="url(#{mark.pattern})" pointer-events="none"/>'


def _lines(mark: Lines, at: Place, hover: bool) -> Iterator[str]:
    if mark.style is Style.MESSAGE:
        arrows = [(at.x(x), at.y(y), at.x(tip_x), at.y(tip_y)) for (x, y), (tip_x, tip_y) in mark.paths]
        if hover and mark.says:
            for arrow, words in zip(arrows, mark.says, strict=True):
                yield f"<g><title>{words}</title>{arrows_between(arrow)}</g>"
        else:
            yield arrows_between(*arrows)
    elif mark.style is Style.FRAME:
        yield stroke(outline_all(mark.paths, at), Style.FRAME)
    else:  # along time or across lanes
        paths = (
            f"M{px(at.x(x))} {px(at.y(y))}"
            + (f"h{px(at.x(end) - at.x(x))}" if y == floor else f"v{px(at.y(floor) - at.y(y))}")
            for (x, y), (end, floor) in mark.paths
        )
        yield stroke("".join(paths), mark.style)


def _labels(mark: Labels, at: Place) -> Iterator[str]:
    """The labels that fit; those grow in a narrow window that fit into their places even then."""
    if not (shown := mark.shown(at.scale)):
        return
    grows = {label for label in shown if mark.fits(label, at.scale._replace(font=LARGE))}
    some_grow = GROWS if len(grows) < len(shown) else ""
    look = css_class("" if some_grow else GROWS)
    yield f'<g fill="{mark.colour}" text-anchor="middle" pointer-events="none"{look}>'
    for y, row in groupby(shown, key=lambda label: label.y):
        words = [(at.x(label.x), label.words, some_grow if label in grows else "") for label in row]
        yield line_of(words, at.y(y) + 4)
    yield "</g>"


def line_of(words: Iterable[tuple[float, str, str]], y: float) -> str:
    """Words at several places of one line, each with its class."""
    placed = (f'<tspan x="{px(x)}"{css_class(name)}>{each}</tspan>' for x, each, name in words)
    return f'<text y="{px(y)}">{"".join(placed)}</text>'


def outline_all(outlines: Iterable[Outline], at: Place) -> str:
    """One path along the axes, in tenths of pixels; each outline begins relative to the one before it."""
    path: list[str] = []
    begin = 0, 0
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


def _points(corners: Outline, at: Place) -> list[tuple[int, int]]:
    """The corners in tenths of pixels, without those that are none once they are rounded."""
    left, top, unit, row = 10 * at.left, 10 * at.top, 10 * at.unit, 10 * at.row
    if len(corners) == 4:  # a box, of which there are many; NumPy is faster from some ten corners on
        return [(round(left + x * unit), round(top + y * row)) for x, y in corners]
    tenths = np.rint(np.asarray(corners, float) * (unit, row) + (left, top)).astype(int)
    return _turns([(x, y) for x, y in tenths.tolist()])


def _turns(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those points at which an outline turns."""
    points = [point for point, before in zip(points, [points[-1], *points], strict=False) if point != before]
    around = zip([points[-1], *points], points, [*points[1:], *points[:1]], strict=False)
    return [
        here
        for before, here, after in around
        if not (before[0] == here[0] == after[0] or before[1] == here[1] == after[1])
    ]


def _tenths(value: int) -> str:
    whole, tenth = divmod(abs(value), 10)
    return f"{'-' if value < 0 else ''}{whole}" + (f".{tenth}" if tenth else "")


def stroke(path: str, style: Style) -> str:
    dashes = f' stroke-dasharray="{DASHES[style]}"' if style in DASHES else ""
    return (
        f'<path d="{path}" stroke="{INK}" stroke-width="{style.width}"{dashes} fill="none" '
        'pointer-events="none"/>'
    )


def arrows_between(*arrows: tuple[float, float, float, float]) -> str:
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
