"""What a chart is made of. A panel decides all of it, once; SVG and matplotlib only paint it.

x is in units of time, y in rows from the top. Every mark knows what the legend says of it, so a legend lists
what is there and nothing else.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np

from gpipe_sim.drawing.palette import INK, Look, grey

DIGIT, LETTER = 0.58, 0.5  #: the width of a character, in sizes of its font
PADS = {DIGIT: 0.12, LETTER: 0.4}  #: room on both sides of a number and of words together
Corner = tuple[float, float]
Outline = Sequence[Corner] | np.ndarray  #: corners, (corners, 2) if it is an array


class Scale(NamedTuple):
    """How large things will be: a unit of time, a row and the letters in the same unit, pixels or points."""

    unit: float
    row: float
    font: float
    wide: float = 1.0  #: how much wider the letters are than Helvetica's


class Style(Enum):
    """Of lines: a word for each painter, and how thick they are."""

    PHASE = "dashed", 1
    FRAME = "frame", 2
    MESSAGE = "arrow", 1
    QUEUE = "dotted", 1.4
    JOINED = "joined", 1.2

    @property
    def width(self) -> float:
        return self.value[1]


class Entry(NamedTuple):
    """A line of the legend; entries with the same swatch share a line. ``rank`` says where it stands."""

    rank: int
    words: str
    swatch: Look | Style | None = None


class Shape(NamedTuple):
    """Areas that are filled alike; each outline goes along the axes from corner to corner.

    ``says`` has a text for each, which appears under the mouse. ``fill`` is "" for a pattern alone, and what
    is below shows through if it is not ``opaque``.
    """

    outlines: Sequence[Outline]
    fill: str
    entry: Entry | None = None
    pattern: str = ""
    edged: bool = False
    opaque: float = 1.0
    says: Sequence[str] = ()


class Lines(NamedTuple):
    """Lines of one style: frames around all of their corners, others from the first to the last of two."""

    paths: Sequence[Outline]
    style: Style
    entry: Entry | None = None
    says: Sequence[str] = ()


class Label(NamedTuple):
    """Words in the middle of a place; width in time, height in rows."""

    x: float
    y: float
    words: str
    width: float
    height: float


class Labels(NamedTuple):
    """Words that are shown where they fit.

    ``unless`` is the widest of them all and a typical width of their places: if that does not fit, none is
    shown. Otherwise numbers in boxes would stop half-way, where they get longer.
    """

    labels: Sequence[Label]
    colour: str
    letter: float = LETTER
    unless: tuple[str, float] | None = None
    entry: Entry | None = None

    def shown(self, scale: Scale) -> Sequence[Label]:
        return [label for label in self.labels if self.fits(label, scale)]

    def fits(self, label: Label, scale: Scale) -> bool:
        places = [(label.words, label.width), *([self.unless] if self.unless else [])]
        wide = all(self.needs(words, scale) <= width * scale.unit for words, width in places)
        return wide and scale.font <= label.height * scale.row

    def needs(self, words: str, scale: Scale) -> float:
        """The width of these words, with a little room on both sides."""
        return (len(words) * self.letter * scale.wide + PADS[self.letter]) * scale.font


Mark = Shape | Lines | Labels


class Name(NamedTuple):
    """Words beside the panel, at a height in rows."""

    y: float
    words: str
    size: int = 12  #: pixels
    colour: str = INK


class Panel(NamedTuple):
    """A timeline, laid out: what is painted, from back to front, and the words on its left and right."""

    marks: Sequence[Mark]
    height: float  #: in rows
    names: Sequence[Name]
    peaks: Sequence[Name] = ()
    notes: Sequence[Entry] = ()  #: what else the legend says


def in_grey(panel: Panel) -> Panel:
    """The same panel without colours: kinds are told apart by how dark they are, and by their patterns."""
    return panel._replace(marks=[_greyed(mark) if isinstance(mark, Shape) else mark for mark in panel.marks])


def _greyed(shape: Shape) -> Shape:
    entry, fill = shape.entry, shape.fill and grey(shape.fill)
    if entry and isinstance(entry.swatch, Look):
        entry = entry._replace(swatch=entry.swatch._replace(colour=grey(entry.swatch.colour)))
    return shape._replace(fill=fill, entry=entry)


def legend(panels: Iterable[tuple[Panel, Scale]]) -> list[Entry]:
    """What the legend says of these panels at their scales; kinds that look the same share an entry."""
    found: set[Entry] = set()
    for panel, scale in panels:
        shown = (mark for mark in panel.marks if not isinstance(mark, Labels) or mark.shown(scale))
        found |= {*panel.notes, *(mark.entry for mark in shown if mark.entry)}
    shared: dict[Look | Style | str, Entry] = {}
    for entry in sorted(found, key=lambda entry: entry[:2]):
        key = entry.swatch or entry.words
        before = shared.get(key)
        shared[key] = before._replace(words=f"{before.words}, {entry.words}") if before else entry
    return list(shared.values())
