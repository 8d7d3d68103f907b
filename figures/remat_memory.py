"""What rematerialisation saves: bytes that the meter counted, beside bytes predicted from shapes.

A deep MLP takes one step on 256 real digits under GPipe, in which a device holds all microbatches after its
last forward. Without recompute it then keeps everything that its layers saved for each microbatch. With
recompute it keeps the boundary input of each, and everything only for the one whose backward comes next.
"""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

import gpipe_sim as gp
from figures._page import claim, page
from gpipe_sim.core.memory import BOUNDARY, SAVED, MemoryTrace
from gpipe_sim.drawing.palette import INK, MEMORY
from gpipe_sim.drawing.plots.style import LABEL_SIZE, byte_axis, finish
from gpipe_sim.papers.formulas import remat_activation_units

SIZES = (*[64] * 24, 10)  # 24 Linear and 23 ReLU
DEVICES, MICROBATCHES, BATCH = (2, 4, 8), 8, 256
MODES = ("never", "except_last", "always")
SHOWN, DRAWN = 4, ("never", "always")  #: how many devices are drawn, and which modes
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
    figure, ax = page(4.0)
    k = str(data["shown"])
    for left, mode in zip((0.0, data["shown"] + 1.0), DRAWN, strict=True):
        _draw_group(ax, left, data["measured"][mode][k], data["predicted"][mode][k])
    held = [max(map(sum, data["measured"][mode][k])) for mode in DRAWN]
    _style(ax, data, held[0])
    times = [data["makespan"][mode][k] for mode in DRAWN]
    less, longer = 1 - held[1] / held[0], times[1] / times[0] - 1
    words = f"Recomputing activations holds {less:.0%} fewer bytes and takes {longer:.0%} more time"
    note = "one bar per device, at its fullest; GPipe, 8 microbatches, 47 layers, 256 digits; line: predicted"
    claim(ax, words, note)
    return figure


def _draw_group(ax: Axes, left: float, measured: list[list[int]], predicted: list[int]) -> None:
    """A bar per device: boundary inputs, above them the rest, and a line at the prediction."""
    for device, ((boundary, rest), at) in enumerate(zip(measured, predicted, strict=True)):
        x = left + device
        ax.bar(x, boundary, color=MEMORY[BOUNDARY].colour, width=0.8)
        ax.bar(x, rest, bottom=boundary, color=MEMORY[SAVED].colour, width=0.8)
        ax.plot([x - 0.46, x + 0.46], [at, at], color=INK, lw=1.6, solid_capstyle="butt")


def _style(ax: Axes, data: dict, most: int) -> None:
    shown, k = data["shown"], str(data["shown"])
    byte_axis(ax, most, "activations held")
    ax.set_ylim(0, 1.1 * most)
    places = [*range(shown), *range(shown + 1, 2 * shown + 1)]
    ax.set_xticks(places, [f"device {i % (shown + 1)}" for i in places])
    for left, mode, words in zip((0, shown + 1), DRAWN, ("keep everything", "recompute"), strict=True):
        middle = left + (shown - 1) / 2
        name = f"{words}: the step is {data['makespan'][mode][k]} long"
        ax.annotate(name, (middle, 0), (0, -30), ha="center", va="baseline", **BELOW)
    ax.tick_params(axis="x", length=0)
    finish(ax)
    ax.grid(axis="x", visible=False)
    handles = [
        Patch(color=MEMORY[SAVED].colour, label="what layers saved"),
        Patch(color=MEMORY[BOUNDARY].colour, label="inputs of the stage"),
    ]
    ax.legend(handles=handles, frameon=False, fontsize=LABEL_SIZE, handlelength=1.2)


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
