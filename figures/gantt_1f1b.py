"""1F1B: as long as GPipe, but device k holds at most 4 - k microbatches."""

from itertools import pairwise

from matplotlib.figure import Figure

from figures._gantt import numbers, picture, timeline_of
from gpipe_sim import GPipe, OneFOneB
from gpipe_sim.drawing.palette import FAINT, INK, PAPER
from gpipe_sim.drawing.plots.style import LABEL_SIZE
from gpipe_sim.why.metrics import phases

PHASES = "warm-up", "steady state", "drain"
ABOVE = -1.1  #: rows above the lanes, for the phases
WORDS = {"ha": "center", "va": "center", "fontsize": LABEL_SIZE, "color": INK, "backgroundcolor": PAPER}
SIZE = {"devices": 4, "microbatches": 9}


def data() -> dict:
    return numbers(OneFOneB(**SIZE)) | {"gpipe": numbers(GPipe(**SIZE))}


def draw(data: dict) -> Figure:
    figure = picture(data, claim(data, data["gpipe"]))
    [ax] = figure.axes
    ends = [0, *phases(timeline_of(data), 0), data["makespan"]]
    ax.set_ylim(top=ABOVE)
    for name, (start, end) in zip(PHASES, pairwise(ends), strict=True):
        ax.annotate(
            "",
            (start, ABOVE / 2),
            (end, ABOVE / 2),
            arrowprops={"arrowstyle": "|-|,widthA=0.2,widthB=0.2", "color": FAINT, "lw": 0.8},
        )
        ax.text((start + end) / 2, ABOVE / 2, name, **WORDS)
    return figure


def claim(data: dict, gpipe: dict) -> str:
    """Its length and what it holds at most, beside GPipe's."""
    longer = data["makespan"] - gpipe["makespan"]
    held, all_of_them = max(data["peak_in_flight"]), max(gpipe["peak_in_flight"])
    length = "as long as GPipe" if longer == 0 else f"{longer:+g} beside GPipe"
    return f"1F1B: {length}, and holds {held} microbatches at most instead of {all_of_them}"
