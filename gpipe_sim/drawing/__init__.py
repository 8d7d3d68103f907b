"""Charts: every lesson looks at timelines through them.

Two modules lay a chart out: ``panel`` decides which boxes, labels, lines and strips a timeline has, and
``waiting_block`` does so for the same work pushed to the left. Two painters follow: ``svg`` (what a notebook
shows, and what ``gp.draw`` returns) and ``plots`` (matplotlib: axes in, axes out). A colour, a pattern, a
label that has no room: each is decided before anyone paints, so the two painters show the same chart.

What a reader can ask for is read in ``options``; ``coarse`` sums what has too many actions for a box each.
Beside charts there are the picture of a deadlock (lesson 05), a model cut into stages (lesson 01), gradients
that add up (lesson 03), a simulated step above a measured one (``overlay``, lesson 20), families side by side
on equal work (``compare``), and text. ``printed`` saves any of them as PDF or PNG.

The core knows nothing of all this. It has one hook: how a schedule or a timeline shows itself, in a notebook
as a chart and in ``print`` as text.

Public names: ``draw``, ``to_svg``, ``Svg``, ``overlay``, ``Overlay``, ``compare``, ``draw_deadlock``,
``draw_stages``, ``draw_parts``, and ``plots`` with ``plot_timeline``, ``plot_pushed``, ``plot_bare``,
``plot_bubble_curves`` and ``plot_losses``.
"""

from gpipe_sim.drawing.deadlock import draw_deadlock
from gpipe_sim.drawing.hinton_diagram import draw_parts
from gpipe_sim.drawing.stages import draw_stages
from gpipe_sim.drawing.svg import to_svg
from gpipe_sim.signatures import readable

__all__ = ["draw_deadlock", "draw_parts", "draw_stages", "to_svg"]

readable(__name__)
