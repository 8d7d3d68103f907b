"""Curves: measured bubbles and efficiency on their formulas, and losses of several schedules together."""

from collections.abc import Callable, Mapping
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
    legend_outside,
    read_losses,
    read_measured,
)


def plot_bubble_curves(measured: Measured, ax: Axes | None = None) -> Axes:
    """Bubble fraction against M: measured marks on the curves (K-1)/(K-1+M), one curve per K.

    ``measured[K][M]`` is the bubble fraction of a timeline. If M = 4K was measured, that mark gets a ring and
    its value.
    """
    measured = read_measured("plot_bubble_curves", measured)
    ax = given_or_new(ax, WIDTH, 4.2)
    ax.plot([], [], "o", ms=11, mfc="none", mec=INK, label="M = 4K")
    for i, (devices, by_m) in enumerate(measured.items()):
        _add_curve(ax, i, by_m, lambda m, k=devices: _bubble(k, m), f"K = {devices}")
        if 4 * devices in by_m:
            _ring(ax, 4 * devices, float(by_m[4 * devices]))
    _log_axis(ax, "microbatches M", measured)
    _percent_axis(ax, "bubble fraction", 1)
    finish(ax)
    legend_outside(ax, reverse=True)
    return ax


def plot_efficiency(measured: Measured, ax: Axes | None = None) -> Axes:
    """Efficiency, 1 - bubble, against K: measured marks on M/(K-1+M), one curve per M.

    ``measured[M][K]`` is the utilization of a timeline.
    """
    measured = read_measured("plot_efficiency", measured)
    ax = given_or_new(ax, WIDTH, 4.2)
    for i, (microbatches, by_k) in enumerate(measured.items()):
        _add_curve(ax, i, by_k, lambda k, m=microbatches: 1 - _bubble(k, m), f"M = {microbatches}")
    _log_axis(ax, "devices K", measured)
    _percent_axis(ax, "efficiency", 1.03)
    finish(ax)
    legend_outside(ax, reverse=True)
    return ax


def plot_losses(losses: Losses, ax: Axes | None = None) -> Axes:
    """Loss against step, one curve per name: the first is a wide pale line, the others are marks on it.

    The curves take turns in marking a step, so that each can be seen even where they coincide.
    """
    (name, reference), *others = read_losses("plot_losses", losses).items()
    ax = given_or_new(ax, WIDTH, 4.2)
    ax.plot(range(1, len(reference) + 1), reference, color=REFERENCE, lw=2.5, label=name)
    _take_turns(ax, dict(others), lw=0)
    ax.set(xlim=(0, len(reference) + 1), ylim=(0, None))
    ax.set_xlabel("step", fontsize=LABEL_SIZE)
    ax.set_ylabel("loss", fontsize=LABEL_SIZE)
    finish(ax)
    legend_outside(ax)
    return ax


def plot_loss_differences(losses: Losses, ax: Axes | None = None) -> Axes:
    """How far each curve is from the first, in units of 1e-15; colours and marks as in ``plot_losses``."""
    (_, reference), *others = read_losses("plot_loss_differences", losses).items()
    if lengths := {len(curve) for _, curve in others} - {len(reference)}:
        raise ValueError(f"plot_loss_differences needs curves of {len(reference)} steps (got {min(lengths)})")
    ax = given_or_new(ax, WIDTH, 2.2)
    apart = {
        name: [1e15 * abs(a - b) for a, b in zip(curve, reference, strict=True)] for name, curve in others
    }
    _take_turns(ax, apart, lw=0.8)
    ax.set(xlim=(0, len(reference) + 1))
    ax.set_xlabel("step", fontsize=LABEL_SIZE)
    ax.set_ylabel("difference (1e-15)", fontsize=LABEL_SIZE)
    finish(ax)
    return ax


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
    offset = {"xytext": (5, 6), "textcoords": "offset points"}
    ax.annotate(f"{y:.1%}", (x, y), fontsize=LABEL_SIZE, color=INK, **offset)


def _take_turns(ax: Axes, curves: Losses, lw: float) -> None:
    """Draw curves with few marks each, and no two with a mark at the same step."""
    for i, (name, values) in enumerate(curves.items()):
        every = max(len(curves), len(values) // 10)
        ax.plot(
            range(1, len(values) + 1),
            values,
            MARKERS[i % len(MARKERS)] + "-",
            color=CURVES[i % len(CURVES)],
            lw=lw,
            ms=4.5,
            markevery=(i * every // len(curves), every),
            label=name,
        )


def _log_axis(ax: Axes, label: str, measured: Measured) -> None:
    values = sorted({x for points in measured.values() for x in points})
    powers = [value for value in values if value & (value - 1) == 0]
    ax.set_xscale("log", base=2)
    ax.set_xticks(powers, [str(value) for value in powers])
    ax.minorticks_off()
    ax.set_xlabel(label, fontsize=LABEL_SIZE)


def _percent_axis(ax: Axes, label: str, until: float) -> None:
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.set_ylabel(label, fontsize=LABEL_SIZE)
    ax.set_ylim(0, until)


def _between(low: int, high: int, steps: int = 120) -> list[float]:
    """Values from low to high, evenly spaced on a logarithmic axis."""
    return [low * (high / low) ** (i / steps) for i in range(steps + 1)]
