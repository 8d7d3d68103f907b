"""Plans for 16 layers on 16 devices: time against memory, each point a plan, and those that no other beats.

The model and the cluster of lesson 18, on paper, with room for every plan. Each family and shape has one
point, with recompute or without: its fastest.
"""

from functools import cache

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import gpipe_sim as gp
from figures._page import claim, page
from gpipe_sim.core.timeline import number
from gpipe_sim.drawing.palette import CURVES, FAINT, INK, PAPER
from gpipe_sim.drawing.plots.style import LABEL_SIZE, finish

LAYERS, DEVICES, SAMPLES, ROWS = 16, 16, 64, 8  #: a sample is as many rows of as many features
FAMILIES = (gp.GPipe, gp.OneFOneB, gp.Interleaved1F1B, gp.ZBH1, gp.ZBV)
CLUSTER = gp.Cluster(DEVICES, gp.Accelerator(1024, 0.5), memory=1e6, links=gp.Link(0.5, 1024))
KB = 1000
#: Where the name of a mark stands: points to the right and up, and which of its ends is near.
BESIDE = -8, -3, "right"
ELSEWHERE = {
    ("ZB-H1", 4): (-8, -1, "right"),
    ("Interleaved 1F1B", 2): (-8, -7, "right"),
    ("ZB-H1", 2): (-6, -14, "right"),
    ("ZB-V", 2): (4, -11, "left"),
    ("Interleaved 1F1B", 1): (-9, -9, "right"),
}  #: where it would be in the way of another
MARKS = {False: "o", True: "^"}  #: without recompute, and with it


@cache
def data() -> dict:
    """Of each plan: family, devices of a pipeline, recompute, time, bytes, and whether no other beats it."""
    layers = [gp.core.Linear(ROWS, ROWS, rng=np.random.default_rng(0)) for _ in range(LAYERS)]
    x = gp.MetaArray((SAMPLES, ROWS, ROWS), np.float64)
    how = {"schedules": FAMILIES, "stages_per_device": [2], "rows": None}
    plans = gp.plan(layers, CLUSTER, (x, x), gp.mse, gp.Adam(), **how)
    return {
        "bound": plans.bound,
        "plans": [
            {
                "name": each.candidate.schedule.name,
                "devices": each.candidate.mesh.devices,
                "recompute": each.candidate.recompute,
                "time": float(each.time),
                "bytes": each.peak,
                "unbeaten": each in plans.frontier,
            }
            for each in plans
        ],
    }


def draw(data: dict) -> Figure:
    figure, ax = page(5.4)
    unbeaten = [each for each in data["plans"] if each["unbeaten"]]
    ax.axhline(data["bound"], color=INK, lw=1.1, ls=(0, (4, 3)))
    ax.plot(*_places(unbeaten), color=CURVES[0], lw=1.1, drawstyle="steps-pre", zorder=1)
    for each in data["plans"]:
        _mark(ax, each)
    style(ax, data)
    words = f"{len(data['plans']) - len(unbeaten)} of {len(data['plans'])} plans are beaten by another,"
    note = f"{LAYERS} equal layers on {DEVICES} devices; triangles recompute; dashed: the bound, "
    claim(ax, f"{words} {len(unbeaten)} are worth a look", note + number(data["bound"]))
    return figure


def _places(plans: list[dict]) -> tuple[list[float], list[float]]:
    return [each["bytes"] / KB for each in plans], [each["time"] for each in plans]


def _mark(ax: Axes, each: dict) -> None:
    """Filled and with its name if no other beats it."""
    x, y = each["bytes"] / KB, each["time"]
    look = {"color": CURVES[0], "ms": 7} if each["unbeaten"] else {"color": CURVES[3], "mfc": PAPER, "ms": 5}
    ax.plot(x, y, MARKS[each["recompute"]], **look)
    if each["unbeaten"]:
        name, behind = f"{each['name']}, K = {each['devices']}", {"fc": PAPER, "ec": "none", "pad": 0.6}
        *beside, end = ELSEWHERE.get((each["name"], each["devices"]), BESIDE)
        ax.annotate(
            name, (x, y), beside, textcoords="offset points", fontsize=LABEL_SIZE, ha=end, bbox=behind
        )


def style(ax: Axes, data: dict) -> None:
    ax.set_xscale("log")
    ax.set_xlim(5, 130)
    ax.set_xticks([10, 20, 50, 100], ["10", "20", "50", "100"])
    ax.minorticks_off()
    ax.set_ylim(185, 1.04 * max(each["time"] for each in data["plans"]))
    ax.set_xlabel("bytes on the fullest device (kB)", fontsize=LABEL_SIZE, color=FAINT)
    ax.set_ylabel("length of the step", fontsize=LABEL_SIZE, color=FAINT)
    finish(ax)
