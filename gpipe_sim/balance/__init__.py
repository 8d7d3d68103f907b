"""Where to cut a model into stages.

Adds to the core: ``balance_by_cost`` (the fastest slowest stage, exactly), ``balance_by_parameters``,
``balance_by_size`` and ``balance_by_time`` (the same, for what real layers have or take),
``balance_by_makespan`` (the shortest step of a schedule, with a bound), the stopwatch behind
``Costs.measured``, and ``colocate`` (the stages of several devices on one).

The core asks for it where ``split`` gets ``balance="time"``, "size" or "parameters", and in
``Costs.measured``. Lesson 11, "Balance".
"""

from gpipe_sim.balance.colocate import colocate
from gpipe_sim.balance.costs_of_stages import merged
from gpipe_sim.signatures import readable

__all__ = ["colocate", "merged"]

readable(__name__)
