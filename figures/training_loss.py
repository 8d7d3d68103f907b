"""Real training: an MLP of 11 layers learns handwritten digits, and with every schedule it learns the same.

The losses are floating-point sums. A schedule that adds up microbatches in another order than one device
does, as GPipe's reversed drain, rounds differently, by about 1e-15 here. Matrix products on another processor
or with another BLAS may round differently too. Training carries such differences on, so losses are compared
within ``TOLERANCE``, a million times what was measured between orders; an accuracy may be off by one of the
360 held-out digits.
"""

from collections.abc import Callable
from functools import cache

from matplotlib.axes import Axes
from matplotlib.figure import Figure

import gpipe_sim as gp
from figures._page import claim, page
from gpipe_sim.drawing.plots import plot_losses

SIZES, SEED = (64, 32, 32, 32, 32, 32, 10), 0
EPOCHS, BATCH, MICROBATCHES, LEARNING_RATE = 15, 64, 8, 2e-3
ALONE = "one device"
SCHEDULES = {
    "naive": gp.Naive(4, MICROBATCHES),
    "GPipe": gp.GPipe(4, MICROBATCHES),
    "1F1B": gp.OneFOneB(4, MICROBATCHES),
    "interleaved": gp.Interleaved1F1B(4, MICROBATCHES, stages_per_device=2),
}
TOLERANCE = {"losses": 1e-9, "accuracy": 0.003}


@cache
def data() -> dict:
    """The loss of every step and the held-out accuracy after the last, on one device and per schedule."""
    histories = {ALONE: _train(ALONE, None)}
    histories |= {name: _train(name, schedule) for name, schedule in SCHEDULES.items()}
    return {
        "order": list(histories),
        "losses": {name: history.losses for name, history in histories.items()},
        "accuracy": {name: history.accuracies[-1] for name, history in histories.items()},
        "layers": len(gp.mlp(SIZES)),
        "tolerance": TOLERANCE,
    }


def draw(data: dict) -> Figure:
    figure, ax = page(4.4)
    draw_on(ax, data)
    return figure


def draw_on(ax: Axes, data: dict) -> None:
    """All curves on one device's, and in words what they share and how far they are apart."""
    curves, accuracy = losses(data), min(data["accuracy"].values())
    plot_losses(curves, ax)
    worst = max(apart(curves).values())
    note = f"{data['layers']} layers, 4 devices; on no step are two losses further apart than {worst:.0e}"
    claim(
        ax,
        f"{len(curves) - 1} schedules learn what one device learns: {accuracy:.1%} of new digits right",
        note,
    )


def losses(data: dict) -> dict[str, list[float]]:
    """The curves in the order of drawing, one device first."""
    return {name: data["losses"][name] for name in data["order"]}


def apart(curves: dict[str, list[float]]) -> dict[str, float]:
    """The largest difference of each schedule's loss from one device's, over all steps."""
    (_, alone), *others = curves.items()
    return {name: max(abs(a - b) for a, b in zip(alone, curve, strict=True)) for name, curve in others}


def _train(name: str, schedule: gp.Schedule | None) -> gp.History:
    layers = gp.mlp(SIZES, seed=SEED)
    how = {
        "loss": gp.cross_entropy,
        "optimizer": gp.Adam(LEARNING_RATE),
        "epochs": EPOCHS,
        "batch_size": BATCH,
        "seed": SEED,
        "report": _progress(name),
    }
    if schedule is None:
        return gp.train_single_device(layers, gp.digits(), microbatches=MICROBATCHES, **how)
    return gp.train(gp.split(layers, stages=schedule.stages), schedule, gp.digits(), **how)


def _progress(name: str) -> Callable[[str], None]:
    """A ``report`` that prints one line per training: a dot for every epoch, then the last epoch's report."""
    lines = []

    def report(line: str) -> None:
        lines.append(line)
        last = len(lines) == EPOCHS
        start = f"  {name:<12} " if len(lines) == 1 else ""
        print(f"{start}.{' ' + line if last else ''}", end="\n" if last else "", flush=True)

    return report
