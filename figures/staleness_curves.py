"""Loss with a flush and without one, against samples and against simulated time, on eight devices.

The trainings are not run again here: ``python -m benchmarks.staleness`` ran and stored them.
"""

from math import fsum

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures._page import claim, page
from gpipe_sim.course.late import (
    BLOCK,
    COMMON,
    DOUBLE,
    EACH,
    FLUSHED,
    LATEST,
    OWN,
    SAMPLES,
    SEEDS,
    STASHED,
    stored,
    times,
)
from gpipe_sim.drawing.palette import CURVES
from gpipe_sim.drawing.plots.curves import name_ends
from gpipe_sim.drawing.plots.style import LABEL_SIZE, finish

DEVICES = 8
STYLES = {
    EACH: (CURVES[3], (0, (1, 1.5))),
    FLUSHED: (CURVES[2], (0, (5, 2))),
    STASHED: (CURVES[0], "-"),
    DOUBLE: (CURVES[2], "-"),
    LATEST: (CURVES[1], (0, (4, 1.5, 1, 1.5))),
}
TOP = 2.6  #: of the axis; what is above has diverged


def data() -> dict:
    """Per rate and method: its rate, and the mean, lowest and highest loss of the seeds for each block."""
    return {
        "devices": DEVICES,
        "seeds": len(SEEDS),
        "samples": [SAMPLES * BLOCK * (i + 1) for i in range(len(times(STASHED, DEVICES)))],
        "times": {method: list(times(method, DEVICES)) for method in STYLES},
        "curves": {
            name: {method: _spread(stored()[DEVICES, method, rate]) for method in STYLES}
            for name, rate in (("common", COMMON), ("own", OWN))
        },
    }


def _spread(found) -> dict:
    """Over the seeds, as far as all of them go."""
    seeds = list(zip(*found.losses, strict=False))
    return {
        "rate": found.rate,
        "mean": [fsum(each) / len(each) for each in seeds],
        "low": [min(each) for each in seeds],
        "high": [max(each) for each in seeds],
        "diverged": [end for end in found.diverged if end is not None],
    }


def draw(data: dict) -> Figure:
    figure, axes = page(7.4, rows=2, columns=2, sharey=True)
    for row, name in zip(axes, ("common", "own"), strict=True):
        for ax, against in zip(row, ("samples", "time"), strict=True):
            _panel(ax, data, name, against)
    return figure


def _panel(ax: Axes, data: dict, name: str, against: str) -> None:
    ends = []
    until = max(data["times"][STASHED]) * 1.25
    for method, curve in data["curves"][name].items():
        x = data["samples"] if against == "samples" else data["times"][method]
        n = min(len(curve["mean"]), sum(at <= until for at in x) if against == "time" else len(x))
        colour, dashes = STYLES[method]
        ax.fill_between(x[:n], curve["low"][:n], curve["high"][:n], color=colour, alpha=0.15, lw=0)
        ax.plot(x[:n], curve["mean"][:n], color=colour, ls=dashes, lw=1.6, label=method)
        ends.append((method, x[n - 1], curve["mean"][n - 1]))
    ax.set(ylim=(0, TOP), xlim=(0, None))
    ax.set_xlabel("samples" if against == "samples" else "simulated time", fontsize=LABEL_SIZE)
    finish(ax)
    name_ends(ax, ends)
    claim(ax, f"{name} {against}")
