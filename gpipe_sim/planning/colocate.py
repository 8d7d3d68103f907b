"""Put several partitions on one device: to test a cut on fewer devices, not to gain speed."""

from collections.abc import Hashable, Sequence

from gpipe_sim.errors import require_room
from gpipe_sim.schedule.base import Schedule, require_schedule
from gpipe_sim.schedule.explicit import Explicit, rearranged
from gpipe_sim.simulation.simulate import simulate


def colocate(schedule: Schedule, devices: Sequence[Hashable]) -> Explicit:
    """The schedule with the work of device k moved to ``devices[k]``; a name may be listed several times.

    ``["a", "b", "a", "b"]`` puts the work of four devices on two. Actions that now share a device run in the
    order in which they start when none of the devices are merged, at unit costs. So the result cannot
    deadlock, and it is not faster. Surplus names are unused; IndexError for fewer names than devices.
    """
    require_schedule("colocate", schedule)
    used = require_room(schedule.devices, devices)[: schedule.devices]
    names = list(dict.fromkeys(used))
    rows = [[] for _ in names]
    for span in sorted(simulate(schedule).spans, key=lambda span: span.start):
        rows[names.index(used[span.device])].append(span.action)
    placement = [
        dict.fromkeys(stage for k, held in enumerate(schedule.placement) if used[k] == name for stage in held)
        for name in names
    ]
    return rearranged(schedule, rows, placement, schedule.microbatches)
