"""Loss with a flush and without one, against samples and against simulated time, on eight devices.

The trainings are not run again here: ``python -m benchmarks.staleness`` ran and stored them.
"""

from collections.abc import Sequence
from math import fsum

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures._page import claim, page
from gpipe_sim.course.stale import (
    BLOCK,
    COMMON,
    DOUBLE,
    EACH,
    FLUSHED,
    LATEST,
    METHODS,
    OWN,
    RATES,
    SAMPLES,
    SEEDS,
    STASHED,
    VERTICAL,
    Trained,
    every,
    stored,
    times,
)
from gpipe_sim.drawing.palette import CURVES
from gpipe_sim.drawing.plots.curves import name_ends
from gpipe_sim.drawing.plots.style import LABEL_SIZE, finish

DEVICES = 8
LEFT_OUT = 2  #: seeds above the band, and below it
DASHES, DOTTED, MIXED = (0, (5, 2)), (0, (1, 1.2)), (0, (4, 1.5, 1, 1.5))
STYLES = {
    EACH: (CURVES[1], DOTTED),
    FLUSHED: (CURVES[3], DASHES),
    STASHED: (CURVES[0], "-"),
    VERTICAL: (CURVES[4], MIXED),
    DOUBLE: (CURVES[4], "-"),
    LATEST: (CURVES[1], DASHES),
}
TOP, CROSSES = 2.75, 2.62  #: of the axis; where trainings are marked that diverge


def data() -> dict:
    """By rate and method: its rate, mean and band of each block, after how many samples it diverged."""
    blocks = len(times(STASHED, DEVICES))
    return {
        "devices": DEVICES,
        "seeds": len(SEEDS),
        "samples": [SAMPLES * BLOCK * (i + 1) for i in range(blocks)],
        "times": {method: times(method, DEVICES) for method in METHODS},
        "curves": {
            name: {method: _curve(stored()[DEVICES, method, rate], method) for method in METHODS}
            for name, rate in (("common", COMMON), ("own", OWN))
        },
    }


def _curve(found: Trained, method: str) -> dict:
    """As far as all seeds go."""
    seeds = [sorted(each) for each in zip(*found.losses, strict=False)]
    size = SAMPLES * every(method, DEVICES)
    return {
        "rate": found.rate,
        "mean": [fsum(each) / len(each) for each in seeds],
        "low": [each[LEFT_OUT] for each in seeds],
        "high": [each[-1 - LEFT_OUT] for each in seeds],
        "diverged": [size * end for end in found.diverged if end is not None],
    }


def draw(data: dict) -> Figure:
    figure, axes = page(8.2, rows=2, columns=2, sharey=True)
    ends = [
        (ax, panel(ax, data, curves))
        for row, curves in zip(axes, data["curves"].values(), strict=True)
        for ax, panel in zip(row, (_against_samples, _against_time), strict=True)
    ]
    _claims(axes, data)
    figure.draw_without_rendering()  # names are moved apart by how high their panels have become
    for ax, names in ends:
        name_ends(ax, names)
    return figure


def _claims(axes: Sequence[Sequence[Axes]], data: dict) -> None:
    ((one, two), (three, four)), common = axes, data["curves"]["common"]
    seeds, gone, rate = data["seeds"], len(common[LATEST]["diverged"]), common[LATEST]["rate"]
    words = f"At a rate of {rate}, {gone} of {seeds} diverge without stashing ..."
    middle = f"bands: the middle {seeds - 2 * LEFT_OUT}"
    claim(one, words, f"{data['devices']} devices; lines: mean of {seeds} trainings; {middle}")
    claim(two, "... and PipeDream is ahead in time", "the same trainings")
    rates = [curve["rate"] for curve in data["curves"]["own"].values()]
    claim(
        three,
        "At its own rate, a flush wins by samples ...",
        f"the best of rates from {min(RATES)} to {max(RATES)}; here {min(rates)} to {max(rates)}",
    )
    claim(four, "... and PipeDream by time", "the same trainings: rates were tuned for equal samples")


def _against_samples(ax: Axes, data: dict, curves: dict) -> list[tuple]:
    """A cross where a training without stashing diverges; the names at the ends of the others."""
    crossed = curves[LATEST]["diverged"]
    if crossed:
        ax.plot(crossed, [CROSSES] * len(crossed), "x", ms=6, mew=1.6, color=STYLES[LATEST][0])
        aside = {"xytext": (10, 0), "textcoords": "offset points", "va": "center", "fontsize": LABEL_SIZE}
        at = max(data["samples"]), CROSSES
        ax.annotate("no stashing:\ndiverges", at, annotation_clip=False, **aside)
    ax.set_xlabel("samples", fontsize=LABEL_SIZE)
    ax.set_ylabel("loss", fontsize=LABEL_SIZE)
    return _draw(ax, curves, dict.fromkeys(curves, data["samples"]))


def _against_time(ax: Axes, data: dict, curves: dict) -> list[tuple]:
    """Until a little after PipeDream is through."""
    until = 1.06 * data["times"][STASHED][-1]
    ax.set_xlabel("time, with F = 1 and B = 2", fontsize=LABEL_SIZE)
    return _draw(ax, curves, {m: [at for at in data["times"][m] if at <= until] for m in curves})


def _draw(ax: Axes, curves: dict, across: dict[str, list]) -> list[tuple]:
    """The curves of all that do not diverge, and their names with where they end."""
    end, names = max(max(x) for x in across.values()), []
    for method, curve in curves.items():
        if curve["diverged"]:
            continue
        x, (colour, dashes) = across[method], STYLES[method]
        low, mean, high = (curve[name][: len(x)] for name in ("low", "mean", "high"))
        ax.fill_between(x, low, high, color=colour, alpha=0.13, lw=0)
        ax.plot(x, mean, color=colour, ls=dashes, lw=1.6, label=method)
        names.append((method, end, mean[-1]))
    ax.set(xlim=(0, 1.02 * end), ylim=(0, TOP))
    finish(ax)
    return names
