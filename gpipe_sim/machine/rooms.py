"""Plan within bytes: give each device room for what it keeps, and less of it until the messages fit as well.

What a device keeps follows from its own row, so a banker can weigh it action by action. How long messages
wait there does not: that depends on when other devices send them. A device must not hold a message back until
there is room elsewhere, because an order has no pauses: when it is run, the message comes at once. So each
plan is measured by the prediction. If some device would hold too much, it or a device that sends to it gets
room for one microbatch less, and the plan is made again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from numbers import Real

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.core.cost_model import CostModel
from gpipe_sim.core.device import pieces
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.step import timed
from gpipe_sim.errors import ScheduleError
from gpipe_sim.machine.banker import Banker, Life
from gpipe_sim.memory.limit import in_bytes
from gpipe_sim.memory.prediction import predict_memory
from gpipe_sim.memory.profile import Profile

Placement = tuple[tuple[int, ...], ...]
Planner = Callable[[list[Banker]], Explicit]


@dataclass(frozen=True)
class Measured:
    """A plan for certain rooms, the most that each device keeps in it, and how far it exceeds the limits."""

    order: Explicit
    rooms: Sequence[Real]
    most: list[Real]
    over: list[Real]
    makespan: Real

    @property
    def excess(self) -> Real:
        """In bytes, over all devices; 0 for a plan that fits."""
        return sum(max(0, over) for over in self.over)

    def with_less(self, device: int) -> list[Real]:
        """The rooms, but for this device too small for what it keeps here."""
        return [*self.rooms[:device], self.most[device] - 1, *self.rooms[device + 1 :]]


class InBytes:
    """Orders of the same actions, each made by ``plan`` with one banker per device, measured in bytes."""

    def __init__(
        self, plan: Planner, work: Explicit, profile: Profile, limits: Sequence[Real], costs: CostModel
    ):
        self.plan, self.profile, self.limits, self.costs = plan, profile, limits, costs
        self.placement, self.microbatches = work.placement, work.microbatches
        self.split = Kind.I in work.program.where
        samples = max(piece.samples for piece in pieces(profile.samples, work.microbatches))
        self.fixed, self.lives = _lives(self.placement, samples, self.split, profile)

    def order(self) -> Explicit:
        """The plan without a limit if that fits, or the first that does with smaller and smaller rooms.

        ScheduleError if not even one microbatch after another fits.
        """
        free = self.measured([inf] * len(self.placement))
        if not free.excess:
            return free.order
        slowest = one_by_one(self.placement, self.microbatches, self.split)
        self._require_least(slowest)
        best = self.measured([limit - fixed for limit, fixed in zip(self.limits, self.fixed, strict=True)])
        while best is not None and best.excess:
            best = self._next(best)
        return slowest if best is None else best.order

    def measured(self, rooms: Sequence[Real]) -> Measured | None:
        """The plan for rooms of so many bytes; None if a microbatch does not fit."""
        each = zip(self.placement, rooms, self.lives, strict=True)
        bankers = [Banker(stages, self.microbatches, room, life) for stages, room, life in each]
        if not all(banker.may_begin() for banker in bankers):
            return None
        order = self.plan(bankers)
        peaks = [trace.peak_inside.bytes for trace in predict_memory(order, self.profile, self.costs)]
        over = [peak - limit for peak, limit in zip(peaks, self.limits, strict=True)]
        most = [banker.most for banker in bankers]
        return Measured(order, rooms, most, over, timed(order, self.costs).makespan)

    def _next(self, last: Measured) -> Measured | None:
        """The shortest of the plans with less excess, or the one with the least if none has less."""
        fullest = last.over.index(max(last.over))
        tried = [self.measured(last.with_less(device)) for device in _around(self.placement, fullest)]
        found = [plan for plan in tried if plan is not None]
        better = [plan for plan in found if plan.excess < last.excess]
        if better:
            return min(better, key=lambda plan: (plan.makespan, plan.excess))
        return min(found, key=lambda plan: (plan.excess, plan.makespan), default=None)

    def _require_least(self, slowest: Explicit) -> None:
        peaks = [trace.peak_inside for trace in predict_memory(slowest, self.profile, self.costs)]
        short = [
            f"  device {device} would hold {in_bytes(peak.bytes)} while it runs {peak.action}, "
            f"and may hold {in_bytes(limit)}"
            for device, (peak, limit) in enumerate(zip(peaks, self.limits, strict=True))
            if peak.bytes > limit
        ]
        if not short:
            return
        lines = ["greedy finds no order within memory_limit, not even one microbatch after another:", *short]
        raise ScheduleError("\n".join([*lines, self._enough([peak.bytes for peak in peaks])]))

    def _enough(self, least: list[int]) -> str:
        if len(set(self.limits)) == 1:
            return f"memory_limit={max(least)} would do, which is {in_bytes(max(least))}"
        enough = [max(peak, limit) for peak, limit in zip(least, self.limits, strict=True)]
        return f"memory_limit={enough} would do"


def _around(placement: Placement, device: int) -> list[int]:
    """The device, and those with which it exchanges messages."""
    near = {stage + step for stage in placement[device] for step in (-1, 0, 1)}
    return [k for k, held in enumerate(placement) if near & set(held)]


def one_by_one(placement: Placement, microbatches: int, split: bool) -> Explicit:
    """The order in which each microbatch begins when the one before it is finished."""
    stages = sum(map(len, placement))
    back = (Kind.I, Kind.W) if split else (Kind.B,)
    steps = [(stage, Kind.F) for stage in range(stages)]
    steps += [(stage, kind) for stage in reversed(range(stages)) for kind in back]
    rows = [
        [Action(stage, kind, m) for m in range(microbatches) for stage, kind in steps if stage in held]
        for held in placement
    ]
    return Explicit(rows, placement=placement, microbatches=microbatches)


def _lives(placement: Placement, samples: int, split: bool, profile: Profile) -> tuple[list[int], list[Life]]:
    """Per device, the bytes of parameters and gradients, and the life of a microbatch of so many samples.

    They are read off the prediction for two microbatches, one after another: the second one finds all
    gradients in place.
    """
    order = one_by_one(placement, 2, split)
    traces = predict_memory(order, replace(profile, samples=2 * samples))
    timeline = timed(order, None)
    fixed, lives = [], []
    for device, (stages, trace) in enumerate(zip(placement, traces, strict=True)):
        always = sum(trace.at(timeline.makespan).values())
        second = len(order.actions[device]) // 2
        held = [sum(trace.at(span.end).values()) - always for span in timeline.on(device)[second:]]
        peaks = [inside.bytes - always for inside in trace.inside[second:]]
        fixed.append(always)
        lives.append(_life(stages, held, peaks, split))
    return fixed, lives


def _life(stages: tuple[int, ...], held: list[int], peaks: list[int], split: bool) -> Life:
    """From what is held after each action, and while it runs; what W frees counts as pending after I."""
    if not split:
        return Life((0, *held), tuple(peaks), {})
    up = len(stages)
    after_i, after_w = held[up::2], held[up + 1 :: 2]
    freed = [i - w for i, w in zip(after_i, after_w, strict=True)]
    pending = dict(zip(sorted(stages, reverse=True), freed, strict=True))
    return Life((0, *held[:up], *after_w), (*peaks[:up], *peaks[up::2]), pending)
