"""What a timeline shows of waiting: when messages arrived, and which gaps nothing in the schedule explains.

A message of a simulated timeline has its times, and so has one that was measured. For any other they are
filled in: it left when its action ended, and was on its way for as long as is usual between its two devices,
but was there when the action started that needed it:

    device 0   [ 0F3 ]
                     `...as usual...
    device 1             [ 1F2 ]    [ 1F3 ]
"""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.core.program import Program
from gpipe_sim.core.schedule import needs
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.errors import Real
from gpipe_sim.links.collective import collectives_of

HALF = Fraction(1, 2)
LONG = 10  #: times the usual gap of a device, and longer than its usual action: that is a pause

Pair = tuple[int, int]  #: (source, target)
Way = tuple[Action, int, int]  #: (what is sent, from which device, to which), as ``Program.ways`` has it
Times = tuple[Real, Real]  #: when a message left and when it arrived


def median(times: Iterable[Real]) -> Real:
    """The middle time, or the mean of the two in the middle; exact if the times are."""
    ordered = sorted(times)
    return share(HALF, ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2])


def share(part: Fraction, time: Real) -> Real:
    """This part of a time. It is exact if the time is, and then an int if it comes out whole."""
    found = part * time
    return int(found) if isinstance(found, Fraction) and found.denominator == 1 else found


class Usual(NamedTuple):
    """How long messages usually take: by pair of devices, and ``otherwise`` between any other two."""

    by_pair: dict[Pair, Real]
    otherwise: Real

    @classmethod
    def of(cls, seen: Iterable[tuple[Pair, Real]]) -> "Usual":
        """The medians of what was seen: (pair, how long a message took)."""
        times = defaultdict(list)
        for pair, time in seen:
            times[pair].append(time)
        together = [time for found in times.values() for time in found]
        return cls({pair: median(times[pair]) for pair in sorted(times)}, median(together or [0]))


def fill(
    program: Program, start: Sequence[Real], end: Sequence[Real], known: Mapping[Way, Times], usual: Usual
) -> list[Times]:
    """When each message left and arrived, in the order of ``Program.ways``; the unknown are filled in."""
    bounds, found = message_bounds(program, start, end), []
    for way in program.ways:
        left, wanted = bounds[way]
        arrives = left + usual.by_pair.get(way[1:], usual.otherwise)
        found.append(known.get(way) or (left, max(left, min(arrives, wanted))))
    return found


def message_bounds(program: Program, start: Sequence[Real], end: Sequence[Real]) -> dict[Way, Times]:
    """For each message, when its action ended, and when the first action that needs it started."""
    needed, owners = program.entry[program.needs[program.crosses]], program.owner[program.crosses]
    found: dict[Way, Times] = {}
    for way, entry, owner in zip(program.ways, needed.tolist(), owners.tolist(), strict=True):
        _, wanted = found.get(way, (0, start[owner]))
        found[way] = end[entry], min(wanted, start[owner])
    return found


#: A note on the messages between two devices that were filled in: it is written here, and read again.
FILLED = "{} of {} messages from device {} to device {} are assumed to take as long as usual"
_FILLED = re.compile(FILLED.format(*["([0-9]+)"] * 4))


def notes_of(program: Program, known: Mapping[Way, Times]) -> tuple[str, ...]:
    """How many messages were measured, and between which devices how many were filled in."""
    ways = set(program.ways)
    every, others = (Counter(way[1:] for way in some) for some in (ways, ways - known.keys()))
    says = f"{len(known)} of {len(ways)} messages were measured"
    return says, *(FILLED.format(others[pair], every[pair], *pair) for pair in sorted(others))


def assumed(timeline: Timeline, pair: Pair) -> str:
    """How many of the messages between two devices were filled in, "3 of 8"; empty if none was."""
    found = (match.groups() for note in timeline.notes if (match := _FILLED.fullmatch(note)))
    return next((f"{n} of {every}" for n, every, *ends in found if ends == [*map(str, pair)]), "")


def message_times(timeline: Timeline) -> list[Times]:
    """When each message left and arrived; if nobody measured them, as they are filled in from the waits."""
    if timeline.sent is not None and timeline.arrived is not None:
        return list(zip(timeline.sent.tolist(), timeline.arrived.tolist(), strict=True))
    start, end = timeline.start.tolist(), timeline.end.tolist()
    return fill(timeline.schedule.program, start, end, {}, Usual.of(waits_for_messages(timeline)))


def waits_for_messages(timeline: Timeline) -> Iterator[tuple[Pair, Real]]:
    """For each message that an idle device waited for: (pair, from the sender's end to the receiver's start).

    If devices took turns, waits in which another device started an action are left out.
    """
    program = timeline.schedule.program
    turns = sorted(timeline.start.tolist()) if timeline.took_turns else []
    for device, row in enumerate(timeline.rows):
        free: Real = 0
        for span in row:
            wanted = ((need, program.part_of(need)) for need in needs(span.action, timeline.schedule))
            homes = [(timeline.ends[need], int(program.device[part])) for need, part in wanted]
            sent, source = max((each for each in homes if each[1] != device), default=(-1, -1))
            updates = span.action.parts[0].kind is Kind.U  # it may wait for another copy, and gets no message
            if not updates and sent >= free and bisect_left(turns, sent) == bisect_left(turns, span.start):
                yield (source, device), max(0, span.start - sent)
            free = span.end


class Gap(NamedTuple):
    """How much later than it could an entry started.

    ``waited`` says whether its device waited for a message before, or had done nothing yet; ``together``,
    whether a collective of its device ended just when the entry started.
    """

    length: Real
    waited: bool
    together: bool


def gaps_of(timeline: Timeline) -> list[Gap]:
    """The gap before each entry, after its device was free and all that it needs had arrived."""
    program, start, end = timeline.schedule.program, timeline.start.tolist(), timeline.end.tolist()
    there = [end[entry] for entry in program.entry[program.needs].tolist()]
    crossing = (i for i, crosses in enumerate(program.crosses.tolist()) if crosses)
    for i, (_, arrived) in zip(crossing, message_times(timeline), strict=True):
        there[i] = arrived
    sums = {(device, each.end) for each in collectives_of(timeline) for device in each.devices}
    found, needs_from = [], program.needs_from.tolist()
    for device, (first, until) in enumerate(pairwise(program.rows.tolist())):
        free: Real = 0
        for e in range(first, until):
            ready = max(there[needs_from[e] : needs_from[e + 1]], default=0)
            length = max(0, start[e] - max(free, ready))
            summed = length > 0 and (device, start[e]) in sums
            found.append(Gap(length, e == first or ready > free, summed))
            free = max(free, end[e])
    return found


class Ordinary(NamedTuple):
    """Of one device: how long a gap is at most that is no pause, and how long those are on average."""

    most: Real
    usual: Real


def ordinary_gaps(timeline: Timeline, gaps: Sequence[Gap]) -> list[Ordinary]:
    """Per device, of the gaps between two actions in which nothing was waited for.

    A single gap that is longer than a usual action of the device, and than ten usual gaps, is a pause.
    """
    lasts, found = (timeline.end - timeline.start).tolist(), []
    for first, until in pairwise(timeline.schedule.program.rows.tolist()):
        those = [gap.length for gap in gaps[first:until] if not (gap.waited or gap.together)]
        most = max(median(lasts[first:until] or [0]), LONG * median(those or [0]))
        kept = [length for length in those if length <= most]
        found.append(Ordinary(most, share(Fraction(1, len(kept) or 1), sum(kept))))
    return found
