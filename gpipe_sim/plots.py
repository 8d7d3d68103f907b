"""Charts with matplotlib: axes in, axes out.

Without ``ax`` each makes a figure whose size follows from the data. Nothing is shown and no style is
changed; show or save the figure yourself (``ax.figure.savefig``).
"""

from collections.abc import Mapping, Sequence
from numbers import Real

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.ticker import MaxNLocator, PercentFormatter

from gpipe_sim.actions import Kind
from gpipe_sim.chart import MEMORY_PALETTE, Box, boxes, ink, kinds_drawn, phase_lines
from gpipe_sim.memory import CATEGORIES, MemoryTrace
from gpipe_sim.metrics import in_flight
from gpipe_sim.schedule import peak_in_flight
from gpipe_sim.simulate import Timeline

#: One colour per curve, in order: blue, orange, green, vermillion, purple, sky.
CURVES = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
LABEL_SIZE = 8  #: points
IN_FLIGHT_COLOUR = "#999999"

Measured = Mapping[int, Mapping[int, Real]]


def plot_timeline(timeline: Timeline, ax: Axes | None = None) -> Axes:
    """The Gantt chart: one row per device, device 0 on top, idle left white.

    One ``PolyCollection`` per kind of action, labelled with its meaning, so that thousands of boxes stay
    quick and can be read back from the axes. Microbatch numbers stand where they fit; dashed lines part
    warm-up, steady state and drain.
    """
    devices = timeline.schedule.devices
    ax = ax or _axes(_width(timeline), 0.9 + 0.32 * devices)
    every = list(boxes(timeline))
    for kind in kinds_drawn(timeline):
        _add_boxes(ax, kind, [box for box in every if box.kind is kind])
    ax.set(xlim=(0, float(timeline.makespan) or 1), ylim=(devices, 0), xlabel="time")
    _name_devices(ax, devices)
    _bare(ax)
    _label_boxes(ax, every, timeline)
    for time, device in phase_lines(timeline):
        ax.plot([time, time], [device, device + 1], color="#222222", lw=0.8, ls=(0, (3, 2)))
    ax.legend(
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=6,
        frameon=False,
        fontsize=LABEL_SIZE,
        handlelength=1,
        handleheight=1,
        borderaxespad=0.2,
    )
    return ax


def plot_in_flight(timeline: Timeline, ax: Axes | None = None, scale: int | None = None) -> Axes:
    """Below a Gantt chart: how many microbatches each device holds over time, one strip per device.

    ``scale`` is the count that fills a strip, the largest peak unless given; each device's own peak
    stands on the right.
    """
    devices, peaks = timeline.schedule.devices, peak_in_flight(timeline.schedule)
    ax = ax or _axes(_width(timeline), 0.9 + 0.32 * devices)
    scale = scale or max(*peaks, 1)
    for device, peak in enumerate(peaks):
        steps = [*in_flight(timeline, device), (timeline.makespan, 0)]
        floor = device + 1
        ax.fill_between(
            [float(time) for time, _ in steps],
            [floor - 0.9 * count / scale for _, count in steps],
            floor,
            step="post",
            color=IN_FLIGHT_COLOUR,
            lw=0,
        )
        ax.annotate(
            str(peak),
            (1, floor - 0.5),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=LABEL_SIZE,
        )
    ax.set(xlim=(0, float(timeline.makespan) or 1), ylim=(devices, 0), xlabel="time")
    ax.set_ylabel("in flight", fontsize=LABEL_SIZE)
    _name_devices(ax, devices)
    _bare(ax)
    return ax


def plot_memory(memory: MemoryTrace, ax: Axes | None = None) -> Axes:
    """What one device holds over a step, in bytes, stacked by category. ``memory`` is ``step.memory[k]``."""
    ax = ax or _axes(7, 2.6)
    times = [float(time) for time in memory.times]
    bottom = [0] * len(times)
    for category in CATEGORIES:
        top = [b + held for b, held in zip(bottom, memory.bytes[category], strict=True)]
        ax.fill_between(times, bottom, top, step="post", color=MEMORY_PALETTE[category], lw=0, label=category)
        bottom = top
    ax.set(xlim=(0, times[-1] or 1), ylim=(0, 1.05 * max(bottom)), xlabel="time", ylabel="bytes held")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value / 1000:,.0f} kB")
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(
        handles[::-1],
        labels[::-1],
        loc="upper left",
        bbox_to_anchor=(1.01, 1),
        frameon=False,
        fontsize=LABEL_SIZE,
    )
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_bubble_curves(measured: Measured, ax: Axes | None = None) -> Axes:
    """Bubble fraction against M: measured dots on the curves (K-1)/(K-1+M), one curve per K.

    ``measured[K][M]`` is a bubble fraction taken from a timeline. A ring marks M = 4K where it was measured.
    """
    ax = ax or _axes(7, 4)
    for colour, (devices, by_m) in zip(_colours(measured), measured.items(), strict=True):
        grid = _between(min(by_m), max(by_m))
        ax.plot(grid, [_bubble(devices, m) for m in grid], color=colour, lw=1.2, label=f"K = {devices}")
        ax.plot(list(by_m), [float(b) for b in by_m.values()], "o", ms=4, color=colour)
        if 4 * devices in by_m:
            at = 4 * devices, float(by_m[4 * devices])
            ax.plot(*at, "o", ms=10, mfc="none", mec=colour)
    ax.plot([], [], "o", ms=10, mfc="none", mec="#222222", label="M = 4K")
    _log_axis(ax, sorted({m for by_m in measured.values() for m in by_m}))
    ax.set(xlabel="microbatches M", ylabel="bubble fraction", ylim=(0, 1))
    return _curves_done(ax)


def plot_efficiency(measured: Measured, ax: Axes | None = None) -> Axes:
    """Efficiency, 1 - bubble, against K: measured dots on M/(K-1+M), one curve per M.

    ``measured[M][K]`` is a utilization taken from a timeline.
    """
    ax = ax or _axes(7, 4)
    for colour, (microbatches, by_k) in zip(_colours(measured), measured.items(), strict=True):
        grid = _between(min(by_k), max(by_k))
        ax.plot(grid, [1 - _bubble(k, microbatches) for k in grid], color=colour, lw=1.2)
        ax.plot(
            list(by_k),
            [float(u) for u in by_k.values()],
            "o-",
            lw=0,
            ms=4,
            color=colour,
            label=f"M = {microbatches}",
        )
    _log_axis(ax, sorted({k for by_k in measured.values() for k in by_k}))
    ax.set(xlabel="devices K", ylabel="efficiency", ylim=(0, 1.02))
    return _curves_done(ax)


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
            hatch="///" if kind is Kind.W else None,
            label=f"{kind}  {kind.meaning}",
        )
    )


def _label_boxes(ax: Axes, drawn: Sequence[Box], timeline: Timeline) -> None:
    """Microbatch numbers, in boxes that are wide and high enough to read them."""
    size = ax.get_position().size * ax.figure.get_size_inches() * 72
    points_per_unit = size[0] / (float(timeline.makespan) or 1)
    points_per_row = size[1] / timeline.schedule.devices
    for box in drawn:
        wide = len(box.label) * 0.65 * LABEL_SIZE + 2
        if float(box.width) * points_per_unit >= wide and box.height * points_per_row >= LABEL_SIZE:
            ax.text(
                float(box.x + box.width / 2),
                box.y + box.height / 2,
                box.label,
                ha="center",
                va="center",
                fontsize=LABEL_SIZE,
                color=ink(box.fill),
                clip_on=True,
            )


def _name_devices(ax: Axes, devices: int) -> None:
    every = max(1, devices // 16)
    shown = range(0, devices, every)
    ax.set_yticks([device + 0.5 for device in shown], [f"device {device}" for device in shown])
    ax.tick_params(axis="y", length=0, labelsize=LABEL_SIZE)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=12, integer=True))


def _bare(ax: Axes) -> None:
    ax.spines[["top", "right", "left"]].set_visible(False)


def _log_axis(ax: Axes, values: Sequence[int]) -> None:
    ax.set_xscale("log", base=2)
    powers = [value for value in values if value & (value - 1) == 0]
    ax.set_xticks(powers, [str(value) for value in powers])
    ax.minorticks_off()


def _curves_done(ax: Axes) -> Axes:
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.grid(color="#e5e5e5", lw=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=LABEL_SIZE, loc="upper left", bbox_to_anchor=(1.01, 1))
    return ax


def _between(low: int, high: int, steps: int = 120) -> list[float]:
    """Values from low to high, evenly spaced on a logarithmic axis."""
    return [low * (high / low) ** (i / steps) for i in range(steps + 1)]


def _colours(curves: Sequence | Mapping) -> list[str]:
    return [CURVES[i % len(CURVES)] for i in range(len(curves))]


def _width(timeline: Timeline) -> float:
    """Inches: enough for labels on a short timeline, never wider than a page."""
    return min(12.0, max(5.0, 1.2 + 0.28 * float(timeline.makespan)))


def _axes(width: float, height: float) -> Axes:
    return plt.subplots(figsize=(width, height), layout="constrained")[1]
