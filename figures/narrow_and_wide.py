"""The same twelve layers on two processes, narrow and wide: each step as a part of that on one process.

Recorded times, so nothing is measured again here.
"""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures._gantt import timeline_of
from figures._page import claim, page
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.drawing.palette import FAINT, INK
from gpipe_sim.drawing.plots import plot_bare
from gpipe_sim.drawing.plots.style import LABEL_SIZE
from gpipe_sim.errors import Real
from gpipe_sim.export import recorded_run

SIZES = {"narrow": "16 features wide", "wide": "1,024 features wide"}
UNTIL = 1.25  #: where the axis ends, in steps on one process


def data() -> dict:
    return {name: _numbers(recorded_run(name), recorded_run(f"{name}_alone").makespan) for name in SIZES}


def _numbers(timeline: Timeline, alone: Real) -> dict:
    spans = [[span.device, span.start, span.end, str(span.action)] for row in timeline.rows for span in row]
    placement, microbatches = timeline.schedule.placement, timeline.schedule.microbatches
    sizes = {"placement": [list(held) for held in placement], "microbatches": microbatches}
    return {"alone": alone, "both": timeline.makespan, **sizes, "spans": spans}


def draw(data: dict) -> Figure:
    figure, axes = page(4.0, rows=2)
    for ax, (name, size) in zip(axes, SIZES.items(), strict=True):
        _panel(ax, data[name], size)
    axes[1].set_xlabel("time, as a part of the step on one process", fontsize=LABEL_SIZE, color=FAINT)
    return figure


def _panel(ax: Axes, own: dict, size: str) -> None:
    alone, both = own["alone"], own["both"]
    plot_bare(timeline_of(own), ax)
    words = f"{size}: two processes are {alone / both:.2f} times as fast as one"
    claim(ax, words, f"{both:.1f} ms; the line is one process, {alone:.1f} ms")
    ax.axvline(alone, color=INK, lw=1.2)
    ax.set_xlim(0, UNTIL * alone)
    parts = [i / 4 for i in range(6)]
    ax.set_xticks([part * alone for part in parts], [f"{part:g}" for part in parts], fontsize=LABEL_SIZE)
    ax.set_yticks([0.5, 1.5], ["process 0", "process 1"], fontsize=LABEL_SIZE)
    ax.tick_params(axis="y", length=0)
    ax.spines["bottom"].set_visible(True)
