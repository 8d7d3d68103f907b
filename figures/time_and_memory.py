"""Every schedule at its length and at what its fullest device holds, each dot with its chart beside it.

All do the same work. Down is shorter, left is less memory: nothing is best at both. What else a schedule
costs stands beside its name, the messages, and is a hollow dot: two copies of the parameters.
"""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from figures import zoo
from figures._gantt import timeline_of
from figures._page import claim, page
from gpipe_sim import SCHEDULES, simulate
from gpipe_sim.core.timeline import number
from gpipe_sim.drawing.palette import FAINT, INK, PAPER
from gpipe_sim.drawing.plots import plot_bare
from gpipe_sim.drawing.plots.style import LABEL_SIZE, finish

WIDE, HIGH = 0.024, 0.46  #: a thumbnail: of a microbatch held per unit of time; in units of time
NAME = 0.3, 0.055  #: its name: as high, in units of time, and as wide per letter, in microbatches
#: Where a thumbnail may stand, from its dot to its lower left corner: the first place that is free.
PLACES = [(x, y) for y in (0.05, -0.75, 0.85, -1.55, 1.65, -2.35) for x in (0.09, -0.78)]


def data() -> dict:
    """The schedules of the zoo, in one list."""
    every = {family(zoo.DEVICES, zoo.MICROBATCHES).name: family for family in SCHEDULES}
    entries = sorted((e for column in zoo.data()["columns"] for e in column), key=_point)
    made = [every[entry["name"]](zoo.DEVICES, zoo.MICROBATCHES) for entry in entries]
    return {
        "schedules": [
            entry
            | {"messages": len(simulate(of).messages), "copies": sum(map(len, of.placement)) // of.stages}
            for entry, of in zip(entries, made, strict=True)
        ]
    }


def draw(data: dict) -> Figure:
    figure, ax = page(7.4)
    longest, *shown = sorted(data["schedules"], key=lambda entry: -entry["makespan"])
    low, high = min(e["makespan"] for e in shown), max(e["makespan"] for e in shown)
    taken = [Bbox.from_bounds(x - 0.06, y - 0.08, 0.12, 0.16) for x, y in map(_point, shown)]
    for entry in shown:
        _thumbnail(ax, entry, taken)
    ax.set(xlim=(1.4, 9.2), ylim=(low - 1.2, high + 1.6), xticks=range(2, 9))
    ax.set_xlabel("microbatches' worth of activations on the fullest device", fontsize=LABEL_SIZE)
    ax.set_ylabel("length of the step", fontsize=LABEL_SIZE)
    finish(ax)
    below, held = number(longest["makespan"]), number(longest["holds"])
    read = "beside a name: its messages; hollow: two copies of the parameters"
    size = "4 devices, 8 microbatches, equal work"
    note = f"{read}\n{size}; not shown: {longest['name']}, {below} long, holds {held}"
    least, shortest = (min(shown, key=lambda entry: entry[what])["name"] for what in ("holds", "makespan"))
    words = f"No schedule is best at both: of these, {least} holds the least and {shortest} is the shortest"
    claim(ax, words, note)
    return figure


def _point(entry: dict) -> tuple[float, float]:
    return entry["holds"], entry["makespan"]


def _thumbnail(ax: Axes, entry: dict, taken: list[Bbox]) -> None:
    """The chart, as wide as it is long, at the first free place beside its dot; above it the name."""
    x, y = _point(entry)
    wide = WIDE * entry["makespan"]
    words = f"{entry['name']}: {entry['messages']}"
    room = max(wide, NAME[1] * len(words)) + 0.05, HIGH + NAME[0]
    left, bottom = next(
        (x + dx, y + dy)
        for dx, dy in PLACES
        if not any(_overlap(Bbox.from_bounds(x + dx, y + dy, *room), other) for other in taken)
    )
    taken.append(Bbox.from_bounds(left, bottom, *room))
    ax.plot([x, left if left > x else left + wide], [y, bottom + HIGH / 2], color=FAINT, lw=0.7, zorder=1)
    ax.plot(x, y, "o", color=INK, ms=6, mfc=PAPER if entry["copies"] > 1 else INK)
    plot_bare(timeline_of(entry), ax.inset_axes([left, bottom, wide, HIGH], transform=ax.transData))
    ax.annotate(words, (left, bottom + HIGH + 0.04), fontsize=LABEL_SIZE, va="bottom")


def _overlap(a: Bbox, b: Bbox) -> bool:
    return a.x0 < b.x1 and b.x0 < a.x1 and a.y0 < b.y1 and b.y0 < a.y1
