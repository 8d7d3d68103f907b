"""What the charts of matplotlib share: sizes, axes, and the checks of what is drawn."""

from collections.abc import Iterable, Mapping, Sequence
from math import inf

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from gpipe_sim.drawing.palette import FAINT, GRID
from gpipe_sim.errors import Real, got, listed, number, require, require_in, whole

LABEL_SIZE, TITLE_SIZE = 9, 10  #: points
WIDTH = 9.0  #: inches: the widest chart; its labels can still be read on a page

Measured = Mapping[int, Mapping[int, Real]]
Losses = Mapping[str, Sequence[float]]


def given_or_new(ax: Axes | None, width: float, height: float) -> Axes:
    """The axes; new ones of this size for None, TypeError for anything else."""
    if ax is None:
        return plt.subplots(figsize=(width, height), layout="constrained")[1]
    return require_axes(ax)


def require_axes(ax: Axes) -> Axes:
    """The axes; TypeError for anything else."""
    return require("a plot", ax, Axes, "axes, such as ax=plt.subplots()[1]")


def claim(ax: Axes, words: str, note: str = "") -> None:
    """What a chart says, in a sentence, above the axes; and below that, how to read the chart."""
    if note:
        ax.annotate(note, (0, 1), (0, 6), "axes fraction", "offset points", color=FAINT, fontsize=LABEL_SIZE)
    ax.set_title(words, loc="left", fontsize=TITLE_SIZE, pad=20 if note else 6, weight="bold")


def read_measured(owner: str, measured: Measured) -> Measured:
    """Numbers by K and M; TypeError or ValueError for anything else, or for nothing."""
    such_as = "numbers by two sizes, such as {2: {4: 0.2, 8: 0.1}}"
    for size, points in _items(owner, measured, such_as):
        whole(owner, "every size", size)
        for other, value in _items(owner, points, such_as):
            whole(owner, "every size", other)
            require_in(owner, "every value", value, -inf, inf)
    return measured


def read_losses(owner: str, losses: Losses) -> Losses:
    """A list of numbers by name; TypeError or ValueError for anything else, or for nothing."""
    such_as = "losses by name, such as {'GPipe': [2.3, 1.9]}"
    return {
        str(name): [number(owner, "every loss", loss) for loss in listed(owner, such_as, curve)]
        for name, curve in _items(owner, losses, such_as)
    }


def _items(owner: str, value: Mapping, such_as: str) -> Iterable[tuple]:
    if not require(owner, value, Mapping, such_as):
        raise ValueError(f"{owner} needs {such_as} {got(value)}")
    return value.items()


def finish(ax: Axes) -> None:
    ax.grid(color=GRID, lw=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=LABEL_SIZE)
    ax.spines[["top", "right"]].set_visible(False)
