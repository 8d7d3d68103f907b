"""What the charts of matplotlib share: sizes, axes, and the checks of what is drawn."""

from collections.abc import Iterable, Mapping, Sequence
from math import inf

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from gpipe_sim.drawing.palette import FAINT, GRID
from gpipe_sim.errors import Real, got, listed, number, require, require_in, whole

LABEL_SIZE, TITLE_SIZE = 9, 10  #: points, while matplotlib's ``font.size`` is 10
WIDTH = 9.0  #: inches: the widest chart; its labels can still be read on a page

Measured = Mapping[int, Mapping[int, Real]]
Losses = Mapping[str, Sequence[float]]


def label_size() -> float:
    """Points of the letters of a chart: as ``font.size`` of matplotlib has it."""
    return LABEL_SIZE * plt.rcParams["font.size"] / 10


def given_or_new(ax: Axes | None, width: float, height: float) -> Axes:
    """The axes; new ones of this size for None, TypeError for anything else."""
    if ax is None:
        return plt.subplots(figsize=(width, height), layout="constrained")[1]
    return require_axes(ax)


def require_axes(ax: Axes) -> Axes:
    """The axes; TypeError for anything else."""
    return require("a plot", ax, Axes, "axes, such as ax=plt.subplots()[1]")


def claim(ax: Axes, words: str, note: str = "", font: float | None = None) -> None:
    """What a chart says, in a sentence, above the axes; and below that, how to read the chart."""
    font = label_size() if font is None else font
    high = font / LABEL_SIZE
    if note:
        said = ax.annotate(note, (0, 1), (0, 6 * high), "axes fraction", "offset points", fontsize=font)
        said.set(color=FAINT, va="bottom" if "\n" in note else "baseline")
    pad = 6 + 14 * len(note.splitlines())
    ax.set_title(words, loc="left", fontsize=TITLE_SIZE * high, pad=pad * high, weight="bold")


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
    ax.tick_params(labelsize=label_size())
    ax.spines[["top", "right"]].set_visible(False)
