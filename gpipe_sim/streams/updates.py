"""Updates on the way: which microbatches each applies, and how many an action comes after.

The updates of a stage cut its microbatches into mini-batches: each has the gradients that are made between
one update and the next. Device 1 of PipeDream on two devices, with an update for each microbatch, or for
every two of them; below, how many updates stand before each action:

    1F0 1B0 1U0 1F1 1B1 1U1 1F2 1B2 1U2        1F0 1B0 1F1 1B1 1U1 1F2 1B2 1F3 1B3 1U3
     0   0       1   1       2   2              0   0   0   0       1   1   1   1
    mini-batches: 0 | 1 | 2                    mini-batches: 0 1 | 2 3
"""

from typing import NamedTuple

import numpy as np

Column = np.ndarray


class Updates(NamedTuple):
    """``before``: per part, how many updates of its stage stand before it in the row of its device.

    ``mini_batch``: (stages, microbatches), which mini-batch applies this gradient; -1 where there is none.
    ``count``: how many mini-batches there are.
    """

    before: Column
    mini_batch: Column
    count: int

    @property
    def members(self) -> tuple[tuple[int, ...], ...]:
        """The microbatches of each mini-batch."""
        found = [[] for _ in range(self.count)]
        for microbatch in np.flatnonzero(self.mini_batch[0] >= 0).tolist():
            found[self.mini_batch[0, microbatch]].append(microbatch)
        return tuple(map(tuple, found))


def find_updates(
    device: Column,
    stage: Column,
    microbatch: Column,
    updates: Column,
    gradients: Column,
    shape: tuple[int, int],
) -> Updates:
    """Per part where it is, and whether it is an update, or makes the gradient of the weights."""
    before = updates_before(device, stage, updates)
    mini_batch = np.full(shape, -1, np.int32)
    mini_batch[stage[gradients], microbatch[gradients]] = before[gradients]
    return Updates(before, mini_batch, 1 + int(mini_batch.max(initial=0)))


def updates_before(device: Column, stage: Column, updates: Column) -> Column:
    """For each part, how many updates of its stage stand before it in the row of its device."""
    if not updates.any():
        return np.zeros(len(stage), np.int32)
    stages, of_stage = np.unique(stage, return_inverse=True)  # a label may be wrong, and huge
    place = device.astype(np.int64) * len(stages) + of_stage
    order = np.argsort(place, kind="stable")  # place after place, each in the order of its row
    total = np.cumsum(updates[order]) - updates[order]
    first = np.searchsorted(place[order], place[order], "left")
    before = np.empty(len(order), np.int32)
    before[order] = total - total[first]
    return before
