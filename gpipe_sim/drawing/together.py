"""What devices send each other together, such as an all-reduce: a strip below the lane of each of them."""

from collections.abc import Iterator

from gpipe_sim.core.timeline import Timeline
from gpipe_sim.drawing.coarse import Grain
from gpipe_sim.drawing.geometry import Rows, rectangle
from gpipe_sim.drawing.marks import Entry, Label, Labels, Mark, Shape
from gpipe_sim.drawing.palette import COLLECTIVE, ink
from gpipe_sim.links.collective import Collective, names_of

TOGETHER_HIGH = 0.56  #: rows of the strip and of the gap above it
GAP = 0.04


def together_marks(timeline: Timeline, grain: Grain, rows: Rows) -> Iterator[Mark]:
    """A shape for the strips of each kind, and what each is; nothing if the rows have no room for them."""
    if not rows.collectives:
        return
    high = rows.collectives - GAP
    for what in names_of(timeline):
        outlines, labels, says = [], [], []
        for each in (each for each in timeline.collectives if each.what == what):
            middle, wide = float(each.start + each.end) / 2, float(each.end - each.start)
            for device in each.devices:
                top = rows.y(device // grain.devices, 1) + GAP
                outlines.append(rectangle(each.start, top, each.end, top + high))
                labels.append(Label(middle, top + high / 2, _named(each), wide, high))
                says.append(str(each))
        yield Shape(outlines, COLLECTIVE.colour, Entry(13, what, COLLECTIVE), edged=True, says=says)
        yield Labels(labels, ink(COLLECTIVE.colour))


def _named(each: Collective) -> str:
    return each.what if each.stage is None else f"stage {each.stage}"
