"""What a plan takes and holds at the least, so that most plans need not be simulated; all bounds on plans.

``least_time`` needs no order. A device can do nothing before the first microbatch has come through the stages
before its own. Then it has all its actions to do, one after another. After its last backward, that microbatch
still goes back:

    device k   [ head ][ all that device k does ][ tail, or its all-reduce ]

If weight gradients are actions of their own they may come last, and then nothing goes back after them; but
forwards and input gradients alone are followed by a tail as well.

``least_bytes`` are running sums over a device's row: no layer is asked, so it is quick. Messages that wait,
the outputs and what the loss keeps are left out, and so is what exists only inside an action. What is left is
nearly all.

``lower_bound`` holds whatever the plan: no schedule, no cut and no layout is faster.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.device import Batch
from gpipe_sim.core.layers import Layer
from gpipe_sim.core.losses import Loss
from gpipe_sim.core.program import CODE, Program
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.errors import Real
from gpipe_sim.planning.cluster import Wanted, divisors, equal_cuts, quickest, read_counts
from gpipe_sim.planning.layer_table import LayerTable, Stages, table_of
from gpipe_sim.planning.step_time import Placement, stages_used
from gpipe_sim.pricing.cluster import Cluster

Column = np.ndarray
F, B, I, W = (CODE[kind] for kind in (Kind.F, Kind.B, Kind.I, Kind.W))


def least_time(
    schedule: Schedule, split: bool, recompute: bool, stages: Stages, overhead: float, rings: Sequence[Real]
) -> float:
    """Of a step; ``split``: whether W is an action of its own.

    ``rings``: how long the all-reduce of each stage takes. They follow its last backward.
    """
    placement, m = schedule.placement, schedule.microbatches
    near = _neighbours(placement, len(stages.forward))
    forward = stages.forward + overhead
    again = forward if recompute else 0
    back = stages.input_grad + overhead + (0 if split else stages.weight_grad)
    weight = stages.weight_grad if split else 0  # its overhead may be that of a full backward
    head = _before(forward, np.where(near, 0, stages.arrives))
    tail = _before(back, np.where(near, 0, np.roll(stages.returns, 1)))
    chain, all_work = m * (forward + again + back), m * (forward + again + back + weight)
    held = np.array(placement)
    # of copies, each has a share of the microbatches, so a device works on its stages in turn
    together: np.ufunc = np.minimum if held.size > len(stages.forward) else np.add
    start, end, ring = (each[held].min(axis=1) for each in (head, tail, np.array(rings, float)))
    until_last_backward = start + together.reduce(chain[held], axis=1) + end
    until_ring = start + together.reduce(all_work[held], axis=1) + ring
    return max(until_last_backward.max(), until_ring.max())


def _before(takes: Column, arrives: Column) -> Column:
    """For each stage, all stages before it, and the messages up to it."""
    return np.cumsum(takes) - takes + np.cumsum(arrives)


def _neighbours(placement: Placement, stages: int) -> Column:
    """Whether a stage and the one before it may be on one device, with no message between them."""
    near = np.zeros(stages, bool)
    for held in map(set, placement):
        near[[stage for stage in held if stage - 1 in held]] = True
    return near


def static_bytes(schedule: Schedule, stages: Stages) -> Column:
    """For each device its weights, what an optimizer keeps for them, and the gradients that it makes."""
    both = zip(schedule.placement, stages_used(schedule), strict=True)
    return np.array(
        [stages.fixed[list(held)].sum() + stages.gradients[list(used)].sum() for held, used in both]
    )


def least_bytes(program: Program, stages: Stages, recompute: bool) -> Column:
    """For each device of an order without R; with ``recompute``, as if an R stood before each backward."""
    at, kind = program.stage, program.kind
    whole = stages.saved + np.where(stages.saves_input, stages.boundary, 0)
    kept = stages.boundary if recompute else whole
    change = np.select(
        [kind == F, kind == B, kind == I, kind == W],
        [kept[at], -kept[at], stages.pending[at] - kept[at], -stages.pending[at]],
        0,
    )
    first = _first_gradients(program)
    change[first] += stages.gradients[at[first]]
    again = np.where((kind == B) | (kind == I), (whole - kept)[at], 0)  # what an R adds
    change, again = (np.add.reduceat(column, program.first) for column in (change, again))
    found = []
    for device, (a, b) in enumerate(pairwise(program.rows.tolist())):
        fixed = stages.fixed[list(program.placement[device])].sum()
        after = np.cumsum(change[a:b])
        before = after - change[a:b] + again[a:b]
        found.append(fixed + max(after.max(initial=0), before.max(initial=0)))
    return np.array(found)


def _first_gradients(program: Program) -> Column:
    """Of each device and stage, the part that makes its gradients first."""
    makes = np.flatnonzero((program.kind == B) | (program.kind == W))
    keys = program.device[makes].astype(np.int64) * program.stages + program.stage[makes]
    return makes[np.unique(keys, return_index=True)[1]]


def lower_bound(
    layers: Sequence[Layer],
    cluster: Cluster,
    batch: Batch,
    loss: Loss,
    *,
    replicas: Sequence[int] | None = None,
    microbatches: Sequence[int] | None = None,
) -> float:
    """A time that no step takes less than, in the unit of the accelerator: see ``plan`` for the arguments.

    It holds for every order of F, B, I and W, every cut into runs of layers, and any number of stages per
    device. A replica may have two copies of the model, each on all of its devices. Of K devices of a replica
    with M equal microbatches:

    - Together they do all the work. The j-th of them to start waits until a microbatch has come through j
      layers, or j/2 if there are two copies, and over as many links. So the mean of these waits, and of the
      work, is not more than the time that a step takes.
    - The device with the largest layer waits for the layers before it and computes it for each microbatch.
    - One microbatch goes through all layers, and back.
    - After its last backward, a device is in a ring with other replicas: that of one layer at the least.
      The rings of a device come one after another.

    It is the least of this over all K, M and replicas. Recompute and memory can only make a step longer.
    ValueError if no mesh and no number of microbatches divides; TypeError for arguments of another kind.
    """
    return bound_of_all(table_of("lower_bound", layers, cluster, batch, loss), replicas, microbatches)


def bound_of_all(
    table: LayerTable, replicas: Sequence[int] | None, microbatches: Sequence[int] | None
) -> float:
    """The least of all meshes and microbatches."""
    found = list(_bounds(table, *read_counts("lower_bound", table.cluster, replicas, microbatches)))
    if not found:
        raise ValueError(
            f"lower_bound finds no way to cut {table.profile.samples} samples and {table.count} layers "
            f"for {table.cluster.devices} devices"
        )
    return min(found)


def _bounds(table: LayerTable, replicas: Wanted, microbatches: Wanted) -> Iterator[float]:
    samples, devices = table.profile.samples, table.cluster.devices
    for r in replicas or divisors(devices):
        k = devices // r
        for m in equal_cuts(samples, r, microbatches) if k <= table.count else ():
            if not samples % (r * m):
                for copies in (1, 2) if k % 2 == 0 else (1,):
                    yield bound_of_mesh(table, k, r, m, copies, samples // r // m)


def bound_of_mesh(table: LayerTable, k: int, r: int, m: int, copies: int, size: int) -> float:
    """Of a mesh of k devices and r replicas, with m microbatches of a size, for each replica."""
    cluster = table.cluster
    per_sample = size / float(cluster.accelerator.flops)
    overhead, hop = float(cluster.accelerator.overhead), float(quickest(cluster.links, 0))
    forward = table.forward * per_sample
    work = forward + (table.input_grad + table.weight_grad) * per_sample
    before = np.arange(k) // copies
    waits = forward[before] + before * (overhead + hop)
    ring = _ring(table, r * copies, k)
    together = (waits.sum() + m * work[-1]) / k + 2 * m * overhead
    largest = (forward[:-1] + m * np.diff(work) / copies).max() + 2 * (m // copies) * overhead
    path = forward[-1] + table.input_grad[-1] * per_sample + 2 * k * overhead + 2 * (k - 1) * hop
    return float(max(together + ring[0], largest, path, ring[1]))


def _ring(table: LayerTable, copies: int, k: int) -> tuple[float, float]:
    """(how long a device's last ring takes, how long all of the busiest device take): at the least."""
    if copies == 1:
        return 0.0, 0.0
    links, smallest, part = table.cluster.links, np.diff(table.gradients).min(), table.gradients[-1] / k
    last, every = (2 * (copies - 1) * float(quickest(links, each / copies)) for each in (smallest, part))
    return last, every
