"""The best plans of thousands, without simulating most of them.

What a step takes and holds at the least is known before anything is laid out. So plans wait in a queue by
that; the first of the queue is simulated and put back by the time that it takes. When a plan comes up that
has its time, no other can be faster, and it is asked what it holds exactly.
"""

from collections.abc import Callable, Iterator
from copy import copy
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import count
from numbers import Real
from typing import NamedTuple

from gpipe_sim.planning.candidates import MEMORY, Candidate, Refused, is_split
from gpipe_sim.planning.layer_table import LayerTable, Stages
from gpipe_sim.planning.least_bytes import least_bytes, static_bytes
from gpipe_sim.planning.least_time import Shape, least_time
from gpipe_sim.planning.step_time import StepTime, ring_times, step_time
from gpipe_sim.runtime.limit import in_bytes
from gpipe_sim.runtime.memory import MemoryTrace
from gpipe_sim.runtime.prediction import predict_memory
from gpipe_sim.runtime.profile import Profile
from gpipe_sim.schedule.base import Schedule
from gpipe_sim.schedule.remat import remat

ROUNDING = 1 - 1e-9  #: bounds are floats, and must not be above what is simulated exactly


class Found(NamedTuple):
    """A plan that fits, with the time of a step and the memory of one replica."""

    candidate: Candidate
    time: Real
    memory: tuple[MemoryTrace, ...]


class Tally:
    """What has become of the plans so far."""

    def __init__(self):
        self.refused: list[Refused] = []
        self.least: list[tuple[float, Candidate]] = []  #: bytes, of plans that do not fit
        self.waiting = self.simulated = self.found = 0

    def too_large(self, candidate: Candidate, size: Real, limit: Real, at_least: bool) -> None:
        more = "at least " if at_least else ""
        says = f"a device holds {more}{in_bytes(size)}, and may hold {in_bytes(limit)}"
        self.refused.append(Refused(str(candidate), MEMORY, says))
        self.least.append((float(size), candidate))


@lru_cache(maxsize=8)
def laid_out(schedule: Schedule) -> Schedule:
    """The same schedule, whose program is not kept for longer than the last few."""
    return copy(schedule)


def order_of(candidate: Candidate) -> Schedule:
    """The schedule of one replica, with R where it recomputes."""
    schedule = laid_out(candidate.schedule)
    return remat(schedule, "always") if candidate.recompute else schedule


def profile_of(table: LayerTable, candidate: Candidate) -> Profile:
    """Of one replica's share of the batch."""
    return table.share(candidate.cut, candidate.mesh.replicas)


def step_time_of(table: LayerTable, candidate: Candidate) -> StepTime:
    """Its pipelines are simulated."""
    return step_time(order_of(candidate), candidate.mesh, profile_of(table, candidate), table.cluster)


def peak_of(table: LayerTable, candidate: Candidate) -> tuple[int, tuple[MemoryTrace, ...]]:
    """The most bytes that a device ever holds, and what the devices of a replica hold."""
    memory = predict_memory(order_of(candidate), profile_of(table, candidate))
    return max(trace.peak_inside.bytes for trace in memory), memory


def stages_of(table: LayerTable, candidate: Candidate) -> Stages:
    share = table.profile.samples // candidate.mesh.replicas
    return table.stages(candidate.cut, share // candidate.schedule.microbatches)


def bound_of(table: LayerTable, candidate: Candidate) -> float:
    """The least time of a step."""
    schedule, stages = candidate.schedule, stages_of(table, candidate)
    placement, microbatches = schedule.placement, schedule.microbatches
    sizes = tuple(map(int, stages.gradients.tolist()))
    rings = ring_times(placement, candidate.mesh, sizes, table.cluster)
    shape = Shape(placement, microbatches, is_split(type(schedule)), candidate.recompute)
    overhead = float(table.cluster.accelerator.overhead)
    return least_time(shape, stages, overhead, rings) * ROUNDING


def best_first(
    table: LayerTable, looked_at: list[Candidate], tally: Tally, report: Callable[[Tally], object]
) -> Iterator[Found]:
    """The plans that fit, fastest first; of those that are as fast, those that hold less.

    Of plans that differ in microbatches, cut and layout alone, only the best is given.
    """
    limit, number = table.cluster.memory, count()
    queue, given = [], set()
    for candidate in looked_at:
        static = static_bytes(candidate.schedule.placement, stages_of(table, candidate)).max()
        if static > limit:
            tally.too_large(candidate, static, limit, at_least=True)
        else:
            queue.append((bound_of(table, candidate), 0, next(number), candidate, None))
    heapify(queue)
    while queue:
        tally.waiting = len(queue)
        report(tally)
        _, _, _, candidate, time = heappop(queue)
        if candidate.sort in given:
            continue
        if time is None:
            program = laid_out(candidate.schedule).program
            held = least_bytes(program, stages_of(table, candidate), candidate.recompute).max()
            if held > limit:
                tally.too_large(candidate, held, limit, at_least=True)
                continue
            time = step_time_of(table, candidate).step
            tally.simulated += 1
            heappush(queue, (float(time), held, next(number), candidate, time))
            continue
        peak, memory = peak_of(table, candidate)
        if peak > limit:
            tally.too_large(candidate, peak, limit, at_least=False)
            continue
        tally.found += 1
        given.add(candidate.sort)
        yield Found(candidate, time, memory)
