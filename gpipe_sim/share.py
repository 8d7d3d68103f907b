"""Several partitions on one device: for testing a cut on fewer devices, not for speed."""

from collections.abc import Hashable, Sequence

from gpipe_sim.refuse import got
from gpipe_sim.schedule import Explicit, Schedule, require_schedule
from gpipe_sim.simulate import simulate


def share(schedule: Schedule, devices: Sequence[Hashable]) -> Explicit:
    """The schedule with its device k moved to ``devices[k]``, where a device may be listed again.

    ``["a", "b", "a", "b"]`` puts four devices' work on two. Those that share take turns in the order in
    which their actions start when each has a device of its own (unit costs), so nothing deadlocks and
    nothing is gained in time. Surplus devices are unused; IndexError for too few.
    """
    require_schedule("share", schedule)
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


def require_room(partitions: int, devices: Sequence[Hashable]) -> None:
    """Raise IndexError, in torchgpipe's words, if the list of devices is shorter than what it is to hold."""
    if isinstance(devices, str) or not isinstance(devices, Sequence):
        raise TypeError(f"devices lists a name for each of {partitions}, such as 'a' {got(devices)}")
    if partitions > len(devices):
        raise IndexError(
            "too few devices to hold given partitions "
            f"(devices: {len(devices)}, partitions: {partitions}); a device may be listed again"
        )
