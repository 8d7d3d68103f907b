"""A schedule's Gantt chart with a strip of what each device holds: numbers and picture."""

from matplotlib.figure import Figure

from figures._exact import bubble, pair, plain
from figures._page import page
from gpipe_sim import Costs, Explicit, peak_in_flight, simulate
from gpipe_sim.core import Action, Schedule, Span, Timeline
from gpipe_sim.drawing.plots import plot_timeline
from gpipe_sim.export.spans import from_spans


def numbers(schedule: Schedule) -> dict:
    """Every span as [device, start, end, action], and the numbers in the title and the margin.

    All stages of a device together take 1 forward and 2 backward per microbatch, however many they are.
    """
    timeline = simulate(schedule, Costs().per_stage(schedule.stages // schedule.devices))
    return {
        "schedule": repr(schedule),
        "peak_in_flight": list(peak_in_flight(schedule)),
        **of_timeline(timeline),
    }


def of_timeline(timeline: Timeline) -> dict:
    """What ``timeline_of`` needs, and how long it is and how much of it is waiting."""
    return {
        "placement": [list(held) for held in timeline.schedule.placement],
        "microbatches": timeline.schedule.microbatches,
        "makespan": plain(timeline.makespan),
        "bubble": pair(bubble(timeline)),
        "spans": [
            [span.device, plain(span.start), plain(span.end), str(span.action)]
            for row in timeline.rows
            for span in row
        ],
    }


def timeline_of(data: dict) -> Timeline:
    """The timeline that the numbers describe, without simulating anything."""
    spans = [Span(Action.parse(text), device, start, end) for device, start, end, text in data["spans"]]
    rows = [[span.action for span in spans if span.device == k] for k in range(len(data["placement"]))]
    order = Explicit(rows, placement=data["placement"], microbatches=data["microbatches"])
    return from_spans(order, spans)


def picture(data: dict, claim: str, in_flight: bool = True) -> Figure:
    """The chart, below its claim."""
    figure, ax = page(3.9 if in_flight else 2.9)
    plot_timeline(timeline_of(data), ax, claim, in_flight=in_flight)
    return figure


def fraction(data: dict) -> str:
    """The bubble as "3/11"."""
    return "{}/{}".format(*data["bubble"])
