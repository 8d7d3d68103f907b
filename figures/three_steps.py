"""ZB-H2 three times in a row: each step begins in the corner that the one before leaves empty."""

from matplotlib.figure import Figure

from figures._gantt import numbers, of_timeline, timeline_of
from figures._page import page
from gpipe_sim import repeat, simulate
from gpipe_sim.drawing.options import HIGHLIGHTED
from gpipe_sim.drawing.plots import plot_timeline
from gpipe_sim.families import ZBH2

DEVICES, MICROBATCHES, STEPS = 4, 8, 3


def data() -> dict:
    """``alone``: the numbers of one step."""
    step = ZBH2(DEVICES, MICROBATCHES)
    return of_timeline(simulate(repeat(step, STEPS))) | {"alone": numbers(step)["makespan"], "steps": STEPS}


def draw(data: dict) -> Figure:
    figure, ax = page(3.1)
    timeline, each = timeline_of(data), data["microbatches"] // data["steps"]
    actions = [span.action for span in timeline.spans]
    middle = [action for action in actions if action.microbatch // each == data["steps"] // 2]
    length = f"{data['makespan']} long, not {data['steps'] * data['alone']}"
    plot_timeline(timeline, ax, f"{data['steps']} steps of ZB-H2 interlock: {length}", highlight=middle)
    [note] = (text for text in ax.texts if f"{data['microbatches']} microbatches" in text.get_text())
    [framed] = (words for words in ax.get_legend().get_texts() if words.get_text() == HIGHLIGHTED)
    framed.set_text("second step")
    note.set_text(note.get_text().replace(str(data["microbatches"]), f"{data['steps']} x {each}"))
    return figure
