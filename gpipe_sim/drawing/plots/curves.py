"""Curves: measured bubbles and efficiency on their formulas, and losses of several schedules together.

A curve is ink, and has its name at its end; lighter curves are later ones of a row.
"""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from gpipe_sim.drawing.palette import CURVES, INK, MARKERS, REFERENCE
from gpipe_sim.drawing.plots.style import (
    WIDTH,
    Losses,
    Measured,
    finish,
    given_or_new,
    label_size,
    read_losses,
    read_measured,
)

LINE = 1.3  #: from one name to the next, in sizes of the font


def plot_bubble_curves(measured: Measured, ax: Axes | None = None) -> Axes:
    """Bubble fraction against M: measured marks on the curves (K-1)/(K-1+M), one curve per K.

    ``measured[K][M]`` is the bubble fraction of a timeline, from 0 to 1. If M = 4K was measured, that mark
    gets a ring and its value. TypeError or ValueError for anything but such numbers, or for none.
    """
    measured = read_measured("plot_bubble_curves", measured)
    ax = given_or_new(ax, WIDTH, 4.2)
    for i, (devices, by_m) in enumerate(measured.items()):
        grid, colour = _between(min(by_m), max(by_m)), CURVES[i % len(CURVES)]
        ax.plot(grid, [(devices - 1) / (devices - 1 + m) for m in grid], color=colour, lw=1.2)
        found, label = list(map(float, by_m.values())), f"K = {devices}"
        ax.plot(list(by_m), found, MARKERS[i % len(MARKERS)], ms=4.5, color=colour, label=label)
        if (m := 4 * devices) in by_m:  # a ring around the mark, and its value above a curve that falls
            at, says = (m, float(by_m[m])), f"{float(by_m[m]):.1%}"
            ax.plot(*at, "o", ms=11, mfc="none", mec=INK)
            ax.annotate(says, at, (2, 9), textcoords="offset points", fontsize=label_size(), color=INK)
    powers = sorted({m for by_m in measured.values() for m in by_m if m & (m - 1) == 0})
    ax.set_xscale("log", base=2)
    ax.set_xticks(powers, [str(m) for m in powers])
    ax.minorticks_off()
    ax.set_xlabel("microbatches M", fontsize=label_size())
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.set_ylim(0, 1)
    ax.set_ylabel("bubble fraction", fontsize=label_size())
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
    ax.set_xlabel("step", fontsize=label_size())
    ax.set_ylabel("loss", fontsize=label_size())
    finish(ax)
    ax.legend(frameon=False, fontsize=label_size(), loc="upper right")
    return ax


def name_ends(ax: Axes, ends: Sequence[tuple[str, float, float]]) -> None:
    """Words beside the last points of curves, (words, x, y), moved apart where they would touch."""
    high = ax.bbox.height * 72 / ax.figure.dpi
    low, top = ax.get_ylim()
    wanted = sorted((high * (y - low) / (top - low), words, x, y) for words, x, y in ends)
    below = -(line := LINE * label_size())
    for at, words, x, y in wanted:
        below = max(at, below + line)
        name = ax.annotate(words, (x, y), (10, below - at), textcoords="offset points", annotation_clip=False)
        name.set(va="center", fontsize=label_size())


def _between(low: int, high: int, steps: int = 120) -> list[float]:
    """Values from low to high, evenly spaced on a logarithmic axis."""
    return [low * (high / low) ** (i / steps) for i in range(steps + 1)]
