"""Which plan is the fastest on a given cluster, and what would help a run that there is.

Adds to everything below it: ``plan`` (the fastest plans that fit a cluster, of all schedules, meshes, cuts
and recompute), ``lower_bound`` (what no plan can beat), and ``what_if`` (what a run would take with another
cut, another schedule, more microbatches, a faster link: each change simulated with what the run cost).

What a plan takes and holds says ``pricing``, and where to cut ``balance``; neither of them knows of it.
Lesson 18, "Plan a real model, end to end".
"""

from gpipe_sim.planning.bounds import lower_bound
from gpipe_sim.planning.flops import costs_from_flops
from gpipe_sim.signatures import readable

__all__ = ["costs_from_flops", "lower_bound"]

readable(__name__)
