"""Why a timeline looks as it does: what sets its length, and what each device waits for.

All of it is read off a timeline, simulated or measured. Lesson 05, "What makes an order legal", explains its
waiting devices with it; charts frame the critical path; lesson 20, "On real devices", fits costs.

Names: ``critical_path``, ``why_idle``, and ``Explanation``, which is what ``why_idle`` gives; ``fit_costs``
(costs read off a timeline, to simulate other orders with) and ``where_time_goes`` (its makespan as a sum:
work, bubble, and one cause after the other), which are both names of the package. ``gaps`` has what these two
share: when messages arrived, and which gaps nothing explains. The hook ``CHART`` shows a sum in a notebook.
"""

from gpipe_sim.signatures import readable
from gpipe_sim.why.critical_path import critical_path, why_idle
from gpipe_sim.why.metrics import (
    bytes_through,
    idle_spans,
    in_flight,
    phases,
    speedup,
    utilization,
)

__all__ = [
    "bytes_through",
    "critical_path",
    "idle_spans",
    "in_flight",
    "phases",
    "speedup",
    "utilization",
    "why_idle",
]

readable(__name__)
