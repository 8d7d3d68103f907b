"""One page: the same work, from model parallelism without a pipeline to zero bubble; and that it learns."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures import training_loss
from figures._gantt import numbers, timeline_of
from figures._page import claim, page
from gpipe_sim import ZBH1, GPipe, Naive, OneFOneB
from gpipe_sim.drawing.palette import INK
from gpipe_sim.drawing.plots import plot_bare
from gpipe_sim.drawing.plots.style import LABEL_SIZE, TITLE_SIZE

DEVICES, MICROBATCHES = 4, 8
FAMILIES = (Naive, GPipe, OneFOneB, ZBH1)


def data() -> dict:
    """The step of each family, longest first; and the numbers of the training."""
    schedules = [family(DEVICES, MICROBATCHES) for family in FAMILIES]
    steps = [{"name": schedule.name, **numbers(schedule)} for schedule in schedules]
    return {"steps": steps, "training_loss": training_loss.data()}


def draw(data: dict) -> Figure:
    steps = data["steps"]
    figure, (*charts, loss) = page(7.6, len(steps) + 1, height_ratios=[1] * len(steps) + [2.6])
    longest, shortest = steps[0]["makespan"], min(step["makespan"] for step in steps)
    for ax, step in zip(charts, steps, strict=True):
        _chart(ax, step, longest)
    claim(
        charts[0],
        f"The same work on {DEVICES} devices takes {longest} units, or {shortest}: the schedule decides",
        "grey: waiting; blue: a forward, 1 long; orange, with green where it is cut in two: a backward, 2; "
        f"{MICROBATCHES} microbatches",
    )
    training_loss.draw_on(loss, data["training_loss"])
    return figure


def _chart(ax: Axes, step: dict, longest: float) -> None:
    """Behind a chart its name, and what it costs."""
    plot_bare(timeline_of(step), ax)
    idle, all_time = step["bubble"]
    says = f"{step['makespan']} long, {idle / all_time:.0%} waiting, holds {max(step['peak_in_flight'])}"
    ax.set_xlim(0, 1.3 * longest)
    rows = len(step["placement"])
    beside = {"textcoords": "offset points", "va": "center"}
    ax.annotate(
        step["name"],
        (step["makespan"], 0.3 * rows),
        (8, 0),
        fontsize=TITLE_SIZE,
        weight="bold",
        color=INK,
        **beside,
    )
    ax.annotate(says, (step["makespan"], 0.72 * rows), (8, 0), fontsize=LABEL_SIZE, **beside)
