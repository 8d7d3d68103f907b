"""Eleven equal layers on four devices, cut in two ways: the slowest stage sets the beat.

A layer takes 1 forward and 2 backward. With 2, 2, 2 and 5 layers the last device takes 15 for a microbatch,
and all others wait for it; with 3, 3, 3 and 2 three devices take 9.
"""

from collections.abc import Sequence

from matplotlib.figure import Figure

from figures._gantt import of_timeline, timeline_of
from figures._page import page
from gpipe_sim import Costs, OneFOneB, simulate
from gpipe_sim.drawing.plots import plot_timeline

CUTS = ((2, 2, 2, 5), (3, 3, 3, 2))
MICROBATCHES = 8


def data() -> dict:
    return {"cuts": [_numbers(layers) for layers in CUTS]}


def draw(data: dict) -> Figure:
    figure, axes = page(5.0, 2)
    above, below = data["cuts"]
    claims = (
        f"The slowest stage sets the beat: with {_beat(above)}",
        f"... with {_beat(below)}: devices work {_work(below)} of the time, not {_work(above)}",
    )
    for ax, cut, words in zip(axes, data["cuts"], claims, strict=True):
        plot_timeline(timeline_of(cut), ax, words)
        ax.set_xlim(0, max(above["makespan"], below["makespan"]))
    axes[0].get_legend().remove()
    axes[0].set_xlabel("")
    return figure


def _beat(cut: dict) -> str:
    layers = ", ".join(map(str, cut["layers"]))
    return f"{layers} layers it is {cut['beat']}, and the step takes {cut['makespan']}"


def _work(cut: dict) -> str:
    idle, whole = cut["bubble"]
    return f"{1 - idle / whole:.0%}"


def _numbers(layers: Sequence[int]) -> dict:
    costs = Costs(*[list(layers)] * 3)
    timeline = simulate(OneFOneB(len(layers), MICROBATCHES), costs)
    return {"layers": list(layers), "beat": 3 * max(layers), **of_timeline(timeline)}
