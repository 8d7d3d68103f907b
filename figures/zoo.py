"""A poster: every schedule on one time axis, doing the same work.

A step that is longer than the axis is cut off on the right; its title says how long it is. The dashed line is
where the step would end if no device ever waited.
"""

from collections.abc import Sequence
from fractions import Fraction

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures._exact import plain
from figures._gantt import of_timeline, timeline_of
from figures._page import page
from gpipe_sim import SCHEDULES, Costs, peak_in_flight, simulate
from gpipe_sim.core import Kind, Schedule, busy_time
from gpipe_sim.core.timeline import Timeline, number
from gpipe_sim.drawing.coarse import grain_of
from gpipe_sim.drawing.marks import Scale, Style, legend
from gpipe_sim.drawing.options import Wanted
from gpipe_sim.drawing.palette import INK
from gpipe_sim.drawing.panel import panel
from gpipe_sim.drawing.plots import plot_bare
from gpipe_sim.drawing.plots.gantt import DASHES, handle
from gpipe_sim.drawing.plots.style import LABEL_SIZE, TITLE_SIZE

DEVICES, MICROBATCHES = 4, 8
UNTIL, TICK = 36, 4  #: where the axis ends, and from tick to tick
HEADINGS = "Each backward in one piece", "Backwards cut in two: W fills the waits"
#: Below the columns: how to read the line and the titles.
NOTES = "dashed: the end, if no device ever waited", "holds: microbatches, on the fullest device"


def data() -> dict:
    """Two columns of schedules, each with the longest first: full backwards only, and some that are split."""
    every = [family(DEVICES, MICROBATCHES) for family in SCHEDULES]
    whole = [schedule for schedule in every if not _cuts_backwards(schedule)]
    cut = [schedule for schedule in every if _cuts_backwards(schedule)]
    columns = [sorted(map(_numbers, column), key=lambda entry: -entry["makespan"]) for column in (whole, cut)]
    return {"columns": columns, "devices": DEVICES, "microbatches": MICROBATCHES}


def draw(data: dict) -> Figure:
    """One panel per schedule, two columns, one legend."""
    rows, every = max(map(len, data["columns"])), [entry for column in data["columns"] for entry in column]
    figure, axes = page(1.5 + 0.88 * rows, rows, 2, sharex=True, squeeze=False)
    lengths = [number(pick(e["makespan"] for e in every)) for pick in (max, min)]
    words = f"The same work in {len(every)} schedules: from {lengths[0]} units of time down to {lengths[1]}"
    figure.suptitle(words, x=0.013, ha="left", fontsize=TITLE_SIZE + 2, weight="bold")
    figure.get_layout_engine().set(wspace=0.05)
    for column, heading, note, entries in zip(axes.T, HEADINGS, NOTES, data["columns"], strict=True):
        for ax, entry in zip(column, entries, strict=True):
            _panel(ax, entry)
        _heading(column[0], heading)
        _time_axis(column[-1], note)
    _legend(figure, [timeline_of(entry) for entry in every])
    return figure


def _cuts_backwards(schedule: Schedule) -> bool:
    return any(part.kind is Kind.W for row in schedule.actions for action in row for part in action.parts)


def _numbers(schedule: Schedule) -> dict:
    """One schedule's numbers. All stages of a device together take 1 each for F, I and W of a microbatch."""
    cut = schedule.stages // schedule.devices
    timeline = simulate(schedule, Costs().per_stage(cut))
    return {
        "name": schedule.name,
        "waitless": plain(busy_time(timeline) / schedule.devices),
        "holds": plain(Fraction(max(peak_in_flight(schedule)), cut)),
        **of_timeline(timeline),
    }


def _panel(ax: Axes, entry: dict) -> None:
    """A small chart of one schedule, with its name and numbers above it."""
    plot_bare(timeline_of(entry), ax)
    ax.axvline(entry["waitless"], color=INK, lw=0.8, ls=DASHES[Style.PHASE])
    idle, all_time = entry["bubble"]
    until = f"{number(entry['makespan'])} long{' (cut off here)' if entry['makespan'] > UNTIL else ''}"
    says = f"{until}, {idle / all_time:.1%} waiting, holds {number(entry['holds'])}"
    ax.set_title(entry["name"], loc="left", fontsize=TITLE_SIZE, pad=3, fontweight="bold")
    ax.set_title(says, loc="right", fontsize=LABEL_SIZE, pad=3)
    ax.set_xlim(0, UNTIL)
    ax.tick_params(axis="x", length=0)


def _time_axis(ax: Axes, note: str) -> None:
    ax.set_xticks(times := range(0, UNTIL + 1, TICK), list(map(str, times)))
    ax.set_xlabel(f"time ({note})", fontsize=LABEL_SIZE)
    ax.spines["bottom"].set_visible(True)
    ax.tick_params(axis="x", length=3)


def _heading(ax: Axes, words: str) -> None:
    above = {"xytext": (0, 22), "textcoords": "offset points", "xycoords": "axes fraction"}
    ax.annotate(words, (0, 1), **above, fontsize=TITLE_SIZE + 1)


def _legend(figure: Figure, timelines: Sequence[Timeline]) -> None:
    """What boxes and lanes mean; numbers, phases and pairs are too small for a panel."""
    small = Scale(unit=0, row=0, font=1)
    every = legend((panel(each, grain_of(each), small, Wanted()), small) for each in timelines)
    entries = [entry for entry in every if entry.swatch]
    figure.legend(
        handles=[handle(entry) for entry in entries],
        loc="outside lower center",
        ncols=len(entries),
        frameon=False,
        fontsize=LABEL_SIZE,
        handlelength=1,
        handleheight=1,
    )
