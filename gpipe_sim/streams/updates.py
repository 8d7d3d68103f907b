"""Updates on the way: which microbatches each applies, and how many an action comes after.

The updates of a stage cut its microbatches into mini-batches: each has the gradients that are made between
one update and the next. Device 1 of PipeDream on two devices, with an update for each microbatch, or for
every two of them; below, how many updates stand before each action:

    1F0 1B0 1U0 1F1 1B1 1U1 1F2 1B2 1U2        1F0 1B0 1F1 1B1 1U1 1F2 1B2 1F3 1B3 1U3
     0   0       1   1       2   2              0   0   0   0       1   1   1   1
    mini-batches: 0 | 1 | 2                    mini-batches: 0 1 | 2 3
"""

from dataclasses import dataclass

import numpy as np

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.lowering import offsets
from gpipe_sim.core.program import CODE, Column, Program


@dataclass(frozen=True, eq=False)
class Updates:
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
        found: list[list[int]] = [[] for _ in range(self.count)]
        for microbatch in np.flatnonzero(self.mini_batch[0] >= 0).tolist():
            found[self.mini_batch[0, microbatch]].append(microbatch)
        return tuple(map(tuple, found))


def updates_of(program: Program) -> Updates:
    """The updates of a program whose labels are in range."""
    return program.once(_updates)


def _updates(program: Program) -> Updates:
    gradients = program.makes_gradients
    before = updates_before(program.device, program.stage, program.kind == CODE[Kind.U])
    mini_batch = np.full((program.stages, program.microbatches), -1, np.int32)
    mini_batch[program.stage[gradients], program.microbatch[gradients]] = before[gradients]
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


def needs_of_updates(
    needs_from: Column, needs: Column, kind: Column, stage: Column, device: Column
) -> tuple[Column, Column]:
    """An update also needs the last gradient of each other copy of its stage: what it applies is their sum.

    The nth update of one copy goes with the nth of another. Nothing crosses for that need; how the sum gets
    there is not in an order (``replicas.all_reduce``).
    """
    updates, gradients = kind == CODE[Kind.U], np.isin(kind, (CODE[Kind.B], CODE[Kind.W]))
    copies = set(zip(stage[gradients].tolist(), device[gradients].tolist(), strict=True))
    if len(copies) == len({own for own, _ in copies}):
        return needs_from, needs  # no stage has two
    keys = list(zip(stage.tolist(), updates_before(device, stage, updates).tolist(), strict=True))
    last: dict[tuple[int, int], dict[int, int]] = {}  # by stage and mini-batch, of each copy
    for part in np.flatnonzero(gradients).tolist():
        last.setdefault(keys[part], {})[int(device[part])] = part
    places, more = [], []
    for part in np.flatnonzero(updates).tolist():
        others = [other for where, other in last.get(keys[part], {}).items() if where != device[part]]
        places += [part] * len(others)
        more += others
    sizes = np.diff(needs_from) + np.bincount(places, minlength=len(kind)).astype(np.int32)
    return offsets(sizes), np.insert(needs, needs_from[1:][places], more)
