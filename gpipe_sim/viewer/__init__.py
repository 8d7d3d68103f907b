"""A page to look at: one HTML file in which schedules run again, are asked, and are built by hand.

``view`` writes it. ``document`` joins the room's scripts, ``tables`` hands them the library's rules, words
and colours, and ``shown`` says in JSON what a page opens with. The page has a clock of its own, because a
browser needs one; ``make test-page`` holds it equal to the library's, bit for bit.

Public name: ``gp.view``.
"""

from gpipe_sim.signatures import readable

__all__: list[str] = []

readable(__name__)
