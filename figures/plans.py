"""Plans for a Llama of 70B on 128 H100s: time and memory, each point a plan, and those that no other beats.

Each family and shape has one point, with recompute or without: its fastest.
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

MODEL, DEVICES, SAMPLES, PLACES, ROWS = "llama3-70b", 128, 256, 4096, 24
FAMILIES = (gp.OneFOneB, gp.Interleaved1F1B, gp.ZBV)
#: About what an H100 reaches in large products; stated, not measured.
H100 = gp.Accelerator(600e12, hbm=2.7e12, launch=5e-6, exposed=0.15, call=2e-5)
LINKS = gp.Nodes(8, gp.Link(5e-6, 300e9), gp.Link(1e-5, 50e9))
CLUSTER = gp.Cluster(DEVICES, H100, memory=80e9, links=LINKS)
GB = 1e9
ELSEWHERE = {
    ("4 x 8 x 4", "Interleaved 1F1B"): (9, 5, "left")
}  #: where a name would be in the way of another
MARKS = {False: "o", True: "^"}  #: without recompute, and with it


@cache
def data() -> dict:
    """Of each plan: its mesh, family, recompute, time, bytes, and whether no other beats it."""
    tokens = gp.MetaArray((SAMPLES, PLACES), np.int32)
    how = {"schedules": FAMILIES, "microbatch": [1], "recompute": ["none", "full"], "rows": ROWS}
    plans = gp.plan(gp.known_model(MODEL), CLUSTER, (tokens, tokens), **how)
    return {
        "bound": plans.bound,
        "plans": [
            {
                "mesh": each.way.mesh,
                "name": each.schedule.name,
                "recompute": each.way.recompute == "full",
                "time": each.time,
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
    note = f"Llama 70B, {DEVICES} devices: tensor x pipeline x replicas; triangles recompute; dashed: bound, "
    claim(ax, f"{words} {len(unbeaten)} are worth a look", f"{note}{number(data['bound'])} s")
    return figure


def _places(plans: list[dict]) -> tuple[list[float], list[float]]:
    return [each["bytes"] / GB for each in plans], [each["time"] for each in plans]


def _mark(ax: Axes, each: dict) -> None:
    """Filled and with its name if no other beats it."""
    x, y = each["bytes"] / GB, each["time"]
    look = {"color": CURVES[0], "ms": 7} if each["unbeaten"] else {"color": CURVES[3], "mfc": PAPER, "ms": 5}
    ax.plot(x, y, MARKS[each["recompute"]], **look)
    if each["unbeaten"]:
        name, behind = f"{each['mesh']} {each['name']}", {"fc": PAPER, "ec": "none", "pad": 0.6}
        *beside, end = ELSEWHERE.get((each["mesh"], each["name"]), (-8, -4, "right"))
        ax.annotate(
            name, (x, y), beside, textcoords="offset points", fontsize=LABEL_SIZE, ha=end, bbox=behind
        )


def style(ax: Axes, data: dict) -> None:
    times = [each["time"] for each in data["plans"]]
    ax.set_xlim(0, 82)
    ax.set_ylim(0.96 * data["bound"], 1.03 * max(times))
    ax.set_xlabel("bytes on the fullest device (GB)", fontsize=LABEL_SIZE, color=FAINT)
    ax.set_ylabel("length of the step (s)", fontsize=LABEL_SIZE, color=FAINT)
    finish(ax)
