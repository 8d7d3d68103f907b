"""One microbatch's path under 1F1B and interleaved: twice around the devices, in thinner slices."""

from matplotlib.figure import Figure

from figures._gantt import numbers, timeline_of
from figures._page import page
from gpipe_sim import Costs, Interleaved1F1B, OneFOneB, simulate
from gpipe_sim.core import Schedule
from gpipe_sim.drawing.plots import plot_timeline

SIZE, FOLLOWED = {"devices": 4, "microbatches": 8}, 4


def data() -> dict:
    return {
        "1F1B": _numbers(OneFOneB(**SIZE)),
        "Interleaved 1F1B": _numbers(Interleaved1F1B(**SIZE, stages_per_device=2)),
        "followed": FOLLOWED,
    }


def draw(data: dict) -> Figure:
    figure, axes = page(5.6, 2)
    for ax, name in zip(axes, ("1F1B", "Interleaved 1F1B"), strict=True):
        own = data[name]
        path = [span[3] for span in own["spans"] if span[3][2:] == str(data["followed"])]
        claim = (
            f"{name}: microbatch {data['followed']} crosses {own['crossed']} times; {own['makespan']} long"
        )
        plot_timeline(timeline_of(own), ax, claim, highlight=path)
        ax.set_xlim(0, data["1F1B"]["makespan"])
    axes[0].get_legend().remove()
    return figure


def _numbers(schedule: Schedule) -> dict:
    """With how often the followed microbatch crosses from device to device."""
    messages = simulate(schedule, Costs()).messages
    crossed = sum(message.action.microbatch == FOLLOWED for message in messages)
    return numbers(schedule) | {"crossed": crossed}
