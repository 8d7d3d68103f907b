"""What lesson 14 fills, and its price: 1F1B, ZB-H1 and ZB-H2, each with what its devices hold.

A backward takes 2; cut in two, each half takes 1. So all three are the same work.
"""

from matplotlib.figure import Figure

from figures._gantt import numbers, timeline_of
from figures._page import page
from gpipe_sim import ZBH1, OneFOneB
from gpipe_sim.drawing.plots import plot_timeline
from gpipe_sim.families import ZBH2

DEVICES, MICROBATCHES = 4, 8


def data() -> dict:
    return {family.__name__: numbers(family(DEVICES, MICROBATCHES)) for family in (OneFOneB, ZBH1, ZBH2)}


def draw(data: dict) -> Figure:
    figure, axes = page(7.8, len(data))
    whole, late, early = data.values()
    claims = (
        f"1F1B: {_says(whole)}",
        f"ZB-H1, W put off: {_says(late)}",
        f"ZB-H2, more forwards ahead: {_says(early)}; no holes",
    )
    for ax, each, words in zip(axes, data.values(), claims, strict=True):
        plot_timeline(timeline_of(each), ax, words, in_flight=True)
        ax.set_xlim(0, whole["makespan"])
    for ax in axes[:-1]:
        ax.get_legend().remove()
        ax.set_xlabel("")
    [orange] = (text for text in axes[-1].get_legend().get_texts() if text.get_text().startswith("I "))
    orange.set_text("B or I: backward, input gradient")
    return figure


def _says(own: dict) -> str:
    return f"{own['makespan']} long, and device 0 holds {own['peak_in_flight'][0]} microbatches"
