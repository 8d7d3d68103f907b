"""A poster: every schedule on one time axis, doing the same work.

A step that is longer than the axis is cut off on the right; its title says how long it is. The dashed line is
where the step would end if no device ever waited.
"""

from fractions import Fraction

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.legend import Legend

from figures._exact import bubble, pair, plain
from figures._gantt import timeline_of
from figures._page import page
from gpipe_sim import SCHEDULES, Costs, Kind, Schedule, busy_time, peak_in_flight, simulate
from gpipe_sim.drawing.geometry import PHASES
from gpipe_sim.drawing.palette import INK
from gpipe_sim.drawing.plots import plot_timeline
from gpipe_sim.drawing.plots.gantt import DASHES
from gpipe_sim.drawing.plots.style import LABEL_SIZE, TITLE_SIZE
from gpipe_sim.simulation.timeline import number

DEVICES, MICROBATCHES = 4, 8
UNTIL, TICK = 36, 4  #: where the axis ends, and from tick to tick
FINE_HATCH = "//////"  #: for small boxes
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
    rows = max(map(len, data["columns"]))
    figure, axes = page(1.2 + 0.88 * rows, rows, 2, sharex=True, squeeze=False)
    figure.get_layout_engine().set(wspace=0.05)
    for column, heading, note, entries in zip(axes.T, HEADINGS, NOTES, data["columns"], strict=True):
        legends = [_panel(ax, entry) for ax, entry in zip(column, entries, strict=True)]
        _heading(column[0], heading)
        _time_axis(column[-1], note)
    _legend(figure, max(legends, key=lambda legend: sum(len(text.get_text()) for text in legend.texts)))
    return figure


def _cuts_backwards(schedule: Schedule) -> bool:
    return any(part.kind is Kind.W for row in schedule.actions for action in row for part in action.parts)


def _numbers(schedule: Schedule) -> dict:
    """One schedule's numbers. All stages of a device together take 1 each for F, I and W of a microbatch."""
    cut = schedule.stages // schedule.devices
    timeline = simulate(schedule, Costs().per_stage(cut))
    return {
        "name": schedule.name,
        "placement": [list(held) for held in schedule.placement],
        "microbatches": schedule.microbatches,
        "makespan": plain(timeline.makespan),
        "waitless": plain(busy_time(timeline) / schedule.devices),
        "bubble": pair(bubble(timeline)),
        "holds": plain(Fraction(max(peak_in_flight(schedule)), cut)),
        "spans": [
            [s.device, plain(s.start), plain(s.end), str(s.action)] for row in timeline.rows for s in row
        ],
    }


def _panel(ax: Axes, entry: dict) -> Legend:
    """Draw a bare chart of one schedule, and return the legend that was taken off it."""
    plot_timeline(timeline_of(entry), ax, "")
    own = ax.get_legend()
    own.remove()
    for artist in (*ax.texts, *(lines for lines in ax.collections if isinstance(lines, LineCollection))):
        artist.remove()  # numbers and phases, too small to be read here
    for boxes in ax.collections:
        boxes.set_hatch(boxes.get_hatch() and FINE_HATCH)
    ax.axvline(entry["waitless"], color=INK, lw=0.8, ls=DASHES)
    idle, all_time = entry["bubble"]
    until = f"{number(entry['makespan'])} long{' (cut off here)' if entry['makespan'] > UNTIL else ''}"
    says = f"{until}, {idle / all_time:.1%} waiting, holds {number(entry['holds'])}"
    ax.set_title(entry["name"], loc="left", fontsize=TITLE_SIZE, pad=3, fontweight="bold")
    ax.set_title(says, loc="right", fontsize=LABEL_SIZE, pad=3)
    ax.set(xlim=(0, UNTIL), xlabel="", yticks=[])
    ax.spines["bottom"].set_visible(False)
    ax.tick_params(axis="x", length=0)
    return own


def _time_axis(ax: Axes, note: str) -> None:
    ax.set_xticks(times := range(0, UNTIL + 1, TICK), list(map(str, times)))
    ax.set_xlabel(f"time ({note})", fontsize=LABEL_SIZE)
    ax.spines["bottom"].set_visible(True)
    ax.tick_params(axis="x", length=3)


def _heading(ax: Axes, words: str) -> None:
    above = {"xytext": (0, 26), "textcoords": "offset points", "xycoords": "axes fraction"}
    ax.annotate(words, (0, 1), **above, fontsize=TITLE_SIZE + 2)


def _legend(figure: Figure, like: Legend) -> None:
    entries = [(handle, handle.get_label()) for handle in like.legend_handles]
    shown = [(handle, label) for handle, label in entries if not label.endswith(PHASES)]
    figure.legend(
        *zip(*shown, strict=True),
        loc="outside lower center",
        ncols=len(shown),
        frameon=False,
        fontsize=LABEL_SIZE,
        handlelength=1,
        handleheight=1,
    )
