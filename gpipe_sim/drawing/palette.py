"""Every colour and pattern that is drawn, and the order in which legends list them.

A new kind of action, or a new category of memory, gets its colour by one line here; SVG and matplotlib both
read it. What a colour says, a pattern, a place or a word says too, for readers who cannot see it.
"""

from typing import NamedTuple

from gpipe_sim.runtime.memory import BOUNDARY, GRADIENTS, MESSAGES, PARAMETERS, SAVED
from gpipe_sim.schedule.actions import Kind


class Look(NamedTuple):
    """How boxes of one kind are filled. Kinds that look the same share an entry in the legend."""

    colour: str
    hatched: bool = False  #: with white lines, so that it differs even without its colour


#: Kinds of action in the order of the legend, in Okabe and Ito's colours, which colour-blind readers can tell
#: apart. A legend names a kind by its letter and its meaning.
KINDS = {
    Kind.F: Look("#0072B2"),
    Kind.B: Look("#E69F00"),
    Kind.I: Look("#E69F00"),
    Kind.W: Look("#009E73", hatched=True),
    Kind.R: Look("#CC79A7"),
    Kind.U: Look("#999999"),
}
#: Categories of memory, from the bottom of a chart to its top; a legend shows these names.
MEMORY = {
    PARAMETERS: "#BBBBBB",
    GRADIENTS: "#D55E00",
    BOUNDARY: "#009E73",
    SAVED: "#F0E442",
    MESSAGES: "#0072B2",
}
#: One colour per curve, in order: blue, orange, green, vermillion, purple, sky.
CURVES = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
#: One marker per curve, for readers who cannot tell the colours apart.
MARKERS = ("o", "s", "^", "D", "v", "P")
REFERENCE = "#c4c4c4"  #: the wide pale curve with which others are compared
SIGNED = "RdBu"  #: matplotlib's colour map for images in which zero is white

PAPER = "#fff"  #: the background, the edges between boxes, and hatching
INK = "#222222"  #: words, arrows, outlines, the lines between phases
FAINT = "#6b6b6b"  #: the axis, and words that matter less
LANE = "#e9e7e2"  #: the ground of each device, on which its boxes stand: what shows of it is waiting
GRID = "#e5e5e5"
IN_FLIGHT = "#999999"
WAITS, IN_THE_WAY = "#D55E00", "#888888"  #: the arrows of a deadlock
ON_DARK, ON_LIGHT = "#ffffff", "#000000"  #: a number in a box
#: How far towards white: at most, for a device's later stages; and for what a deadlocked device has not run.
LATER, NOT_RUN = 0.6, 0.72


def in_legend(kind: Kind) -> str:
    """What a legend calls a kind of action."""
    return f"{kind}  {kind.meaning}"


def hatched(kind: Kind | None) -> bool:
    """Whether boxes of this kind are hatched; False for None, a legend entry that is not a kind."""
    return kind is not None and KINDS[kind].hatched


def tint(colour: str, shade: float) -> str:
    """A colour mixed with white: a shade of 0 leaves it as it is, 1 gives white."""
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(c + (255 - c) * shade):02x}" for c in channels)


def ink(fill: str) -> str:
    """The colour for a number on this fill: white if the fill is dark, as blue is; black otherwise."""
    red, green, blue = (int(fill[i : i + 2], 16) for i in (1, 3, 5))
    return ON_DARK if 0.299 * red + 0.587 * green + 0.114 * blue < 100 else ON_LIGHT
