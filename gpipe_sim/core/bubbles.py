"""Numbers measured from a timeline. None of them knows a formula.

Three of them are called "bubble" in the literature: bubble fraction, bubble overhead and span bubble. With K
devices and M microbatches, GPipe gives (K-1)/(K-1+M) for the fraction and (K-1)/M for the overhead. Times are
exact if the timeline's are; a ratio of two ints is a float, of two Fractions a Fraction.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.program import CODE, KINDS, Program
from gpipe_sim.core.rules import in_flight as held_more
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.core.timeline import Timeline, of_timeline
from gpipe_sim.errors import Real


@of_timeline
def busy_time(timeline: Timeline) -> Real:
    """The time that all devices together spend in actions; where measured spans overlap, it counts once."""
    return sum((timeline.end - timeline.start).tolist()) - sum(_counted_twice(timeline))


def _counted_twice(timeline: Timeline) -> Iterator[Real]:
    """How long each span runs while an earlier one of its device does; the clocks here make none that do."""
    for first, until in pairwise(timeline.schedule.program.rows.tolist()):
        starts, ends = timeline.start[first:until], timeline.end[first:until]
        if (starts[1:] < ends[:-1]).any():
            before = np.maximum.accumulate(ends)[:-1]
            yield from (time for time in (np.minimum(before, ends[1:]) - starts[1:]).tolist() if time > 0)


@of_timeline
def useful_time(timeline: Timeline) -> Real:
    """Busy time without R actions, because those only repeat a forward."""
    program = timeline.schedule.program
    again = program.kind[program.first] == CODE[Kind.R]
    return busy_time(timeline) - sum((timeline.end - timeline.start)[again].tolist())


@of_timeline
def idle_time(timeline: Timeline) -> Real:
    """The time that all devices together wait, from 0 to the end of the last action anywhere.

    >>> gp.core.idle_time(gp.simulate(gp.OneFOneB(3, 6)))  # each of three devices waits for 6
    18
    """
    return timeline.schedule.devices * timeline.makespan - busy_time(timeline)


@of_timeline
def bubble_fraction(timeline: Timeline) -> Real:
    """Idle time over all device time: the share of the chart that is bubble.

    >>> gp.bubble_fraction(gp.simulate(gp.GPipe(4, 8)))
    0.2727272727272727
    >>> float(gp.formulas.gpipe_bubble(4, 8))
    0.2727272727272727
    """
    return ratio(idle_time(timeline), timeline.schedule.devices * timeline.makespan)


@of_timeline
def bubble_overhead(timeline: Timeline) -> Real:
    """Idle time over useful time: Megatron-LM's "bubble". It can exceed 1.

    >>> gp.bubble_overhead(gp.simulate(gp.GPipe(4, 8)))  # (K-1)/M
    0.375
    """
    return ratio(idle_time(timeline), useful_time(timeline))


@of_timeline
def span_bubble(timeline: Timeline) -> Real:
    """1 - useful / longest: the zero-bubble papers' "bubble rate".

    >>> timeline = gp.simulate(gp.families.ZBH2(3, 6))
    >>> gp.span_bubble(timeline), gp.bubble_fraction(timeline)
    (0.0, 0.1)

    ``longest`` is the largest (last end - first start) of any device, so waiting before a device's first
    action and after its last does not count. ``useful`` is the useful time of a device, on average.
    """
    longest = max(row[-1].end - row[0].start for row in timeline.rows if row)
    if not longest:
        return 0
    return 1 - ratio(useful_time(timeline), timeline.schedule.devices * longest)


def peak_in_flight(schedule: Schedule) -> tuple[int, ...]:
    """Per device, the most (stage, microbatch) pairs forwarded and not yet freed by B or W.

    >>> gp.peak_in_flight(gp.OneFOneB(4, 8)), gp.peak_in_flight(gp.GPipe(4, 8))
    ((4, 3, 2, 1), (8, 8, 8, 8))
    """
    require_schedule("peak_in_flight", schedule)
    return most_held(schedule.program)


def most_held(program: Program, each: np.ndarray | int = 1) -> tuple[int, ...]:
    """Per device, the most that is in flight at once, if each part of the program holds so much."""
    change = np.array([held_more(kind) for kind in KINDS])[program.kind] * each
    rows = pairwise(program.parts[program.rows].tolist())
    return tuple(int(np.cumsum(change[a:b]).max(initial=0)) for a, b in rows)


def ratio(part: Real, whole: Real) -> Real:
    return part / whole if whole else 0
