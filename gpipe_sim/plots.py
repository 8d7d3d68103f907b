"""Charts with matplotlib: axes in, axes out.

Without ``ax`` each makes a figure whose size follows from the data. Nothing is shown and no style is
changed; show or save the figure yourself (``ax.figure.savefig``).
"""

from collections.abc import Callable, Mapping, Sequence
from numbers import Real

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import PercentFormatter

from gpipe_sim.actions import Kind
from gpipe_sim.chart import (
    IN_FLIGHT_COLOUR,
    INK,
    MEMORY_PALETTE,
    PHASES,
    Box,
    boxes,
    caption,
    has_pairs,
    ink,
    kinds_drawn,
    legend,
    number,
    phase_lines,
    ticks,
)
from gpipe_sim.memory import CATEGORIES, MemoryTrace
from gpipe_sim.metrics import in_flight
from gpipe_sim.schedule import peak_in_flight
from gpipe_sim.simulate import Timeline

#: One colour per curve, in order: blue, orange, green, vermillion, purple, sky.
CURVES = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
#: One marker per curve, for readers who do not tell the colours apart.
MARKERS = ("o", "s", "^", "D", "v", "P")
REFERENCE_COLOUR, GRID_COLOUR = "#c4c4c4", "#e5e5e5"
LABEL_SIZE, TITLE_SIZE = 9, 10  #: points
WIDTH = 9.0  #: inches: the widest chart, whose labels can still be read on a page
STRIP_FILL = 0.9  #: how much of a strip's height ``scale`` takes
HATCH = "//"  #: tells W from the other kinds without its colour
DASHES = (0, (3, 2))  #: of the lines between phases, in points

Array = np.ndarray
Measured = Mapping[int, Mapping[int, Real]]
Losses = Mapping[str, Sequence[float]]


def plot_timeline(timeline: Timeline, ax: Axes | None = None, title: str | None = None) -> Axes:
    """The Gantt chart: one row per device, device 0 on top, idle left white.

    One ``PolyCollection`` per kind of action, labelled with its meaning, so that thousands of boxes stay
    quick and can be read back from the axes. Microbatch numbers stand where they fit; dashed lines part
    warm-up, steady state and drain. ``title`` replaces the line on top, which names the schedule, its
    makespan and its bubble.
    """
    title = caption(timeline) if title is None else title
    ax = ax or _axes(_width(timeline, title), 1.1 + _row(timeline) * timeline.schedule.devices)
    every = list(boxes(timeline))
    for kind in kinds_drawn(timeline):
        _add_boxes(ax, kind, [box for box in every if box.kind is kind])
    _time_and_devices(ax, timeline)
    _label_boxes(ax, every, timeline)
    _add_phase_lines(ax, timeline)
    ax.set_title(title, loc="left", fontsize=TITLE_SIZE, pad=20)
    ax.legend(
        handles=[_handle(*entry) for entry in legend(timeline)],
        loc="lower left",
        bbox_to_anchor=(0, 1.02),
        ncols=6,
        frameon=False,
        fontsize=LABEL_SIZE,
        handlelength=1,
        handleheight=1,
        columnspacing=1.6,
        borderpad=0,
        borderaxespad=0,
    ).set_in_layout(False)  # the title above it keeps its place free
    return ax


def plot_in_flight(timeline: Timeline, ax: Axes | None = None, scale: int | None = None) -> Axes:
    """Below a Gantt chart: how many microbatches each device holds over time, one strip per device.

    ``scale`` is the count that fills a strip, the largest peak unless given; each device's own peak
    stands on the right.
    """
    devices, peaks = timeline.schedule.devices, peak_in_flight(timeline.schedule)
    ax = ax or _axes(_width(timeline), 0.9 + _row(timeline) * devices)
    scale = scale or max(*peaks, 1)
    for device, peak in enumerate(peaks):
        steps = [*in_flight(timeline, device), (timeline.makespan, 0)]
        floor = device + 1
        ax.fill_between(
            [float(time) for time, _ in steps],
            [floor - STRIP_FILL * count / scale for _, count in steps],
            floor,
            step="post",
            color=IN_FLIGHT_COLOUR,
            lw=0,
        )
        ax.annotate(
            str(peak),
            (1, floor - 0.5),
            xycoords=("axes fraction", "data"),
            xytext=(5, 0),
            textcoords="offset points",
            va="center_baseline",
            fontsize=LABEL_SIZE,
        )
    _time_and_devices(ax, timeline)
    each = ", counted per stage" if any(len(held) > 1 for held in timeline.schedule.placement) else ""
    words = f"microbatches in flight{each}: a full strip is {scale}, each device's peak on the right"
    ax.set_title(words, loc="left", fontsize=LABEL_SIZE)
    return ax


def plot_memory(memory: MemoryTrace, ax: Axes | None = None, categories: Sequence[str] = CATEGORIES) -> Axes:
    """What one device holds over a step, in bytes, stacked by category. ``memory`` is ``step.memory[k]``.

    Name the ``categories`` to see only those, first at the bottom.
    """
    ax = ax or _axes(WIDTH, 2.6)
    times = [float(time) for time in memory.times]
    bottom = [0] * len(times)
    for category in categories:
        top = [b + held for b, held in zip(bottom, memory.over_time(category), strict=True)]
        ax.fill_between(times, bottom, top, step="post", color=MEMORY_PALETTE[category], lw=0, label=category)
        bottom = top
    ax.set(xlim=(0, times[-1] or 1), ylim=(0, 1.05 * max(*bottom, 1)))
    ax.set_xlabel("time", fontsize=LABEL_SIZE)
    byte_axis(ax, max(bottom), "bytes held")
    handles, labels = ax.get_legend_handles_labels()
    _finish(ax)
    _legend_outside(ax, handles=handles[::-1], labels=labels[::-1])
    return ax


def plot_bubble_curves(measured: Measured, ax: Axes | None = None) -> Axes:
    """Bubble fraction against M: measured marks on the curves (K-1)/(K-1+M), one curve per K.

    ``measured[K][M]`` is a bubble fraction taken from a timeline. A ring and its value stand at M = 4K,
    where that was measured.
    """
    ax = ax or _axes(WIDTH, 4.2)
    ax.plot([], [], "o", ms=11, mfc="none", mec=INK, label="M = 4K")
    for i, (devices, by_m) in enumerate(measured.items()):
        _add_curve(ax, i, by_m, lambda m, k=devices: _bubble(k, m), f"K = {devices}")
        if 4 * devices in by_m:
            _ring(ax, 4 * devices, float(by_m[4 * devices]))
    _log_axis(ax, "microbatches M", measured)
    _percent_axis(ax, "bubble fraction", 1)
    _finish(ax)
    _legend_outside(ax, reverse=True)
    return ax


def plot_efficiency(measured: Measured, ax: Axes | None = None) -> Axes:
    """Efficiency, 1 - bubble, against K: measured marks on M/(K-1+M), one curve per M.

    ``measured[M][K]`` is a utilization taken from a timeline.
    """
    ax = ax or _axes(WIDTH, 4.2)
    for i, (microbatches, by_k) in enumerate(measured.items()):
        _add_curve(ax, i, by_k, lambda k, m=microbatches: 1 - _bubble(k, m), f"M = {microbatches}")
    _log_axis(ax, "devices K", measured)
    _percent_axis(ax, "efficiency", 1.03)
    _finish(ax)
    _legend_outside(ax, reverse=True)
    return ax


def plot_losses(losses: Losses, ax: Axes | None = None) -> Axes:
    """Loss against step, one curve per name: the first a wide pale line, the others marks upon it.

    The marks take turns along the steps, so that of curves that coincide each is seen to be there.
    """
    ax = ax or _axes(WIDTH, 4.2)
    (name, reference), *others = losses.items()
    ax.plot(range(1, len(reference) + 1), reference, color=REFERENCE_COLOUR, lw=2.5, label=name)
    _take_turns(ax, dict(others), lw=0)
    ax.set(xlim=(0, len(reference) + 1), ylim=(0, None))
    ax.set_xlabel("step", fontsize=LABEL_SIZE)
    ax.set_ylabel("loss", fontsize=LABEL_SIZE)
    _finish(ax)
    _legend_outside(ax)
    return ax


def plot_loss_differences(losses: Losses, ax: Axes | None = None) -> Axes:
    """How far each curve is from the first, in units of 1e-15; colours and marks as in ``plot_losses``."""
    ax = ax or _axes(WIDTH, 2.2)
    (_, reference), *others = losses.items()
    apart = {
        name: [1e15 * abs(a - b) for a, b in zip(curve, reference, strict=True)] for name, curve in others
    }
    _take_turns(ax, apart, lw=0.8)
    ax.set(xlim=(0, len(reference) + 1))
    ax.set_xlabel("step", fontsize=LABEL_SIZE)
    ax.set_ylabel("difference (1e-15)", fontsize=LABEL_SIZE)
    _finish(ax)
    return ax


def plot_parts(parts: Sequence[Array], whole: Array, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Images that should add up: every part, their sum, the whole, and how far these two are apart.

    Each is a 2-D array. Zero is white; parts, sum and whole share one scale of colour, the difference has
    its own. Below each image stands its largest value. Takes ``len(parts) + 3`` axes.
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


def byte_axis(ax: Axes, most: int, label: str) -> None:
    """Name the y axis and write its bytes in kB (1,000 bytes), or in MB from 10 MB on."""
    unit, name = (10**6, "MB") if most >= 10**7 else (1000, "kB")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value / unit:,.10g}")
    ax.set_ylabel(f"{label} ({name})", fontsize=LABEL_SIZE)


def _bubble(devices: float, microbatches: float) -> float:
    """The formula between whole numbers too, for a smooth curve."""
    return (devices - 1) / (devices - 1 + microbatches)


def _add_boxes(ax: Axes, kind: Kind, drawn: Sequence[Box]) -> None:
    corners = []
    for box in drawn:
        left, right = float(box.x), float(box.x + box.width)
        top, bottom = box.y, box.y + box.height
        corners.append([(left, top), (right, top), (right, bottom), (left, bottom)])
    ax.add_collection(
        PolyCollection(
            corners,
            facecolors=[box.fill for box in drawn],
            edgecolors="white",
            linewidths=0.5 if len(drawn) < 2000 else 0,
            hatch=HATCH if kind is Kind.W else None,
            label=f"{kind}  {kind.meaning}",
        )
    )


def _add_phase_lines(ax: Axes, timeline: Timeline) -> None:
    lines = [[(float(time), device), (float(time), device + 1)] for time, device in phase_lines(timeline)]
    ax.add_collection(LineCollection(lines, colors=INK, linewidths=0.8, linestyles=[DASHES]))


class BoxLabel(Text):
    """The number in a box, left out where it does not fit at the size that the chart is drawn in."""

    def __init__(self, box: Box):
        self.box = box
        middle = float(box.x + box.width / 2), box.y + box.height / 2
        style = {"ha": "center", "va": "center_baseline", "fontsize": LABEL_SIZE, "color": ink(box.fill)}
        super().__init__(*middle, box.label, **style)

    def fits(self) -> bool:
        corners = self.axes.transData.transform([(0, 0), (float(self.box.width), self.box.height)])
        width, height = abs(corners[1] - corners[0]) * 72 / self.figure.dpi
        return width >= _label_width(self.box) and height >= LABEL_SIZE

    def draw(self, renderer) -> None:
        if self.fits():
            super().draw(renderer)


def _label_boxes(ax: Axes, drawn: Sequence[Box], timeline: Timeline) -> None:
    """A label for each box that could have room for one if the axes filled the figure."""
    widest = 72 * ax.figure.get_size_inches()[0] / (float(timeline.makespan) or 1)
    for box in drawn:
        if float(box.width) * widest >= _label_width(box):
            ax.add_artist(BoxLabel(box))


def _label_width(box: Box) -> float:
    """Points that the number takes, with a little room on both sides."""
    return len(box.label) * 0.65 * LABEL_SIZE + 2


def _handle(kind: Kind | None, colour: str, words: str) -> Patch | Line2D:
    if words == PHASES:
        return Line2D([0.5, 0.5], [0, 1], color=colour, lw=0.8, ls=DASHES, label=words)
    hatch = HATCH if kind is Kind.W else None
    return Patch(facecolor=colour, edgecolor="white", linewidth=0, hatch=hatch, label=words)


def _time_and_devices(ax: Axes, timeline: Timeline) -> None:
    """Time to the right from 0 to the makespan, device 0 on top, and no frame around them."""
    devices, until = timeline.schedule.devices, float(timeline.makespan)
    shown, times = range(0, devices, max(1, devices // 16)), ticks(until)
    ax.set(xlim=(0, until or 1), ylim=(devices, 0))
    ax.set_xlabel("time", fontsize=LABEL_SIZE)
    ax.set_xticks(times, [number(time) for time in times])
    ax.set_yticks([device + 0.5 for device in shown], [f"device {device}" for device in shown])
    ax.tick_params(labelsize=LABEL_SIZE)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)


def _add_curve(ax: Axes, i: int, points: Mapping[int, Real], formula: Callable, label: str) -> None:
    """The i-th formula as a line, and what was measured as marks on it."""
    colour, grid = CURVES[i % len(CURVES)], _between(min(points), max(points))
    ax.plot(grid, [formula(x) for x in grid], color=colour, lw=1.2)
    measured = [float(value) for value in points.values()]
    ax.plot(list(points), measured, MARKERS[i % len(MARKERS)], ms=4.5, color=colour, label=label)


def _add_image(ax: Axes, words: str, image: Array, most: float) -> None:
    ax.imshow(image, cmap="RdBu", vmin=-most, vmax=most)
    ax.set_title(words, fontsize=LABEL_SIZE)
    ax.set_xlabel(f"{abs(image).max():.1g}", fontsize=LABEL_SIZE)
    ax.set(xticks=[], yticks=[])


def _ring(ax: Axes, x: float, y: float) -> None:
    """A ring around a measured mark, and its value beside it, above a curve that falls."""
    ax.plot(x, y, "o", ms=11, mfc="none", mec=INK)
    offset = {"xytext": (5, 6), "textcoords": "offset points"}
    ax.annotate(f"{y:.1%}", (x, y), fontsize=LABEL_SIZE, color=INK, **offset)


def _take_turns(ax: Axes, curves: Losses, lw: float) -> None:
    """Curves with few marks each, none of them at the same step as another's."""
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


def _finish(ax: Axes) -> None:
    ax.grid(color=GRID_COLOUR, lw=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=LABEL_SIZE)
    ax.spines[["top", "right"]].set_visible(False)


def _legend_outside(ax: Axes, **entries) -> None:
    place = {"loc": "upper left", "bbox_to_anchor": (1.01, 1), "borderaxespad": 0}
    ax.legend(frameon=False, fontsize=LABEL_SIZE, **place, **entries)


def _between(low: int, high: int, steps: int = 120) -> list[float]:
    """Values from low to high, evenly spaced on a logarithmic axis."""
    return [low * (high / low) ** (i / steps) for i in range(steps + 1)]


def _width(timeline: Timeline, title: str = "") -> float:
    """Inches: enough for labels, title and legend of a short timeline, never wider than a page."""
    words = max(len(title), sum(len(words) + 4 for _, _, words in legend(timeline)))
    return min(WIDTH, max(5.0, 1.2 + 0.28 * float(timeline.makespan), 1.2 + 0.085 * words))


def _row(timeline: Timeline) -> float:
    """Inches of one device's row: as many as its boxes need, fewer where devices are many."""
    devices = timeline.schedule.devices
    row = 0.32 if devices <= 8 else 0.24 if devices <= 16 else 0.16 if devices <= 32 else 0.1
    return row * (1.4 if has_pairs(timeline) else 1)


def _axes(width: float, height: float) -> Axes:
    return plt.subplots(figsize=(width, height), layout="constrained")[1]
