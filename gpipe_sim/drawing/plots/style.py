"""What the charts share: sizes, axes, a place for the legend."""

from collections.abc import Mapping, Sequence
from numbers import Real

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from gpipe_sim.drawing.palette import GRID

LABEL_SIZE, TITLE_SIZE = 9, 10  #: points
WIDTH = 9.0  #: inches: the widest chart; its labels can still be read on a page

Array = np.ndarray
Measured = Mapping[int, Mapping[int, Real]]
Losses = Mapping[str, Sequence[float]]


def new_axes(width: float, height: float) -> Axes:
    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def finish(ax: Axes) -> None:
    ax.grid(color=GRID, lw=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=LABEL_SIZE)
    ax.spines[["top", "right"]].set_visible(False)


def legend_outside(ax: Axes, **entries) -> None:
    place = {"loc": "upper left", "bbox_to_anchor": (1.01, 1), "borderaxespad": 0}
    ax.legend(frameon=False, fontsize=LABEL_SIZE, **place, **entries)


def byte_axis(ax: Axes, most: int, label: str) -> None:
    """Name the y axis and write its bytes in kB (1,000 bytes), or in MB from 10 MB on."""
    unit, name = (10**6, "MB") if most >= 10**7 else (1000, "kB")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value / unit:,.10g}")
    ax.set_ylabel(f"{label} ({name})", fontsize=LABEL_SIZE)
