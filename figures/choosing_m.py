"""What a larger M costs if its pieces stay as large: the bubble falls, and so does accuracy at equal epochs.

With K = 4 devices and pieces of 8 digits, M microbatches make a batch of 8M, so an epoch has fewer updates.
Larger updates (as many times the learning rate as the batch is larger) make up for a part of it.
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
from gpipe_sim.core import Schedule
from gpipe_sim.drawing.palette import CURVES, INK, PAPER
from gpipe_sim.drawing.plots import plot_bubble_curves
from gpipe_sim.drawing.plots.style import LABEL_SIZE, finish

DEVICES, PIECE, EPOCHS, SEEDS = 4, 8, 5, 3
MICROBATCHES = (4, 8, 16, 32, 64)
SIZES, LEARNING_RATE = (64, 32, 32, 32, 10), 2e-3
TOLERANCE = {"accuracy": 0.02, "with_larger_updates": 0.02}


@cache
def data() -> dict:
    """accuracy[i]: on held-out digits after the last epoch, with microbatches[i], one for each seed.

    with_larger_updates[i]: the same, at a learning rate that grows as the batch does.
    """
    schedules = [gp.GPipe(DEVICES, m) for m in MICROBATCHES]
    return {
        "devices": DEVICES,
        "piece": PIECE,
        "epochs": EPOCHS,
        "microbatches": list(MICROBATCHES),
        "bubble": [pair(bubble(gp.simulate(schedule))) for schedule in schedules],
        "updates": [EPOCHS * (len(gp.digits().x) // (PIECE * m)) for m in MICROBATCHES],
        "accuracy": [_learned(schedule) for schedule in schedules],
        "with_larger_updates": [_learned(s, s.microbatches / MICROBATCHES[0]) for s in schedules],
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
    for words in ax.texts:  # one curve needs no name, and the ring a reason
        words.set_text("" if words.get_text().startswith("K") else f"{words.get_text()} at M = 4K")
    ax.set_xlabel("")
    (first, before), *_, (last, after) = measured[data["devices"]].items()
    words = (
        f"From M = {first} to M = {last} the bubble falls from {float(before):.0%} to {float(after):.0%} ..."
    )
    how = "marks: measured on timelines; line: (K\u22121)/(K\u22121+M)"
    claim(ax, words, f"{data['devices']} devices; {how}")


def _accuracies(ax: Axes, data: dict) -> None:
    """A dot for each training, lines through their means, and how many updates each of them had."""
    same, larger = (
        _line(ax, data["microbatches"], data[name], style)
        for name, style in (("accuracy", "-"), ("with_larger_updates", "--"))
    )
    for m, found, updates in zip(data["microbatches"], data["accuracy"], data["updates"], strict=True):
        _say(ax, f"{updates} updates", (m, min(found)), "right", -8)
    ax.set_xlim(left=2.75)  # room for the first of these
    _say(ax, "the same learning rate", (32, same[-2]), "left", 9)
    _say(ax, "M/4 times the learning rate", (32, larger[-2]), "center", 9)
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.set(ylim=(0, 1.12), yticks=[0, 0.2, 0.4, 0.6, 0.8, 1])
    ax.set_ylabel("held-out digits right", fontsize=LABEL_SIZE)
    ax.set_xlabel(f"microbatches M, each of {data['piece']} digits", fontsize=LABEL_SIZE)
    finish(ax)
    words = f"... and {data['epochs']} epochs teach less, since they have fewer updates"
    how = f"dots: {len(data['accuracy'][0])} trainings each, from different weights; lines: their means"
    claim(ax, words, how)


def _line(ax: Axes, microbatches: list[int], accuracies: list[list[float]], style: str) -> list[float]:
    """The means, drawn; the dots of a dashed line are hollow."""
    means = [sum(found) / len(found) for found in accuracies]
    ax.plot(microbatches, means, style, lw=1.2, color=CURVES[0])
    face = CURVES[0] if style == "-" else PAPER
    for m, found in zip(microbatches, accuracies, strict=True):
        ax.plot([m] * len(found), found, "o", ms=4.5, color=CURVES[0], mfc=face, zorder=2.1 + (style == "-"))
    return means


def _say(ax: Axes, words: str, at: tuple[float, float], side: str, up: float) -> None:
    aside = {
        "xytext": (0, up),
        "textcoords": "offset points",
        "ha": side,
        "va": "bottom" if up > 0 else "top",
    }
    ax.annotate(words, at, color=INK, fontsize=LABEL_SIZE, **aside)


def _learned(schedule: Schedule, times: float = 1) -> list[float]:
    """The accuracies of all seeds, with so many times the learning rate."""
    return [_trained(schedule, seed, times * LEARNING_RATE) for seed in range(SEEDS)]


@cache  # at M = 4 both learning rates are the same
def _trained(schedule: Schedule, seed: int, learning_rate: float) -> float:
    history = gp.train(
        gp.split(gp.mlp(SIZES, seed=seed), stages=schedule.devices),
        schedule,
        gp.digits(),
        loss=gp.cross_entropy,
        optimizer=gp.Adam(learning_rate),
        epochs=EPOCHS,
        batch_size=PIECE * schedule.microbatches,
        seed=seed,
        report=None,
    )
    return history.accuracies[-1]
