"""A block of GPT-3 cut over eight devices, in time: all compute, then all wait for a sum, four times.

One text, forward and backward, in 2-byte numbers. A device computes 140 TFLOP/s, as those of Narayanan et al.
2021 did (arXiv:2104.04473, table 1). It sends 300 GB/s to others in its machine of eight (NVLink of an A100),
and 25 GB/s to another machine (InfiniBand, 200 Gbit/s). Latency is left out, and nothing is computed while
the devices sum.
"""

from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

import gpipe_sim as gp
from figures._page import claim, page
from gpipe_sim.core import Kind
from gpipe_sim.drawing.palette import COLLECTIVE, FAINT, INK, KINDS
from gpipe_sim.drawing.plots.style import LABEL_SIZE

PLACES, FEATURES, HEADS, DEVICES = 2_048, 12_288, 96, 8
FLOPS = 140 * 10**12  #: a second, of one device
SPEEDS = {"in one machine": 300 * 10**9, "each in its own": 25 * 10**9}  #: bytes a second that a device sends
PARTS = (("attention", "F"), ("network", "F"), ("network", "B"), ("attention", "B"))
LOOKS = {
    "F": (KINDS[Kind.F].colour, "forward"),
    "B": (KINDS[Kind.B].colour, "backward"),
    "sum": (COLLECTIVE.colour, "a sum over all eight, an all-reduce"),
}
HIGH = 0.8  #: of a lane


def data() -> dict:
    """By where the devices are, what all of them do: [part, kind or "sum", from, to], in ms."""
    return {"order": list(SPEEDS)} | {where: _timed(speed) for where, speed in SPEEDS.items()}


def _timed(speed: int) -> list[list]:
    one_sum = gp.formulas.tensor_parallel_bytes(PLACES, 1, FEATURES, DEVICES) / 4 / speed
    each = []
    for part, kind in PARTS:
        each += [(part, kind, _computes(part, kind)), (part, "sum", one_sum)]
    ends = np.cumsum([0, *(1000 * float(time) for *_, time in each)]).round(3).tolist()
    return [[*what, *times] for (*what, _), times in zip(each, pairwise(ends), strict=True)]


def _computes(part: str, kind: str) -> float:
    """Seconds on each device: the products are shared; a backward is two for each of the forward's."""
    block = gp.transformers.TransformerBlock(FEATURES, HEADS, rng=None, dtype=np.float16)
    flops = block.work(gp.MetaArray((1, PLACES, FEATURES), np.float16)).flops
    network = 16 * PLACES * FEATURES**2
    mine = network if part == "network" else flops - network
    return (2 if kind == "B" else 1) * mine / (DEVICES * FLOPS)


def draw(data: dict) -> Figure:
    figure, axes = page(5.6, rows=2, sharex=True)
    rows = [data[where] for where in data["order"]]
    inside, across = (f"{waits(row):.1f} of {row[-1][-1]:.1f} ms" for row in rows)
    words = f"Four sums in a block's time: in one machine {inside} ...", f"... in eight machines {across}"
    notes = "a block of GPT-3, one text, eight devices; each sends 300 GB/s", "each sends 25 GB/s"
    for ax, row, said, note in zip(axes, rows, words, notes, strict=True):
        lanes(ax, row)
        claim(ax, said, note)
    explain(axes[1])
    return figure


def waits(row: list[list]) -> float:
    return sum(end - start for _, kind, start, end in row if kind == "sum")


def lanes(ax: Axes, row: list[list]) -> None:
    """The same boxes on the lane of each device, and the sums across all of them."""
    for device in range(DEVICES):
        for _, kind, start, end in row:
            if kind != "sum":
                ax.broken_barh([(start, end - start)], (device, HIGH), color=LOOKS[kind][0])
    for part, kind, start, end in row:
        if kind == "sum":
            ax.broken_barh([(start, end - start)], (0, DEVICES - 1 + HIGH), color=LOOKS["sum"][0])
        else:
            ax.text((start + end) / 2, -0.25, part, ha="center", va="bottom", fontsize=LABEL_SIZE, color=INK)
    ax.set(xlim=(0, max(row[-1][-1], ax.get_xlim()[1])), ylim=(DEVICES, -1.3))
    ax.set_yticks([HIGH / 2, DEVICES - 1 + HIGH / 2], ["device 0", f"device {DEVICES - 1}"])
    ax.tick_params(axis="y", length=0)
    ax.tick_params(labelsize=LABEL_SIZE)
    ax.spines[["top", "right", "left"]].set_visible(False)


def explain(ax: Axes, kinds: tuple[str, ...] = tuple(LOOKS)) -> None:
    """The axis and the legend, once, below the last chart."""
    ax.set_xlabel("ms", fontsize=LABEL_SIZE, color=FAINT)
    handles = [Patch(color=LOOKS[kind][0], label=LOOKS[kind][1]) for kind in kinds]
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.3), "ncols": len(kinds)}
    ax.legend(handles=handles, frameon=False, fontsize=LABEL_SIZE, **below)
