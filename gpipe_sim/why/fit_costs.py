"""Costs fitted to a timeline: measure one step, then simulate other schedules with its costs."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from gpipe_sim.core.actions import Action, B, F, Kind, OverlapFB
from gpipe_sim.core.clock import Clock, time_program
from gpipe_sim.core.cost_model import price_program
from gpipe_sim.core.costs import Cost, Costs
from gpipe_sim.core.numbers import CostColumn, InUnits, as_columns, quotient
from gpipe_sim.core.program import Program
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.timeline import Timeline, require_timeline, rounded
from gpipe_sim.errors import Real
from gpipe_sim.links.links import Link, sizes_of
from gpipe_sim.why.gaps import (
    HALF,
    Pair,
    Usual,
    gaps_of,
    median,
    message_times,
    ordinary_gaps,
    share,
    waits_for_messages,
)

THIRD = Fraction(1, 3)
OUTLIER = 2  #: times the median of its kind and stage: an action that takes longer is left out of a mean

Times = dict[tuple[Kind, int], Real]  #: (kind, stage) -> the median time of such actions


class Latency(NamedTuple):
    """How long a message is usually on its way between two devices, ((source, target), time)."""

    pair: tuple[int, int]
    time: Real


class Line(NamedTuple):
    """A link whose messages were of several sizes, so that latency and bandwidth could be told apart."""

    pair: tuple[int, int]
    latency: Real
    bandwidth: Real


@rounded
@dataclass(frozen=True, eq=False)
class FittedCosts(Costs):
    """What ``fit_costs`` reads off a timeline: ``Costs``, and what these have no place for.

    ``by_pair`` has the usual time of a message for each pair of devices that sent any, and ``comm`` that of
    all messages together, for other pairs. ``overhead`` is, per device, the usual gap between two actions
    where nothing was waited for. In a simulation with these costs it keeps the device busy after an action,
    but what the action made leaves at once. ``jitter`` is, per device, by how much an action takes longer
    than its median, on average. ``error`` is the makespan that these costs give the same schedule, divided by
    that of the timeline, minus 1.
    """

    by_pair: tuple[Latency, ...] = ()
    by_bytes: tuple[Line, ...] = ()
    jitter: "Cost" = 0
    simulated_makespan: Real | None = None
    measured_makespan: Real = 0

    @property
    def error(self) -> Real | None:
        """By how much a simulation of the same schedule is too long: -0.03 is 3% too short.

        None if its order cannot be simulated, because some device would get stuck.
        """
        simulated, took = self.simulated_makespan, self.measured_makespan
        return None if simulated is None else quotient(simulated, took) - 1 if took else 0

    @property
    def plain(self) -> Costs:
        """``Costs`` alone, for what adds costs up: every message takes ``comm``, and nothing jitters."""
        return Costs(*(getattr(self, each.name) for each in fields(Costs)))

    @property
    def links(self) -> Mapping[Pair, Link]:
        """A link for each pair that sent messages, for ``simulate(..., links=)`` and costs without messages.

        These are ``replace(costs, comm=0, by_pair=())``; otherwise each message would be paid twice.
        """
        latencies = {pair: Link(time) for pair, time in self.by_pair}
        return latencies | {pair: Link(latency, bandwidth) for pair, latency, bandwidth in self.by_bytes}

    def transfer(self, action: Action, source: int, target: int) -> Real:
        """The usual time between these two devices, or ``comm`` if they sent each other nothing."""
        return dict(self.by_pair).get((source, target), super().transfer(action, source, target))

    def transfers(self, program: Program) -> CostColumn:
        """``transfer`` for every need that is a message: a price for each pair of devices."""
        source, target = program.device[program.needs[program.crosses]], program.target[program.crosses]
        pairs, index = np.unique(source.astype(np.int64) * program.devices + target, return_inverse=True)
        known = dict(self.by_pair)
        ways = (divmod(pair, program.devices) for pair in pairs.tolist())
        return CostColumn([known.get(way, self.comm) for way in ways], index.reshape(-1))

    def durations(self, program: Program) -> CostColumn:
        """The medians and the overhead, as of any costs, and the jitter of the device."""
        usual = super().durations(program)
        longer = _per_entry(self.jitter, program)
        if not any(longer):
            return usual
        prices = [usual.values[i] + more for i, more in zip(usual.index.tolist(), longer, strict=True)]
        return CostColumn(prices, np.arange(program.size))

    def clock(self, program: Program) -> tuple[Clock, InUnits]:
        """As of any costs, but an action sends what it made, and ends, before the overhead that follows."""
        pauses = CostColumn(_per_entry(self.overhead, program), np.arange(program.size))
        (durations, delays, after), in_units = as_columns(*price_program(self, program), pauses)
        sender = program.entry[program.needs[program.crosses]]
        clock = time_program(program, durations, delays - after[sender])
        return Clock(clock.start, clock.end - after, clock.sent - after[sender], clock.arrived), in_units

    def require_fit(self, stages: int, devices: int) -> None:
        """Raise ValueError if a cost is listed for another number of stages, or of devices."""
        super().require_fit(stages, devices)
        if isinstance(self.jitter, Sequence) and len(self.jitter) != devices:
            says = f"FittedCosts has the jitter of {len(self.jitter)} devices, but the schedule has {devices}"
            raise ValueError(f"{says}; give one number, such as replace(costs, jitter=0)")

    def _lengths(self, names: set[str]) -> dict[str, int]:
        """How many numbers there are of each cost that any costs have."""
        return super()._lengths(names & {each.name for each in fields(Costs)})

    def __eq__(self, other: object) -> bool:
        """Costs without more are equal if they give every action and every message the same time."""
        if type(other) is Costs:
            alike = {time for _, time in self.by_pair} <= {self.comm}
            return self.plain == other and not self.jitter and alike
        return type(other) is FittedCosts and vars(self) == vars(other)

    __hash__ = Costs.__hash__


def _per_entry(cost: Cost, program: Program) -> list[Real]:
    """What each entry takes by a cost per device, once for each of its actions."""
    device, count = program.device[program.first].tolist(), np.diff(program.parts).tolist()
    each = cost if isinstance(cost, Sequence) else [cost] * program.devices
    return [times * each[k] for k, times in zip(device, count, strict=True)]


def fit_costs(measured: Timeline, message_bytes: "Real | Sequence[Real] | None" = None) -> FittedCosts:
    """The costs that a timeline shows, in its unit of time: per stage, the median time of each kind.

    >>> measured = gp.simulate(gp.ZBH1(2, 4), gp.Costs([1, 3], [2, 3], [1, 2]))
    >>> costs = gp.fit_costs(measured)
    >>> costs.forward, costs.input_grad, costs.weight_grad
    ((1, 3), (2, 3), (1, 2))
    >>> slow = {(0, 1): gp.Link(12), (1, 0): gp.Link(1)}
    >>> gp.fit_costs(gp.simulate(gp.OneFOneB(2, 4), links=slow)).links[0, 1]
    Link(latency=12, bandwidth=inf)

    A few slow actions do not move a median. A cost that is the same at every stage becomes one number. From
    a simulated timeline the costs come back exactly, as far as the timeline shows them:

    - A full backward does not show its two halves, so ``input_grad`` and ``weight_grad`` are half of it each.
      At a stage that also runs I and W, they are the medians of I and of W; a full backward costs their sum.
      Stage 0 of a measured timeline gets 0 and all of it: nobody asks for the gradient of its input, so
      torch, where it splits the backward, leaves the whole of it to W.
    - If a stage runs forwards only in overlapped pairs, a forward is taken to be a third of a pair; a
      backward, likewise, two thirds. ``overlap`` stays None if every pair takes as long as its halves.
    - A stage that never recomputes gets its forward's time for a recompute, and one without pairs gets the
      time of both halves for a pair. Anything else that a stage never does costs 0.

    Messages take the median time from the end of their action to their arrival, for each pair of devices
    (``by_pair``) and together (``comm``). If nobody measured them, a message is seen where a device was
    already free when the other device's action ended, and so waited for it: until its own action started,
    which covers everything that happens in between. If devices took turns (``took_turns``), waits in which
    another device started an action are left out, as they say nothing about messages.

    With ``message_bytes``, as ``simulate`` takes them, links get a bandwidth too, from messages of several
    sizes: those of the pair, or else of all pairs. Where all are of one size, all of their time is latency.

    Of a measured timeline, ``overhead`` is the mean gap between two actions of a device where nothing was
    waited for; single gaps that are longer than a usual action, and than ten usual gaps, are left out, as
    pauses. ``error`` says how well all of this explains the makespan.

    TypeError for anything but a timeline.
    """
    require_timeline("fit_costs", measured)
    usual = Usual.of(_on_the_way(measured))
    by_bytes = () if message_bytes is None else tuple(_lines(measured, message_bytes))
    costs = FittedCosts(
        **_of_stages(measured),
        comm=usual.otherwise,
        overhead=_overhead(measured),
        by_pair=tuple(map(Latency._make, usual.by_pair.items())),
        by_bytes=by_bytes,
        measured_makespan=measured.makespan,
    )
    costs = replace(costs, overlap=_overlap(measured, costs))
    costs = replace(costs, jitter=_jitter(measured, costs))
    return replace(costs, simulated_makespan=_makespan(measured.schedule, costs))


def _makespan(schedule: Schedule, costs: FittedCosts) -> Real | None:
    """By these costs, also of an order with actions left out; None for one in which a device gets stuck."""
    if schedule.program.levels.stuck:
        return None
    clock, in_units = costs.clock(schedule.program)
    return max(in_units(clock.end).tolist(), default=0)


def _of_stages(measured: Timeline) -> dict[str, Any]:
    """What F, I, W, R and U take at each stage."""
    stages = range(measured.schedule.stages)
    alone, paired = _medians(measured, 1), _medians(measured, 2)
    thirds = {at: share(THIRD, time) for at, time in paired.items()}
    forward = [alone.get((Kind.F, stage), thirds.get((Kind.F, stage), 0)) for stage in stages]
    halves = [_halves(alone, paired, stage) for stage in stages]
    if measured.measured and not {(Kind.I, 0), (Kind.W, 0)} & alone.keys():
        halves[0] = 0, sum(halves[0])
    input_grad, weight_grad = zip(*halves, strict=True)
    recompute = [alone.get((Kind.R, stage), forward[stage]) for stage in stages]
    return {
        "forward": _one_or_each(forward),
        "input_grad": _one_or_each(input_grad),
        "weight_grad": _one_or_each(weight_grad),
        "recompute": _one_or_each(recompute) if any(kind is Kind.R for kind, _ in alone) else None,
        "update": _one_or_each([alone.get((Kind.U, stage), 0) for stage in stages]),
    }


def _overlap(timeline: Timeline, costs: Costs) -> Cost | None:
    """Per stage, the time of a pair whose forward is there; None if ``costs`` give it for every pair."""
    costs = replace(costs, overhead=0)
    pairs = [span for span in timeline.spans if len(span.action.parts) > 1]
    if all(span.end - span.start == costs.duration(span.action, span.device) for span in pairs):
        return None
    stages, paired = range(timeline.schedule.stages), _medians(timeline, 2)
    halves = [costs.duration(OverlapFB(F(stage, 0), B(stage, 0)), device=0) for stage in stages]
    return _one_or_each([paired.get((Kind.F, stage), halves[stage]) for stage in stages])


def _medians(timeline: Timeline, parts: int) -> Times:
    """The median time of the spans with this many parts, for the kind and stage of each part."""
    times = defaultdict(list)
    for span in timeline.spans:
        if len(span.action.parts) == parts:
            for part in span.action.parts:
                times[part.kind, part.stage].append(span.end - span.start)
    return {key: median(found) for key, found in times.items()}


def _halves(alone: Times, paired: Times, stage: int) -> tuple[Real, Real]:
    """The times of I and of W; if the stage does not run both, half of a full backward each."""
    if (Kind.I, stage) in alone and (Kind.W, stage) in alone:
        return alone[Kind.I, stage], alone[Kind.W, stage]
    full = alone.get((Kind.B, stage), share(2 * THIRD, paired.get((Kind.B, stage), 0)))
    return share(HALF, full), share(HALF, full)


def _on_the_way(timeline: Timeline) -> Iterator[tuple[Pair, Real]]:
    """How long messages took, as (pair, from the end of the action to the arrival)."""
    if timeline.arrived is None:
        yield from waits_for_messages(timeline)
        return
    ways = zip(timeline.schedule.program.ways, message_times(timeline), strict=True)
    for (action, source, target), (_, arrived) in ways:
        yield (source, target), max(0, arrived - timeline.ends[action])


def _overhead(timeline: Timeline) -> Cost:
    """Per device, the usual gap; in a simulated timeline a device that does not wait starts at once."""
    if not timeline.measured:
        return 0
    return _one_or_each([each.usual for each in ordinary_gaps(timeline, gaps_of(timeline))])


def _jitter(timeline: Timeline, costs: Costs) -> Cost:
    """Per device, by how much its actions took longer than these costs say: a mean, without outliers."""
    costs, found = replace(costs, overhead=0), []
    for row in timeline.rows:
        took = [(span.end - span.start, costs.duration(span.action, span.device)) for span in row]
        more = [time - usual for time, usual in took if time <= OUTLIER * usual]
        found.append(max(0, share(Fraction(1, len(row) or 1), sum(more))))
    return _one_or_each(found)


def _lines(timeline: Timeline, message_bytes: Real | Sequence[Real]) -> Iterator[Line]:
    """The links between devices whose messages were of several sizes, or all of them if those differ."""
    sizes = sizes_of(timeline.schedule.program, Link(), message_bytes, "fit_costs")
    points: dict[Pair, list[tuple[Real, Real]]] = defaultdict(list)
    ways = zip(timeline.schedule.program.ways, sizes.index.tolist(), message_times(timeline), strict=True)
    for (action, source, target), i, (_, arrived) in ways:
        points[source, target].append((sizes.values[i], max(0, arrived - timeline.ends[action])))
    typical = [
        (median(size for size, _ in some), median(time for _, time in some)) for some in points.values()
    ]
    for pair, some in sorted(points.items()):
        per_byte = _slope(some) or _slope(typical)
        if per_byte and per_byte > 0:
            latency = median(time - size * per_byte for size, time in some)
            yield Line(pair, max(0, latency), quotient(1, per_byte))


def _slope(points: Sequence[tuple[Real, Real]]) -> Real | None:
    """How much longer each byte takes, the median over messages of two sizes; None if all are of one."""
    times = defaultdict(list)
    for size, time in points:
        times[size].append(time)
    usual = sorted((size, median(some)) for size, some in times.items())
    slopes = [quotient(after - time, more - size) for (size, time), (more, after) in combinations(usual, 2)]
    return median(slopes) if slopes else None


def _one_or_each(costs: Sequence[Real]) -> Cost:
    return costs[0] if len(set(costs)) == 1 else tuple(costs)
