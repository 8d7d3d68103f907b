"""1F1B: what each device does, when it waits, and the three phases of that."""

from itertools import pairwise

from matplotlib.figure import Figure

from figures._gantt import numbers, picture, timeline_of
from gpipe_sim import OneFOneB
from gpipe_sim.drawing.palette import FAINT, INK, PAPER
from gpipe_sim.drawing.plots.style import LABEL_SIZE
from gpipe_sim.why.metrics import phases

PHASES = "warm-up", "steady state", "drain"
ABOVE = -1.1  #: rows above the lanes, for the phases
WORDS = {"ha": "center", "va": "center", "fontsize": LABEL_SIZE, "color": INK, "backgroundcolor": PAPER}
SIZE = {"devices": 4, "microbatches": 9}


def data() -> dict:
    return numbers(OneFOneB(**SIZE))


def draw(data: dict) -> Figure:
    claim = "One batch in nine microbatches, on four devices: 1F1B's warm-up, steady state and drain"
    figure = picture(data, claim, in_flight=False)
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
