"""The best plans of thousands, without simulating most of them.

What a step takes and holds at the least is known before anything is laid out. So plans wait in a queue by
that; the first of the queue is simulated and put back by the time that it takes. When a plan comes up that
has its time, no other can be faster, and it is asked what it holds exactly.
"""

from collections.abc import Callable, Iterator
from copy import copy
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count
from numbers import Real
from typing import NamedTuple

from gpipe_sim.core.memory import MemoryTrace
from gpipe_sim.core.remat import remat
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.memory.limit import in_bytes
from gpipe_sim.memory.prediction import predict_memory
from gpipe_sim.memory.profile import Profile
from gpipe_sim.planning.candidates import MEMORY, Candidate, Refused, is_split
from gpipe_sim.planning.fitting_cut import fitting_cut
from gpipe_sim.planning.layer_table import LayerTable, Stages
from gpipe_sim.planning.least_bytes import least_bytes, static_bytes
from gpipe_sim.planning.least_time import Shape, least_time
from gpipe_sim.planning.lower_bound import bound_of_mesh
from gpipe_sim.planning.step_time import StepTime, ring_times, stages_used, step_time

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
        self.refused.append(Refused(candidate.words, MEMORY, says))
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
    samples = table.samples_of(candidate.mesh.replicas, candidate.schedule.microbatches)
    return table.stages(candidate.cut, samples)


def bound_of(table: LayerTable, candidate: Candidate) -> float:
    """The least time of a step."""
    schedule, stages = candidate.schedule, stages_of(table, candidate)
    placement, microbatches = schedule.placement, schedule.microbatches
    sizes = tuple(map(int, stages.gradients.tolist()))
    rings = ring_times(stages_used(schedule), candidate.mesh, sizes, table.cluster)
    shape = Shape(placement, microbatches, is_split(type(schedule)), candidate.recompute)
    overhead = float(table.cluster.accelerator.overhead)
    return least_time(shape, stages, overhead, rings) * ROUNDING


def best_first(
    table: LayerTable, looked_at: list[Candidate], tally: Tally, report: Callable[[Tally], object]
) -> Iterator[Found]:
    """The plans that fit, fastest first; of those that are as fast, those that hold less.

    Of plans that differ in microbatches, cut and layout alone, only the best is given.
    """
    search, given = _Search(table, tally), set()
    for candidate in looked_at:
        search.start(candidate)
    while search.queue:
        tally.waiting = len(search.queue)
        report(tally)
        *_, candidate, time = heappop(search.queue)
        if candidate.sort in given:
            continue
        if candidate.cut is None:
            search.cut(candidate)
        elif time is None:
            search.simulate(candidate)
        elif found := search.found(candidate, time):
            given.add(candidate.sort)
            yield found


class _Search:
    """The queue, by the least time of a step or its time; then by bytes, and as the plans came."""

    def __init__(self, table: LayerTable, tally: Tally):
        self.table, self.tally, self.limit = table, tally, table.cluster.memory
        self.queue: list[tuple[float, float, int, Candidate, Real | None]] = []
        self.numbers, self.to_cut = count(), set()

    def wait(self, candidate: Candidate, least: float, held: float = 0, time: Real | None = None) -> None:
        heappush(self.queue, (least, held, next(self.numbers), candidate, time))

    def start(self, candidate: Candidate) -> None:
        static = static_bytes(candidate.schedule, stages_of(self.table, candidate)).max()
        if static > self.limit:
            self.refuse(candidate, static, at_least=True)
        else:
            self.wait(candidate, bound_of(self.table, candidate))

    def refuse(self, candidate: Candidate, size: Real, at_least: bool) -> None:
        """It does not fit, but with another cut it may."""
        self.tally.too_large(candidate, size, self.limit, at_least)
        other = candidate._replace(cut=None)
        if other not in self.to_cut and _may_fit(self.table, other):
            self.to_cut.add(other)
            self.wait(other, _least_of_any_cut(self.table, other))

    def cut(self, candidate: Candidate) -> None:
        samples = self.table.samples_of(candidate.mesh.replicas, candidate.schedule.microbatches)
        cut = fitting_cut(self.table, laid_out(candidate.schedule), samples, candidate.recompute)
        if cut is not None:
            candidate = candidate._replace(cut=cut)
            self.wait(candidate, bound_of(self.table, candidate))

    def simulate(self, candidate: Candidate) -> None:
        """Unless what it holds at the least is too much already."""
        program = laid_out(candidate.schedule).program
        held = least_bytes(program, stages_of(self.table, candidate), candidate.recompute).max()
        if held > self.limit:
            self.refuse(candidate, held, at_least=True)
            return
        time = step_time_of(self.table, candidate).step
        self.tally.simulated += 1
        self.wait(candidate, float(time), held, time)

    def found(self, candidate: Candidate, time: Real) -> Found | None:
        """If it fits; what it holds is predicted exactly."""
        peak, memory = peak_of(self.table, candidate)
        if peak > self.limit:
            self.refuse(candidate, peak, at_least=False)
            return None
        self.tally.found += 1
        return Found(candidate, time, memory)


def _may_fit(table: LayerTable, candidate: Candidate) -> bool:
    """Whether the devices of a pipeline, which have a stage each, can hold the weights and gradients."""
    single = all(len(held) == 1 for held in candidate.schedule.placement)
    weights = table.fixed[-1] + table.gradients[-1]
    return single and weights <= candidate.mesh.devices * table.cluster.memory


def _least_of_any_cut(table: LayerTable, candidate: Candidate) -> float:
    mesh, microbatches = candidate.mesh, candidate.schedule.microbatches
    samples = table.samples_of(mesh.replicas, microbatches)
    return bound_of_mesh(table, mesh.devices, mesh.replicas, microbatches, 1, samples) * ROUNDING
