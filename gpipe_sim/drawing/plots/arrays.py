"""Pictures of arrays: images that add up."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from gpipe_sim.drawing.palette import SIGNED
from gpipe_sim.drawing.plots.style import (
    LABEL_SIZE,
    WIDTH,
    Array,
    given_or_new,
)
from gpipe_sim.errors import got, listed, numbers


def plot_parts(parts: Sequence[Array], whole: Array, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Images that should add up: every part, their sum, the whole, and the difference sum - whole.

    Each is a 2-D array. Zero is white; parts, sum and whole share one colour scale, the difference has its
    own. Below each image is its largest absolute value. Takes ``len(parts) + 3`` axes.
    """
    such_as = "2-D arrays of one shape, such as [array, array]"
    parts = [numbers("plot_parts", "parts", part) for part in listed("plot_parts", such_as, parts)]
    whole = numbers("plot_parts", "whole", whole)
    if not whole.size or whole.ndim != 2 or {part.shape for part in parts} != {whole.shape}:
        shapes = [image.shape for image in (*parts, whole)]
        raise ValueError(f"plot_parts needs {such_as} {got(shapes)}")
    panels = len(parts) + 3
    if axes is None:
        size = WIDTH, 0.7 + WIDTH / panels
        axes = plt.subplots(1, panels, figsize=size, layout="constrained")[1]
    axes = [given_or_new(ax, 1, 1) for ax in listed("plot_parts", f"a list of {panels} axes", axes)]
    if len(axes) != panels:
        raise ValueError(f"plot_parts needs {panels} axes (got {len(axes)})")
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
