"""The dial of lesson 07: the more a device may run ahead, the shorter the step and the more it holds.

From the naive order to GPipe, which drains in order here: each of four devices runs the same number of
forwards ahead. 1F1B lets device k run 3 - k ahead, and leaves that line.
"""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures._gantt import numbers, timeline_of
from figures._page import claim, page
from gpipe_sim import B, Explicit, F, OneFOneB, Schedule
from gpipe_sim.drawing.palette import FAINT, INK
from gpipe_sim.drawing.plots import plot_bare
from gpipe_sim.drawing.plots.style import LABEL_SIZE, finish

DEVICES, MICROBATCHES = 4, 8
WIDE, HIGH = 0.026, 3.9  #: a thumbnail: of a microbatch held per unit of time; in units of time


def data() -> dict:
    """A chart for each setting of the dial, and 1F1B's."""
    settings = [numbers(ahead(depth)) for depth in range(MICROBATCHES + 1)]
    return {"settings": settings, "1F1B": numbers(OneFOneB(DEVICES, MICROBATCHES))}


def ahead(depth: int) -> Schedule:
    """Every device runs ``depth`` forwards ahead, then a forward and a backward in turn."""
    return Explicit([list(_row(k, depth)) for k in range(DEVICES)])


def _row(k: int, depth: int):
    yield from (F(k, m) for m in range(depth))
    for m in range(MICROBATCHES - depth):
        yield F(k, depth + m)
        yield B(k, m)
    yield from (B(k, m) for m in range(MICROBATCHES - depth, MICROBATCHES))


def draw(data: dict) -> Figure:
    figure, ax = page(6.2)
    settings, alone = data["settings"], data["1F1B"]
    ax.plot(*zip(*map(_point, settings), strict=True), "o-", color=FAINT, lw=1, ms=4)
    ax.plot(*_point(alone), "D", color=INK, ms=7)
    for depth, own in enumerate(settings[:-1]):
        _thumbnail(ax, own, _name(depth))
    _thumbnail(ax, alone, "1F1B")
    ax.set(xlim=(0.6, 9.4), ylim=(26, 106), xticks=range(1, MICROBATCHES + 1))
    ax.set_xlabel("microbatches that the fullest device holds", fontsize=LABEL_SIZE)
    ax.set_ylabel("length of the step", fontsize=LABEL_SIZE)
    finish(ax)
    saved = max(settings[-1]["peak_in_flight"]) - max(alone["peak_in_flight"])
    words = (
        f"Running ahead buys time with memory; 1F1B is as short as GPipe and holds {saved} microbatches less"
    )
    claim(ax, words)
    return figure


def _name(depth: int) -> str:
    if depth == MICROBATCHES - 1:
        return f"{depth} or {depth + 1} ahead: GPipe"
    return f"{depth} ahead" + (": naive" if depth == 0 else "")


def _point(own: dict) -> tuple[int, float]:
    return max(own["peak_in_flight"]), own["makespan"]


def _thumbnail(ax: Axes, own: dict, name: str) -> None:
    """The chart to the right of its point, as wide as it is long, with its name above."""
    x, y = _point(own)
    wide = WIDE * own["makespan"]
    inset = ax.inset_axes([x + 0.1, y - 0.1, wide, HIGH], transform=ax.transData)
    plot_bare(timeline_of(own), inset)
    ax.annotate(name, (x + 0.1, y + HIGH + 0.4), fontsize=LABEL_SIZE, va="bottom")
