"""Sixteen devices as five meshes: long pipelines wait and send messages, many copies make long sums.

A model of 16 layers, of which a forward takes 1 and a backward 2, and 64 microbatches, under GPipe. All links
have a latency of 1 and carry one byte in a unit; a message is 1 byte, the gradients of a layer are 4.
"""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

import gpipe_sim as gp
from figures._exact import plain
from figures._page import claim, page
from gpipe_sim.core.actions import Kind
from gpipe_sim.drawing.palette import COLLECTIVE, INK, KINDS, LANE, PAPER, ink
from gpipe_sim.drawing.plots.style import LABEL_SIZE, finish

DEVICES, MICROBATCHES, LAYERS, BYTES = 16, 64, 16, 4
LINK = gp.Link(latency=1, bandwidth=1)
WORK = ("forward", "backward")
PARTS = (*WORK, "waiting", "messages", "sum of gradients")
SQUARE = 1 / 18  #: how high a device is, if a bar and the space above it are 1


def data() -> dict:
    """parts[i]: where the time of a device goes in mesh i, in the order of ``PARTS``; they add up."""
    sizes = [2**i for i in range(DEVICES.bit_length())][::-1]
    return {
        "meshes": [[k, DEVICES // k] for k in sizes],
        "microbatches": MICROBATCHES,
        "parts": [_parts(k, DEVICES // k) for k in sizes],
    }


def _parts(devices: int, replicas: int) -> list:
    layers, pieces = LAYERS // devices, MICROBATCHES // replicas
    schedule = gp.replicate(gp.GPipe(devices, pieces), replicas)
    costs = gp.Costs(*3 * [layers])
    alone, linked = gp.simulate(schedule, costs), gp.simulate(schedule, costs, links=LINK, message_bytes=1)
    summed = gp.all_reduce(linked, BYTES * layers, links=LINK)
    work = layers * pieces
    lengths = [work, 3 * work, alone.makespan, linked.makespan, summed.makespan]
    return [plain(after - before) for before, after in zip([0, *lengths], lengths, strict=False)]


def draw(data: dict) -> Figure:
    figure, ax = page(5.2)
    for row, (mesh, parts) in enumerate(zip(data["meshes"], data["parts"], strict=True)):
        _bar(ax, row, parts)
        _devices(ax, row, *mesh, scale=max(map(sum, data["parts"])))
    _style(ax, data)
    lengths = [sum(parts) for parts in data["parts"]]
    best = data["meshes"][lengths.index(min(lengths))]
    words = f"Long pipelines wait, many copies make long sums: {best[0]} x {best[1]} is the shortest, "
    first = f"{data['meshes'][0][0]} devices, {data['microbatches']} microbatches, GPipe; "
    claim(ax, words + str(min(lengths)), first + "a row of squares is a pipeline, each row below it a copy")
    return figure


def _bar(ax: Axes, row: int, parts: list) -> None:
    left = 0
    for name, part in zip(PARTS, parts, strict=True):
        if part:
            ax.barh(row, part, left=left, height=0.56, **_look(name))
        if part >= 10 and name not in WORK:
            _number(ax, left + part / 2, row, part, name)
        left += part
    aside = {"textcoords": "offset points", "fontsize": LABEL_SIZE, "va": "center", "weight": "bold"}
    ax.annotate(str(left), (left, row), (5, 0), **aside)


def _number(ax: Axes, x: float, row: int, part: int, name: str) -> None:
    look = _look(name)
    behind = {"facecolor": look["facecolor"], "edgecolor": "none", "pad": 1.5}
    place = {"ha": "center", "va": "center", "fontsize": LABEL_SIZE, "color": ink(look["facecolor"])}
    ax.text(x, row, str(part), bbox=behind if "hatch" in look else None, **place)


def _devices(ax: Axes, row: int, devices: int, replicas: int, scale: float) -> None:
    """A square for each device, left of the bar: as many columns as stages, a row for each replica."""
    wide = SQUARE * scale * 0.15
    right, top = -0.03 * scale, row - SQUARE * replicas / 2
    for k in range(devices):
        for r in range(replicas):
            corner = right - (devices - k) * wide, top + r * SQUARE
            ax.add_patch(Rectangle(corner, 0.8 * wide, 0.8 * SQUARE, color=INK, lw=0, clip_on=False))
    at = right - DEVICES * wide - 0.015 * scale
    ax.text(at, row, f"{devices} x {replicas}", ha="right", va="center", fontsize=LABEL_SIZE)


def _style(ax: Axes, data: dict) -> None:
    ax.set_ylim(len(data["meshes"]) - 0.5, -0.5)
    ax.set_xlim(0, 1.06 * max(map(sum, data["parts"])))
    ax.set_yticks([])
    ax.set_xlabel("time", loc="left", fontsize=LABEL_SIZE)
    finish(ax)
    ax.spines["left"].set_visible(False)
    handles = [Patch(label=name, **_look(name)) for name in PARTS]
    ax.legend(
        handles=handles,
        frameon=False,
        fontsize=LABEL_SIZE,
        handlelength=1.2,
        ncols=len(PARTS),
        loc="upper right",
        bbox_to_anchor=(1, -0.09),
    )


def _look(name: str) -> dict:
    looks = {
        "forward": {"facecolor": KINDS[Kind.F].colour},
        "backward": {"facecolor": KINDS[Kind.B].colour},
        "waiting": {"facecolor": LANE},
        "messages": {"facecolor": LANE, "hatch": "////"},
        "sum of gradients": {"facecolor": COLLECTIVE.colour},
    }
    return {"edgecolor": INK if name == "messages" else PAPER, "linewidth": 0, **looks[name]}
