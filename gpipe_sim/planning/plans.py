"""Which plan, on my cluster? The fastest plans that fit, and why the others do not."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from gpipe_sim.core.bubbles import bubble_fraction
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.device import Batch
from gpipe_sim.core.layers import Layer
from gpipe_sim.core.losses import Loss
from gpipe_sim.core.one_f_one_b import OneFOneB
from gpipe_sim.core.optimizers import Optimizer
from gpipe_sim.core.partition import Partition
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.split import split
from gpipe_sim.core.timeline import Timeline, number
from gpipe_sim.errors import MOST, MemoryLimitError, whole
from gpipe_sim.memory.limit import in_bytes
from gpipe_sim.planning.bounds import bound_of_all
from gpipe_sim.planning.measured import Measured
from gpipe_sim.planning.problem import Cut, Problem
from gpipe_sim.planning.search import Search, smallest
from gpipe_sim.planning.space import OWNER, Refused, Space, Way, counted, read_space, ways
from gpipe_sim.pricing.cluster import Cluster
from gpipe_sim.pricing.layout import recomputed
from gpipe_sim.pricing.price import Priced

Model = Sequence[Layer] | Costs
Wanted = Sequence[int] | None  #: numbers to try; None is every one that divides
Names = Sequence[str]
Flags = Sequence[bool]
MORE = (2, 4, 8, 16, 32, 64)  #: times as many devices, that are tried where nothing fits


def plan(
    model: "Model",
    cluster: Cluster,
    batch: "Batch",
    loss: "Loss | None" = None,
    optimizer: "Optimizer | None" = None,
    *,
    schedules: "Sequence[type[Schedule]] | None" = None,
    tensor: "Wanted" = None,
    replicas: "Wanted" = None,
    microbatch: "Wanted" = None,
    stages_per_device: "Wanted" = None,
    recompute: "Names" = ("none", "selective", "full"),
    sequence_parallel: "Flags" = (False, True),
    zero: "Wanted" = (0, 1),
    gradient_bytes: int = 4,
    cut: str = "best",
    rows: int | None = 10,
) -> "Plans":
    """The fastest plans for a model on a cluster, of all that fit; and for the others, why not.

    >>> gpu = gp.Accelerator(flops=137e12, hbm=1.6e12, launch=1e-5)
    >>> links = gp.Nodes(4, inside=gp.Link(5e-6, 200e9), between=gp.Link(1e-5, 25e9))
    >>> cluster, tokens = gp.Cluster(8, gpu, memory=16e9, links=links), gp.MetaArray((256, 512), "i8")
    >>> families = [gp.OneFOneB, gp.Interleaved1F1B]
    >>> print(gp.plan(gp.bert_large(), cluster, (tokens, tokens), schedules=families, rows=3))
    tensor x pipeline x replicas  schedule                       recompute       time ...
    1 x 1 x 8                     Interleaved 1F1B V=24, 4 of 8  none, ZeRO 1   0.373 ...
    1 x 2 x 4                     Interleaved 1F1B V=6, 8 of 8   none, ZeRO 1  0.3821 ...
    1 x 1 x 8                     1F1B, 4 of 8                   none, ZeRO 1  0.3843 ...
    1,968 plans, 39 simulated, ...

    It searches everything that ``price`` asks for, and each row is one ``price``, with its time and bytes:

    - ``tensor`` degrees that divide a node and the heads; others only if they are listed. All devices are
      used: what is left are pipelines, and ``replicas`` of them.
    - ``microbatch``, its samples: every number that cuts a replica's share of the batch into 4,096 at most.
    - ``schedules``, all of ``gp.SCHEDULES``; ``stages_per_device`` of interleaved 1F1B and looped BFS: every
      number that divides the blocks, or 2 and 4 if a model has no equal blocks in a row.
    - ``recompute`` of each block, ``sequence_parallel``, and ``zero`` from 0 to 3.
    - ``cut="best"``: all cuts where there are few; otherwise good ones, and each row's ``cut_gap`` says how
      far from the best it is at most. ``cut="even"`` deals out blocks evenly.

    A family with one tensor degree, pipeline, replicas and recompute is one row: its fastest. Ways whose
    bound is above the last row's time are not simulated; ``rows=None`` lists all. A step of more than 8
    microbatches for each device is looked at as two shorter ones, and priced if it could be a row.

    ``model`` may also be ``Costs`` that list the times of single layers, such as measured ones, of one
    microbatch; then ``batch`` is how many of these a step has. Such times know no bytes: pipelines alone are
    planned, of one replica unless ``replicas`` says more, and none is refused for what it holds.

    MemoryLimitError if no plan fits, with what would; ValueError if there is none because of its sizes, or
    degrees do not divide the devices; TypeError for what is no model, cluster, schedule or number.
    """
    if rows is not None:
        rows = min(MOST, whole(OWNER, "rows", rows))
    gradient_bytes = whole(OWNER, "gradient_bytes", gradient_bytes, 2, 4)
    if isinstance(model, Costs):
        problem: Problem = Measured(OWNER, model, cluster, batch)
        replicas, microbatch = [1] if replicas is None else replicas, [1]
    else:
        problem = Problem(OWNER, model, cluster, batch, loss, optimizer, gradient_bytes)
    degrees = tensor, replicas, microbatch
    space = read_space(
        cluster, schedules, degrees, stages_per_device, recompute, sequence_parallel, zero, cut
    )
    plans = plans_of(problem, space, rows)
    if not plans:
        raise no_plan(plans)
    return plans


def no_plan(plans: "Plans") -> ValueError:
    """Why there is no plan, and what would make one fit."""
    problem = plans.problem
    found = [each for each in ways(problem, plans.space) if isinstance(each, Way)]
    if not found:
        whys = "; ".join(f"{count} {why}: {each.says}" for why, count, each in plans.why_refused)
        return ValueError(f"plan finds no plan at all for this model, batch and cluster. {whys}")
    way, size = smallest(problem, found)
    devices, limit = problem.cluster.devices, in_bytes(problem.cluster.memory)
    return MemoryLimitError(
        f"plan finds no plan that fits {devices} devices of {limit} each. {way} holds least: it would fit "
        f"devices of {in_bytes(size)}, {size:,} bytes. {_more_devices(problem)}"
    )


def _more_devices(problem: Problem) -> str:
    """How many times as many devices would do, with 1F1B, full recompute and microbatches of one sample."""
    devices = problem.cluster.devices
    for times in MORE:
        larger = problem.on(replace(problem.cluster, devices=times * devices))
        space = read_space(
            larger.cluster, [OneFOneB], (None, None, [1]), None, ["full"], (False, True), (0, 1), "even"
        )
        found = [each for each in ways(larger, space) if isinstance(each, Way)]
        if found and (least := smallest(larger, found))[1] <= larger.cluster.memory:
            return f"{times * devices} such devices would do: {least[0]}."
    return f"{MORE[-1] * devices} such devices would not do either."


def plans_of(problem: Problem, space: Space, rows: int | None) -> "Plans":
    """As many plans of a space as there are, but not more than so many rows."""
    found = list(ways(problem, space))
    refused = [each for each in found if isinstance(each, Refused)]
    search = Search(problem, (each for each in found if isinstance(each, Way)), space.cut == "even")
    plans = tuple(Plan(problem, *each) for each in islice(search, rows))
    return Plans(plans, (*refused, *search.refused), len(found), search.simulated, problem, space)


@dataclass(frozen=True, repr=False, eq=False)
class Plan:
    """One plan: how a model is laid out, where it is cut, how long a step takes and what the devices hold."""

    problem: Problem
    way: Way
    priced: Priced
    least: float  #: that no cut takes less than

    @property
    def time(self) -> float:
        """Of a step, in the unit of the accelerator."""
        return self.priced.time

    @property
    def parts(self) -> dict[str, float]:
        """What the time of a step is made of; it adds up to ``time``: see ``price``."""
        return self.priced.parts

    @property
    def cut(self) -> Cut:
        """How many layers each stage gets."""
        return self.priced.layout.cut

    @property
    def schedule(self) -> Schedule:
        """Of one replica."""
        return self.way.schedule

    @property
    def partitions(self) -> list[Partition]:
        """The model, cut, with what is recomputed."""
        layers = [recomputed(layer, self.way.recompute) for layer in self.problem.layers]
        return split(layers, balance=list(self.cut))

    @property
    def memory(self) -> tuple[dict[str, int], ...]:
        """For each device of a pipeline, bytes by category: see ``price``."""
        return self.priced.memory

    @property
    def peak(self) -> int:
        """The bytes that the fullest device needs."""
        return self.priced.peak

    @property
    def timeline(self) -> Timeline:
        """One replica, until its last backward ends."""
        return self.priced.timeline

    @property
    def bubble(self) -> float:
        """The share of their time in which the devices of a replica wait, until its last backward ends."""
        return float(bubble_fraction(self.timeline))

    @property
    def cut_gap(self) -> float:
        """The share by which it is at most slower than with the best cut; 0 if no cut is better."""
        gap = self.time / self.least - 1
        return gap if gap > 1e-8 else 0.0

    @cached_property
    def limited_by(self) -> str:
        """The largest part of the time that is not work."""
        work = ("work", "head") if self.way.pipeline == 1 else ("work",)
        parts = {name: time for name, time in self.parts.items() if name not in work}
        return max(parts, key=parts.__getitem__)

    def __repr__(self) -> str:
        return f"<Plan {self.way}: {number(self.time)}, {in_bytes(self.peak)}>"


@dataclass(frozen=True, repr=False, eq=False)
class Plans:
    """Plans that fit, fastest first. ``print`` shows the table.

    ``looked_at`` counts all combinations of sizes, ``simulated`` those whose time was computed.
    """

    plans: tuple[Plan, ...]
    refused: tuple[Refused, ...]
    looked_at: int
    simulated: int
    problem: Problem
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
        """What no step takes less than with these degrees and microbatches: see ``lower_bound``."""
        space = self.space
        found = bound_of_all(self.problem, space.tensor, space.replicas, space.microbatch, space.zero)
        return float("nan") if found is None else found

    @property
    def gap(self) -> float:
        """The share by which the best plan is at most slower than the best that there can be."""
        found = float(self.best.time) / self.bound - 1
        return found if abs(found) > 1e-9 else 0.0  # they may be equal but for rounding

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
        names = "tensor x pipeline x replicas", "schedule", "recompute", "time", "off best cut", "bubble"
        rows = [(*names, "bytes", "limited by"), *map(_row, self.plans)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [_line(row, widths) for row in rows]
        lines.append(
            f"{self.looked_at:,} plans, {self.simulated:,} simulated, {len(self.refused):,} refused; "
            f"the best is at most {self.gap:.1%} slower than any can be ({number(self.bound)})"
        )
        whys = self.why_refused
        return "\n".join([*lines, *(f"{n:,} {why}: {each.what}: {each.says}" for why, n, each in whys)])

    def __repr__(self) -> str:
        return f"<Plans: {len(self.plans)} of {self.looked_at:,}, the best {self.best!r}>"


def _row(plan: Plan) -> tuple[str, ...]:
    way, gap = plan.way, plan.cut_gap
    off = f"<= {gap:.1%}" if gap else "0"
    numbers = number(plan.time), off, f"{plan.bubble:.1%}", in_bytes(plan.peak) if plan.peak else "?"
    return way.mesh, way.order, way.options, *numbers, plan.limited_by


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    left = [f"{cell:<{width}}" for cell, width in zip(row[:3], widths, strict=False)]
    right = [f"{cell:>{width}}" for cell, width in zip(row[3:-1], widths[3:], strict=False)]
    return "  ".join([*left, *right, row[-1]])
