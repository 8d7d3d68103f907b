"""Efficiency against the number of devices: what more devices cost when the microbatches stay as they are."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures._exact import bubble, pair, table
from figures._page import page
from gpipe_sim import GPipe, simulate
from gpipe_sim.drawing.plots import plot_efficiency
from gpipe_sim.drawing.plots.style import TITLE_SIZE

MICROBATCHES = (4, 8, 16, 32, 64)
DEVICES = (1, 2, 3, 4, 6, 8, 12, 16)


def data() -> dict:
    """efficiency[i][j]: 1 - bubble fraction, measured for GPipe with microbatches[i] and devices[j]."""
    measured = [[pair(1 - bubble(simulate(GPipe(k, m)))) for k in DEVICES] for m in MICROBATCHES]
    return {"devices": list(DEVICES), "microbatches": list(MICROBATCHES), "efficiency": measured}


def draw(data: dict) -> Figure:
    figure, ax = page(4.4)
    draw_on(ax, data)
    title = "Efficiency of GPipe, 1 - bubble: measured marks on the curves M/(K-1+M)"
    ax.set_title(title, loc="left", fontsize=TITLE_SIZE)
    return figure


def draw_on(ax: Axes, data: dict) -> None:
    plot_efficiency(table(data["microbatches"], data["devices"], data["efficiency"]), ax)
