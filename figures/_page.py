"""The page on which every figure is drawn."""

from matplotlib.figure import Figure

from gpipe_sim.drawing.plots.style import claim

__all__ = ["WIDTH", "claim", "page"]

WIDTH = 9.0  #: inches; a README shows this as about 900 pixels, at which 9 points can be read


def page(height: float, rows: int = 1, columns: int = 1, **options) -> tuple:
    """(figure, axes), always of the same width and margins, and unknown to pyplot.

    ``height`` is in inches.
    """
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1, hspace=0.04, wspace=0.04)
    return figure, figure.subplots(rows, columns, **options)
