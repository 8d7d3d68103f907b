"""1F1B with an update for each microbatch and no flush: nothing waits, and what enters uses older weights.

Below it, on the same axis, 1F1B that waits for its update. The number in a box is the version of the weights:
how many updates made it. A backward reads what its forward read (stashing), and updates take no time.
"""

from numbers import Real

from matplotlib.figure import Figure

import gpipe_sim as gp
from figures._gantt import of_timeline, timeline_of
from figures._page import page
from gpipe_sim.core import Timeline
from gpipe_sim.core.timeline import number
from gpipe_sim.drawing.plots import plot_timeline

DEVICES, MICROBATCHES, FLUSHES = 4, 10, 2
WEIGHTS = "stashed"


def data() -> dict:
    step = gp.with_updates(gp.OneFOneB(DEVICES, MICROBATCHES // FLUSHES))
    orders = {"endless": gp.PipeDream(DEVICES, MICROBATCHES), "flushed": gp.repeat(step, FLUSHES)}
    return {name: of_timeline(gp.simulate(order)) for name, order in orders.items()}


def draw(data: dict) -> Figure:
    figure, axes = page(5.2, 2)
    timelines = [timeline_of(data[name]) for name in ("endless", "flushed")]
    for ax, timeline, words in zip(axes, timelines, claims(data), strict=True):
        plot_timeline(timeline, ax, words, weights=WEIGHTS)
        ax.set_xlim(0, max(each.makespan for each in timelines))
    axes[0].get_legend().remove()
    axes[0].set_xlabel("")
    return figure


def claims(data: dict) -> tuple[str, str]:
    """How long devices wait once warm, and how old their weights are; and both with flushes."""
    endless, flushed = (timeline_of(data[name]) for name in ("endless", "flushed"))
    waits = max(waits_once_warm(endless, device) for device in range(endless.schedule.devices))
    *most, last = ages(endless)
    old = f"weights are {', '.join(map(str, most))} and {last} updates old"
    waiting = f"{float(gp.bubble_fraction(flushed)):.0%}"
    lasts = [number(each.makespan) for each in (flushed, endless)]
    return (
        f"Without a flush: once warm, each device waits {number(waits)}; {old}",
        f"With {FLUSHES} flushes weights are {max(ages(flushed))} updates old; "
        f"the same microbatches take {lasts[0]}, not {lasts[1]}, and {waiting} is waiting",
    )


def waits_once_warm(timeline: Timeline, device: int) -> Real:
    """How long a device waits from its first backward to its last forward."""
    start, end = gp.why.phases(timeline, device)
    return sum(until - since for since, until in gp.why.idle_spans(timeline, device) if start <= since < end)


def ages(timeline: Timeline) -> list[int]:
    """How many updates too old the weights of each device are, at most."""
    return [max(late) for late in gp.staleness(timeline.schedule, WEIGHTS).delay]
