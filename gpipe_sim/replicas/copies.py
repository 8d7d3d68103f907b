"""Copies of a stage: one device has the partition itself, each other one a copy of its own."""

from collections.abc import Iterator, Sequence
from copy import copy, deepcopy

from gpipe_sim.core.optimizers import Optimizer
from gpipe_sim.core.partition import Partition


def own_copies(
    partitions: Sequence[Partition],
    placement: Sequence[Sequence[int]],
    optimizer: Optimizer | None,
    homes: Sequence[Sequence[int]] = (),
) -> Iterator[tuple[dict[int, Partition], dict[int, Optimizer]]]:
    """Per device, the partitions of its stages, and the optimizers of their weights.

    If several devices hold a stage, one has the partition itself: the first that runs it, by ``homes``. The
    others get copies, and what an optimizer keeps for them is copied too.
    """
    owner = {stage: device for device, held in reversed([*enumerate(placement)]) for stage in held}
    owner |= {stage: min(ran) for stage, at in enumerate(homes) if (ran := {*at} - {-1})}
    for device, held in enumerate(placement):
        own, optimizers = {}, {}
        for stage in held:
            itself = owner[stage] == device
            own[stage] = partitions[stage] if itself else deepcopy(partitions[stage])
            if optimizer:
                optimizers[stage] = optimizer if itself else _with_own_state(optimizer, partitions[stage])
        yield own, optimizers


def _with_own_state(optimizer: Optimizer, partition: Partition) -> Optimizer:
    """The same rule; what it keeps for the weights of a partition is its own."""
    other = copy(optimizer)
    other.state = deepcopy(optimizer.prepare(partition.parameters))
    return other
