"""Read a chart back: what it says, learnt from the drawing alone."""

import re
from collections.abc import Iterable
from fractions import Fraction
from functools import cache
from typing import NamedTuple
from xml.etree import ElementTree

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from figures._store import module, read
from gpipe_sim.drawing.panel import WAITING

SVG = "{http://www.w3.org/2000/svg}"
OUTLINE = re.compile(r"M(\S+) (\S+)h(\S+)v(\S+)h-(\S+)z")


class Drawn(NamedTuple):
    """A box as the eye sees it. ``top`` and ``bottom`` are the part of its device's row that it takes."""

    device: int
    start: float
    end: float
    top: float
    bottom: float
    colour: str
    title: str | None = None


@cache
def committed(name: str) -> Figure:
    """The figure of this name, drawn from its committed numbers: once for every test that reads it."""
    return module(name).draw(read(name))


def bubble(boxes: Iterable[Drawn]) -> Fraction:
    """What shows of the lanes: 1 - coloured area, with each box taken as high as its row."""
    boxes = [box for box in boxes if box.end > box.start]
    devices, until = 1 + max(box.device for box in boxes), Fraction(max(box.end for box in boxes))
    return 1 - sum(Fraction(box.end) - Fraction(box.start) for box in boxes) / (devices * until)


def in_axes(ax: Axes, lanes: bool = False) -> list[Drawn]:
    """The boxes of a Gantt chart in matplotlib axes, or its lanes: a row per unit of y, device 0 on top."""
    boxes = []
    for collection in ax.collections:
        if isinstance(collection, PolyCollection) and (collection.get_label() == WAITING.words) == lanes:
            colours = [to_hex(colour) for colour in collection.get_facecolors()]
            paths = collection.get_paths()
            for path, colour in zip(paths, colours * len(paths) if lanes else colours, strict=not lanes):
                (start, top), (end, bottom) = (
                    path.vertices.min(axis=0).tolist(),
                    path.vertices.max(axis=0).tolist(),
                )
                boxes.append(Drawn(int((top + bottom) / 2), start, end, top % 1, (bottom - 1e-9) % 1, colour))
    return boxes


def in_svg(text: str) -> list[Drawn]:
    """The boxes of an SVG with one timeline, on the scale of its own time axis and device names.

    Drawn pixels are rounded to tenths. Times come back as whole numbers, within the error that this allows; a
    chart of other times cannot be read so.
    """
    root = ElementTree.fromstring(text)
    zero, unit = time_axis(root)
    rows = {
        float(t.get("y")) - 4: int(t.text[7:]) for t in texts(root) if (t.text or "").startswith("device ")
    }
    middles = sorted(rows)
    height = middles[1] - middles[0] if len(middles) > 1 else 24.0
    boxes = []
    for group in root.iter(f"{SVG}g"):
        for path in group.iterfind(f"{SVG}path"):
            if (title := path.find(f"{SVG}title")) is None:
                continue
            x, y, wide, high, back = map(float, OUTLINE.fullmatch(path.get("d")).groups())
            assert wide == back
            middle = min(middles, key=lambda at: abs(at - (y + high / 2)))
            top, bottom = ((edge - middle) / height + 0.5 for edge in (y, y + high))
            start, end = (_whole((edge - zero) / unit, 0.16 / unit) for edge in (x, x + wide))
            boxes.append(Drawn(rows[middle], start, end, top, bottom, group.get("fill"), title.text))
    return boxes


def texts(root: ElementTree.Element) -> Iterable[ElementTree.Element]:
    return root.iter(f"{SVG}text")


def time_axis(root: ElementTree.Element) -> tuple[float, float]:
    """Where time 0 is, and how many pixels a unit of time is: from the first and the last number."""
    centred = [t for t in texts(root) if t.get("text-anchor") == "middle" and "waits" not in t.text]
    ticks = sorted((float(t.text), float(t.get("x"))) for t in centred)
    (first, zero), (last, x) = ticks[0], ticks[-1]
    assert first == 0 < last
    return zero, (x - zero) / last


def _whole(time: float, error: float) -> int:
    assert abs(time - round(time)) <= error
    return round(time)
