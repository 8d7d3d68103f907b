"""A Transformer learns the digits as rows of eight: on four simulated devices exactly as on one.

The minute-long training is not run again here: ``python -m benchmarks.transformer`` ran and stored it.
"""

from math import fsum

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from figures._page import claim, page
from gpipe_sim.course.trained import ALONE, EPOCHS, PIPELINE, reader, stored
from gpipe_sim.drawing.palette import FAINT
from gpipe_sim.drawing.plots import plot_losses
from gpipe_sim.drawing.plots.style import LABEL_SIZE, finish

GOAL = 0.95  #: of the held-out digits


def data() -> dict:
    """Per training the mean loss and the accuracy of each epoch; how far any two losses differ."""
    trained = {name: stored()[name] for name in (ALONE, PIPELINE)}
    steps = [each.losses for each in trained.values()]
    return {
        "loss": {name: _by_epoch(each.losses) for name, each in trained.items()},
        "accuracy": {name: each.accuracies for name, each in trained.items()},
        "steps": len(steps[0]),
        "apart": max(abs(a - b) for a, b in zip(*steps, strict=True)),
        "weights": sum(array.size for layer in reader() for array in layer.parameters.values()),
        "goal": GOAL,
    }


def draw(data: dict) -> Figure:
    figure, (left, right) = page(3.8, columns=2)
    _curves(left, data["loss"], "mean loss of an epoch")
    words = f"In each of {data['steps']} steps both losses agree to {_bound(data['apart'])} ..."
    claim(left, words, f"a Transformer of {data['weights']:,} weights, from the same start")
    _curves(right, data["accuracy"], "held-out digits right")
    right.get_legend().remove()
    right.axhline(data["goal"], color=FAINT, lw=0.9, ls=(0, (4, 3)))
    right.set_ylim(0, 1)
    right.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    last = min(found[-1] for found in data["accuracy"].values())
    claim(right, f"... and both read {last:.1%} of new digits", f"dashed: {data['goal']:.0%}")
    return figure


def _by_epoch(losses: list[float]) -> list[float]:
    steps = len(losses) // EPOCHS
    return [fsum(losses[i : i + steps]) / steps for i in range(0, len(losses), steps)]


def _bound(apart: float) -> str:
    """The next power of ten above it: no two that are 9e-15 apart are 1e-14 apart."""
    return f"1e-{next(n for n in range(1, 30) if apart >= 10.0 ** -(n + 1)):02d}"


def _curves(ax: Axes, curves: dict[str, list[float]], label: str) -> None:
    plot_losses({name: curves[name] for name in (ALONE, PIPELINE)}, ax)
    ax.set_xlabel("epoch", fontsize=LABEL_SIZE)
    ax.set_ylabel(label, fontsize=LABEL_SIZE)
    finish(ax)
