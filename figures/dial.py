"""The dial of lesson 07: the more room each device has, the shorter the step, until room for K is enough.

Each of four devices has room for the same number of microbatches, one to eight, and works as early as it can.
1F1B has room for 4 - k on device k, and leaves that line; GPipe puts off every backward.
"""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures._gantt import numbers, timeline_of
from figures._page import claim, page
from gpipe_sim import GPipe, OneFOneB
from gpipe_sim.drawing.palette import FAINT, INK
from gpipe_sim.drawing.plots import plot_bare
from gpipe_sim.drawing.plots.style import LABEL_SIZE, finish
from gpipe_sim.memory import greedy

DEVICES, MICROBATCHES = 4, 8
DRAWN = (1, 2, 3, 4, 8)  #: the rooms that get a thumbnail
WIDE, HIGH = 0.102, 4.4  #: a thumbnail: of a microbatch held per unit of time; in units of time
#: from a point to the lower left corner of its thumbnail
BESIDE, BELOW, BEFORE = (0.35, 0.3), (0.1, -8.5), (-3.6, -8.5)


def data() -> dict:
    """A chart for each setting of the dial, 1F1B's and GPipe's."""
    settings = [numbers(greedy(DEVICES, MICROBATCHES, memory_limit=room)) for room in _rooms()]
    return {
        "settings": settings,
        "1F1B": numbers(OneFOneB(DEVICES, MICROBATCHES)),
        "GPipe": numbers(GPipe(DEVICES, MICROBATCHES)),
    }


def draw(data: dict) -> Figure:
    figure, ax = page(6.2)
    settings, alone, gpipe = data["settings"], data["1F1B"], data["GPipe"]
    ax.plot(*zip(*map(_point, settings), strict=True), "o-", color=FAINT, lw=1, ms=4)
    ax.plot(*_point(gpipe), "o", color=FAINT, ms=4)
    ax.plot(*_point(alone), "D", color=INK, ms=7)
    for room in DRAWN:
        _thumbnail(ax, settings[room - 1], _name(room), BELOW if room == DEVICES else BESIDE)
    _thumbnail(ax, gpipe, "GPipe", BESIDE)
    _thumbnail(ax, alone, "1F1B: 4, 3, 2, 1", BEFORE)
    ax.set(xlim=(2.5, 37), ylim=(20, 106), xticks=range(4, 37, 4))
    ax.set_xlabel("microbatches that the four devices hold at most, added up", fontsize=LABEL_SIZE)
    ax.set_ylabel("length of the step", fontsize=LABEL_SIZE)
    finish(ax)
    enough, held = settings[DEVICES - 1], [sum(own["peak_in_flight"]) for own in (alone, gpipe)]
    words = f"1F1B takes {enough['makespan']}, as GPipe does, and its devices hold {held[0]} together"
    words = f"{words}, not {held[1]}"
    claim(ax, words)
    return figure


def _rooms() -> range:
    return range(1, MICROBATCHES + 1)


def _name(room: int) -> str:
    return {1: "room for 1 each: naive", MICROBATCHES: f"{MICROBATCHES} each"}.get(room, f"{room} each")


def _point(own: dict) -> tuple[int, float]:
    return sum(own["peak_in_flight"]), own["makespan"]


def _thumbnail(ax: Axes, own: dict, name: str, away: tuple[float, float]) -> None:
    """The chart near its point, as wide as it is long, with its name above."""
    x, y = (at + by for at, by in zip(_point(own), away, strict=True))
    inset = ax.inset_axes([x, y, WIDE * own["makespan"], HIGH], transform=ax.transData)
    plot_bare(timeline_of(own), inset)
    ax.annotate(name, (x, y + HIGH + 0.5), fontsize=LABEL_SIZE, va="bottom")
