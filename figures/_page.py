"""The page on which every figure is drawn."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpipe_sim.drawing.palette import FAINT
from gpipe_sim.drawing.plots.style import LABEL_SIZE, TITLE_SIZE

WIDTH = 9.0  #: inches; a README shows this as about 900 pixels, at which 9 points can be read
NOTE = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": LABEL_SIZE, "color": FAINT}


def page(height: float, rows: int = 1, columns: int = 1, **options) -> tuple:
    """(figure, axes), always of the same width and margins, and unknown to pyplot.

    ``height`` is in inches.
    """
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1, hspace=0.04, wspace=0.04)
    return figure, figure.subplots(rows, columns, **options)


def claim(ax: Axes, words: str, note: str = "") -> None:
    """What a chart says, in a sentence; and below it, how to read the chart."""
    ax.set_title(words, loc="left", fontsize=TITLE_SIZE, weight="bold", pad=20 if note else 8)
    if note:
        ax.annotate(note, (0, 1), (0, 6), **NOTE)
