"""GPipe and 1F1B over one slow hop: over a late one GPipe is the shorter, over a narrow one soon 1F1B.

Four devices in two nodes of two; inside a node messages take no time. The hop between the nodes has a
latency, or it carries one message at a time, each for as long.
"""

from fractions import Fraction

from matplotlib.axes import Axes
from matplotlib.figure import Figure

import gpipe_sim as gp
from figures._exact import plain
from figures._page import claim, page
from gpipe_sim.drawing.palette import CURVES, MARKERS
from gpipe_sim.drawing.plots.style import LABEL_SIZE, finish

DEVICES, MICROBATCHES, TIMES = 4, 8, range(7)
FAMILIES = gp.GPipe, gp.OneFOneB
NAMES = "GPipe", "1F1B"


def data() -> dict:
    """late[name][i], narrow[name][i]: how long a step is if a message over the hop takes times[i]."""
    return {
        "devices": DEVICES,
        "microbatches": MICROBATCHES,
        "times": list(TIMES),
        "late": _lengths([gp.Link(latency=time) for time in TIMES]),
        "narrow": _lengths([gp.Link(bandwidth=Fraction(1, time)) if time else gp.Link() for time in TIMES]),
    }


def _lengths(hops: list[gp.Link]) -> dict[str, list]:
    schedules = [family(DEVICES, MICROBATCHES) for family in FAMILIES]
    nodes = [gp.Nodes(DEVICES // 2, inside=gp.Link(), between=hop) for hop in hops]
    return {
        each.name: [plain(gp.simulate(each, links=links, message_bytes=1).makespan) for links in nodes]
        for each in schedules
    }


def draw(data: dict) -> Figure:
    figure, (left, right) = page(4.0, columns=2, sharey=True)
    _panel(left, data["times"], data["late"])
    _panel(right, data["times"], data["narrow"])
    left.set_ylabel("length of a step")
    left.set_xlabel("latency of the hop", loc="left")
    right.set_xlabel("how long a message keeps the hop busy", loc="left")
    gpipe, one_f_one_b = (data["narrow"][name] for name in NAMES)
    first = next(time for time in data["times"] if gpipe[time] > one_f_one_b[time])
    where = f"{data['devices']} devices, {data['microbatches']} microbatches, one slow hop in the middle"
    claim(left, "Over a late hop 1F1B waits again and again ...", where)
    claim(right, "... over a narrow one GPipe's messages queue", f"from {first} on, 1F1B takes less time")
    return figure


def _panel(ax: Axes, times: list[int], lengths: dict[str, list]) -> None:
    for i, name in enumerate(NAMES):
        row, color = lengths[name], CURVES[2 * i]
        ax.plot(times, row, color=color, marker=MARKERS[i], ms=5, lw=1.4, label=name)
        aside = {"textcoords": "offset points", "fontsize": LABEL_SIZE, "va": "center"}
        ax.annotate(f"{name}: {row[-1]}", (times[-1], row[-1]), (8, 0), color=color, **aside)
    ax.set_xticks(times)
    ax.set_xlim(-0.2, times[-1] + 1.7)
    ax.set_ylim(0, 118)
    finish(ax)
