"""What a larger M costs if its pieces stay as large: the bubble falls, and so does accuracy at equal epochs.

With K = 4 devices and pieces of 8 digits, M microbatches make a batch of 8M, so an epoch has fewer updates.
The bubble is measured on timelines, exactly. An accuracy comes from training, which carries the last digits
of floating-point sums on: within ``TOLERANCE``, a few of the 359 held-out digits may come out otherwise.
"""

from functools import cache

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

import gpipe_sim as gp
from figures._exact import bubble, pair, table
from figures._page import claim, page
from gpipe_sim.drawing.palette import CURVES, INK
from gpipe_sim.drawing.plots import plot_bubble_curves
from gpipe_sim.drawing.plots.style import LABEL_SIZE, finish

DEVICES, PIECE, EPOCHS, SEEDS = 4, 8, 5, 3
MICROBATCHES = (4, 8, 16, 32, 64)
SIZES, LEARNING_RATE = (64, 32, 32, 32, 10), 2e-3
TOLERANCE = {"accuracy": 0.02}


@cache
def data() -> dict:
    """accuracy[i]: on held-out digits after the last epoch, with microbatches[i], one for each seed."""
    schedules = [gp.GPipe(DEVICES, m) for m in MICROBATCHES]
    return {
        "devices": DEVICES,
        "piece": PIECE,
        "epochs": EPOCHS,
        "microbatches": list(MICROBATCHES),
        "bubble": [pair(bubble(gp.simulate(schedule))) for schedule in schedules],
        "updates": [EPOCHS * (len(gp.digits().x) // (PIECE * m)) for m in MICROBATCHES],
        "accuracy": [[_learned(schedule, seed) for seed in range(SEEDS)] for schedule in schedules],
        "tolerance": TOLERANCE,
    }


def draw(data: dict) -> Figure:
    figure, (above, below) = page(5.8, rows=2, sharex=True)
    _bubbles(above, data)
    _accuracies(below, data)
    return figure


def _bubbles(ax: Axes, data: dict) -> None:
    measured = table([data["devices"]], data["microbatches"], [data["bubble"]])
    plot_bubble_curves(measured, ax)
    ax.set_xlabel("")
    (first, before), *_, (last, after) = measured[data["devices"]].items()
    words = (
        f"From M = {first} to M = {last} the bubble falls from {float(before):.0%} to {float(after):.0%} ..."
    )
    how = "ring: M = 4K; marks: measured on timelines; line: (K\u22121)/(K\u22121+M)"
    claim(ax, words, f"{data['devices']} devices; {how}")


def _accuracies(ax: Axes, data: dict) -> None:
    """A dot for each training, a line through their means, and how many updates each of them had."""
    means, last = [sum(found) / len(found) for found in data["accuracy"]], data["microbatches"][-1]
    ax.plot(data["microbatches"], means, color=CURVES[0], lw=1.2)
    for m, found, updates in zip(data["microbatches"], data["accuracy"], data["updates"], strict=True):
        ax.plot([m] * len(found), found, "o", ms=4.5, color=CURVES[0])
        aside = {"xytext": (0, 8), "textcoords": "offset points", "ha": "center" if m == last else "left"}
        ax.annotate(f"{updates} updates", (m, max(found)), color=INK, fontsize=LABEL_SIZE, **aside)
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.set(ylim=(0, 1.12), yticks=[0, 0.2, 0.4, 0.6, 0.8, 1])
    ax.set_ylabel("held-out digits right", fontsize=LABEL_SIZE)
    ax.set_xlabel(f"microbatches M, each of {data['piece']} digits", fontsize=LABEL_SIZE)
    finish(ax)
    words = f"... and what is learned in {data['epochs']} epochs falls from {means[0]:.0%} to {means[-1]:.0%}"
    how = f"dots: {len(data['accuracy'][0])} trainings each, from different weights; line: their mean"
    claim(ax, words, how)


def _learned(schedule: gp.Schedule, seed: int) -> float:
    history = gp.train(
        gp.split(gp.mlp(SIZES, seed=seed), stages=schedule.devices),
        schedule,
        gp.digits(),
        loss=gp.cross_entropy,
        optimizer=gp.Adam(LEARNING_RATE),
        epochs=EPOCHS,
        batch_size=PIECE * schedule.microbatches,
        seed=seed,
        report=None,
    )
    return history.accuracies[-1]
