"""The bubble against the number of microbatches: at M = 4K, the usual advice, it is still 11 to 19%."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures._exact import bubble, pair, table
from figures._page import page
from gpipe_sim import GPipe, simulate
from gpipe_sim.drawing.plots import plot_bubble_curves
from gpipe_sim.drawing.plots.style import TITLE_SIZE

DEVICES = (2, 4, 8, 16)
MICROBATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def data() -> dict:
    """bubble[i][j]: the bubble fraction measured for GPipe with devices[i] and microbatches[j]."""
    measured = [[pair(bubble(simulate(GPipe(k, m)))) for m in MICROBATCHES] for k in DEVICES]
    return {"devices": list(DEVICES), "microbatches": list(MICROBATCHES), "bubble": measured}


def draw(data: dict) -> Figure:
    figure, ax = page(4.4)
    draw_on(ax, data)
    title = "Bubble of GPipe: measured marks on the curves (K-1)/(K-1+M)"
    ax.set_title(title, loc="left", fontsize=TITLE_SIZE)
    return figure


def draw_on(ax: Axes, data: dict) -> None:
    plot_bubble_curves(table(data["devices"], data["microbatches"], data["bubble"]), ax)
