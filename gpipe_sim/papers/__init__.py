"""What papers say, to compare with: closed forms that lessons and planning read, and printed tables.

Every number and formula names its paper. No metric calls one, so that a test of one against the other means
something; it plugs into nothing. ``gp.formulas`` has the closed forms (``gp.formulas.gpipe_bubble(4, 8)``),
and ``gp.papers.published`` the tables: ``ZERO_BUBBLE`` and ``GPIPE_DEPTHS``. All lessons use them,
"Choosing K and M" most.
"""

from gpipe_sim.papers import published
from gpipe_sim.signatures import readable

__all__ = ["published"]

readable(__name__)
