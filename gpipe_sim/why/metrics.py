"""More numbers measured from a timeline: speed-up, idle spans, phases, bytes through collectives."""

from itertools import accumulate

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.bubbles import bubble_fraction, ratio, useful_time
from gpipe_sim.core.rules import in_flight as held_more
from gpipe_sim.core.timeline import Timeline, of_timeline
from gpipe_sim.errors import Real
from gpipe_sim.links.collective import collectives_of


@of_timeline
def utilization(timeline: Timeline) -> Real:
    """Busy time over all device time: 1 - bubble fraction."""
    return 1 - bubble_fraction(timeline)


@of_timeline
def speedup(timeline: Timeline) -> Real:
    """How many times faster than one device that does the same useful work without waiting."""
    return ratio(useful_time(timeline), timeline.makespan)


@of_timeline
def bytes_through(timeline: Timeline) -> tuple[Real, ...]:
    """Per device, the bytes that it sends and receives in collectives, such as an all-reduce.

    Of each collective they are its ``through``. The messages between stages are not in it.
    """
    every, devices = collectives_of(timeline), range(timeline.schedule.devices)
    return tuple(sum(each.through for each in every if device in each.devices) for device in devices)


@of_timeline
def idle_spans(timeline: Timeline, device: int) -> list[tuple[Real, Real]]:
    """(start, end) of each gap on a device, from time 0 to the makespan."""
    timeline.on(device)  # which refuses a device that is not there
    return [(end, start) for end, start in waits(timeline, device) if start > end]


def waits(timeline: Timeline, device: int) -> list[tuple[Real, Real]]:
    """(start, end) of each wait of a device: before each of its spans, and after the last; most are empty.

    An empty one ends where it starts, or before that: measured spans may overlap, and while an earlier one
    still runs, the device does not wait.
    """
    row = timeline.rows[device]
    ends = [0, *accumulate((span.end for span in row), max)]
    return list(zip(ends, [*(span.start for span in row), timeline.makespan], strict=True))


@of_timeline
def phases(timeline: Timeline, device: int) -> tuple[Real, Real]:
    """(when a device's warm-up ends, when its drain begins).

    In the steady state in between, from the start of its first backward to the end of its last forward, the
    device runs forwards and backwards in turn. If every forward comes first, as in GPipe, there is no steady
    state: the two times are the end of the last forward and the start of the first backward, and the device
    waits in between. ValueError for a device that does not run both.
    """
    row = [(part.kind, span) for span in timeline.on(device) for part in span.action.parts]
    forwards = [span.end for kind, span in row if kind is Kind.F]
    backwards = [span.start for kind, span in row if kind in (Kind.B, Kind.I)]
    if not forwards or not backwards:
        raise ValueError(f"device {device} has no phases: it runs no forward or no backward")
    return min(backwards[0], forwards[-1]), max(backwards[0], forwards[-1])


@of_timeline
def in_flight(timeline: Timeline, device: int) -> list[tuple[Real, int]]:
    """(time, count) steps: how many (stage, microbatch) pairs are forwarded and not yet freed by B or W.

    Each counts from the end of its F to the end of its B or W. In an overlapped pair both halves run at the
    same time, so the forward counts from the start of the pair.
    """
    changes = []
    for span in timeline.on(device):
        *first, last = span.action.parts
        changes += [(span.start, held_more(half.kind)) for half in first]
        changes.append((span.end, held_more(last.kind)))
    changes.sort(key=lambda change: change[0])  # measured spans may end in another order
    counts = accumulate((more for _, more in changes), initial=0)
    return list(zip([0, *(time for time, _ in changes)], counts, strict=True))
