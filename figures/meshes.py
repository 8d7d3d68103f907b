"""Sixteen devices as five meshes, on three kinds of links: the order turns round when sums take time.

A model of 16 layers, of which a forward takes 1 and a backward 2, and 64 microbatches, under GPipe. Messages
take no time; the gradients of a layer are 4 bytes, and a round of a sum has a latency of 1.
"""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

import gpipe_sim as gp
from figures._exact import plain
from figures._page import claim, page
from gpipe_sim.core.actions import Kind
from gpipe_sim.drawing.palette import COLLECTIVE, INK, KINDS, LANE, PAPER
from gpipe_sim.drawing.plots.style import LABEL_SIZE, finish

DEVICES, MICROBATCHES, LAYERS, BYTES = 16, 64, 16, 4
#: What is said of each kind of links.
LINKS = {
    "Without sums: copies win ...": gp.Link(),
    "... bandwidth 8: all alike ...": gp.Link(latency=1, bandwidth=8),
    "... bandwidth 1: copies lose": gp.Link(latency=1, bandwidth=1),
}
PARTS = {
    "forward": KINDS[Kind.F].colour,
    "backward": KINDS[Kind.B].colour,
    "waiting": LANE,
    "sum of gradients": COLLECTIVE.colour,
}
SQUARE = 1 / 18  #: how high a device is, if a bar and the space above it are 1


def data() -> dict:
    """parts[links][i]: where the time of a device goes in mesh i, in the order of ``PARTS``; they add up."""
    sizes = [2**i for i in range(DEVICES.bit_length())][::-1]
    return {
        "meshes": [[k, DEVICES // k] for k in sizes],
        "parts": [[_parts(k, DEVICES // k, link) for k in sizes] for link in LINKS.values()],
    }


def _parts(devices: int, replicas: int, link: gp.Link) -> list:
    layers, pieces = LAYERS // devices, MICROBATCHES // replicas
    alone = gp.simulate(gp.replicate(gp.GPipe(devices, pieces), replicas), gp.Costs(*3 * [layers]))
    summed = gp.all_reduce(alone, BYTES * layers, links=link)
    work = layers * pieces
    return [*map(plain, (work, 2 * work, alone.makespan - 3 * work, summed.makespan - alone.makespan))]


def draw(data: dict) -> Figure:
    figure, axes = page(3.7, columns=3)
    for ax, (words, bars) in zip(axes, zip(LINKS, data["parts"], strict=True), strict=True):
        for row, parts in enumerate(bars):
            _bar(ax, row, parts)
        lengths = list(dict.fromkeys(map(sum, bars)))
        claim(ax, words, f"a step takes {' to '.join(map(str, lengths[:: len(lengths) - 1 or 1]))}")
        _style(ax)
    for row, (devices, replicas) in enumerate(data["meshes"]):
        _devices(axes[0], row, devices, replicas)
    handles = [Patch(facecolor=colour, label=name) for name, colour in PARTS.items()]
    figure.legend(
        handles=handles,
        frameon=False,
        fontsize=LABEL_SIZE,
        handlelength=1.2,
        ncols=4,
        loc="outside lower right",
    )
    return figure


def _bar(ax: Axes, row: int, parts: list) -> None:
    left = 0
    for colour, part in zip(PARTS.values(), parts, strict=True):
        ax.barh(row, part, left=left, height=0.56, facecolor=colour, edgecolor=PAPER, linewidth=0)
        left += part
    aside = {"textcoords": "offset points", "fontsize": LABEL_SIZE, "va": "center", "weight": "bold"}
    ax.annotate(str(left), (left, row), (5, 0), annotation_clip=False, **aside)


def _devices(ax: Axes, row: int, devices: int, replicas: int) -> None:
    """A square for each device, left of the bar: as many columns as stages, a row for each replica."""
    wide, right, top = 8.5, -12, row - SQUARE * replicas / 2
    for k in range(devices):
        for r in range(replicas):
            corner = right - (devices - k) * wide, top + r * SQUARE
            ax.add_patch(Rectangle(corner, 0.8 * wide, 0.8 * SQUARE, color=INK, lw=0, clip_on=False))
    ax.text(
        right - DEVICES * wide - 8,
        row,
        f"{devices} x {replicas}",
        ha="right",
        va="center",
        fontsize=LABEL_SIZE,
    )


def _style(ax: Axes) -> None:
    ax.set(ylim=(4.5, -0.5), xlim=(0, 380), yticks=[], xticks=(0, 100, 200, 300))
    ax.set_xlabel("time", loc="left", fontsize=LABEL_SIZE)
    finish(ax)
    ax.spines["left"].set_visible(False)
