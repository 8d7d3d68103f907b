"""Pictures of arrays: the bytes that a device holds, and images that add up."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from gpipe_sim.drawing.palette import MEMORY, SIGNED
from gpipe_sim.drawing.plots.style import (
    LABEL_SIZE,
    WIDTH,
    Array,
    byte_axis,
    finish,
    legend_outside,
    new_axes,
)
from gpipe_sim.errors import got
from gpipe_sim.runtime.memory import MemoryTrace


def plot_memory(
    memory: MemoryTrace, ax: Axes | None = None, categories: Sequence[str] = tuple(MEMORY)
) -> Axes:
    """What one device holds over a step, in bytes, stacked by category. ``memory`` is ``step.memory[k]``.

    ``categories`` says which ones to show, the first at the bottom.
    """
    if not isinstance(memory, MemoryTrace):
        raise TypeError(f"plot_memory needs one device's memory, such as step.memory[0] {got(memory)}")
    ax = ax or new_axes(WIDTH, 2.6)
    times = [float(time) for time in memory.times]
    bottom = [0] * len(times)
    for category in categories:
        top = [b + held for b, held in zip(bottom, memory.over_time(category), strict=True)]
        ax.fill_between(times, bottom, top, step="post", color=MEMORY[category], lw=0, label=category)
        bottom = top
    ax.set(xlim=(0, times[-1] or 1), ylim=(0, 1.05 * max(*bottom, 1)))
    ax.set_xlabel("time", fontsize=LABEL_SIZE)
    byte_axis(ax, max(bottom), "bytes held")
    handles, labels = ax.get_legend_handles_labels()
    finish(ax)
    legend_outside(ax, handles=handles[::-1], labels=labels[::-1])
    return ax


def plot_parts(parts: Sequence[Array], whole: Array, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Images that should add up: every part, their sum, the whole, and the difference sum - whole.

    Each is a 2-D array. Zero is white; parts, sum and whole share one colour scale, the difference has its
    own. Below each image is its largest absolute value. Takes ``len(parts) + 3`` axes.
    """
    panels = len(parts) + 3
    if axes is None:
        size = WIDTH, 0.7 + WIDTH / panels
        axes = plt.subplots(1, panels, figsize=size, layout="constrained")[1]
    total = sum(parts)
    images = {f"part {i}": part for i, part in enumerate(parts)} | {"sum": total, "whole": whole}
    signs = ["", *"+" * (len(parts) - 1), "=", ""]
    most = max(abs(image).max() for image in images.values())
    for ax, sign, (words, image) in zip(axes, signs, images.items(), strict=False):
        _add_image(ax, words, image, most)
        ax.text(-0.11, 0.5, sign, transform=ax.transAxes, ha="center", va="center")
    _add_image(axes[-1], "sum \u2212 whole", total - whole, abs(total - whole).max() or 1)
    return axes


def _add_image(ax: Axes, words: str, image: Array, most: float) -> None:
    ax.imshow(image, cmap=SIGNED, vmin=-most, vmax=most)
    ax.set_title(words, fontsize=LABEL_SIZE)
    ax.set_xlabel(f"{abs(image).max():.1g}", fontsize=LABEL_SIZE)
    ax.set(xticks=[], yticks=[])
