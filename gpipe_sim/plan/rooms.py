"""Plan within bytes: give each device room for what it keeps, and less of it until messages fit as well.

What a device keeps follows from its own row, so the banker can weigh it action by action. How long messages
wait there does not: it depends on when other devices send them, and a device that held back until there is
room elsewhere would not do so when the order is run, because an order has no pauses. So a finished plan is
measured by the prediction. If a device holds too much, that device or a neighbour gets room for one
microbatch less, whichever leaves the least excess, and the plan is made again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from numbers import Real

from gpipe_sim.errors import ScheduleError
from gpipe_sim.plan.banker import Banker, Life
from gpipe_sim.runtime.limit import in_bytes
from gpipe_sim.runtime.prediction import predict_memory
from gpipe_sim.runtime.profile import Profile
from gpipe_sim.runtime.step import timed
from gpipe_sim.schedule.actions import Action, Kind
from gpipe_sim.schedule.explicit import Explicit
from gpipe_sim.simulation.costs import CostModel

Placement = tuple[tuple[int, ...], ...]
Planner = Callable[[list[Banker]], Explicit]


@dataclass(frozen=True)
class _Attempt:
    """A plan, the most that its bankers let each device keep, and by how much devices exceed their limits."""

    order: Explicit
    most: list[Real]
    over: list[Real]
    makespan: Real

    @property
    def excess(self) -> Real:
        return sum(max(0, over) for over in self.over)

    @property
    def fullest(self) -> int:
        return self.over.index(max(self.over))

    def rank(self, excess: Real) -> tuple:
        """The shortest of those with less excess than this comes first."""
        return (0, self.makespan, self.excess) if self.excess < excess else (1, self.excess, self.makespan)


def order_within(
    plan: Planner, work: Explicit, profile: Profile, limits: Sequence[Real], costs: CostModel
) -> Explicit:
    """An order in which no device ever holds more bytes than its limit, as the prediction has it.

    ``plan`` makes an order from one banker per device. ScheduleError if not even one microbatch after another
    fits.
    """
    placement, microbatches = work.placement, work.microbatches
    split = Kind.I in work.program.where
    slowest = one_by_one(placement, microbatches, split)
    fixed, lives = _lives(placement, -(-profile.samples // microbatches), split, profile)

    def attempt(rooms: Sequence[Real]) -> _Attempt | None:
        bankers = [
            Banker(held, microbatches, room, life)
            for held, room, life in zip(placement, rooms, lives, strict=True)
        ]
        if not all(banker.may_begin() for banker in bankers):
            return None
        order = plan(bankers)
        traces = predict_memory(order, profile, costs)
        over = [trace.peak_inside.bytes - limit for trace, limit in zip(traces, limits, strict=True)]
        return _Attempt(order, [banker.most for banker in bankers], over, timed(order, costs).makespan)

    free = attempt([inf] * len(placement))
    if not free.excess:
        return free.order
    _require_least(slowest, profile, limits, costs)
    rooms = [limit - always for limit, always in zip(limits, fixed, strict=True)]
    best = attempt(rooms)
    while best is not None and best.excess:
        choices = [_lowered(rooms, device, best) for device in _around(placement, best.fullest)]
        found = [(tried, rooms) for rooms in choices if (tried := attempt(rooms)) is not None]
        best, rooms = min(found, key=lambda pair: pair[0].rank(best.excess), default=(None, rooms))
    return slowest if best is None else best.order


def _lowered(rooms: Sequence[Real], device: int, attempt: _Attempt) -> list[Real]:
    """The rooms, but the device no longer has room for all that it kept."""
    return [attempt.most[k] - 1 if k == device else room for k, room in enumerate(rooms)]


def _around(placement: Placement, device: int) -> list[int]:
    """The device, and those with which it exchanges messages."""
    near = {stage + step for stage in placement[device] for step in (-1, 0, 1)}
    return [k for k, held in enumerate(placement) if near & set(held)]


def one_by_one(placement: Placement, microbatches: int, split: bool) -> Explicit:
    """The order in which each microbatch begins when the one before it is finished: it holds the least."""
    stages = sum(map(len, placement))
    back = (Kind.I, Kind.W) if split else (Kind.B,)
    steps = [(stage, Kind.F) for stage in range(stages)]
    steps += [(stage, kind) for stage in reversed(range(stages)) for kind in back]
    rows = [
        [Action(stage, kind, m) for m in range(microbatches) for stage, kind in steps if stage in held]
        for held in placement
    ]
    return Explicit(rows, placement=placement, microbatches=microbatches)


def _require_least(slowest: Explicit, profile: Profile, limits: Sequence[Real], costs: CostModel) -> None:
    """ScheduleError if some device has no room even for one microbatch after another."""
    peaks = [trace.peak_inside for trace in predict_memory(slowest, profile, costs)]
    short = [
        f"  device {device} would hold {in_bytes(peak.bytes)} while it runs {peak.action}, "
        f"and may hold {in_bytes(limit)}"
        for device, (peak, limit) in enumerate(zip(peaks, limits, strict=True))
        if peak.bytes > limit
    ]
    if not short:
        return
    lines = ["greedy finds no order within memory_limit, not even one microbatch after another:", *short]
    least = [peak.bytes for peak in peaks]
    if len(set(limits)) == 1:
        enough = f"{max(least)}, {in_bytes(max(least))},"
    else:
        enough = [max(peak, limit) for peak, limit in zip(least, limits, strict=True)]
    raise ScheduleError("\n".join([*lines, f"memory_limit={enough} would do"]))


def _lives(placement: Placement, samples: int, split: bool, profile: Profile) -> tuple[list[int], list[Life]]:
    """Per device, the bytes of parameters and gradients, and the life of a microbatch of so many samples.

    They are read off the prediction for two microbatches one after another: the second finds all gradients
    in place.
    """
    order = one_by_one(placement, 2, split)
    traces = predict_memory(order, replace(profile, samples=2 * samples))
    timeline = timed(order, None)
    fixed, lives = [], []
    for device, (stages, trace) in enumerate(zip(placement, traces, strict=True)):
        always = sum(trace.at(timeline.makespan).values())
        second = len(order.actions[device]) // 2
        ends = [span.end for span in timeline.on(device)[second:]]
        held = [0, *(sum(trace.at(end).values()) - always for end in ends)]
        peaks = [inside.bytes - always for inside in trace.inside[second:]]
        fixed.append(always)
        lives.append(_whole(stages, held, peaks) if not split else _split(stages, held, peaks))
    return fixed, lives


def _whole(stages: tuple[int, ...], held: list[int], peaks: list[int]) -> Life:
    return Life(tuple(held), tuple(peaks), {})


def _split(stages: tuple[int, ...], held: list[int], peaks: list[int]) -> Life:
    """What is held after I counts as pending, as far as its W frees it."""
    count = len(stages)
    pairs = list(pairwise(held[count:]))[1::2]  # (after I, after its W), from the last stage to the first
    pending = {stage: a - b for stage, (a, b) in zip(sorted(stages, reverse=True), pairs, strict=True)}
    after = [b for _, b in pairs]
    return Life((*held[: count + 1], *after), (*peaks[:count], *peaks[count::2]), pending)
