"""Which plan is the fastest on a given cluster: hardware, prices, bounds, plans and advice.

Adds to everything below it: ``Cluster`` (equal devices and their links), ``plan`` (the fastest plans that
fit, of all schedules, meshes, cuts and recompute), ``lower_bound`` (what no plan can beat), ``advise`` (the
usual questions, each answered by comparing plans), and ``fit_costs`` (costs read off a measured timeline).

It uses the core, the families, links, replicas, memory and balance through their public functions, and none
of them knows of it. Lessons 18, "Plan a real model, end to end", and 20, "On real devices".
"""

from gpipe_sim import signatures
from gpipe_sim.planning.bounds import lower_bound
from gpipe_sim.planning.hardware import costs_from_flops

__all__ = ["costs_from_flops", "lower_bound"]

signatures.readable(__name__)
