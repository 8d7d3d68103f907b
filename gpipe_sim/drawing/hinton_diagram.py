"""Arrays that should add up, each as a Hinton diagram: every number is a square that has it as its area.

Dark squares are positive and light ones negative, both on a grey ground, so nobody needs to tell hues apart.
"""

from collections.abc import Iterator, Sequence
from math import sqrt

import numpy as np

from gpipe_sim.drawing.document import Svg, outline, text, words_wide
from gpipe_sim.drawing.palette import FAINT, INK, PAPER, REFERENCE
from gpipe_sim.errors import got, listed, numbers

WIDTH, BETWEEN = 720, 18  #: pixels of a page, and between two panels, where a sign stands
NARROWEST = 36  #: pixels of a panel: with more parts than fit, the page is wider
TOP, BELOW, MARGIN = 30, 30, 12
ROUNDING, NOTHING = 1e-12, "only rounding"  #: below this part of the largest number
Array = np.ndarray


def draw_parts(parts: Sequence[Array], whole: Array) -> Svg:
    """Every part, their sum, the whole, and the difference sum - whole: each a 2-D array.

    All share one scale, and below each is its largest absolute value. TypeError for anything but arrays of
    numbers; ValueError unless they are finite and of one shape.
    """
    such_as = "2-D arrays of one shape, such as [array, array]"
    parts = [numbers("draw_parts", "parts", part) for part in listed("draw_parts", such_as, parts)]
    whole = numbers("draw_parts", "whole", whole)
    if not whole.size or whole.ndim != 2 or {part.shape for part in parts} != {whole.shape}:
        shapes = [panel.shape for panel in (*parts, whole)]
        raise ValueError(f"draw_parts needs {such_as} {got(shapes)}")
    if not all(np.isfinite(panel).all() for panel in (*parts, whole)):
        raise ValueError("draw_parts needs every number to be finite: NaN and infinity have no size")
    total = np.sum(parts, axis=0)
    panels = {f"part {i}": part for i, part in enumerate(parts)}
    panels |= {"sum": total, "whole": whole, "sum \u2212 whole": total - whole}
    most = float(max(abs(panel).max() for panel in panels.values())) or 1
    signs = ["", *"+" * (len(parts) - 1), "=", "", ""]
    wide = max(NARROWEST, (WIDTH - 2 * MARGIN) / len(panels) - BETWEEN)
    cell = min(wide / whole.shape[1], 160 / whole.shape[0])
    step = max(whole.shape[1] * cell, words_wide(NOTHING)) + BETWEEN
    drawn: list[str] = []
    for i, (words, panel) in enumerate(panels.items()):
        drawn += _panel(MARGIN + BETWEEN + i * step, words, signs[i], panel, most, cell)
    says = f"{len(parts)} arrays, their sum, and the whole; sum minus whole: {_largest(total - whole, most)}"
    size = MARGIN + BETWEEN + len(panels) * step, TOP + whole.shape[0] * cell + BELOW
    return Svg(lambda hover: iter(drawn), size, says)


def _panel(left: float, words: str, sign: str, panel: Array, most: float, cell: float) -> Iterator[str]:
    high, wide = panel.shape[0] * cell, panel.shape[1] * cell
    yield text(left, TOP - 8, words, "start")
    yield text(left - BETWEEN / 2, TOP + high / 2 + 5, sign, "middle", 16)
    yield f'<path d="{outline(left, TOP, wide, high)}" fill="{REFERENCE}"/>'
    for colour, shown in ((INK, panel > 0), (PAPER, panel < 0)):
        squares = (_square(left, at, abs(panel[*at]) / most, cell) for at in np.argwhere(shown).tolist())
        if path := "".join(squares):
            yield f'<path d="{path}" fill="{colour}"/>'
    below = _largest(panel, most) if panel.any() or not words.startswith("part") else "nothing"
    yield text(left, TOP + high + 18, below, "start", colour=FAINT)


def _square(left: float, at: Sequence[int], share: float, cell: float) -> str:
    """A square in the middle of its cell, whose area is this share of it."""
    side = sqrt(share) * cell
    x, y = left + (at[1] + 0.5) * cell - side / 2, TOP + (at[0] + 0.5) * cell - side / 2
    return outline(x, y, side, side) if side >= 0.05 else ""


def _largest(panel: Array, most: float) -> str:
    """The largest absolute value in words; what rounding leaves differs from processor to processor."""
    largest = abs(panel).max()
    return NOTHING if largest < ROUNDING * most else f"up to {largest:.1g}"
