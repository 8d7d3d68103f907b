"""Why a step takes as long as it does, as a sum: work, the order's own bubble, and one cause after another.

Each cause is something that each action, gap or message takes longer than in a step in which all stages are
equal and nothing else takes time. The schedule is timed again with more and more of them:

    equal stages, free messages   [ work, if stages were equal ][ fill, drain ]
    + unequal stages              [ ......................................... ][ how much longer that is ]
    + unequal devices, + messages, + overhead, + all-reduce, + jitter and pauses

With all of them, the order is timed as it was, so the terms add up to the makespan. Where a measured action
started before what it needs had ended, as clocks may say, something is left: the rest.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.clock import time_program
from gpipe_sim.core.hooks import Hook, Shown
from gpipe_sim.core.numbers import Column, CostColumn, as_columns, quotient
from gpipe_sim.core.problems import check
from gpipe_sim.core.program import CODE
from gpipe_sim.core.timeline import Timeline, number, of_timeline, rounded
from gpipe_sim.errors import Real, whole
from gpipe_sim.links.collective import collectives_of
from gpipe_sim.why.critical_path import why_idle
from gpipe_sim.why.gaps import Gap, gaps_of, message_times, ordinary_gaps
from gpipe_sim.why.metrics import idle_spans
from gpipe_sim.why.usual import told_apart, usual_times

WORK, BUBBLE = "work, if stages were equal", "the order's own bubble"
STAGES, DEVICES, MESSAGES = "unequal stages", "unequal devices", "messages"
OVERHEAD, ALL_REDUCE, PAUSES = "overhead", "all-reduce", "jitter and pauses"
REST = "rest"
CAUSES = (STAGES, DEVICES, MESSAGES, OVERHEAD, ALL_REDUCE, PAUSES)  #: in the order in which they are added
DUST = 1e-9  #: of the makespan: what sums of floats are off by
SENTENCES = 3  #: about the largest gaps

HOW = {
    WORK: "every stage takes the median of all stages, messages are free: the busiest device's work",
    BUBBLE: "in that simulation, what the makespan has beyond that work: devices that fill and drain",
    STAGES: "then every stage takes its own median",
    DEVICES: "then every device takes its own median of each stage",
    MESSAGES: "then every message takes as long as it did",
    OVERHEAD: "then every gap between actions lasts as long as it did, but a long one only as long as usual",
    ALL_REDUCE: "then collectives take as long as they did, and what waits for them waits",
    PAUSES: "then single actions and gaps take as much longer, or less long, than usual as they did",
}
ONE_EACH = "; here it would be all in unequal stages, because each stage has one device to itself"
SENDING = ", and devices are busy sending and receiving"
UNMEASURED = "; nobody measured them, so that is the usual wait for what another device made"


@rounded
class Cause(NamedTuple):
    """One term of the sum: ``time`` is by how much the makespan grew when it was added in its turn.

    ``added_first`` is by how much it grows when it alone is added to equal stages, ``added_last`` when all
    others are there already; of two causes that hide each other, both are small last. ``how`` it was found.
    """

    name: str
    time: Real
    added_first: Real
    added_last: Real
    how: str


@rounded
class Share(NamedTuple):
    """A term of the sum as one device sees it: by how much longer it works, and how much longer it waits."""

    name: str
    works: Real
    waits: Real


class Replay(NamedTuple):
    """The makespan of a schedule timed again, and how long each device worked in it."""

    makespan: Real
    works: tuple[Real, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Causes:
    """Where the time of a step goes: ``terms`` that add up, with ``rest``, to ``makespan``.

    ``str`` of it is a table with a few sentences about the largest gaps, ``draw`` makes a chart of it.
    """

    timeline: Timeline
    terms: tuple[Cause, ...]
    rest: Real
    devices: tuple[tuple[Share, ...], ...]

    @property
    def makespan(self) -> Real:
        """How long the step took."""
        return self.timeline.makespan

    def on(self, device: int) -> tuple[Share, ...]:
        """Each term, and the rest, as one device sees it; working and waiting add up to the makespan."""
        return self.devices[whole("Causes", "device", device, 0, len(self.devices) - 1)]

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """Why the three largest gaps are there; those after a device's last action do not count."""
        gaps = []
        for device, row in enumerate(self.timeline.rows):
            those = idle_spans(self.timeline, device)
            gaps += [(start - end, device, start) for start, end in those if row and end <= row[-1].start]
        return tuple(why_idle(self.timeline, *at).sentence for _, *at in sorted(gaps)[:SENTENCES])

    def __repr__(self) -> str:
        says = ", ".join(f"{each.name} {number(each.time)}" for each in self.terms if self.shown(each.time))
        return f"<Causes of {number(self.makespan)}: {says}>"

    def __str__(self) -> str:
        rows = [("", "time", "share", "first", "last")]
        for name, time, first, last, _ in self.terms:
            time, first, last = map(self.shown, (time, first, last))
            rows.append((name, number(time), self.share(time), number(first), number(last)))
        rows += [(REST, number(self.shown(self.rest)), self.share(self.shown(self.rest)), "", "")]
        rows += [("makespan", number(self.makespan), self.share(self.makespan), "", "")]
        wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [f"{self.timeline.schedule.name}: where the time goes"]
        for name, *cells in rows:
            right = "  ".join(cell.rjust(width) for cell, width in zip(cells, wide[1:], strict=True))
            lines.append(f"{name:<{wide[0]}}  {right}".rstrip())
        return "\n".join([*lines, *(f"- {each}" for each in self.sentences)])

    def shown(self, time: Real) -> Real:
        """A time as it is shown: 0 for what sums of floats are off by."""
        return 0 if abs(float(time)) <= DUST * float(self.makespan) else time

    def share(self, time: Real) -> str:
        """A time as a share of the makespan, in per cent."""
        return f"{float(quotient(100 * time, self.makespan)):.1f}%" if self.makespan else "0.0%"

    def _repr_html_(self) -> str:
        return CHART.filled(self)._repr_html_()


CHART: Hook[Callable[[Causes], Shown]] = Hook("chart_of_causes", "a chart in a notebook")


@of_timeline
def where_time_goes(timeline: Timeline) -> Causes:
    """Why a step takes as long as it does: terms that add up to its makespan, each with how it was found.

    >>> slow_second = gp.Costs([1, 2, 1], [1, 2, 1], [1, 2, 1], comm=1)
    >>> print(gp.where_time_goes(gp.simulate(gp.OneFOneB(3, 6), slow_second)))
    1F1B: where the time goes
                                time   share  first  last
    work, if stages were equal    18   40.0%     18    18
    the order's own bubble         6   13.3%      6     9
    unequal stages                16   35.6%     16    11
    unequal devices                0    0.0%      0     0
    messages                       5   11.1%     10     5
    overhead                       0    0.0%      0     0
    all-reduce                     0    0.0%      0     0
    jitter and pauses              0    0.0%      0     0
    rest                           0    0.0%
    makespan                      45  100.0%
    - device 0 waits from 3 to 14 for 1B0, ...

    The schedule is timed with equal stages and free messages first: each kind of action takes the median of
    all stages, of two in the middle the lower. That is the work of the busiest device, and the bubble of the
    order itself. Then causes are added one by one, in the order of the table; each term is by how much the
    makespan grew, beside by how much it grows if its cause is added before all others, and after them.

    Stages and devices are told apart where a device holds several stages or a stage is on several devices: a
    device is unequal by what all that it holds has in common. Overhead is the gaps between actions, of a
    pause only as much as is usual for its device; the rest of it is in the last term, with what actions took
    longer or less long than usual. In a simulated timeline a device that waits for nothing is sending or
    receiving, which is part of the messages.

    The rest is 0 for a simulated timeline, and for a measured one in which no action started before what it
    needs had ended. ScheduleError for an order that cannot run, TypeError for anything but a timeline.
    """
    if timeline.schedule.program.levels.stuck:
        check(timeline.schedule)
    parts = _Parts(timeline)
    sums = [CAUSES[:n] for n in range(len(CAUSES) + 1)]
    others = {name: tuple(other for other in CAUSES if other != name) for name in CAUSES}
    replay = parts.replays([*sums, *((name,) for name in CAUSES), *others.values()])
    each = [replay[causes] for causes in sums]
    base, full = each[0], each[-1]
    off = abs(timeline.makespan - full.makespan)
    if isinstance(off, float) and off <= DUST * float(timeline.makespan):
        full = each[-1] = full._replace(makespan=timeline.makespan)
    work, rest = max(base.works), timeline.makespan - full.makespan
    terms = [
        Cause(WORK, work, work, work, HOW[WORK]),
        Cause(BUBBLE, base.makespan - work, base.makespan - work, full.makespan - parts.alone, HOW[BUBBLE]),
    ]
    for name, before, after in zip(CAUSES, each, each[1:], strict=False):
        first = replay[name,].makespan - base.makespan
        last = full.makespan - replay[others[name]].makespan
        terms.append(Cause(name, after.makespan - before.makespan, first, last, parts.how(name)))
    devices = range(timeline.schedule.devices)
    return Causes(timeline, tuple(terms), rest, tuple(_shares(k, terms, rest, each) for k in devices))


def _shares(device: int, terms: Sequence[Cause], rest: Real, each: Sequence[Replay]) -> tuple[Share, ...]:
    """What each term is on one device."""
    works = [replay.works[device] for replay in each]
    longer = [works[0], 0, *(after - before for before, after in pairwise(works)), 0]
    times = [(term.name, term.time) for term in terms] + [(REST, rest)]
    return tuple(Share(name, more, time - more) for (name, time), more in zip(times, longer, strict=True))


Causing = tuple[str, ...]  #: a set of causes, in the order of ``CAUSES``


class _Parts:
    """What each cause adds to each entry's work, to the gap before it, and to each message, as columns."""

    def __init__(self, timeline: Timeline):
        self.timeline, self.program = timeline, timeline.schedule.program
        took = (timeline.end - timeline.start).tolist()
        gaps = _gaps_by_cause(timeline, gaps_of(timeline))
        sent_by = self.program.entry[self.program.needs[self.program.crosses]].tolist()
        ends = timeline.end.tolist()
        arrived = (arrived for _, arrived in message_times(timeline))
        delays = [max(0, time - ends[e]) for e, time in zip(sent_by, arrived, strict=True)]
        lags = _lags(timeline)
        times = [*usual_times(self.program, took), took, delays, lags.values(), *gaps.values()]
        columns, self.in_units = as_columns(*map(_as_prices, times))
        self.base, staged, usual, lasts, self.delays, late, *found = columns
        self.work = {STAGES: staged - self.base, DEVICES: usual - staged, PAUSES: lasts - usual}
        self.gaps = dict(zip(gaps, found, strict=True))
        self.lags = dict(zip(lags, late.tolist(), strict=True))
        self.alone = max(self.by_device(sum(found, lasts)))  #: the makespan if nobody waited for anybody

    def replays(self, sets: Sequence[Causing]) -> dict[Causing, Replay]:
        """The makespan with each of these sets of causes and no others; all of them are timed at once."""
        work = [np.maximum(0, sum(_of(causes, self.work), self.base)) for causes in sets]
        lasts = [sum(_of(causes, self.gaps), each) for causes, each in zip(sets, work, strict=True)]
        delays = [self.delays if MESSAGES in causes else 0 * self.delays for causes in sets]
        clock = time_program(self.program, np.stack(lasts, axis=1), np.stack(delays, axis=1))
        makespans = self.in_units(np.array(list(map(self.last, sets, clock.end.T.tolist())))).tolist()
        return dict(zip(sets, map(Replay, makespans, map(self.by_device, work)), strict=True))

    def last(self, causes: Causing, ends: list[Real]) -> Real:
        """When the last entry or collective ends."""
        lags = self.lags if ALL_REDUCE in causes else {}
        return max([*ends, *(ends[e] + lag for e, lag in lags.items())], default=0)

    def by_device(self, times: Column) -> tuple[Real, ...]:
        """The sum of what the entries of each device take."""
        each, rows = times.tolist(), pairwise(self.program.rows.tolist())
        return tuple(self.in_units(np.array([sum(each[a:b]) for a, b in rows])).tolist())

    def how(self, name: str) -> str:
        """How a term is found in this timeline."""
        if name == DEVICES and not any(told_apart(self.program)):
            return HOW[name] + ONE_EACH
        if name == MESSAGES and self.timeline.arrived is None:
            return HOW[name] + UNMEASURED
        return HOW[name] + (SENDING if name == MESSAGES and any(self.gaps[MESSAGES]) else "")


def _of(causes: Causing, columns: Mapping[str, Column]) -> Iterator[Column]:
    return (column for name, column in columns.items() if name in causes)


def _as_prices(times: Collection[Real]) -> CostColumn:
    return CostColumn([*times], np.arange(len(times)))


def _gaps_by_cause(timeline: Timeline, gaps: Sequence[Gap]) -> dict[str, list[Real]]:
    """The gap before each entry, given to the causes that it is due to."""
    found = {name: list[Real]([0] * len(gaps)) for name in (MESSAGES, OVERHEAD, ALL_REDUCE, PAUSES)}
    rows = pairwise(timeline.schedule.program.rows.tolist())
    for (first, until), ordinary in zip(rows, ordinary_gaps(timeline, gaps), strict=True):
        for e in range(first, until):
            length = gaps[e].length
            if gaps[e].together or not timeline.measured:
                found[ALL_REDUCE if gaps[e].together else MESSAGES][e] = length
            else:
                found[OVERHEAD][e] = length if length <= ordinary.most else ordinary.usual
                found[PAUSES][e] = length - found[OVERHEAD][e]
    return found


def _lags(timeline: Timeline) -> dict[int, Real]:
    """For each entry that made the last of what a collective sums, how long after it that one ends."""
    program, found = timeline.schedule.program, dict[int, Real]()
    start, end = timeline.start.tolist(), timeline.end.tolist()
    kind, stage = program.kind[program.first].tolist(), program.stage[program.first].tolist()
    rows = program.rows.tolist()
    for each in collectives_of(timeline):
        entries = [e for k in each.devices for e in range(rows[k], rows[k + 1])]
        made = [e for e in entries if kind[e] != CODE[Kind.U] and start[e] < each.end]
        of_it = [e for e in made if each.stage in (None, stage[e])]
        if of_it:
            last = max(of_it, key=end.__getitem__)
            found[last] = max(each.end - end[last], found.get(last, 0))
    return found
