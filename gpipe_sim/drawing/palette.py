"""Every colour and pattern that is drawn, each with one meaning, and the order in which legends list them.

Actions have hues; what a device holds is violet, darker for what stays longer; grey is waiting; numbers,
arrows, frames and curves are ink. Actions that would look alike without their hue have a pattern too. SVG
and matplotlib both read this file; a new kind of action, or a new category of memory, is one line in it.
"""

from functools import cache
from typing import NamedTuple

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.memory import BOUNDARY, GRADIENTS, MESSAGES, OLDER, PARAMETERS, PENDING, SAVED, STATE

PLAIN, LINES, DOTS = "", "lines", "dots"  #: patterns, in white


class Look(NamedTuple):
    """How boxes of one kind are filled. Kinds that look the same share an entry in the legend."""

    colour: str
    pattern: str = PLAIN
    band: float = 1.0  #: how much of a box the pattern takes, from below: a number above it stays clear


#: Kinds of action in the order of the legend, in Okabe and Ito's colours, which colour-blind readers can tell
#: apart. A legend names a kind by its letter and its meaning.
KINDS = {
    Kind.F: Look("#0072B2"),
    Kind.B: Look("#E69F00"),
    Kind.I: Look("#E69F00"),
    Kind.W: Look("#009E73", LINES, 0.3),
    Kind.R: Look("#CC79A7", DOTS, 0.3),
    Kind.U: Look("#515151"),
}
#: Categories of memory, from the bottom of a chart to its top; a legend shows these names.
MEMORY = {
    PARAMETERS: Look("#33205e"),
    OLDER: Look("#33205e", DOTS),
    STATE: Look("#583b91", LINES),
    GRADIENTS: Look("#583b91"),
    BOUNDARY: Look("#9a7fd0"),
    SAVED: Look("#c6b3ea"),
    PENDING: Look("#c6b3ea", DOTS),
    MESSAGES: Look("#c6b3ea", LINES),
}
IN_FLIGHT = MEMORY[SAVED]  #: microbatches in flight are counted by what is saved for them
PALER = "#e5ddf6"  #: those of which only the input is kept
#: What several devices send each other together, in a strip below their lanes.
COLLECTIVE = Look("#D55E00", band=0.3)
#: One colour and one marker per curve, in order: ink, lighter and lighter. A curve has its name at its end.
CURVES = ("#222222", "#4a4a4a", "#6b6b6b", "#868686", "#949494")
MARKERS = ("o", "s", "^", "D", "v", "P")
REFERENCE = "#c4c4c4"  #: the wide pale curve with which others are compared

PAPER = "#fff"  #: the background, the edges between boxes, and patterns
INK = "#222222"  #: words, arrows, outlines, the lines between phases
FAINT = "#565656"  #: the axis, and words that matter less
LANE = "#e9e7e2"  #: the ground of each device, on which its boxes stand: what shows of it is waiting
GRID = "#e5e5e5"
OVER = "#b3261e"  #: what is held above a limit
ON_DARK, ON_LIGHT = "#ffffff", "#000000"  #: a number in a box
#: What becomes of these in a saved file, for a reader who prefers dark pages.
DARK = {PAPER: "#0f0f0e", INK: "#e8e6e1", FAINT: "#cbc8c2", LANE: "#252321", GRID: "#33312f", OVER: "#ff8a80"}
#: And of fills that would be lost on these: all bytes are lighter there, inputs alone are darker.
DARK |= {
    "#515151": "#8b8b8b",  # updates
    MEMORY[PARAMETERS].colour: "#7a5480",
    MEMORY[STATE].colour: "#9a7cd4",
    MEMORY[BOUNDARY].colour: "#bba5e6",
    MEMORY[SAVED].colour: "#e6d0ff",
    PALER: "#6f6690",
}
#: How far towards white: at most, for a device's later stages.
LATER = 0.6
#: What becomes of fills in a chart without colours: from a device's first stage to the palest of later ones.
GREYS = {
    KINDS[Kind.F].colour: ("#404040", "#a0a0a0"),
    KINDS[Kind.B].colour: ("#c6c6c6", "#dedede"),
    KINDS[Kind.W].colour: ("#868686", "#b4b4b4"),
    KINDS[Kind.R].colour: ("#868686", "#b4b4b4"),
    KINDS[Kind.U].colour: ("#000000", "#161616"),
    LANE: ("#f6f6f6", "#f6f6f6"),
}
#: How opaque on their lane: boxes beside those that are highlighted.
FADED = 0.18


def tint(colour: str, shade: float) -> str:
    """A colour mixed with white: a shade of 0 leaves it as it is, 1 gives white."""
    return mixed(colour, ON_DARK, shade)


def mixed(colour: str, other: str, part: float) -> str:
    """A colour with so much of another one in it."""
    both = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in both)


def ink(fill: str) -> str:
    """The colour for a number on this fill: white or black, whichever has more contrast by WCAG 2.1.

    On what is lighter on dark pages it is paper, which is white on others.
    """
    if fill in DARK:
        return PAPER
    return ON_DARK if (_luminance(fill) + 0.05) ** 2 < 0.05 * 1.05 else ON_LIGHT


@cache
def grey(fill: str) -> str:
    """What a fill is without colours: a kind has its own greys, all else the grey that is as light."""
    for colour, (first, palest) in GREYS.items():
        if (shade := _shade(fill, colour)) is not None:
            return mixed(first, palest, shade / LATER)
    light = _luminance(fill)
    level = 12.92 * light if light <= 0.0031308 else 1.055 * light ** (1 / 2.4) - 0.055
    return mixed(ON_LIGHT, ON_DARK, level)


def _shade(fill: str, colour: str) -> float | None:
    """How pale a fill is of this colour, as ``tint`` made it; None if it is another one."""
    low = min(base := _channels(colour))
    shade = min(LATER, (_channels(fill)[base.index(low)] - low) / (255 - low))
    again = zip(_channels(fill), _channels(tint(colour, shade)), strict=True) if shade >= 0 else [(0, 255)]
    return shade if all(abs(a - b) <= 1 for a, b in again) else None  # channels are rounded


def _luminance(colour: str) -> float:
    red, green, blue = (_linear(channel / 255) for channel in _channels(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


def _channels(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
