"""Every plan that may be looked at: schedule, mesh, microbatches, stages per device, cut and recompute."""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from functools import cache, lru_cache
from typing import NamedTuple

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.memory import MemoryTrace
from gpipe_sim.core.remat import remat
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.errors import Real, got, listed, require, require_flags
from gpipe_sim.families import SCHEDULES, WITHOUT_FLUSH, OneFOneB
from gpipe_sim.memory.prediction import predict_memory
from gpipe_sim.memory.profile import Profile
from gpipe_sim.planning.bounds import least_bytes, least_time, static_bytes
from gpipe_sim.planning.cluster import Mesh, Wanted, equal_cuts, meshes, read_counts, read_wholes
from gpipe_sim.planning.layer_table import CUTS, Cut, LayerTable, Stages
from gpipe_sim.planning.step_time import StepTime, ring_times, stages_used, step_time
from gpipe_sim.pricing.cluster import Cluster

OWNER = "plan"
LAYERS, BATCH, SIZE, MEMORY = (
    "have more stages than layers",
    "do not cut the batch into equal microbatches",
    "have a size that the schedule refuses",
    "do not fit",
)  #: why a plan is refused
ROUNDING = 1 - 1e-9  #: bounds are floats, and must not be above what is simulated exactly


@dataclass(frozen=True, repr=False)
class Candidate:
    """One plan for the layers of a table. ``schedule`` is one replica's, without R.

    ``cut`` is empty until one that fits is found.
    """

    table: LayerTable = field(compare=False)
    schedule: Schedule
    mesh: Mesh
    cut: Cut
    recompute: bool

    @property
    def sort(self) -> tuple:
        """All but the number of microbatches, the cut and the layout."""
        schedule, mesh = self.schedule, self.mesh
        return type(schedule), schedule.stages_per_device, mesh.devices, mesh.replicas, self.recompute

    @property
    def words(self) -> str:
        """Short, with letters: replicas, family, devices, microbatches, stages per device."""
        schedule, mesh = self.schedule, self.mesh
        again = " recompute" if self.recompute else ""
        layout = ", copies adjacent" if mesh.adjacent == "replicas" else ""
        several = schedule.stages_per_device if schedule.stages_per_device > 1 else None
        return in_words(schedule.name, mesh, schedule.microbatches, several) + again + layout

    def __str__(self) -> str:
        again = " with recompute" if self.recompute else ""
        replicas = f"{self.mesh.replicas} x " if self.mesh.replicas > 1 else ""
        layout = ", copies of a stage adjacent" if self.mesh.adjacent == "replicas" else ""
        return f"{replicas}{self.schedule!r}{again}{layout}"

    @property
    def samples(self) -> int:
        """In a microbatch."""
        return self.table.profile.samples // self.mesh.replicas // self.schedule.microbatches

    @property
    def stages(self) -> Stages:
        return self.table.stages(self.cut, self.samples)

    @property
    def laid_out(self) -> Schedule:
        """The schedule of one replica, whose program is not kept for longer than the last few."""
        return _laid_out(self.schedule)

    @property
    def order(self) -> Schedule:
        """The schedule of one replica, with R where it recomputes."""
        return remat(self.laid_out, "always") if self.recompute else self.laid_out

    @property
    def profile(self) -> Profile:
        """Of one replica's share of the batch."""
        return self.table.share(self.cut, self.mesh.replicas)

    def simulated(self) -> StepTime:
        return step_time(self.order, self.mesh, self.profile, self.table.cluster)

    def predicted(self) -> tuple[int, tuple[MemoryTrace, ...]]:
        """The most bytes that a device ever holds, and what the devices of a replica hold."""
        memory = predict_memory(self.order, self.profile)
        return max(trace.peak_inside.bytes for trace in memory), memory

    def least_time(self) -> float:
        """Of a step."""
        stages, cluster = self.stages, self.table.cluster
        sizes = tuple(map(int, stages.gradients.tolist()))
        rings = ring_times(stages_used(self.schedule), self.mesh, sizes, cluster)
        overhead = float(cluster.accelerator.overhead)
        split = is_split(type(self.schedule))
        return least_time(self.schedule, split, self.recompute, stages, overhead, rings) * ROUNDING

    def static_bytes(self) -> Real:
        """Of its fullest device, whatever the order."""
        return static_bytes(self.schedule, self.stages).max()

    def least_bytes(self) -> Real:
        """Of its fullest device."""
        return least_bytes(self.laid_out.program, self.stages, self.recompute).max()


_laid_out = lru_cache(maxsize=8)(copy)


def in_words(name: str, mesh: Mesh, microbatches: int, several: int | None) -> str:
    """``several`` are the stages per device, if it is worth saying how many."""
    stages = f" V={several}" if several else ""
    return f"{mesh.replicas} x {name} K={mesh.devices} M={microbatches}{stages}"


class Refused(NamedTuple):
    """A plan that there is not: what it would be, and why not."""

    what: str
    reason: str
    says: str


class Space(NamedTuple):
    """What is searched."""

    schedules: tuple[type[Schedule], ...]
    replicas: Wanted
    microbatches: Wanted
    stages_per_device: tuple[int, ...]
    recompute: tuple[bool, ...]


def read_space(cluster: Cluster, schedules, replicas, microbatches, stages_per_device, recompute) -> Space:
    """TypeError or ValueError for what cannot be searched."""
    such_as = "schedules to list families, such as [GPipe, OneFOneB]"
    families = listed(OWNER, such_as, schedules)
    for family in families:
        require(OWNER, family, type, such_as)
        if family in WITHOUT_FLUSH:
            raise ValueError(
                f"{OWNER} compares ways to compute the same gradients, and {family.__name__} uses older "
                "weights: give families of gp.SCHEDULES, such as [GPipe, OneFOneB]"
            )
        if family not in SCHEDULES:
            raise TypeError(f"{OWNER} needs {such_as} {got(family)}")
    recompute = listed(OWNER, "recompute to list what to try, such as [False, True]", recompute)
    for each in recompute:
        require_flags(OWNER, recompute=each)
    if not families or not recompute:
        raise ValueError(f"{OWNER} needs at least one schedule, and recompute to list False, True or both")
    families.sort(key=lambda family: family is not OneFOneB)  # of what is as good, the best known comes first
    return Space(
        tuple(dict.fromkeys(families)),
        *read_counts(OWNER, cluster, replicas, microbatches),
        read_wholes(OWNER, "stages_per_device", stages_per_device),
        tuple(dict.fromkeys(map(bool, recompute))),
    )


def candidates(table: LayerTable, space: Space) -> tuple[list[Candidate], list[Refused]]:
    """All there are, and why others are none."""
    found = list(_each(table, space))
    refused = [each for each in found if isinstance(each, Refused)]
    return [each for each in found if isinstance(each, Candidate)], refused


def _each(table: LayerTable, space: Space) -> Iterator[Candidate | Refused]:
    samples, cluster = table.profile.samples, table.cluster
    for mesh in meshes(cluster.devices, cluster.links, space.replicas):
        for microbatches in equal_cuts(samples, mesh.replicas, space.microbatches):
            for family in space.schedules:
                for per_device in stages_of(family, space.stages_per_device):
                    yield from _of(table, space, mesh, microbatches, family, per_device)


def _of(table, space: Space, mesh: Mesh, microbatches: int, family, per_device: int):
    options = {"stages_per_device": per_device} if _takes_stages(family) else {}
    name = family.name if isinstance(family.name, str) else family.__name__
    what = in_words(name, mesh, microbatches, options.get("stages_per_device"))
    samples, stages = table.profile.samples, mesh.devices * per_device
    if samples % (mesh.replicas * microbatches):
        says = f"{samples} samples are not {mesh.replicas} x {microbatches} equal microbatches"
        yield Refused(what, BATCH, says)
        return
    if stages > table.count:
        yield Refused(what, LAYERS, f"{table.count} layers cannot be cut into {stages} stages")
        return
    try:
        schedule = family(mesh.devices, microbatches, **options)
    except ValueError as error:
        yield Refused(what, SIZE, str(error))
        return
    for recompute in space.recompute:
        for cut in dict.fromkeys(table.cut(stages, which, recompute) for which in CUTS):
            yield Candidate(table, schedule, mesh, cut, recompute)


def stages_of(family, wanted: tuple[int, ...]) -> Sequence[int]:
    """How many a device may have: those wanted, where that can be chosen."""
    return wanted if _takes_stages(family) else [family.stages_per_device]


@cache
def _takes_stages(family) -> bool:
    """Whether its stages per device can be chosen."""
    return "stages_per_device" in {each.name for each in fields(family)}


@cache
def is_split(family) -> bool:
    """Whether W is an action of its own."""
    return Kind.W in family(4, 8).program.where
