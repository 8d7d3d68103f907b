"""The best plans of thousands, without simulating most of them.

What a step takes and holds at the least is known before anything is laid out. So plans wait in a queue by
that; the first of the queue is simulated and put back by the time that it takes. When a plan comes up that
has its time, no other can be faster, and it is asked what it holds exactly.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import count

from gpipe_sim.core.memory import MemoryTrace
from gpipe_sim.core.one_f_one_b import OneFOneB
from gpipe_sim.errors import Real
from gpipe_sim.memory.limit import in_bytes
from gpipe_sim.planning.bounds import bound_of_mesh
from gpipe_sim.planning.candidates import MEMORY, ROUNDING, Candidate, Refused
from gpipe_sim.planning.cluster import Mesh
from gpipe_sim.planning.layer_table import LayerTable

Memory = tuple[MemoryTrace, ...]  #: of the devices of a replica


class Search:
    """The queue, by the least time of a step or its time; then by bytes, and as the plans came."""

    def __init__(self, table: LayerTable, looked_at: list[Candidate]):
        self.table, self.looked_at = table, looked_at
        self.limit = table.cluster.memory
        self.queue: list[tuple[float, Real, int, Candidate, Real | None]] = []
        self.numbers = count()
        self.to_cut: set[Candidate] = set()
        self.refused: list[Refused] = []
        self.simulated = 0
        self.given: set[tuple] = set()

    def __iter__(self) -> Iterator[tuple[Candidate, Real, Memory]]:
        """(a plan that fits, the time of a step, the memory of a replica), fastest first, then the smallest.

        Of plans that differ in microbatches, cut and layout alone, only the best is given.
        """
        for candidate in self.looked_at:
            self.start(candidate)
        while self.queue:
            *_, candidate, time = heappop(self.queue)
            if candidate.sort in self.given:
                continue
            if not candidate.cut:
                self.cut(candidate)
            elif time is None:
                self.simulate(candidate)
            elif memory := self.found(candidate):
                self.given.add(candidate.sort)
                yield candidate, time, memory

    def wait(self, candidate: Candidate, least: float, held: Real = 0, time: Real | None = None) -> None:
        heappush(self.queue, (least, held, next(self.numbers), candidate, time))

    def start(self, candidate: Candidate) -> None:
        static = candidate.static_bytes()
        if static > self.limit:
            self.refuse(candidate, static, at_least=True)
        else:
            self.wait(candidate, candidate.least_time())

    def refuse(self, candidate: Candidate, size: Real, at_least: bool) -> None:
        """It does not fit, but with another cut it may."""
        more = "at least " if at_least else ""
        says = f"a device holds {more}{in_bytes(size)}, and may hold {in_bytes(self.limit)}"
        self.refused.append(Refused(candidate.words, MEMORY, says))
        other = replace(candidate, cut=())
        if other not in self.to_cut and self._may_fit(other):
            self.to_cut.add(other)
            mesh, microbatches = other.mesh, other.schedule.microbatches
            least = bound_of_mesh(self.table, mesh.devices, mesh.replicas, microbatches, 1, other.samples)
            self.wait(other, least * ROUNDING)

    def _may_fit(self, candidate: Candidate) -> bool:
        """Whether the devices of a pipeline, which have a stage each, can hold the weights and gradients."""
        single = all(len(held) == 1 for held in candidate.schedule.placement)
        weights = self.table.fixed[-1] + self.table.gradients[-1]
        return single and weights <= candidate.mesh.devices * self.limit

    def cut(self, candidate: Candidate) -> None:
        cut = self.table.fitting_cut(candidate.laid_out, candidate.samples, candidate.recompute)
        if cut is not None:
            candidate = replace(candidate, cut=cut)
            self.wait(candidate, candidate.least_time())

    def simulate(self, candidate: Candidate) -> None:
        """Unless what it holds at the least is too much already."""
        held = candidate.least_bytes()
        if held > self.limit:
            self.refuse(candidate, held, at_least=True)
            return
        time = candidate.simulated().step
        self.simulated += 1
        self.wait(candidate, float(time), held, time)

    def found(self, candidate: Candidate) -> Memory | None:
        """What it holds, predicted exactly; None if that does not fit."""
        peak, memory = candidate.predicted()
        if peak > self.limit:
            self.refuse(candidate, peak, at_least=False)
            return None
        return memory


def smallest(looked_at: Iterable[Candidate]) -> tuple[int, Candidate]:
    """(bytes, the plan whose fullest device holds the fewest of them): bounds first, as in the search."""
    queue = [(each.static_bytes(), number, 0, each) for number, each in enumerate(looked_at)]
    heapify(queue)
    while True:
        size, number, known, each = heappop(queue)
        if known == 2:
            return int(size), each
        size = each.least_bytes() if known == 0 else each.predicted()[0]
        heappush(queue, (size, number, known + 1, each))


def fewest_devices(table: LayerTable) -> int | None:
    """The shortest pipeline that fits if it recomputes and each microbatch is one sample; None if none does.

    It is that of 1F1B, cut so that the slowest stage is as fast as can be.
    """
    limit = table.cluster.memory
    for devices in range(1, table.count + 1):
        schedule = OneFOneB(devices, table.profile.samples)
        each = Candidate(table, schedule, Mesh(devices, 1), table.cut(devices, "early", True), True)
        bounds = each.static_bytes, each.least_bytes, lambda each=each: each.predicted()[0]
        if all(size() <= limit for size in bounds):
            return devices
    return None
