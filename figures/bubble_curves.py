"""The bubble against the number of microbatches: at M = 4K, the usual advice, it is still 11 to 19%."""

from matplotlib.figure import Figure

from figures._exact import bubble, pair, table
from figures._page import claim, page
from gpipe_sim import GPipe, simulate
from gpipe_sim.drawing.plots import plot_bubble_curves

DEVICES = (2, 4, 8, 16)
MICROBATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def data() -> dict:
    """bubble[i][j]: the bubble fraction measured for GPipe with devices[i] and microbatches[j]."""
    measured = [[pair(bubble(simulate(GPipe(k, m)))) for m in MICROBATCHES] for k in DEVICES]
    return {"devices": list(DEVICES), "microbatches": list(MICROBATCHES), "bubble": measured}


def draw(data: dict) -> Figure:
    figure, ax = page(4.4)
    measured = table(data["devices"], data["microbatches"], data["bubble"])
    plot_bubble_curves(measured, ax)
    left = [float(row[4 * k]) for k, row in measured.items()]
    words = f"At the usual M = 4K, GPipe still waits {min(left):.0%} to {max(left):.0%} of the time"
    claim(ax, words, "ring: M = 4K; marks: measured on timelines; lines: (K\u22121)/(K\u22121+M)")
    return figure
