"""Links: what it costs to send, and who waits while a message crosses. Lesson 12, "Links".

In the core a message is on its way for as long as the costs say, whatever else crosses. Here each pair of
devices has a link with a latency and a bandwidth, on which messages go one at a time (``links``,
``traffic``); or all devices share one wire (``shared_wire``); or every action takes a little more or less
than planned, and an order is timed many times (``noise``). ``collective`` is what several devices send each
other together.

It plugs in as a cost model that times a program itself (``CostModel.clock``): ``simulate(..., links=...)``
asks the hook ``ON_LINKS`` for one. Public names: ``Link``, ``Nodes``, ``simulate_shared``,
``simulate_many``, ``Collective``.
"""

from gpipe_sim.links.shared_wire import simulate_shared
from gpipe_sim.signatures import readable

__all__ = ["simulate_shared"]

readable(__name__)
