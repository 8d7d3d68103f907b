"""How fast a step can be at the most, whatever the plan: no schedule, no cut and no layout is faster."""

from collections.abc import Iterator, Sequence

import numpy as np

from gpipe_sim.core.device import Batch
from gpipe_sim.core.layers import Layer
from gpipe_sim.core.losses import Loss
from gpipe_sim.planning.candidates import MOST_MICROBATCHES, read_counts
from gpipe_sim.planning.cluster import Cluster, quickest
from gpipe_sim.planning.layer_table import LayerTable, table_of


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


def _bounds(table: LayerTable, replicas, microbatches) -> Iterator[float]:
    samples, devices = table.profile.samples, table.cluster.devices
    for r in replicas or [n for n in range(1, devices + 1) if not devices % n]:
        k = devices // r
        if k > table.count or samples % r:
            continue
        share = samples // r
        for m in microbatches or range(1, min(share, MOST_MICROBATCHES) + 1):
            if not share % m:
                for copies in (1, 2) if k % 2 == 0 else (1,):
                    yield bound_of_mesh(table, k, r, m, copies, share // m)


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
    links, gradients = table.cluster.links, np.diff(table.gradients)
    steps, part = 2 * (copies - 1), table.gradients[-1] / k
    return tuple(steps * float(quickest(links, each / copies)) for each in (gradients.min(), part))
