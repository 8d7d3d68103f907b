"""Read a chart back: what it says, learnt from the drawing alone."""

import re
from base64 import b64decode
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from functools import cache
from itertools import groupby, pairwise
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation

from figures._store import module, read
from gpipe_sim.drawing.geometry import LANE_HIGH, Rows
from gpipe_sim.drawing.marks import Style
from gpipe_sim.drawing.palette import FAINT, INK, LANE, MEMORY
from gpipe_sim.drawing.plots.gantt import HATCH, Fitting

SVG = "{http://www.w3.org/2000/svg}"
OUTLINE = re.compile(r"M(\S+) (\S+)h(\S+)v(\S+)h-?(\S+)z")
Point = tuple[float, float]


class Drawn(NamedTuple):
    """A box as the eye sees it. ``top`` and ``bottom`` are the part of its device's row that it takes."""

    device: int
    start: float
    end: float
    top: float
    bottom: float
    colour: str
    title: str | None = None


class Look(NamedTuple):
    """How an area is filled: a colour, so opaque, or a pattern."""

    colour: str
    opaque: float = 1.0
    pattern: str = ""


class Word(NamedTuple):
    """Words where they stand; ``anchor`` says which end of them is there."""

    words: str
    x: float
    y: float
    anchor: str = "middle"
    colour: str = INK
    size: float = 12
    bold: bool = False


class Chart(NamedTuple):
    """One panel of a drawing: x in units of its time axis, y in rows from its top, areas from back to front.

    ``areas`` are looks with the corners of each outline; frames are their corners; other lines go from one
    point to another; ``legend`` has the look of each entry, or the name of its line.
    """

    title: str
    caption: str
    names: list[str]
    peaks: list[str]
    areas: list[tuple[Look, list[list[Point]]]]
    frames: list[list[Point]]
    dashes: list[tuple[Point, Point]]
    arrows: list[tuple[Point, Point]]
    words: list[Word]
    legend: dict[str, Look | str | None]
    unit: float  #: pixels or points of a unit of time
    row: float  #: and of a row
    rows: float  #: how many of them the panel is high
    queues: list[tuple[Point, Point]]  #: dotted lines

    def outlines(self, *colours: str) -> list[list[Point]]:
        """All outlines in these colours, whatever their opacity; patterns left out."""
        wanted = [colour.lower() for colour in colours]
        return [each for look, some in self.areas if look.colour in wanted for each in some]

    @property
    def wide(self) -> float:
        return self.unit * max(bounds(lane)[2] for lane in self.lanes)

    @property
    def high(self) -> float:
        return self.row * self.rows

    @property
    def lanes(self) -> list[list[Point]]:
        return self.outlines(LANE)


@cache
def committed(name: str) -> Figure:
    """The figure of this name, drawn from its committed numbers: once for every test that reads it."""
    return module(name).draw(read(name))


def bubble(boxes: Iterable[Drawn]) -> Fraction:
    """What shows of the lanes: 1 - coloured area, with each box taken as high as its row."""
    boxes = [box for box in boxes if box.end > box.start]
    devices, until = 1 + max(box.device for box in boxes), Fraction(max(box.end for box in boxes))
    return 1 - sum(Fraction(box.end) - Fraction(box.start) for box in boxes) / (devices * until)


def area(corners: Iterable[Point]) -> float:
    """Of an outline, by the shoelace formula."""
    corners = list(corners)
    twice = sum(x * next_y - next_x * y for (x, y), (next_x, next_y) in pairwise([*corners, corners[0]]))
    return abs(twice) / 2


def bounds(corners: Iterable[Point]) -> tuple[float, float, float, float]:
    """(left, top, right, bottom)."""
    xs, ys = zip(*corners, strict=True)
    return min(xs), min(ys), max(xs), max(ys)


# matplotlib


def boxes_in(ax: Axes) -> list[Drawn]:
    """The boxes of a Gantt chart in matplotlib axes, without what devices hold below their lanes."""
    shapes = [each for each in ax.collections if isinstance(each, PolyCollection) and not each.get_hatch()]
    lanes, *others = ([bounds(path.vertices.tolist()) for path in each.get_paths()] for each in shapes)
    no_work = {LANE, *(look.colour.lower() for look in MEMORY.values())}
    boxes = []
    for shape, places in zip(shapes[1:], others, strict=True):
        if (colour := _look(shape).colour) not in no_work:
            for left, top, right, bottom in places:
                middle = (top + bottom) / 2
                device = next(k for k, lane in enumerate(lanes) if lane[1] <= middle <= lane[3])
                boxes.append(Drawn(device, left, right, top % 1, (bottom - 1e-9) % 1, colour))
    return boxes


def chart_in(ax: Axes) -> Chart:
    """A Gantt chart in matplotlib axes; of words, those that fit."""
    notes = [text for text in ax.texts if isinstance(text, Annotation)]
    lines = [each for each in ax.collections if isinstance(each, LineCollection)]
    broken = [each for each in lines if each.get_linestyle()[0][1] is not None]
    dotted = [each for each in broken if np.ptp(each.get_segments()[0][:, 1]) == 0]  # along time
    dashed = [each for each in broken if each not in dotted]
    fitting = [text for text in ax.texts if isinstance(text, Fitting) and text.fits()]
    wide, high = ax.get_position().size * ax.figure.get_size_inches() * 72
    return Chart(
        title=ax.get_title("left"),
        caption="".join(note.get_text() for note in notes if note.xycoords == "axes fraction"),
        names=[tick.get_text() for tick in ax.get_yticklabels()],
        peaks=[note.get_text() for note in notes if note.xycoords == ("axes fraction", "data")],
        areas=[
            (_look(each), [path.vertices[:-1].tolist() for path in each.get_paths()])
            for each in ax.collections
            if isinstance(each, PolyCollection)
        ],
        frames=[part[:-1].tolist() for each in lines if each not in broken for part in each.get_segments()],
        dashes=[tuple(map(tuple, part.tolist())) for each in dashed for part in each.get_segments()],
        arrows=[(note.xyann, note.xy) for note in notes if note.arrow_patch],
        words=[Word(text.get_text(), *text.get_position(), colour=text.get_color()) for text in fitting],
        legend={
            words.get_text(): _swatch(handle)
            for each in [ax.get_legend()] * bool(ax.get_legend())
            for words, handle in zip(each.texts, each.legend_handles, strict=True)
        },
        unit=wide / ax.get_xlim()[1],
        row=high / ax.get_ylim()[0],
        rows=ax.get_ylim()[0],
        queues=[tuple(map(tuple, part.tolist())) for each in dotted for part in each.get_segments()],
    )


def _look(collection: PolyCollection) -> Look:
    if hatch := collection.get_hatch():
        return Look("", 1, next(name for name, marks in HATCH.items() if marks == hatch))
    [colour] = collection.get_facecolors()
    return Look(to_hex(colour), round(float(colour[3]), 6))


def _swatch(handle) -> Look | str | None:
    if isinstance(handle, Line2D):
        thin = handle.get_linewidth() == 0.8 * Style.PHASE.width
        return "arrow" if handle.get_marker() != "None" else "dashed" if thin else "dotted"
    if handle.get_facecolor()[3] == 0:
        return "frame" if handle.get_linewidth() else None
    patterns = {marks: name for name, marks in HATCH.items()} | {None: ""}
    return Look(to_hex(handle.get_facecolor()), 1, patterns[handle.get_hatch()])


# SVG


class Element(NamedTuple):
    """A path or words, with all that holds for it, and what it says under the mouse."""

    tag: str
    holds: Mapping[str, str]
    words: str
    title: str | None
    group: int  #: elements of one group have the same number


def elements(node: ElementTree.Element, holds: Mapping[str, str] = {}) -> Iterator[Element]:
    """The paths and words below a node, in the order in which they are painted; patterns left out."""
    for child in node:
        inside = {**holds, **child.attrib}
        if child.tag in (f"{SVG}path", f"{SVG}text", f"{SVG}tspan", f"{SVG}rect"):
            tag, title = child.tag.removeprefix(SVG), child.findtext(f"{SVG}title")
            yield Element(tag, inside, child.text or "", title, id(node))
        if child.tag in (f"{SVG}g", f"{SVG}text"):
            yield from elements(child, inside)


def image(drawing) -> str:
    """What a notebook shows of a drawing, as SVG."""
    return b64decode(re.search(r"base64,([^\"]+)", drawing._repr_html_())[1]).decode()


def words_in(svg: str, narrow: bool = False) -> list[Word]:
    """All that is written on a page, in pixels; as in a narrow window, where some of it is larger."""
    sizes = re.findall(r"\.(\w+)\{font-size:(\d+)px\}", svg) if narrow else []
    return list(_written(elements(ElementTree.fromstring(svg)), dict(sizes)))


def _written(found: Iterable[Element], grown: Mapping[str, str] = {}) -> Iterator[Word]:
    for tag, holds, words, *_ in found:
        if tag in ("text", "tspan") and words:
            x, y = float(holds["x"]), float(holds["y"])
            size, bold = holds.get("font-size", 12), "font-weight" in holds
            size = float(grown.get(holds.get("class"), size))
            yield Word(words, x, y, holds["text-anchor"], holds["fill"], size, bold)


def points(path: str) -> list[list[Point]]:
    """The corners of each part of a path, in pixels, of which tenths are drawn."""
    parts: list[list[Point]] = []
    for letter, values in re.findall(r"([MmLhvz])([^MmLhvz]*)", path):
        numbers = [float(value) for value in values.split()]
        if letter in "Mm":
            x, y = parts[-1][0] if letter == "m" else (0, 0)  # where the part before was closed
            parts.append([(round(x + numbers[0], 1), round(y + numbers[1], 1))])
        elif letter != "z":
            x, y = parts[-1][-1]
            along, down = {"h": (*numbers, 0), "v": (0, *numbers)}.get(letter, (0, 0))
            point = tuple(numbers) if letter == "L" else (round(x + along, 1), round(y + down, 1))
            parts[-1].append(point)
    return parts


def charts_in(svg: str) -> list[Chart]:
    """Every panel of a page: from its title down to the time axis below it."""
    found = [each for each in elements(ElementTree.fromstring(svg)) if each.tag != "rect"]
    tops = [word.y for word in _written(found) if word.bold and word.size == 14]
    floors = sorted({word.y for word in _written(found) if word.words == "time"})
    entries = legend_of(each for each in found if height(each) > floors[-1] + 6)
    return [
        _panel([each for each in found if top <= height(each) <= floor], entries)
        for top, floor in zip(tops, floors, strict=True)
    ]


def chart_of(svg: str) -> Chart:
    [chart] = charts_in(svg)
    return chart


def height(each: Element) -> float:
    """Where an element begins, in pixels from the top."""
    if each.tag == "path":
        return float(re.match(r"M\S+ ([\d.-]+)", each.holds["d"])[1])
    return float(each.holds["y"])


def legend_of(found: Iterable[Element]) -> dict[str, Look | str | None]:
    """What stands before each of the legend's words."""
    entries, before = {}, []
    for each in found:
        if each.tag == "path":
            before.append(each)
        else:
            entries[each.words] = _meant_by(before)
            before = []
    return entries


def _meant_by(paths: list[Element]) -> Look | str | None:
    if not paths:
        return None
    if dashes := paths[0].holds.get("stroke-dasharray"):
        return {"3 2": "dashed", "1.4 2": "dotted"}[dashes]
    if "stroke" in paths[0].holds:
        return "frame" if "stroke-width" in paths[0].holds else "arrow"
    pattern = paths[1].holds["fill"][5:-1] if len(paths) > 1 else ""
    return Look(paths[0].holds["fill"].lower(), 1, pattern)


def _panel(found: list[Element], entries: dict) -> Chart:
    zero, unit = time_axis(found)
    paths = [each for each in found if each.tag == "path"]
    lanes = [part for each in paths if each.holds.get("fill") == LANE for part in points(each.holds["d"])]
    left, top, _, bottom = bounds(lanes[0])
    row = 0.4 * round((bottom - top) / LANE_HIGH / 0.4)  # pixels: all heights of rows are multiples of this
    above = top - Rows().top * row
    assert abs(left - zero) <= 0.1

    def place(point: Point) -> Point:
        return (point[0] - zero) / unit, (point[1] - above) / row

    def parts(each: Element) -> list[list[Point]]:
        return [list(map(place, part)) for part in points(each.holds["d"])]

    def of(**wanted: str | None) -> list[list[Point]]:
        names = {name: name.replace("_", "-") for name in wanted}
        some = [
            each
            for each in paths
            if all(each.holds.get(names[name]) == value for name, value in wanted.items())
        ]
        return [part for each in some for part in parts(each)]

    areas: list[tuple[Look, list[list[Point]]]] = []
    for group in (list(some) for _, some in groupby(paths, lambda each: (each.group, _painted(each)))):
        if look := _painted(group[0]):
            apart = [group] if group[0].title else [[each] for each in group]  # a path per box, with words
            areas += ((look, [part for each in some for part in parts(each)]) for some in apart)
    words = list(_written(found))
    [axis] = (each for each in paths if each.holds.get("stroke") == FAINT)
    floor = height(axis) - 1
    inside = [word for word in words if word.anchor == "middle" and word.y < floor]
    return Chart(
        title=next(word.words for word in words if word.bold and word.size == 14),
        caption="".join(word.words for word in words if word.y < top and word.colour == FAINT),
        names=[word.words for word in words if word.anchor == "end" and word.words != "time"],
        peaks=[word.words for word in words if word.anchor == "start" and word.y > top],
        areas=areas,
        frames=of(stroke_width="2"),
        dashes=[(part[0], part[1]) for part in of(stroke_dasharray="3 2")],
        arrows=[
            (shaft[0], head[0])
            for shaft, head in zip(
                of(stroke=INK, fill="none", stroke_width=None), of(fill=INK, stroke=None), strict=True
            )
        ],
        words=[word._replace(x=place(word[1:3])[0], y=place((0, word.y - 4))[1]) for word in inside],
        legend=entries,
        unit=unit,
        row=row,
        rows=(floor - above) / row,
        queues=[(part[0], part[1]) for part in of(stroke_dasharray="1.4 2")],
    )


def _painted(each: Element) -> Look | None:
    """How a path is filled; None for the line of an axis, a frame, an arrow."""
    fill = each.holds.get("fill", "none")
    if fill in ("none", INK):
        return None
    if fill.startswith("url"):
        return Look("", 1, fill[5:-1])
    return Look(fill.lower(), float(each.holds.get("fill-opacity", 1)))


def time_axis(found: Iterable[Element]) -> tuple[float, float]:
    """Where time 0 is, and how many pixels a unit of time is: from the first and the last number."""
    lines = defaultdict(list)
    for word in _written(found):
        lines[word.y].append(word)
    *_, axis = (line for line in lines.values() if any(word.words == "time" for word in line))
    ticks = sorted((float(word.words), word.x) for word in axis if word.anchor == "middle")
    (first, zero), (last, x) = ticks[0], ticks[-1]
    assert first == 0 < last
    return zero, (x - zero) / last


def pixels(text: str) -> Iterator[tuple[float, float, float, float, str]]:
    """(left, top, right, bottom, title) of each box."""
    for path in ElementTree.fromstring(text).iter(f"{SVG}path"):
        found = re.fullmatch(r"M(\S+) (\S+)h(\S+)v(\S+)h-\S+z", path.get("d"))
        if found and (title := path.findtext(f"{SVG}title")):
            x, y, wide, high = map(float, found.groups())
            yield x, y, x + wide, y + high, title


def extent(word: Word) -> tuple[float, float]:
    """Where words begin and end, if a letter is half as wide as high."""
    wide = 0.5 * word.size * len(word.words)
    left = word.x - {"start": 0, "middle": wide / 2, "end": wide}[word.anchor]
    return left, left + wide


def assert_inside(text: str) -> tuple[float, float]:
    """All words and boxes lie on the sheet, whose (width, height) this is."""
    root = ElementTree.fromstring(text)
    width, height = float(root.get("width")), float(root.get("height"))
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    for word in words_in(text):
        left, right = extent(word)
        assert left >= 0 and right <= width and word.size <= word.y <= height, word
    for left, top, right, bottom, title in pixels(text):
        assert 0 <= left <= right <= width and 0 <= top < bottom <= height, title
    return width, height


def in_svg(text: str) -> list[Drawn]:
    """The boxes of an SVG with one timeline, on the scale of its own time axis and device names.

    Drawn pixels are rounded to tenths. Times come back as whole numbers, within the error that this allows; a
    chart of other times cannot be read so.
    """
    found = list(elements(ElementTree.fromstring(text)))
    zero, unit = time_axis(found)
    rows = {word.y - 4: int(word.words[7:]) for word in _written(found) if word.words.startswith("device ")}
    middles = sorted(rows)
    height = middles[1] - middles[0] if len(middles) > 1 else 24.0
    boxes = []
    for _, holds, _, title, _ in found:
        if title is None:
            continue
        x, y, wide, high, back = map(float, OUTLINE.fullmatch(holds["d"]).groups())
        assert wide == back
        middle = min(middles, key=lambda at: abs(at - (y + high / 2)))
        top, bottom = ((edge - middle) / height + 0.5 for edge in (y, y + high))
        start, end = (_whole((edge - zero) / unit, 0.16 / unit) for edge in (x, x + wide))
        boxes.append(Drawn(rows[middle], start, end, top, bottom, holds["fill"], title))
    return boxes


def _whole(time: float, error: float) -> int:
    assert abs(time - round(time)) <= error
    return round(time)
