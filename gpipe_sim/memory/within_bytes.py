"""Plan within bytes: give the devices room for fewer and fewer microbatches until the plan fits.

A planner that counts microbatches cannot know how many bytes wait in messages, because that depends on when
other devices send. So each plan is measured by the prediction. If some device would hold too much, it or a
device that exchanges messages with it gets room for one stage-activation less, and the plan is made again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, inf
from numbers import Real

from gpipe_sim.core.bubbles import peak_in_flight
from gpipe_sim.core.cost_model import CostModel
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.memory import Inside
from gpipe_sim.core.step import timed
from gpipe_sim.errors import ScheduleError, require
from gpipe_sim.memory.limit import in_bytes
from gpipe_sim.memory.prediction import predict_memory
from gpipe_sim.memory.profile import Profile

Placement = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Measured:
    """A plan, how many stage-activations each device might hold, and what it does hold, in bytes."""

    order: Explicit
    rooms: Sequence[Real]
    peaks: list[Inside]
    over: list[Real]
    makespan: Real

    @property
    def excess(self) -> Real:
        """In bytes, over all devices; 0 for a plan that fits."""
        return sum(max(0, over) for over in self.over)


def within_bytes(
    plan: Callable[[Sequence[Real]], Explicit],
    placement: Placement,
    profile: Profile,
    limits: Sequence[Real],
    costs: CostModel,
) -> Explicit:
    """The plan without a limit if that fits, or the first one that does with smaller and smaller rooms.

    ``plan`` makes an order from the most stage-activations of each device. ScheduleError if not even one
    microbatch after another fits.
    """
    require("greedy", profile, Profile, "a profile, such as profile(partitions, batch, loss)")
    if len(profile.stages) != sum(map(len, placement)):
        raise ValueError(
            f"greedy plans {sum(map(len, placement))} stages, but the profile has {len(profile.stages)}"
        )

    def measured(rooms: Sequence[Real]) -> Measured:
        order = plan(rooms)
        peaks = [trace.peak_inside for trace in predict_memory(order, profile, costs)]
        over = [peak.bytes - limit for peak, limit in zip(peaks, limits, strict=True)]
        return Measured(order, rooms, peaks, over, timed(order, costs).makespan)

    free = measured([inf] * len(placement))
    if not free.excess:
        return free.order
    least = measured([len(held) for held in placement])
    _require_least(least, limits)
    best = measured(_between(least, free))
    while best.excess:
        tried = [measured(rooms) for rooms in _with_less(best, placement)]
        better = [each for each in tried if each.excess < best.excess]
        if better:
            best = min(better, key=lambda each: (each.makespan, each.excess))
        else:
            best = min(tried, key=lambda each: (each.excess, each.makespan), default=least)
    return best.order


def _between(least: Measured, free: Measured) -> list[int]:
    """As much room for each device as would fit if its bytes grew evenly with its stage-activations."""
    rooms = []
    for k, most in enumerate(peak_in_flight(free.order)):
        grows = free.peaks[k].bytes - least.peaks[k].bytes
        part = -least.over[k] / grows if free.over[k] > 0 else 1
        rooms.append(least.rooms[k] + ceil((most - least.rooms[k]) * part))
    return rooms


def _with_less(last: Measured, placement: Placement) -> Iterator[list[Real]]:
    """Room for less than it holds: for the fullest device, or one with which it exchanges messages."""
    fullest = last.over.index(max(last.over))
    near = {stage + step for stage in placement[fullest] for step in (-1, 0, 1)}
    for k, most in enumerate(peak_in_flight(last.order)):
        if near & set(placement[k]) and most > len(placement[k]):
            yield [*last.rooms[:k], most - 1, *last.rooms[k + 1 :]]


def _require_least(least: Measured, limits: Sequence[Real]) -> None:
    """ScheduleError, with what would do, if one microbatch after another does not fit."""
    short = [
        f"  device {device} would hold {in_bytes(peak.bytes)} while it runs {peak.action}, "
        f"and may hold {in_bytes(limit)}"
        for device, (peak, limit) in enumerate(zip(least.peaks, limits, strict=True))
        if peak.bytes > limit
    ]
    if not short:
        return
    most = max(peak.bytes for peak in least.peaks)
    enough = f"{most} would do, which is {in_bytes(most)}"
    if len(set(limits)) > 1:
        each = [max(peak.bytes, limit) for peak, limit in zip(least.peaks, limits, strict=True)]
        enough = f"{each} would do"
    lines = ["greedy finds no order within memory_limit, not even one microbatch after another:", *short]
    raise ScheduleError("\n".join([*lines, f"memory_limit={enough}"]))
