"""Costs fitted to a timeline: measure one step, then simulate other schedules with its costs."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from gpipe_sim.core.actions import B, F, Kind, OverlapFB
from gpipe_sim.core.costs import Cost, Costs
from gpipe_sim.core.schedule import needs
from gpipe_sim.core.timeline import Timeline, require_timeline
from gpipe_sim.errors import Real

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)

Times = dict[tuple[Kind, int], Real]  #: (kind, stage) -> the median time of such actions


def fit_costs(measured: Timeline) -> Costs:
    """The costs that a timeline shows, in its unit of time: per stage, the median time of each kind.

    >>> measured = gp.simulate(gp.ZBH1(2, 4), gp.Costs([1, 3], [2, 3], [1, 2]))
    >>> costs = gp.fit_costs(measured)
    >>> costs.forward, costs.input_grad, costs.weight_grad
    ((1, 3), (2, 3), (1, 2))

    A few slow actions do not move a median. A cost that is the same at every stage becomes one number. From
    a simulated timeline the costs come back exactly, as far as the timeline shows them:

    - A full backward does not show its two halves, so ``input_grad`` and ``weight_grad`` are half of it each.
      At a stage that also runs I and W, they are the medians of I and of W; a full backward costs their sum.
    - If a stage runs forwards only in overlapped pairs, a forward is taken to be a third of a pair; a
      backward, likewise, two thirds. ``overlap`` stays None if every pair takes as long as its halves.
    - A stage that never recomputes gets its forward's time for a recompute, and one without pairs gets the
      time of both halves for a pair. Anything else that a stage never does costs 0.
    - ``comm`` is measured where a device was already free when the other device's action ended, and so waited
      for the message. It is the median time from that end to the start of the action that needed the message,
      or 0 if no device ever waited like this. If devices took turns (``took_turns``), waits during which
      another device started an action are left out, as they say nothing about messages.

    A measured timeline does not say when messages came, so its ``comm`` covers everything that happens
    between the end of the sender's action and the start of the receiver's.

    A real engine also spends time between two actions, and of that only ``comm`` holds any. So a simulation
    with these costs ends a little sooner than the step did. TypeError for anything but a timeline.
    """
    require_timeline("fit_costs", measured)
    stages = range(measured.schedule.stages)
    alone, paired = _medians(measured, 1), _medians(measured, 2)
    thirds = {at: _share(THIRD, time) for at, time in paired.items()}
    forward = [alone.get((Kind.F, stage), thirds.get((Kind.F, stage), 0)) for stage in stages]
    input_grad, weight_grad = zip(*(_halves(alone, paired, stage) for stage in stages), strict=True)
    recompute = [alone.get((Kind.R, stage), forward[stage]) for stage in stages]
    costs = Costs(
        _one_or_each(forward),
        _one_or_each(input_grad),
        _one_or_each(weight_grad),
        recompute=_one_or_each(recompute) if any(kind is Kind.R for kind, _ in alone) else None,
        update=_one_or_each([alone.get((Kind.U, stage), 0) for stage in stages]),
        comm=_median(list(_waits(measured)) or [0]),
    )
    return replace(costs, overlap=_overlap(measured, costs, paired))


def _overlap(timeline: Timeline, costs: Costs, paired: Times) -> Cost | None:
    """Per stage, the time of a pair whose forward is there; None if ``costs`` give it for every pair."""
    pairs = [span for span in timeline.spans if len(span.action.parts) > 1]
    if all(span.end - span.start == costs.duration(span.action, span.device) for span in pairs):
        return None
    stages = range(timeline.schedule.stages)
    halves = [costs.duration(OverlapFB(F(stage, 0), B(stage, 0)), device=0) for stage in stages]
    return _one_or_each([paired.get((Kind.F, stage), halves[stage]) for stage in stages])


def _medians(timeline: Timeline, parts: int) -> Times:
    """The median time of the spans with this many parts, for the kind and stage of each part."""
    times = defaultdict(list)
    for span in timeline.spans:
        if len(span.action.parts) == parts:
            for part in span.action.parts:
                times[part.kind, part.stage].append(span.end - span.start)
    return {key: _median(found) for key, found in times.items()}


def _halves(alone: Times, paired: Times, stage: int) -> tuple[Real, Real]:
    """The times of I and of W; if the stage does not run both, half of a full backward each."""
    if (Kind.I, stage) in alone and (Kind.W, stage) in alone:
        return alone[Kind.I, stage], alone[Kind.W, stage]
    full = alone.get((Kind.B, stage), _share(2 * THIRD, paired.get((Kind.B, stage), 0)))
    return _share(HALF, full), _share(HALF, full)


def _waits(timeline: Timeline) -> Iterator[Real]:
    """For each message that an idle device waited for: from the sender's end to the receiver's start."""
    program = timeline.schedule.program
    turns = sorted(span.start for span in timeline.spans) if timeline.took_turns else []
    for device, row in enumerate(timeline.rows):
        free: Real = 0
        for span in row:
            wanted = needs(span.action, timeline.schedule)
            sent = max(
                (timeline.ends[need] for need in wanted if program.device[program.part_of(need)] != device),
                default=-1,
            )
            updates = span.action.parts[0].kind is Kind.U  # it may wait for another copy, and gets no message
            if not updates and sent >= free and bisect_left(turns, sent) == bisect_left(turns, span.start):
                yield span.start - sent
            free = span.end


def _median(times: Iterable[Real]) -> Real:
    """The middle time, or the mean of the two in the middle; exact if the times are."""
    ordered = sorted(times)
    return _share(HALF, ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2])


def _share(share: Fraction, time: Real) -> Real:
    """This share of a time. It is exact if the time is, and then an int if it comes out whole."""
    part = share * time
    return int(part) if isinstance(part, Fraction) and part.denominator == 1 else part


def _one_or_each(costs: Sequence[Real]) -> Cost:
    return costs[0] if len(set(costs)) == 1 else tuple(costs)
