"""The four ways to lay stages on devices, each with one microbatch's way there and back.

With two copies of the model, a second microbatch takes the way of the second copy.
"""

from collections.abc import Iterator

from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text

from figures._gantt import of_timeline, timeline_of
from figures._page import page
from gpipe_sim import SCHEDULES, Costs, Explicit, simulate
from gpipe_sim.core import B, F, Schedule, Timeline
from gpipe_sim.drawing.plots import plot_timeline
from gpipe_sim.drawing.plots.style import LABEL_SIZE

DEVICES, MICROBATCHES = 4, 8
PLACEMENTS = {
    "One stage each: once down the devices": "1F1B",
    "Looped: twice down the devices, in thinner stages": "Interleaved 1F1B",
    "V: down the devices, and back up": "ZB-V",
    "Both ways: two copies, from both ends": "Chimera",
}


def data() -> dict:
    every = {schedule.name: schedule for schedule in (family(DEVICES, MICROBATCHES) for family in SCHEDULES)}
    return {
        "panels": [{"claim": words, **of_timeline(way(every[name]))} for words, name in PLACEMENTS.items()]
    }


def way(schedule: Schedule) -> Timeline:
    """Through the stages of each device and back; of two copies, the second is microbatch 1's."""
    rows, two_copies = [], schedule.name == "Chimera"
    for k, held in enumerate(schedule.placement):
        met = [(s, 1 if two_copies and s != k else 0) for s in sorted(held)]
        rows.append([F(s, m) for s, m in met] + [B(s, m) for s, m in reversed(met)])
    order = Explicit(rows, placement=schedule.placement)
    return simulate(order, Costs().per_stage(schedule.stages // schedule.devices))


def draw(data: dict) -> Figure:
    figure, axes = page(4.1, 2, 2)
    for ax, each in zip(axes.flat, data["panels"], strict=True):
        plot_timeline(timeline_of(each), ax, each["claim"])
        entries = _entries(ax.get_legend())
        handles = {text.get_text(): handle for handle, text in entries if "warm-up" not in text.get_text()}
        ax.get_legend().remove()
        for dashes in ax.findobj(LineCollection):  # of one microbatch no warm-up is to be seen
            dashes.remove()
        ax.set_xlabel("")
        for words in ax.findobj(Text):  # each panel chose a size of its own
            words.set_fontsize(LABEL_SIZE)
            if words.get_text().startswith(f"{DEVICES} devices"):
                words.set_text("")
    below = {"loc": "outside lower center", "frameon": False, "fontsize": LABEL_SIZE}
    figure.legend(handles.values(), handles.keys(), ncols=len(handles), handlelength=1, **below)
    return figure


def _entries(legend: Legend) -> Iterator[tuple]:
    return zip(legend.legend_handles, legend.get_texts(), strict=True)
