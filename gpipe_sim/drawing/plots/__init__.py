"""Charts with matplotlib: axes in, axes out.

Without ``ax``, each function makes a figure whose size follows from the data. None of them shows anything or
changes matplotlib's style; show or save the figure yourself (``ax.figure.savefig``).
"""

from gpipe_sim.drawing.plots.curves import plot_bubble_curves, plot_losses
from gpipe_sim.drawing.plots.gantt import plot_bare, plot_pushed, plot_timeline

__all__ = ["plot_bare", "plot_bubble_curves", "plot_losses", "plot_pushed", "plot_timeline"]
