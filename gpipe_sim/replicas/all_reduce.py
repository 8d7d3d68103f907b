"""The gradients of a stage's copies are summed over links, after its last backward, and updates wait for it.

A pass over a finished timeline, because in a synchronous step nothing but an update waits for a sum. It takes
the devices no time to compute: their links work while they run what is left for other stages.

    device 0   [ 0B0 ][ 0B1 ]=== stage 0 ===[ 0U1 ]
    device 1   [ 0B2 ][ 0B3 ]=== stage 0 ===[ 0U3 ]        a copy of stage 0, with microbatches 2 and 3

Assumed: all-reduces and the messages of the pipeline do not slow each other, a device takes part in one
all-reduce at a time, and a ring goes through its devices in the order of their numbers.
"""

import numbers
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.numbers import quotient
from gpipe_sim.core.simulate import within_floats
from gpipe_sim.core.timeline import Timeline, column_of, number, of_timeline
from gpipe_sim.errors import Real, duration, got, listed, require_few, require_flags, whole
from gpipe_sim.links.collective import ALL_REDUCE, NORM, Collective
from gpipe_sim.links.links import Link, Links, link_between

MOST_BUCKETS = 10_000  #: of each stage
NORM_BYTES = 8  #: of the one number that clipping sums over all devices


@of_timeline
def all_reduce(
    timeline: Timeline, sizes: Any, *, links: Links, buckets: int = 1, clip: bool = False
) -> Timeline:
    """The same timeline with what sums the gradients of each stage that several devices hold.

    >>> timeline = gp.simulate(gp.replicate(gp.OneFOneB(2, 4), 2))
    >>> summed = gp.all_reduce(timeline, 4, links=gp.Link(bandwidth=1))  # 4 bytes of gradients a stage
    >>> timeline.makespan, summed.makespan
    (15, 19)

    ``sizes`` are the bytes of a stage's gradients: one number for all stages, one for each, or the
    ``profile`` of a model. ``links`` are those of ``simulate``: a ``Link``, ``Nodes``, or links by pair.

    A stage's ring all-reduce starts when its last backward (B or W) has ended on all its devices and they
    are through with earlier ones; it takes as long as its rounds take on these links. With ``buckets`` it is
    cut into as many equal parts, each with rounds of its own; part i of b is ready after i/b of the last
    backward, as if gradients came at an even pace in it. With ``clip`` every update also waits for the norm
    of all gradients: one number, summed over all devices when all else is.

    Updates move behind the all-reduce of their stage; nothing else moves. ``timeline.collectives`` lists what
    was added, and the makespan includes it.

    ValueError for sizes that do not fit the stages, for more than 10,000 buckets, for links that are not
    there, for a timeline that has collectives already, and if an action that is no update stands behind one
    that has to wait. TypeError for arguments of another kind.
    """
    buckets = whole("all_reduce", "buckets", buckets)
    require_few("all_reduce", buckets, "buckets", most=MOST_BUCKETS)
    require_flags("all_reduce", clip=clip)
    if timeline.collectives:
        raise ValueError("all_reduce has been there already: this timeline has collectives")
    sizes = _sizes(sizes, timeline)
    return within_floats(timeline.schedule, lambda: _summed(timeline, sizes, links, buckets, clip))


def _summed(timeline: Timeline, sizes: list[Real], links: Links, buckets: int, clip: bool) -> Timeline:
    found = list(_one_by_one(_ready(timeline, buckets), sizes, links, buckets))
    if clip and timeline.schedule.devices > 1:
        found.append(_norm(timeline, found, links))
    found.sort(key=lambda each: (each.start, each.end))
    # a Protocol cannot say that the attributes of ``Together`` are only read
    summed = replace(timeline, collectives=tuple(found))  # type: ignore[arg-type]
    return _with_updates_after(summed, found)


Ready = tuple[Real, int, tuple[int, ...]]  #: when a stage's gradients can be summed, and on which devices


def _ready(timeline: Timeline, buckets: int) -> list[Ready]:
    """All that has to be summed, in the order in which it is there; a stage once for each bucket."""
    starts, ends, program = timeline.start.tolist(), timeline.end.tolist(), timeline.schedule.program
    last: dict[int, dict[int, int]] = {}  # by stage and device, the entry that makes the last gradient there
    for part in np.flatnonzero(program.makes_gradients).tolist():
        last.setdefault(int(program.stage[part]), {})[int(program.device[part])] = int(program.entry[part])

    def when(entry: int, bucket: int) -> Real:  # exactly the end for the last bucket
        start, end = starts[entry], ends[entry]
        return end if bucket == buckets else start + quotient((end - start) * bucket, buckets)

    return sorted(
        (max(when(entry, bucket) for entry in entries.values()), stage, tuple(sorted(entries)))
        for stage, entries in last.items()
        for bucket in range(1, buckets + 1)
        if len(entries) > 1
    )


def _one_by_one(ready: list[Ready], sizes: list[Real], links: Links, buckets: int) -> Iterator[Collective]:
    """What is ready first goes first; each waits until all its devices are through with earlier ones."""
    free: dict[int, Real] = {}
    takes: dict[int, Real] = {}  #: by stage: its buckets are equally large, and go around one ring
    for when, stage, devices in ready:
        size = quotient(sizes[stage], buckets)
        if stage not in takes:
            takes[stage] = ring_time(ring_links(links, devices), size)
        start = max(when, *(free.get(device, 0) for device in devices))
        free |= dict.fromkeys(devices, start + takes[stage])
        yield Collective(ALL_REDUCE, stage, devices, start, start + takes[stage], size)


def _norm(timeline: Timeline, before: Sequence[Collective], links: Links) -> Collective:
    """Clipping needs the norm of the sums: it starts when all of them are there, on every device."""
    program = timeline.schedule.program
    made = timeline.end[program.entry[program.makes_gradients]]
    start = max([*made.tolist(), *(each.end for each in before)])
    devices = tuple(range(program.devices))
    end = start + ring_time(ring_links(links, devices), NORM_BYTES)
    return Collective(NORM, None, devices, start, end, NORM_BYTES)


def ring_links(links: Links, devices: Sequence[int]) -> list[Link]:
    """The link out of each device, to the next one in the ring."""
    pairs = zip(devices, [*devices[1:], devices[0]], strict=True)
    return [link_between(links, *pair, "all_reduce") for pair in pairs]


def ring_time(ring: Sequence[Link], size: Real) -> Real:
    """How long a ring all-reduce of so many bytes takes from round to round; a link goes out of each device.

    A device sends a piece on when it has arrived and its link is free. Pieces are equal parts of ``size``.
    Where all links are alike, one device does what all do.
    """
    devices = len(ring)
    ring = ring[:1] if len(set(ring)) == 1 else ring
    busy = [link.busy(quotient(size, devices)) for link in ring]
    free: list[Real] = [0] * len(ring)
    arrived = free
    for _ in range(2 * (devices - 1)):
        free = [max(times) + takes for *times, takes in zip(free, arrived, busy, strict=True)]
        late = [time + link.latency for time, link in zip(free, ring, strict=True)]
        arrived = [late[-1], *late[:-1]]  # at the next device
    return max(arrived)


def _sizes(sizes: Any, timeline: Timeline) -> list[Real]:
    """The bytes of each stage's gradients."""
    stages = timeline.schedule.stages
    if hasattr(type(sizes), "gradient_bytes"):
        sizes.require_stages(timeline.schedule)
        return list(sizes.gradient_bytes)
    if isinstance(sizes, numbers.Real):
        return [duration("all_reduce", "sizes", sizes)] * stages
    such_as = "sizes in bytes: a number, one for each stage, or profile(partitions, batch, loss)"
    found = [duration("all_reduce", "each size", each) for each in listed("all_reduce", such_as, sizes)]
    if len(found) != stages:
        raise ValueError(
            f"all_reduce needs a size for each of {stages} stages, or one number {got(len(found))}"
        )
    return found


def _with_updates_after(timeline: Timeline, found: Sequence[Collective]) -> Timeline:
    """Each update moves behind what it waits for, and behind those before it in its row."""
    program = timeline.schedule.program
    starts, ends = timeline.start.tolist(), timeline.end.tolist()
    after = {(each.stage, device): each.end for each in found for device in each.devices}  # the last part's
    for device, (first, until) in enumerate(pairwise(program.rows.tolist())):
        moved: Real = 0
        for entry in range(first, until):
            stage, kind, _ = program.action_of(int(program.parts[entry]))
            if kind is Kind.U:
                moved = max(moved, after.get((stage, device), 0), after.get((None, device), 0))
            if starts[entry] >= moved:
                continue
            if kind is not Kind.U:
                raise ValueError(
                    f"{program.entry_of(entry)} stands behind an update that waits until {number(moved)}: "
                    f"put the updates at the end of device {device}'s row, or let them take the time of the "
                    "sum, Costs(update=formulas.ring_all_reduce_time(...))"
                )
            starts[entry], ends[entry] = moved, moved + (ends[entry] - starts[entry])
            moved = ends[entry]
    return replace(timeline, start=column_of(starts), end=column_of(ends))
