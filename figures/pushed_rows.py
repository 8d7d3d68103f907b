"""Where GPipe's bubble comes from: push every row to the left, and the waiting is one block."""

from matplotlib.figure import Figure

from figures._gantt import fraction, numbers, timeline_of
from figures._page import page
from gpipe_sim import GPipe
from gpipe_sim.drawing.plots import plot_pushed, plot_timeline

DEVICES, MICROBATCHES = 4, 8


def data() -> dict:
    return numbers(GPipe(DEVICES, MICROBATCHES))


def draw(data: dict) -> Figure:
    figure, (above, below) = page(5.4, 2)
    timeline = timeline_of(data)
    plot_timeline(timeline, above, f"GPipe leaves {fraction(data)} of the device time unused")
    plot_pushed(timeline, below, "Push every row to the left: the waiting is one block, (K\u22121)(F+B) long")
    above.get_legend().remove()
    above.set_xlabel("")
    return figure
