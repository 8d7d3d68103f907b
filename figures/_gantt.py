"""A schedule's Gantt chart, and below it the microbatches that each device holds: numbers and picture."""

from matplotlib.figure import Figure

from figures._exact import bubble, pair, plain
from figures._page import page
from gpipe_sim import Action, Costs, Explicit, Schedule, Span, Timeline, peak_in_flight, simulate
from gpipe_sim.drawing.plots import plot_in_flight, plot_timeline


def numbers(schedule: Schedule) -> dict:
    """Every span as [device, start, end, action], and the numbers in the title and the margin.

    All stages of a device together take 1 forward and 2 backward per microbatch, however many they are.
    """
    timeline = simulate(schedule, Costs().per_stage(schedule.stages // schedule.devices))
    return {
        "schedule": repr(schedule),
        "placement": [list(held) for held in schedule.placement],
        "microbatches": schedule.microbatches,
        "makespan": plain(timeline.makespan),
        "bubble": pair(bubble(timeline)),
        "peak_in_flight": list(peak_in_flight(schedule)),
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
    return Timeline.from_spans(order, spans)


def picture(data: dict, name: str) -> Figure:
    """The chart, and strips of what each device holds; a full strip is the whole batch, at all its stages."""
    timeline = timeline_of(data)
    idle, whole = data["bubble"]
    title = f"{name}: makespan {data['makespan']}, bubble {idle}/{whole} = {idle / whole:.1%}"
    figure, (chart, strips) = page(4.1, 2, sharex=True)
    plot_timeline(timeline, chart, title)
    plot_in_flight(timeline, strips, scale=data["microbatches"] * max(map(len, data["placement"])))
    chart.set_xlabel("")
    chart.tick_params(labelbottom=False)
    return figure
