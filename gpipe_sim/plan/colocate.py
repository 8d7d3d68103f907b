"""Several partitions on one device: for testing a cut on fewer devices, not for speed."""

from collections.abc import Hashable, Sequence

from gpipe_sim.errors import require_room
from gpipe_sim.schedule.base import Schedule, require_schedule
from gpipe_sim.schedule.explicit import Explicit
from gpipe_sim.simulation.simulate import simulate


def colocate(schedule: Schedule, devices: Sequence[Hashable]) -> Explicit:
    """The schedule with its device k moved to ``devices[k]``, where a device may be listed again.

    ``["a", "b", "a", "b"]`` puts four devices' work on two. Those that share take turns in the order in
    which their actions start when each has a device of its own (unit costs), so nothing deadlocks and
    nothing is gained in time. Surplus devices are unused; IndexError for too few.
    """
    require_schedule("colocate", schedule)
    require_room(schedule.devices, devices)
    used = list(devices[: schedule.devices])
    names = list(dict.fromkeys(used))
    rows = [[] for _ in names]
    for span in sorted(simulate(schedule).spans, key=lambda span: span.start):
        rows[names.index(used[span.device])].append(span.action)
    placement = [
        [stage for k, held in enumerate(schedule.placement) if used[k] == name for stage in held]
        for name in names
    ]
    return Explicit(rows, placement=placement, microbatches=schedule.microbatches)
