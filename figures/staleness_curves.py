"""Loss with a flush and without one, against samples and against simulated time, on eight devices.

Each method at its own rate. The trainings are not run again here: ``python -m benchmarks.staleness`` ran and
stored them.
"""

from math import fsum

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures._page import claim, page
from gpipe_sim.course.stale import (
    BLOCK,
    EACH,
    FLUSHED,
    LATEST,
    OWN,
    SAMPLES,
    SEEDS,
    STASHED,
    Trained,
    stored,
    times,
)
from gpipe_sim.drawing.palette import CURVES
from gpipe_sim.drawing.plots.curves import name_ends
from gpipe_sim.drawing.plots.style import LABEL_SIZE, finish

DEVICES = 8
LEFT_OUT = 2  #: seeds above the band, and below it
#: What is drawn, its colour and its dashes.
STYLES = {
    EACH: (CURVES[1], (0, (1, 1.2))),
    FLUSHED: (CURVES[3], (0, (5, 2))),
    STASHED: (CURVES[0], "-"),
    LATEST: (CURVES[3], "-"),
}


def data() -> dict:
    """By method its rate, and the mean and the band of each block; when each block is through."""
    blocks = len(times(STASHED, DEVICES))
    return {
        "samples": [SAMPLES * BLOCK * (i + 1) for i in range(blocks)],
        "times": {method: times(method, DEVICES) for method in STYLES},
        "curves": {method: _curve(stored()[DEVICES, method, OWN]) for method in STYLES},
    }


def _curve(found: Trained) -> dict:
    seeds = [sorted(each) for each in zip(*found.losses, strict=True)]
    return {
        "rate": found.rate,
        "mean": [fsum(each) / len(each) for each in seeds],
        "low": [each[LEFT_OUT] for each in seeds],
        "high": [each[-1 - LEFT_OUT] for each in seeds],
    }


def draw(data: dict) -> Figure:
    figure, (left, right) = page(4.3, columns=2, sharey=True)
    until = 1.06 * data["times"][STASHED][-1]  # a little after PipeDream is through
    by_time = {method: [at for at in data["times"][method] if at <= until] for method in data["curves"]}
    ends = [
        _draw(left, data["curves"], dict.fromkeys(data["curves"], data["samples"]), "samples"),
        _draw(right, data["curves"], by_time, "time, with F = 1 and B = 2"),
    ]
    left.set_ylabel("loss", fontsize=LABEL_SIZE)
    note = f"{DEVICES} devices, {len(SEEDS)} trainings each, at its best rate"
    claim(left, "After as many samples fresh weights are ahead ...", note)
    claim(
        right,
        "... after as much time those that never wait",
        f"bands: the middle {len(SEEDS) - 2 * LEFT_OUT}",
    )
    figure.draw_without_rendering()  # names are moved apart by how high their panels have become
    for ax, names in zip((left, right), ends, strict=True):
        name_ends(ax, names)
    return figure


def _draw(ax: Axes, curves: dict, across: dict[str, list], label: str) -> list[tuple]:
    """The curves, and their names with where they end."""
    end, names = max(max(x) for x in across.values()), []
    for method, curve in curves.items():
        x, (colour, dashes) = across[method], STYLES[method]
        low, mean, high = (curve[name][: len(x)] for name in ("low", "mean", "high"))
        ax.fill_between(x, low, high, color=colour, alpha=0.13, lw=0)
        ax.plot(x, mean, color=colour, ls=dashes, lw=1.6, label=method)
        names.append((method, end, mean[-1]))
    ax.set(xlim=(0, 1.02 * end), ylim=(0, 2.75))
    ax.set_xlabel(label, fontsize=LABEL_SIZE)
    finish(ax)
    return names
