"""Why a timeline looks as it does: what sets its length, and what each device waits for.

Both are read off a timeline, simulated or measured, and need no hook of the core. Lesson 05, "What makes an
order legal", explains its waiting devices with it; charts frame the critical path.

Names: ``critical_path``, ``why_idle``, and ``Explanation``, which is what ``why_idle`` gives.
"""

from gpipe_sim import signatures
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

signatures.readable(__name__)
