"""Curves: measured bubbles and efficiency on their formulas, and losses of several schedules together.

A curve is ink, and has its name at its end; lighter curves are later ones of a row.
"""

from collections.abc import Callable, Mapping, Sequence
from numbers import Real

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from gpipe_sim.drawing.palette import CURVES, INK, MARKERS, REFERENCE
from gpipe_sim.drawing.plots.style import (
    LABEL_SIZE,
    WIDTH,
    Losses,
    Measured,
    finish,
    given_or_new,
    read_losses,
    read_measured,
)

LINE = 1.3 * LABEL_SIZE  #: points from one name to the next


def plot_bubble_curves(measured: Measured, ax: Axes | None = None) -> Axes:
    """Bubble fraction against M: measured marks on the curves (K-1)/(K-1+M), one curve per K.

    ``measured[K][M]`` is the bubble fraction of a timeline, from 0 to 1. If M = 4K was measured, that mark
    gets a ring and its value. TypeError or ValueError for anything but such numbers, or for none.
    """
    measured = read_measured("plot_bubble_curves", measured)
    ax = given_or_new(ax, WIDTH, 4.2)
    for i, (devices, by_m) in enumerate(measured.items()):
        _add_curve(ax, i, by_m, lambda m, k=devices: _bubble(k, m), f"K = {devices}")
        if 4 * devices in by_m:
            _ring(ax, 4 * devices, float(by_m[4 * devices]))
    _log_axis(ax, "microbatches M", measured)
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.set_ylim(0, 1)
    ax.set_ylabel("bubble fraction", fontsize=LABEL_SIZE)
    finish(ax)
    name_ends(ax, [(f"K = {k}", max(by_m), float(by_m[max(by_m)])) for k, by_m in measured.items()])
    return ax


def plot_losses(losses: Losses, ax: Axes | None = None) -> Axes:
    """Loss against step, one curve per name: the first is a wide pale line, the others are marks on it.

    The curves take turns in marking a step, so that each can be seen even where they coincide. TypeError or
    ValueError for anything but lists of numbers by name, or for none.
    """
    (name, reference), *others = read_losses("plot_losses", losses).items()
    ax = given_or_new(ax, WIDTH, 4.2)
    ax.plot(range(1, len(reference) + 1), reference, color=REFERENCE, lw=4, label=name)
    for i, (name, values) in enumerate(others):
        every = max(len(others), len(values) // 10)
        ax.plot(
            range(1, len(values) + 1),
            values,
            MARKERS[i % len(MARKERS)],
            color=INK,
            mfc=CURVES[-1 - i % len(CURVES)],
            ms=5,
            markevery=(i * every // len(others), every),
            label=name,
        )
    ax.set(xlim=(0, len(reference) + 1), ylim=(0, None))
    ax.set_xlabel("step", fontsize=LABEL_SIZE)
    ax.set_ylabel("loss", fontsize=LABEL_SIZE)
    finish(ax)
    ax.legend(frameon=False, fontsize=LABEL_SIZE, loc="upper right")
    return ax


def name_ends(ax: Axes, ends: Sequence[tuple[str, float, float]]) -> None:
    """Words beside the last points of curves, (words, x, y), moved apart where they would touch."""
    high = float(ax.get_position().height) * ax.figure.get_size_inches()[1] * 72
    low, top = ax.get_ylim()
    wanted = sorted((high * (y - low) / (top - low), words, x, y) for words, x, y in ends)
    below = -LINE
    for at, words, x, y in wanted:
        placed = max(at, below + LINE)
        below = placed
        aside = {"xytext": (10, placed - at), "textcoords": "offset points"}
        ax.annotate(words, (x, y), va="center", fontsize=LABEL_SIZE, annotation_clip=False, **aside)


def _bubble(devices: float, microbatches: float) -> float:
    """The bubble fraction of GPipe, also between whole numbers, for a smooth curve."""
    return (devices - 1) / (devices - 1 + microbatches)


def _add_curve(ax: Axes, i: int, points: Mapping[int, Real], formula: Callable, label: str) -> None:
    """The i-th formula as a line, and what was measured as marks on it."""
    colour, grid = CURVES[i % len(CURVES)], _between(min(points), max(points))
    ax.plot(grid, [formula(x) for x in grid], color=colour, lw=1.2)
    measured = [float(value) for value in points.values()]
    ax.plot(list(points), measured, MARKERS[i % len(MARKERS)], ms=4.5, color=colour, label=label)


def _ring(ax: Axes, x: float, y: float) -> None:
    """A ring around a measured mark, and its value beside it, above a curve that falls."""
    ax.plot(x, y, "o", ms=11, mfc="none", mec=INK)
    offset = {"xytext": (2, 9), "textcoords": "offset points"}
    ax.annotate(f"{y:.1%}", (x, y), fontsize=LABEL_SIZE, color=INK, **offset)


def _log_axis(ax: Axes, label: str, measured: Measured) -> None:
    values = sorted({x for points in measured.values() for x in points})
    powers = [value for value in values if value & (value - 1) == 0]
    ax.set_xscale("log", base=2)
    ax.set_xticks(powers, [str(value) for value in powers])
    ax.minorticks_off()
    ax.set_xlabel(label, fontsize=LABEL_SIZE)


def _between(low: int, high: int, steps: int = 120) -> list[float]:
    """Values from low to high, evenly spaced on a logarithmic axis."""
    return [low * (high / low) ** (i / steps) for i in range(steps + 1)]
