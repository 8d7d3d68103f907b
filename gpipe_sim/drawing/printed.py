"""A drawing on paper: the SVG that our painter wrote, painted once more by matplotlib as PDF or PNG.

It reads the few elements and attributes that are written here: areas, lines, words, arrowheads, patterns.
"""

import re
from collections.abc import Iterator, Mapping
from typing import IO, Any
from xml.etree import ElementTree

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Patch, PathPatch, Rectangle
from matplotlib.path import Path
from matplotlib.text import Text

from gpipe_sim.drawing.palette import INK, PAPER
from gpipe_sim.drawing.plots.gantt import HATCH, WIDE

INCH, SHARP = 96, 192  #: pixels of a drawing to the inch, and of a PNG
BOLDER = 1.1  #: how much wider bold letters of matplotlib's font are, against Helvetica's
SIDES = {"start": "left", "middle": "center", "end": "right"}
UNSEEN = {"defs", "desc", "marker", "style", "title"}
CODES = {"M": Path.MOVETO, "m": Path.MOVETO, "C": Path.CURVE4, "z": Path.CLOSEPOLY}
EDITABLE = {"pdf.fonttype": 42}  #: words stay words in a PDF
Look = Mapping[str, str]


def save_printed(svg: str, path: str | IO[bytes], kind: str, says: str) -> None:
    """Write the page as ``kind``, "pdf" or "png", of the size that it states; ``says`` is its title."""
    root = ElementTree.fromstring(svg)
    wide, high = (float(root.attrib[side]) for side in ("width", "height"))
    _, _, right, bottom = map(float, root.attrib["viewBox"].split())
    point = 72 / INCH * wide / right  #: of a pixel of the drawing
    with style.context(["default", EDITABLE]):
        figure = Figure(figsize=(wide / INCH, high / INCH))
        ax = figure.add_axes((0, 0, 1, 1))
        ax.set(xlim=(0, right), ylim=(bottom, 0))
        ax.set_axis_off()
        for i, artist in enumerate(_artists(root, {}, point)):
            artist.set(zorder=i, clip_on=False)
            ax.add_artist(artist)
        dated = {"CreationDate": None} if kind == "pdf" else {}  # the same bytes whenever it is written
        figure.savefig(path, format=kind, dpi=SHARP, metadata={"Title": says, **dated})


def _artists(element: ElementTree.Element, around: Look, point: float) -> Iterator[Patch | Text]:
    """What an element shows, from back to front; it looks as those around it, unless it says otherwise."""
    name, look = element.tag.rpartition("}")[2], {**around, **element.attrib}
    if name in UNSEEN:
        return
    if name == "rect":
        corner, sides = (float(look.get("x", 0)), float(look.get("y", 0))), (look["width"], look["height"])
        if not any(side.endswith("%") for side in sides):  # the page itself is white
            yield Rectangle(corner, *map(float, sides), **_paint(look, point))
    elif name == "path" and "marker-end" in look:
        filled = _paint(look | {"fill": look["stroke"]}, point)
        yield FancyArrowPatch(path=_path(look["d"]), arrowstyle="-|>", mutation_scale=8 * point, **filled)
    elif name == "path":
        yield PathPatch(_path(look["d"]), **_paint(look, point))
    elif element.text and element.text.strip() and name in ("text", "tspan"):
        yield _words(element.text, look, point)
    for inner in element:
        yield from _artists(inner, look, point)


def _paint(look: Look, point: float) -> dict[str, Any]:
    """How an area or a line is painted; a pattern is white lines or dots on what is there."""
    fill, thick = look.get("fill", "none"), float(look.get("stroke-width", 1)) * point
    dashes = [float(part) * point / thick for part in look.get("stroke-dasharray", "").split()]
    if fill.startswith("url"):
        return {"facecolor": "none", "edgecolor": PAPER, "linewidth": 0, "hatch": HATCH[fill[5:-1]]}
    shown = {"facecolor": fill if fill == "none" else (fill, float(look.get("fill-opacity", 1)))}
    line = {"edgecolor": look.get("stroke", "none"), "linewidth": thick if "stroke" in look else 0}
    return shown | line | ({"linestyle": (0, dashes)} if dashes else {})


def _words(words: str, look: Look, point: float) -> Text:
    """Words as wide as they are in the drawing, whose letters are narrower."""
    bold = "font-weight" in look
    size = float(look["font-size"]) * point / (WIDE * BOLDER if bold else WIDE)
    at, side = (float(look["x"]), float(look["y"])), SIDES[look.get("text-anchor", "start")]
    shown = Text(*at, words, color=look.get("fill", INK), size=size, ha=side, va="baseline")
    shown.set(weight="bold" if bold else "normal", parse_math=False)
    return shown


def _path(drawn: str) -> Path:
    """The corners and curves of a ``d``; a relative place is one from where the path is, or began last."""
    points: list[tuple[float, float]] = []
    codes: list[np.uint8] = []
    (x, y), begin = (0.0, 0.0), (0.0, 0.0)
    for letter, rest in re.findall(r"([A-Za-z])([^A-Za-z]*)", drawn):
        numbers = [float(each) for each in re.findall(r"-?[\d.]+", rest)]
        match letter:
            case "z":
                numbers = [*begin]
            case "h":
                numbers = [x + numbers[0], y]
            case "v":
                numbers = [x, y + numbers[0]]
            case "m":
                numbers = [x + numbers[0], y + numbers[1]]
        corners = list(zip(numbers[::2], numbers[1::2], strict=True))
        points += corners
        codes += [CODES.get(letter, Path.LINETO)] * len(corners)
        x, y = corners[-1]
        begin = corners[-1] if letter in "Mm" else begin
    return Path(points, codes)
