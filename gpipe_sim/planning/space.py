"""Every way to lay a model out that may be looked at: degrees, schedule, microbatch, recompute and ZeRO."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.one_f_one_b import OneFOneB
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.errors import got, listed, one_of, require, require_flags, whole
from gpipe_sim.families import SCHEDULES, WITHOUT_FLUSH
from gpipe_sim.links.links import Nodes
from gpipe_sim.pricing.cluster import MOST_DEVICES, Cluster
from gpipe_sim.pricing.layout import RECOMPUTE, of_size

OWNER = "plan"
HEADS, LAYERS, BATCH, SIZE, MEMORY = (
    "cannot be dealt out to so many devices",
    "have more stages than layers",
    "do not cut the batch into equal microbatches",
    "have a size that the schedule or the cluster refuses",
    "do not fit",
)  #: why a plan is refused
MOST_MICROBATCHES = 4_096  #: that are tried where nobody says how large one is
CUTS = ("best", "even")
SEVERAL = (2, 4)  #: stages per device of a model that has no equal layers in a row
Wanted = tuple[int, ...] | None  #: None is every one that divides


class Way(NamedTuple):
    """How a model is laid out, but for the cut; ``schedule`` is one replica's."""

    tensor: int
    pipeline: int
    replicas: int
    microbatch: int
    schedule: Schedule
    recompute: str
    sequence_parallel: bool
    zero: int

    @property
    def sort(self) -> tuple:
        """Of the ways of one sort only the fastest is a row."""
        return self.tensor, self.pipeline, self.replicas, type(self.schedule), self.recompute

    @property
    def mesh(self) -> str:
        return f"{self.tensor} x {self.pipeline} x {self.replicas}"

    @property
    def order(self) -> str:
        """The schedule's name, stages per device if there are several, and the microbatches."""
        several = self.schedule.stages_per_device
        name = f"{self.schedule.name} V={several}" if several > 1 else f"{self.schedule.name}"
        return f"{name}, {self.schedule.microbatches} of {self.microbatch}"

    @property
    def options(self) -> str:
        """What is computed again, dealt out and shared out."""
        dealt = ", sequence" if self.sequence_parallel else ""
        return self.recompute + dealt + (f", ZeRO {self.zero}" if self.zero else "")

    def __str__(self) -> str:
        return f"{self.mesh} {self.order}, recompute {self.options}"


class Refused(NamedTuple):
    """A plan that there is not: what it would be, and why not."""

    what: str
    reason: str
    says: str


class Space(NamedTuple):
    """What is searched."""

    schedules: tuple[type[Schedule], ...]
    tensor: Wanted
    replicas: Wanted
    microbatch: Wanted
    stages_per_device: Wanted
    recompute: tuple[str, ...]
    sequence_parallel: tuple[bool, ...]
    zero: tuple[int, ...]
    cut: str


def divisors(total: int, most: int = MOST_DEVICES) -> list[int]:
    """The whole numbers that divide a total, such as the numbers of replicas that divide the devices."""
    return [count for count in range(1, min(total, most) + 1) if not total % count]


def read_degrees(owner: str, cluster: Cluster, tensor, replicas, microbatch) -> tuple[Wanted, Wanted, Wanted]:
    """TypeError or ValueError for what are no numbers; both degrees have to divide the devices."""
    found = [
        None if value is None else read_wholes(owner, name, value)
        for name, value in (("tensor", tensor), ("replicas", replicas), ("microbatch", microbatch))
    ]
    for name, degrees in zip(("tensor", "replicas"), found, strict=False):
        for each in degrees or ():
            if cluster.devices % each:
                raise ValueError(
                    f"{owner} needs {name} that divide the cluster's {cluster.devices} devices {got(each)}"
                )
    return found[0], found[1], found[2]


def read_wholes(owner: str, name: str, value: Sequence[int], low: int = 1, high: int | None = None):
    such_as = f"{name} to list whole numbers, such as [1, 2]"
    found = [whole(owner, f"each of {name}", each, low, high) for each in listed(owner, such_as, value)]
    if not found:
        raise ValueError(f"{owner} needs {name} to list at least one {got(value)}")
    return tuple(dict.fromkeys(found))


def read_schedules(schedules) -> tuple[type[Schedule], ...]:
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
    if not families:
        raise ValueError(f"{OWNER} needs schedules to list at least one {got(schedules)}")
    families.sort(key=lambda family: family is not OneFOneB)  # of what is as good, the best known comes first
    return tuple(dict.fromkeys(families))


def read_choices(name: str, value, such_as: str, each) -> tuple:
    found = listed(OWNER, f"{name} to list what to try, such as {such_as}", value)
    for one in found:
        each(one)
    if not found:
        raise ValueError(f"{OWNER} needs {name} to list at least one, such as {such_as} {got(value)}")
    return tuple(dict.fromkeys(found))


def read_space(
    cluster: Cluster, schedules, degrees, stages_per_device, recompute, sequence_parallel, zero, cut
) -> Space:
    """TypeError or ValueError for what cannot be searched."""
    per_device = stages_per_device
    return Space(
        read_schedules(SCHEDULES if schedules is None else schedules),
        *read_degrees(OWNER, cluster, *degrees),
        None if per_device is None else read_wholes(OWNER, "stages_per_device", per_device),
        read_choices(
            "recompute", recompute, '["none", "full"]', lambda one: one_of(OWNER, "recompute", one, RECOMPUTE)
        ),
        read_choices(
            "sequence_parallel",
            sequence_parallel,
            "[False, True]",
            lambda one: require_flags(OWNER, sequence_parallel=one),
        ),
        read_wholes(OWNER, "zero", zero, 0, 3),
        one_of(OWNER, "cut", cut, CUTS),
    )


def tensor_degrees(cluster: Cluster, wanted: Wanted) -> Sequence[int]:
    """Those wanted, or all that divide a node; where all links are alike, the cluster is one node."""
    if wanted is not None:
        return wanted
    node = cluster.links.devices_per_node if isinstance(cluster.links, Nodes) else cluster.devices
    return [each for each in divisors(min(node, cluster.devices)) if not cluster.devices % each]


def sizes(samples: int, replicas: int, wanted: Wanted) -> Sequence[int]:
    """The samples of a microbatch; if none divides, 1, to be refused."""
    if wanted is not None:
        return wanted
    if samples % replicas:
        return [1]
    share = samples // replicas
    return [each for each in divisors(share) if share // each <= MOST_MICROBATCHES]


def meshes(problem: Any, tensor: Wanted, replicas: Wanted) -> Iterator[tuple[int, int]]:
    """(tensor degree, replicas) that divide the devices, and that the layers can be dealt out to."""
    devices = problem.cluster.devices
    for t in tensor_degrees(problem.cluster, tensor):
        if not problem.refuses(t):
            yield from ((t, r) for r in replicas or divisors(devices // t) if not devices % (t * r))


def ways(problem: Any, space: Space) -> Iterator[Way | Refused]:
    """All there are, and why others are none."""
    for tensor in tensor_degrees(problem.cluster, space.tensor):
        if says := problem.refuses(tensor):
            yield Refused(f"tensor {tensor}", HEADS, says)
    for tensor, replicas in meshes(problem, space.tensor, space.replicas):
        pipeline = problem.cluster.devices // tensor // replicas
        for size in sizes(problem.samples, replicas, space.microbatch):
            yield from _of_mesh(problem, space, tensor, pipeline, replicas, size)


def _of_mesh(problem, space: Space, tensor: int, pipeline: int, replicas: int, size: int):
    mesh = f"{tensor} x {pipeline} x {replicas}"
    if problem.samples % (replicas * size):
        says = f"{problem.samples} samples are not {replicas} x equal microbatches of {size}"
        yield Refused(mesh, BATCH, says)
        return
    count = problem.samples // (replicas * size)
    flags = [each for each in space.sequence_parallel if tensor > 1 or not each] or [False]
    zeros = problem.zeros(space.zero, replicas)
    again = problem.differing(space.recompute, tensor, size)
    wanted = space.stages_per_device or problem.several(pipeline) or SEVERAL[:1]
    for family in space.schedules:
        for several in stages_of(family, wanted):
            if pipeline * several > problem.count:
                says = f"{problem.count} layers cannot be cut into {pipeline * several} stages"
                yield Refused(f"{mesh} {family.__name__}", LAYERS, says)
                continue
            try:
                schedule = of_size(family, pipeline, count, several)
            except ValueError as error:
                yield Refused(f"{mesh} {family.__name__}", SIZE, str(error))
                continue
            for recompute in again:
                for dealt in flags:
                    for zero in zeros:
                        yield Way(tensor, pipeline, replicas, size, schedule, recompute, bool(dealt), zero)


def stages_of(family, wanted: Sequence[int]) -> Sequence[int]:
    """How many a device may have: those wanted, where that can be chosen."""
    chosen = "stages_per_device" in {each.name for each in fields(family)}
    return wanted if chosen else [family.stages_per_device]


@cache
def is_split(family) -> bool:
    """Whether W is an action of its own."""
    return Kind.W in family(4, 8).program.where


def counted(refused: Sequence[Refused]) -> list[tuple[str, int, Refused]]:
    """(reason, how many plans are refused for it, one of them), the most frequent reason first."""
    counts = Counter(each.reason for each in refused)
    first = {each.reason: each for each in reversed(refused)}
    return [(reason, count, first[reason]) for reason, count in counts.most_common()]
