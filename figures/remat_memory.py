"""What rematerialisation saves: bytes that the meter counted, beside bytes predicted from shapes.

A deep MLP takes one step on 256 real digits under GPipe, in which a device holds all microbatches after its
last forward. Without recompute it then keeps everything that its layers saved for each microbatch. With
recompute it keeps the boundary input of each, and everything only for the one whose backward comes next.
"""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

import gpipe_sim as gp
from figures._page import page
from gpipe_sim.drawing.palette import CURVES, GRID, INK, MARKERS, MEMORY
from gpipe_sim.drawing.plots.style import LABEL_SIZE, TITLE_SIZE, byte_axis
from gpipe_sim.runtime.memory import BOUNDARY, SAVED, MemoryTrace
from gpipe_sim.theory.formulas import remat_activation_units

SIZES = (*[64] * 24, 10)  # 24 Linear and 23 ReLU
DEVICES, MICROBATCHES, BATCH = (2, 4, 8), 8, 256
MODES = ("never", "except_last", "always")
SHOWN = 4  #: devices of the left panel
NUMBER = 8  #: bytes of a float64, and of a class number
BELOW = {"textcoords": "offset points", "fontsize": LABEL_SIZE, "annotation_clip": False}


def data() -> dict:
    """Per mode and number of devices K, the bytes on each device at its activation peak.

    Measured: [boundary inputs, other saved activations]. Predicted: the sum of the two.
    """
    layers = gp.mlp(SIZES)
    numbers = {name: {mode: {} for mode in MODES} for name in ("measured", "predicted", "makespan")}
    for k in DEVICES:
        partitions = gp.split(layers, stages=k)
        for mode in MODES:
            step = _step(partitions, gp.remat(gp.GPipe(k, MICROBATCHES), mode))
            numbers["measured"][mode][str(k)] = [_at_peak(trace) for trace in step.memory]
            numbers["predicted"][mode][str(k)] = [
                predicted(partition, mode, last=partition is partitions[-1]) for partition in partitions
            ]
            numbers["makespan"][mode][str(k)] = step.timeline.makespan
    return {"devices": list(DEVICES), "modes": list(MODES), "shown": SHOWN, **numbers}


def draw(data: dict) -> Figure:
    figure, (left, right) = page(4.2, 1, 2, width_ratios=(1.15, 1))
    _draw_devices(left, data)
    draw_on(right, data)
    left.set_title(f"Each of {data['shown']} devices", loc="left", fontsize=TITLE_SIZE)
    right.set_title("The fullest device against K; lines predicted", loc="left", fontsize=TITLE_SIZE)
    figure.suptitle(
        "Activations at their peak: GPipe with 8 microbatches, an MLP of 47 layers, 256 digits",
        x=0.012,
        ha="left",
        fontsize=TITLE_SIZE,
    )
    return figure


def draw_on(ax: Axes, data: dict) -> None:
    """The peak of the fullest device against K: measured marks on lines that join the predictions."""
    for i, mode in enumerate(data["modes"]):
        measured = [max(map(sum, data["measured"][mode][str(k)])) for k in data["devices"]]
        lines = [max(data["predicted"][mode][str(k)]) for k in data["devices"]]
        ring = {"ms": 11, "mfc": "none"} if mode == "except_last" else {"ms": 5.5}  # it lies on "always"
        ax.plot(data["devices"], lines, color=CURVES[i], lw=1.2)
        ax.plot(data["devices"], measured, MARKERS[i], color=CURVES[i], label=mode, **ring)
    _style(ax, max(max(map(sum, held)) for held in data["measured"]["never"].values()))
    ax.set_xscale("log", base=2)
    ax.set_xticks(data["devices"], [str(k) for k in data["devices"]])
    ax.minorticks_off()
    ax.set_xlabel("devices K", fontsize=LABEL_SIZE)
    ax.legend(frameon=False, fontsize=LABEL_SIZE, title="recompute", title_fontsize=LABEL_SIZE)


def _draw_devices(ax: Axes, data: dict) -> None:
    """A group of bars per mode, a bar per device: boundary inputs, the rest, and a line at the prediction."""
    k, places = str(data["shown"]), []
    for group, mode in enumerate(data["modes"]):
        first = len(places) + group
        for device, (boundary, rest) in enumerate(data["measured"][mode][k], first):
            ax.bar(device, boundary, color=MEMORY[BOUNDARY], width=0.8)
            ax.bar(device, rest, bottom=boundary, color=MEMORY[SAVED], width=0.8)
            places.append(device)
        ends = [[device - 0.46, device + 0.46] for device in places[first - group :]]
        for x, at in zip(ends, data["predicted"][mode][k], strict=True):
            ax.plot(x, [at, at], color=INK, lw=1.6, solid_capstyle="butt")
        words = f"{mode}\nmakespan {data['makespan'][mode][k]}"
        middle = sum(places[first - group :]) / data["shown"]
        ax.annotate(words, (middle, 0), (0, -42), ha="center", va="baseline", **BELOW)
    _style(ax, max(map(sum, data["measured"]["never"][k])))
    ax.set_xticks(places, [str(device) for device in range(data["shown"])] * len(data["modes"]))
    ax.tick_params(axis="x", length=0)
    handles = [
        Patch(color=MEMORY[SAVED], label="other saved activations"),
        Patch(color=MEMORY[BOUNDARY], label="boundary inputs"),
        Line2D([], [], color=INK, lw=1.6, label="predicted from shapes"),
    ]
    ax.legend(handles=handles, frameon=False, fontsize=LABEL_SIZE, handlelength=1.2)


def _style(ax: Axes, most: int) -> None:
    byte_axis(ax, most, "activations held")
    ax.set_ylim(0, 1.05 * most)
    ax.grid(axis="y", color=GRID, lw=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=LABEL_SIZE)
    ax.spines[["top", "right"]].set_visible(False)


def _step(partitions: list[gp.Partition], schedule: gp.Schedule) -> gp.StepResult:
    x, y, *_ = gp.digits()
    return gp.train_step(partitions, schedule, (x[:BATCH], y[:BATCH]), gp.cross_entropy)


def _at_peak(trace: MemoryTrace) -> list[int]:
    """[boundary inputs, other saved activations], in bytes, when the two together are at their peak."""
    together = trace.over_time(BOUNDARY, SAVED)
    at = together.index(max(together))
    return [trace.bytes[BOUNDARY][at], trace.bytes[SAVED][at]]


def predicted(partition: gp.Partition, mode: str, last: bool) -> int:
    """The peak in bytes, from shapes alone: M boundary inputs, and the working set of one microbatch or M."""
    rows = BATCH // MICROBATCHES
    boundary, working = rows * SIZES[0] * NUMBER, rows * _saved_per_sample(partition, last) * NUMBER
    if mode == "never":
        return MICROBATCHES * (boundary + working)
    return remat_activation_units(MICROBATCHES, boundary, working)


def _saved_per_sample(partition: gp.Partition, last: bool) -> int:
    """How many numbers a partition saves per sample besides its input.

    They are the output of each ReLU, which the next Linear saves as well; and, behind the last layer, the
    probabilities and the target that the loss saves.
    """
    relus = sum(isinstance(layer, gp.ReLU) for layer in partition.layers)
    return relus * SIZES[0] + (SIZES[-1] + 1 if last else 0)
