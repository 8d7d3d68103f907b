"""One plan: what it takes, what it holds, what limits it; and it draws and runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real

from gpipe_sim.core.bubbles import bubble_fraction
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.layers import Layer
from gpipe_sim.core.memory import MemoryTrace
from gpipe_sim.core.partition import Partition
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.split import split
from gpipe_sim.core.timeline import Timeline, number
from gpipe_sim.memory.limit import in_bytes
from gpipe_sim.memory.profile import Profile
from gpipe_sim.planning.candidates import Candidate
from gpipe_sim.planning.hardware import costs_from_flops
from gpipe_sim.planning.layer_table import LayerTable
from gpipe_sim.planning.parts import parts_of
from gpipe_sim.planning.search import Found, order_of, profile_of
from gpipe_sim.planning.step_time import StepTime, step_time
from gpipe_sim.replicas.all_reduce import all_reduce
from gpipe_sim.replicas.replicate import replicate


@dataclass(frozen=True, repr=False, eq=False)
class Plan:
    """One plan: a schedule, a cut, how long a step takes and what the devices hold.

    ``train_step(plan.partitions, plan.schedule, batch, loss)`` runs it if the model has weights.
    """

    found: Found
    layers: Sequence[Layer]
    table: LayerTable

    @property
    def time(self) -> Real:
        """Of a step, in the unit of the accelerator, with the all-reduce of replicas."""
        return self.found.time

    @property
    def candidate(self) -> Candidate:
        return self.found.candidate

    @property
    def balance(self) -> tuple[int, ...]:
        """How many layers each stage gets."""
        return self.candidate.cut

    @property
    def replicas(self) -> int:
        return self.candidate.mesh.replicas

    @property
    def memory(self) -> tuple[MemoryTrace, ...]:
        """What each device of a replica holds; those of the other replicas hold the same."""
        return self.found.memory

    @property
    def peak(self) -> int:
        """The most bytes that any device holds, also while an action runs."""
        return max(trace.peak_inside.bytes for trace in self.memory)

    @cached_property
    def schedule(self) -> Schedule:
        """With all replicas, on all devices."""
        order, mesh = order_of(self.candidate), self.candidate.mesh
        return order if mesh.replicas == 1 else replicate(order, mesh.replicas, adjacent=mesh.adjacent)

    @property
    def partitions(self) -> list[Partition]:
        """The model, cut."""
        return split(list(self.layers), balance=list(self.balance))

    @property
    def profile(self) -> Profile:
        """The model with this cut, and the whole batch."""
        return self.table.share(self.balance, 1)

    @property
    def costs(self) -> Costs:
        """What actions take, in the unit of the accelerator."""
        return costs_from_flops(self.profile, self.table.cluster.accelerator, self.schedule.microbatches)

    @cached_property
    def timeline(self) -> Timeline:
        """All devices, from the start to the end of the last all-reduce."""
        links, profile = self.table.cluster.links, self.profile
        timeline = simulate(self.schedule, self.costs, links=links, profile=profile)
        return all_reduce(timeline, profile, links=links)

    @property
    def bubble(self) -> float:
        """The share of their time in which the devices of a replica wait, until its last backward ends."""
        return float(bubble_fraction(self._replica.timelines[0]))

    @cached_property
    def _replica(self) -> StepTime:
        return step_time(
            order_of(self.candidate),
            self.candidate.mesh,
            profile_of(self.table, self.candidate),
            self.table.cluster,
        )

    @cached_property
    def parts(self) -> dict[str, float]:
        """What the time of a step is made of; it adds up to ``time``.

        - compute: what each device would take if all did as much, without overhead.
        - recompute, overhead: what those add to it.
        - imbalance: what the busiest device does more than others.
        - bubble: how long that device waits if messages take no time.
        - messages: by how much these make the pipelines longer.
        - all-reduce: from the end of the last backward to the end of the last ring.
        """
        profile, order = profile_of(self.table, self.candidate), order_of(self.candidate)
        accelerator = self.table.cluster.accelerator
        return parts_of(profile, order, accelerator, self._replica.pipelines, self.time)

    @property
    def limited_by(self) -> str:
        """The largest part of the time that is not compute."""
        parts = {name: time for name, time in self.parts.items() if name != "compute"}
        return max(parts, key=parts.get)

    @property
    def words(self) -> str:
        """In a line: replicas, family, devices, microbatches and stages per device."""
        return self.candidate.words

    def __repr__(self) -> str:
        return f"<Plan {self.candidate}: {number(self.time)}, {in_bytes(self.peak)}>"
