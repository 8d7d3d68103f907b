"""Which plan, on my cluster? The fastest plans that fit, and why the others do not."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from gpipe_sim.core.bubbles import bubble_fraction
from gpipe_sim.core.device import Batch
from gpipe_sim.core.layers import Layer
from gpipe_sim.core.losses import Loss
from gpipe_sim.core.memory import MemoryTrace
from gpipe_sim.core.optimizers import Optimizer
from gpipe_sim.core.partition import Partition
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.split import split
from gpipe_sim.core.timeline import Timeline, number
from gpipe_sim.errors import MOST, MemoryLimitError, Real, whole
from gpipe_sim.families import SCHEDULES
from gpipe_sim.memory.limit import in_bytes
from gpipe_sim.memory.profile import Profile
from gpipe_sim.planning.bounds import bound_of_all, bound_of_mesh
from gpipe_sim.planning.candidates import OWNER, Candidate, Refused, Space, candidates, read_space
from gpipe_sim.planning.flops import costs_from_flops
from gpipe_sim.planning.layer_table import LayerTable, table_of
from gpipe_sim.planning.search import Search, fewest_devices, smallest
from gpipe_sim.planning.step_time import StepTime, parts_of
from gpipe_sim.pricing.cluster import Cluster
from gpipe_sim.replicas.all_reduce import all_reduce
from gpipe_sim.replicas.replicate import replicate


def plan(
    layers: Sequence[Layer],
    cluster: Cluster,
    batch: Batch,
    loss: Loss,
    optimizer: Optimizer | None = None,
    *,
    schedules: "Sequence[type[Schedule]] | None" = None,
    replicas: "Sequence[int] | None" = None,
    microbatches: "Sequence[int] | None" = None,
    stages_per_device: "Sequence[int]" = (2, 4),
    recompute: "Sequence[bool]" = (False, True),
    rows: int | None = 10,
) -> "Plans":
    """The fastest plans for a model on a cluster, of all that fit; and for the others, why not.

    >>> gpu = gp.Accelerator(flops=137e12, overhead=1e-5)
    >>> cluster = gp.Cluster(8, gpu, memory=16e9, links=gp.Link(latency=5e-6, bandwidth=25e9))
    >>> batch = gp.MetaArray((256, 512), "i8"), gp.MetaArray((256, 512), "i8")  # on paper, as the model is
    >>> families = [gp.OneFOneB, gp.Interleaved1F1B]
    >>> print(gp.plan(gp.bert_large(), cluster, batch, gp.cross_entropy, schedules=families, rows=3))
                                         time  off best cut  bubble     bytes  limited by
    4 x Interleaved 1F1B K=2 M=16 V=4  0.2758       <= 7.1%    3.4%  5.346 GB  all-reduce
    8 x Interleaved 1F1B K=1 M=4 V=4   0.2763       <= 7.4%    0.0%  10.29 GB  all-reduce
    4 x Interleaved 1F1B K=2 M=16 V=2   0.282       <= 9.5%    4.2%  5.811 GB  all-reduce
    ...

    It searches schedules x pipeline length x replicas x microbatches x stages per device x two cuts x
    recompute; the schedules are all of ``gp.SCHEDULES`` unless given. All devices are used, as pipelines
    times replicas; with ``Nodes``, either the stages of a pipeline or the copies of a stage are neighbours.
    Microbatches are equal, for each replica any number up to 4,096 that divides its share of the batch.
    ``stages_per_device`` are those of interleaved 1F1B and looped BFS; on a pipeline of one device they are
    buckets, whose rings run while the device computes the rest. In a cut the slowest stage is as fast as can
    be; where stages differ by a layer, the larger ones come first or last; each row's ``cut_gap`` bounds what
    the best of all cuts could still give. A family with one mesh, with recompute or without, is one row: its
    fastest.

    Model and batch may be on paper, as for ``profile``. Times are computed: FLOPs by the accelerator,
    messages by the links, then a ring all-reduce for each stage; an optimizer's update takes no time. The
    bytes of each row are exactly those of ``train_step``, also while an action runs. That is on its clock of
    unit costs: on another, a message may wait longer or less. What is faster is simulated; the others only
    have a bound that is not as fast as the last row. ``rows=None`` simulates all.

    MemoryLimitError if no plan fits, with what would; ValueError if there is none because of its sizes, or
    replicas do not divide the devices; TypeError for what is no model, cluster, schedule or number.
    """
    if rows is not None:
        rows = min(MOST, whole(OWNER, "rows", rows))
    table = table_of(OWNER, layers, cluster, batch, loss, optimizer)
    schedules = SCHEDULES if schedules is None else schedules
    space = read_space(cluster, schedules, replicas, microbatches, stages_per_device, recompute)
    plans = plans_of(table, space, rows)
    if not plans:
        raise no_plan(table, space)
    return plans


def plans_of(table: LayerTable, space: Space, rows: int | None) -> "Plans":
    """As many plans of a space as there are, but not more than so many rows."""
    looked_at, refused = candidates(table, space)
    search = Search(table, looked_at)
    plans = tuple(Plan(*each) for each in islice(search, rows))
    every = len(looked_at) + len(refused)
    return Plans(plans, (*refused, *search.refused), every, search.simulated, table, space)


def no_plan(table: LayerTable, space: Space) -> ValueError:
    """Why there is no plan, and what would make one fit."""
    looked_at, refused = candidates(table, space)
    if not looked_at:
        whys = "; ".join(f"{count} {why}: {each.says}" for why, count, each in counted(refused))
        return ValueError(f"plan finds no plan at all for this model, batch and cluster. {whys}")
    limit, (size, least) = table.cluster.memory, smallest(looked_at)
    fewest = fewest_devices(table)
    longer = (
        f"A pipeline of {fewest} such devices fits: 1F1B with recompute, and microbatches of one sample."
        if fewest
        else "However many such devices there are, no pipeline of 1F1B with recompute fits."
    )
    return MemoryLimitError(
        f"plan finds no plan that fits {table.cluster.devices} devices of {in_bytes(limit)} each. "
        f"{least} holds least: it would fit devices of {in_bytes(size)}, {size:,} bytes. {longer}"
    )


def counted(refused: Sequence[Refused]) -> list[tuple[str, int, Refused]]:
    """(reason, how many plans are refused for it, one of them), the most frequent reason first."""
    counts = Counter(each.reason for each in refused)
    first = {each.reason: each for each in reversed(refused)}
    return [(reason, count, first[reason]) for reason, count in counts.most_common()]


@dataclass(frozen=True, repr=False, eq=False)
class Plan:
    """One plan: a schedule, a cut, how long a step takes and what the devices hold.

    ``train_step(plan.partitions, plan.schedule, batch, loss)`` runs it if the model has weights.
    """

    candidate: Candidate
    time: Real  #: of a step, in the unit of the accelerator, with the all-reduce of replicas
    memory: tuple[MemoryTrace, ...]  #: of each device of a replica; those of the others hold the same

    @property
    def balance(self) -> tuple[int, ...]:
        """How many layers each stage gets."""
        return self.candidate.cut

    @property
    def replicas(self) -> int:
        """How many copies of the pipeline run side by side."""
        return self.candidate.mesh.replicas

    @property
    def peak(self) -> int:
        """The most bytes that any device holds, also while an action runs."""
        return max(trace.peak_inside.bytes for trace in self.memory)

    @cached_property
    def schedule(self) -> Schedule:
        """With all replicas, on all devices."""
        order, mesh = self.candidate.order, self.candidate.mesh
        return order if mesh.replicas == 1 else replicate(order, mesh.replicas, adjacent=mesh.adjacent)

    @property
    def partitions(self) -> list[Partition]:
        """The model, cut."""
        return split(list(self.candidate.table.model), balance=list(self.balance))

    @property
    def profile(self) -> Profile:
        """The model with this cut, and the whole batch."""
        return self.candidate.table.share(self.balance, 1)

    @cached_property
    def timeline(self) -> Timeline:
        """All devices, from the start to the end of the last all-reduce."""
        cluster, profile = self.candidate.table.cluster, self.profile
        costs = costs_from_flops(profile, cluster.accelerator, self.schedule.microbatches)
        timeline = simulate(self.schedule, costs, links=cluster.links, profile=profile)
        return all_reduce(timeline, profile, links=cluster.links)

    @property
    def bubble(self) -> float:
        """The share of their time in which the devices of a replica wait, until its last backward ends."""
        return float(bubble_fraction(self._replica.timelines[0]))

    @cached_property
    def _replica(self) -> StepTime:
        return self.candidate.simulated()

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
        each, accelerator = self.candidate, self.candidate.table.cluster.accelerator
        return parts_of(each.profile, each.order, accelerator, self._replica.pipelines, self.time)

    @cached_property
    def cut_gap(self) -> float:
        """The share by which it is at most slower than the same mesh and microbatches with the best cut.

        The cut is one of those that were tried, which is not every one; the bound holds for every cut, and
        every order, so the best cut may be nearer than that.
        """
        each = self.candidate
        mesh, held = each.mesh, sum(map(len, each.schedule.placement))
        sizes = mesh.devices, mesh.replicas, each.schedule.microbatches, held // each.schedule.stages
        return max(0.0, float(self.time) / bound_of_mesh(each.table, *sizes, each.samples) - 1)

    @property
    def limited_by(self) -> str:
        """The largest part of the time that is not compute."""
        parts = {name: time for name, time in self.parts.items() if name != "compute"}
        return max(parts, key=parts.__getitem__)

    @property
    def words(self) -> str:
        """In a line: replicas, family, devices, microbatches and stages per device."""
        return self.candidate.words

    def __repr__(self) -> str:
        cut = f"of the cuts tried, at most {self.cut_gap:.1%} off the best"
        return f"<Plan {self.candidate}: {number(self.time)}, {in_bytes(self.peak)}; {cut}>"


@dataclass(frozen=True, repr=False, eq=False)
class Plans:
    """Plans that fit, fastest first. ``print`` shows the table.

    ``looked_at`` counts all combinations of sizes, ``simulated`` those whose time was computed.
    """

    plans: tuple[Plan, ...]
    refused: tuple[Refused, ...]
    looked_at: int
    simulated: int
    table: LayerTable
    space: Space

    def __iter__(self) -> Iterator[Plan]:
        return iter(self.plans)

    def __len__(self) -> int:
        return len(self.plans)

    def __getitem__(self, row: int) -> Plan:
        return self.plans[row]

    @property
    def best(self) -> Plan:
        """The fastest of them."""
        return self.plans[0]

    @cached_property
    def bound(self) -> float:
        """What no step takes less than with these replicas and microbatches: see ``lower_bound``."""
        return bound_of_all(self.table, self.space.replicas, self.space.microbatches)

    @property
    def gap(self) -> float:
        """The share by which the best plan is at most slower than the best that there can be."""
        return max(0.0, float(self.best.time) / self.bound - 1)  # they may be equal but for rounding

    @property
    def frontier(self) -> tuple[Plan, ...]:
        """The rows that no other beats in time and in bytes, fastest first."""
        found: list[Plan] = []
        for each in self.plans:
            if not found or each.peak < found[-1].peak:
                found.append(each)
        return tuple(found)

    @property
    def why_refused(self) -> list[tuple[str, int, Refused]]:
        """(reason, how many plans are refused for it, one of them), the most frequent reason first."""
        return counted(self.refused)

    def __str__(self) -> str:
        rows = [("", "time", "off best cut", "bubble", "bytes", "limited by"), *map(_row, self.plans)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [_line(row, widths) for row in rows]
        lines.append(
            f"{self.looked_at:,} plans, {self.simulated:,} simulated, {len(self.refused):,} refused; "
            f"the best is at most {self.gap:.1%} slower than any can be ({number(self.bound)})"
        )
        lines.append(
            "off best cut: each cut is one of those tried, its row at most so much slower than with the best"
        )
        whys = self.why_refused
        return "\n".join([*lines, *(f"{n:,} {why}: {each.what}: {each.says}" for why, n, each in whys)])

    def __repr__(self) -> str:
        return f"<Plans: {len(self.plans)} of {self.looked_at:,}, the best {self.best!r}>"


def _row(plan: Plan) -> tuple[str, ...]:
    bubble, cut = f"{plan.bubble:.1%}", f"<= {plan.cut_gap:.1%}"
    return plan.words, number(plan.time), cut, bubble, in_bytes(plan.peak), plan.limited_by


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    what, *numbers, limit = (f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
    return "  ".join([f"{what.strip():<{widths[0]}}", *numbers, limit.strip()])
