"""A real run before and after layers were moved: two bars of causes that add up to the step.

The traces of lesson 21, which come with the package, so nothing is measured again here.
"""

from itertools import accumulate

from matplotlib.axes import Axes
from matplotlib.figure import Figure

import gpipe_sim as gp
from figures._page import claim, page
from gpipe_sim.course.lesson_21 import trace
from gpipe_sim.drawing.palette import CURVES, FAINT, INK, PAPER, REFERENCE
from gpipe_sim.drawing.plots.style import LABEL_SIZE

#: What is drawn of the sum, and how: (fill, pattern, words on it).
PIECES = {
    "work, if stages were equal": ("work", CURVES[-1], "", INK),
    "the order's own bubble": ("the order's own bubble", REFERENCE, "", INK),
    "unequal stages": ("unequal stages", INK, "", PAPER),
    "messages": ("messages", PAPER, "////", INK),
}
RUNS = ("before", "after")
LAYERS = {"before": "4, 4, 4, 4 layers", "after": "6, 3, 2, 5 layers"}


def data() -> dict:
    """In ms: the makespan of each run, its terms, and what is left beside those that are drawn."""
    found = {}
    for run in RUNS:
        [step] = gp.read_trace(trace(run))
        terms = {each.name: float(each.time) for each in gp.where_time_goes(step).terms}
        drawn = {name: terms[name] for name in PIECES}
        found[run] = {
            "makespan": round(float(step.makespan), 3),
            "terms": {name: round(time, 3) for name, time in drawn.items()},
            "others": round(float(step.makespan) - sum(drawn.values()), 3),
        }
    return found


def draw(data: dict) -> Figure:
    figure, ax = page(2.6)
    for y, run in enumerate(RUNS):
        _bar(ax, -y, data[run], named=run == RUNS[0])
    before, after = (data[run] for run in RUNS)
    less, of_stages = (
        f"{a - b:.0f}"
        for a, b in (
            (before["makespan"], after["makespan"]),
            (before["terms"]["unequal stages"], after["terms"]["unequal stages"]),
        )
    )
    claim(ax, f"Layers were moved: the step is {less} ms shorter, its unequal stages cost {of_stages} less")
    ax.set_yticks([0, -1], [f"{run}: {LAYERS[run]}" for run in RUNS], fontsize=LABEL_SIZE)
    ax.set_xlim(0, before["makespan"] * 1.1)
    ax.set_ylim(-1.5, 0.95)
    ax.tick_params(length=0, labelsize=LABEL_SIZE, labelcolor=INK)
    ax.set_xlabel("ms", fontsize=LABEL_SIZE, color=FAINT)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    return figure


def _bar(ax: Axes, y: float, own: dict, named: bool) -> None:
    """The pieces of a step, each from where the one before it ends; their names above the first bar."""
    times = [own["terms"][name] for name in PIECES]
    ends = [0, *accumulate(times)]
    for (words, colour, pattern, ink), time, left in zip(PIECES.values(), times, ends, strict=False):
        ax.barh(
            y,
            time,
            left=left,
            height=0.62,
            color=colour,
            hatch=pattern,
            edgecolor=PAPER if not pattern else INK,
        )
        back = {"facecolor": PAPER, "edgecolor": "none", "pad": 1} if pattern else None
        ax.annotate(
            f"{time:.0f}",
            (left + time / 2, y),
            ha="center",
            va="center",
            fontsize=LABEL_SIZE,
            color=ink,
            bbox=back,
        )
        if named:
            ax.annotate(words, (left + time / 2, y + 0.42), ha="center", fontsize=LABEL_SIZE, color=INK)
    others, makespan = own["others"], own["makespan"]
    ax.barh(y, others, left=ends[-1], height=0.62, color=FAINT)
    ax.annotate(
        f"  {makespan:.0f}", (makespan, y), va="center", fontsize=LABEL_SIZE, color=INK, weight="bold"
    )
