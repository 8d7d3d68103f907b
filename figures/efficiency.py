"""Efficiency against the number of devices: what more devices cost when the microbatches stay as they are."""

from matplotlib.figure import Figure

from figures._exact import bubble, pair, table
from figures._page import claim, page
from gpipe_sim import GPipe, simulate
from gpipe_sim.drawing.plots import plot_efficiency

MICROBATCHES = (4, 8, 16, 32, 64)
DEVICES = (1, 2, 3, 4, 6, 8, 12, 16)


def data() -> dict:
    """efficiency[i][j]: 1 - bubble fraction, measured for GPipe with microbatches[i] and devices[j]."""
    measured = [[pair(1 - bubble(simulate(GPipe(k, m)))) for k in DEVICES] for m in MICROBATCHES]
    return {"devices": list(DEVICES), "microbatches": list(MICROBATCHES), "efficiency": measured}


def draw(data: dict) -> Figure:
    figure, ax = page(4.6)
    measured = table(data["microbatches"], data["devices"], data["efficiency"])
    plot_efficiency(measured, ax)
    k, few, many = max(data["devices"]), data["microbatches"][1], data["microbatches"][-1]
    at_work = [f"{float(k * measured[m][k]):.1f} with {m}" for m in (few, many)]
    words = f"{k} devices do the work of {at_work[0]} microbatches, of {at_work[1]}"
    claim(ax, words, "GPipe; marks: measured on timelines; lines: K M/(K\u22121+M)")
    return figure
