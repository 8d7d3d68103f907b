"""Put several partitions on one device: to test a cut on fewer devices, not to gain speed."""

from collections.abc import Hashable, Iterator, Sequence

from gpipe_sim.core.actions import Action, Kind, OverlapFB
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.errors import require_room
from gpipe_sim.families.derived import rearranged
from gpipe_sim.streams.updates import updates_of


def colocate(schedule: Schedule, devices: Sequence[Hashable]) -> Explicit:
    """The schedule with the work of device k moved to ``devices[k]``; a name may be listed several times.

    ``["a", "b", "a", "b"]`` puts the work of four devices on two. Actions that now share a device run in the
    order in which they start when none of the devices are merged, at unit costs. So the result cannot
    deadlock, and it is not faster. Copies of a stage that come to share a device are one from then on, with
    the first of the updates that they had together. Surplus names are unused; IndexError for fewer names than
    devices.
    """
    require_schedule("colocate", schedule)
    used = require_room(schedule.devices, devices)[: schedule.devices]
    names = list(dict.fromkeys(used))
    rows: list[list[Action | OverlapFB]] = [[] for _ in names]
    for span in sorted(simulate(schedule).spans, key=lambda span: span.start):
        rows[names.index(used[span.device])].append(span.action)
    rows = [list(_once(schedule, row)) for row in rows]
    placement = [
        dict.fromkeys(stage for k, held in enumerate(schedule.placement) if used[k] == name for stage in held)
        for name in names
    ]
    return rearranged(schedule, rows, [list(held) for held in placement], schedule.microbatches)


def _once(schedule: Schedule, row: Sequence[Action | OverlapFB]) -> Iterator[Action | OverlapFB]:
    """A row in which each mini-batch is applied once to a stage, by the update that comes first."""
    program, done = schedule.program, set()
    for action in row:
        first = action.parts[0]
        if first.kind is Kind.U:
            which = first.stage, int(updates_of(program).before[program.part_of(first)])
            if which in done:
                continue
            done.add(which)
        yield action
