"""What a plan takes and holds at the least, so that most plans need not be simulated; all bounds on plans.

A device can do nothing before the first microbatch has come through the stages before its own. Then it has
all its actions to do, one after another. After its last backward, that microbatch still goes back, and the
gradients of the device's weights are summed over replicas, and its weights updated:

    device k   [ head ][ all that device k does ][ tail, or its ring and update ]

If weight gradients are actions of their own they may come last, and then nothing goes back after them; but
forwards and input gradients alone are followed by a tail as well. What a layer takes counts what tensor
parallelism, the host and recompute cost. ``least_time`` asks it of a mesh on average, whatever the cut,
``stage_table`` of every single stage with any layers; ``lower_bound`` holds whatever the plan.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.device import Batch
from gpipe_sim.core.layers import Layer
from gpipe_sim.core.losses import Loss
from gpipe_sim.core.optimizers import Optimizer
from gpipe_sim.core.program import CODE
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.links.links import Link, link_between
from gpipe_sim.planning.problem import Column, Columns, Cut, Problem, laid_out
from gpipe_sim.planning.space import Wanted, Way, is_split, meshes, read_degrees, read_wholes, sizes
from gpipe_sim.pricing.cluster import Cluster

F, B, I, W = (CODE[kind] for kind in (Kind.F, Kind.B, Kind.I, Kind.W))
ROUNDING = 1 - 1e-9  #: bounds are sums of floats in another order than what is simulated
Placement = tuple[tuple[int, ...], ...]


class Order(NamedTuple):
    """What bounds ask of a schedule; ``split`` and ``several`` (stages per device) are None for any.

    ``copies`` are those of each stage, 1 or 2.
    """

    devices: int
    microbatches: int
    copies: int = 1
    several: int | None = None
    split: bool | None = None

    @classmethod
    def of(cls, schedule: Schedule) -> "Order":
        held = sum(map(len, schedule.placement))
        copies = held // schedule.stages
        several = held // schedule.devices // copies
        return cls(schedule.devices, schedule.microbatches, copies, several, is_split(type(schedule)))

    def work(self, columns: Columns) -> Column:
        """All that a device does for layers."""
        return columns.apart if self.split else columns.whole

    def back(self, columns: Columns) -> Column:
        """What a gradient waits for on its way back."""
        return columns.backward if self.split is False else columns.input_grad


class Rings(NamedTuple):
    """What follows the last backward, for weights and their bytes: sums, updates and gathers.

    Of each a time that they take anyway, and one for each weight or byte: see ``pricing.sharing``.
    """

    start: float
    each: float
    update: float
    gather: float
    each_byte: float

    @classmethod
    def of(cls, problem: Problem, way: Way) -> "Rings":
        nothing, byte = problem.ring(way)
        times = {0: 1.0, 1: 0.5}.get(way.zero, 0.0)  # later, gradients are scattered in backwards
        after = 0.5 if way.zero in (1, 2) else 0.0
        each = times * byte * problem.gradient_bytes
        return cls(times * nothing, each, problem.update(way), after * nothing, after * byte)

    def sums(self, weights: Column) -> Column:
        """How long the gradients of weights are summed."""
        return self.start + self.each * weights

    def updates(self, weights: Column, size: Column) -> Column:
        """How long weights of so many bytes are updated and gathered."""
        return self.update * weights + self.gather + self.each_byte * size


def least_time(problem: Problem, way: Way, order: Order) -> float:
    """Of a step, whatever the cut."""
    columns, k, m, copies = problem.columns(way), order.devices, order.microbatches, order.copies
    overhead, hop = float(problem.cluster.accelerator.overhead), _hop(problem, way, columns)
    work, back = order.work(columns), order.back(columns)
    behind = np.arange(k) // copies  # the layers, and the stages, before a device, at the least
    heads = (columns.forward[behind] + behind * (overhead + hop)).mean()
    tails = (back[behind] + behind * (overhead + hop)).mean()
    actions, rings = 2 * m * (order.several or 1) * overhead, Rings.of(problem, way)
    weights, size = (each[-1] * copies / k for each in (columns.weights, columns.sizes))
    last = weights if order.several == 1 else np.diff(columns.weights).min()  # earlier rings may be over
    end = rings.sums(last) + rings.updates(weights, size)
    chain, all_work = m * (columns.forward[-1] + back[-1]) / k, m * work[-1] / k
    largest = columns.forward[:-1] + (m // copies) * np.diff(work)
    path = columns.forward[-1] + back[-1] + 2 * (k - 1) * (hop + overhead) / copies
    least = max(heads + all_work + actions + end, heads + chain + actions + tails, largest.max(), path)
    return float(least + problem.constants(m)) * ROUNDING


def _hop(problem: Problem, way: Way, columns: Columns) -> float:
    """How long a message between two devices of a pipeline takes at the least."""
    links = problem.links(way)
    kinds = (links,) if isinstance(links, Link) else (links.inside, links.between)
    return min(float(link.latency + link.busy(columns.message)) for link in kinds)


def stage_table(problem: Problem, way: Way, order: Order) -> np.ndarray:
    """What no step is shorter than if a stage has certain layers; (stages, layers, most layers of a stage).

    A row for each layer that it may start with, a column for each number of layers that it may then have;
    infinite where these cannot be, or hold more bytes than a device has.
    """
    columns, n, m = problem.columns(way), problem.count, order.microbatches // order.copies
    homes = homes_of(way.schedule.placement)
    stages = len(homes)
    width = n - stages + 1
    first, more = np.arange(n)[:, None], np.arange(1, width + 1)
    end = np.minimum(first + more, n)
    stage = np.arange(stages)[:, None, None]
    there = (first + more <= n - (stages - 1 - stage)) & (first >= stage)
    work, back = order.work(columns), order.back(columns)
    passed = _messages(problem, way, columns, homes)[:, None, None]
    forward, chain = columns.forward, columns.forward + back
    overhead = 2 * m * float(problem.cluster.accelerator.overhead)
    rings = Rings.of(problem, way)
    start = forward[first] + passed
    weights, size = (each[end] - each[first] for each in (columns.weights, columns.sizes))
    until_ring = m * (work[end] - work[first]) + rings.sums(weights) + rings.updates(weights, size)
    until_back = m * (chain[end] - chain[first]) + back[first] + passed
    found = start + overhead + np.maximum(until_ring, until_back) + problem.constants(order.microbatches)
    return np.where(there, found, np.inf)


def homes_of(placement: Placement) -> list[set[int]]:
    """For each stage, the devices that hold it."""
    stages = 1 + max(stage for held in placement for stage in held)
    return [{k for k, held in enumerate(placement) if stage in held} for stage in range(stages)]


def _messages(problem: Problem, way: Way, columns: Columns, homes: Sequence[set[int]]) -> Column:
    """How long the messages up to each stage take at the least, and the actions that send them."""
    links, overhead = problem.links(way), float(problem.cluster.accelerator.overhead)

    def takes(before: set[int], here: set[int]) -> float:
        if before & here:
            return overhead
        each = [link_between(links, a, b) for a in before for b in here]
        return overhead + min(float(link.latency + link.busy(columns.message)) for link in each)

    return np.cumsum([0.0, *(takes(a, b) for a, b in pairwise(homes))])


def least_bytes(problem: Problem, way: Way, cut: Cut) -> Column:
    """For each device: what is there all the time, and what its microbatches in flight keep at the most."""
    columns = problem.columns(way)
    ends = np.cumsum([0, *cut])
    low, high = ends[:-1], ends[1:]
    held = columns.entry[low] + columns.kept[high] - columns.kept[low + 1]
    pending = np.minimum(held, columns.pending[high] - columns.pending[low])
    static = np.diff(problem.static(way)[ends])
    program = laid_out(way.schedule).program
    kind, at = program.kind, program.stage
    change = np.select(
        [kind == F, kind == B, kind == I, kind == W],
        [held[at], -held[at], pending[at] - held[at], -pending[at]],
        0,
    )
    rows = pairwise(program.parts[program.rows].tolist())
    most = [np.cumsum(change[a:b]).max(initial=0) for a, b in rows]
    fixed = [static[list(held)].sum() for held in program.placement]
    return np.add(fixed, most)


def lower_bound(
    model: Sequence[Layer],
    cluster: Cluster,
    batch: Batch,
    loss: "Loss | None" = None,
    optimizer: "Optimizer | None" = None,
    *,
    tensor: "Sequence[int] | None" = None,
    replicas: "Sequence[int] | None" = None,
    microbatch: "Sequence[int] | None" = None,
    zero: Sequence[int] = (0, 1),
) -> float:
    """A time that no step takes less than, in the unit of the accelerator: see ``plan`` for the arguments.

    It holds for every order of F, B, I and W, every cut into runs of layers, any number of stages per device
    and recompute. A replica may have two copies of the model, each on all of its devices. Of K devices of
    a pipeline, which tensor parallelism may make of several each, with M equal microbatches:

    - Together they do all the work, with its sums and kernels. The j-th of them to start waits until a
      microbatch has come through j layers, or j/2 if there are two copies, and over as many links. So the
      mean of these waits, and of the work, is not more than the time that a step takes.
    - The device with the largest layer waits for the layers before it and computes it for each microbatch.
    - One microbatch goes through all layers, and back.
    - After its last backward, a device is in a ring with other replicas, and updates its weights.

    It is the least of this over all degrees and microbatches in which weights, gradients and the optimizer's
    state can fit the devices. ValueError if no degree divides, or none fits; TypeError for arguments of
    another kind.
    """
    owner = "lower_bound"
    problem = Problem(owner, model, cluster, batch, loss, optimizer)
    degrees = read_degrees(owner, cluster, tensor, replicas, microbatch)
    found = bound_of_all(problem, *degrees, read_wholes(owner, "zero", zero, 0, 3))
    if found is None:
        raise ValueError(
            f"lower_bound finds no way to deal out {problem.samples} samples and {problem.count} layers to "
            f"{cluster.devices} devices that could hold them"
        )
    return found


def bound_of_all(
    problem: Problem, tensor: Wanted, replicas: Wanted, microbatch: Wanted, zero
) -> float | None:
    """The least of all meshes and microbatches, None if there are none."""
    ways = _any_order(problem, tensor, replicas, microbatch, zero)
    return min((least_time(problem, *each) for each in ways), default=None)


def _any_order(
    problem: Problem, tensor, replicas, microbatch, wanted: Sequence[int]
) -> Iterator[tuple[Way, Order]]:
    devices = problem.cluster.devices
    order: Any = None
    for t, r in meshes(problem, tensor, replicas):
        k = devices // t // r
        for size in sizes(problem.samples, r, microbatch) if k <= problem.count else ():
            m, rest = divmod(problem.samples, r * size)
            dealing = (False, True)[: 1 + (t > 1)] if not rest else ()
            for dealt, zero in product(dealing, problem.zeros(wanted, r)):
                way = Way(t, k, r, size, order, "none", dealt, zero)
                if problem.static(way)[-1] <= k * problem.cluster.memory:
                    yield from ((way, Order(k, m, copies)) for copies in (1, 2)[: 1 + (k % 2 == 0)])
