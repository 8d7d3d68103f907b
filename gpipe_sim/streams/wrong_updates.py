"""What is wrong with the updates of a schedule, in words.

Each must have what it applies, and all of it; and all stages, and all copies of a stage, must update alike.
"""

from collections.abc import Iterator

import numpy as np

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.core.program import CODE, Column, Program
from gpipe_sim.streams.updates import updates_of

Wrong = tuple[Action, str]


def wrong_updates(program: Program) -> Iterator[Wrong]:
    """Each wrong update, or gradient that no update would apply, and a sentence.

    Nothing of a program that is wrong in a way that ``problems`` reports without looking at updates.
    """
    if Kind.U not in program.where or not program.in_range:
        return
    homes = program.homes(Kind.F)
    parts = np.flatnonzero(program.kind == CODE[Kind.U])
    places = sorted({(int(program.device[part]), int(program.stage[part])) for part in parts})
    for device, stage in places:
        if (homes[stage] < 0).all() or stage not in program.placement[device]:
            return  # a forward is missing or the update misplaced, which is reported
    found = list(_parted_copies(program, homes, parts))
    early = _early(program)
    for device, stage in places:
        found += _of_row(program, device, stage, early)
    yield from found or (() if early else _unlike(program, {stage for _, stage in places}))


def _early(program: Program) -> frozenset[int]:
    """The updates that stand before a gradient that they apply, in one row, which is reported."""
    owner, needs, entries = program.owner, program.needs, program.first
    updates = program.kind[entries][owner] == CODE[Kind.U]
    here = program.device[needs] == program.device[entries][owner]
    return frozenset(entries[owner[updates & here & (program.entry[needs] >= owner)]].tolist())


def _parted_copies(program: Program, homes: Column, updates: Column) -> Iterator[Wrong]:
    """Each copy of a stage is updated, or none is; and all as often, or their weights would differ."""
    for stage in np.unique(program.stage[updates]).tolist():
        own = updates[program.stage[updates] == stage]
        copies = sorted(set(homes[stage].tolist()) - {-1})
        on = {device: own[program.device[own] == device].tolist() for device in copies}
        most, least = (choose(copies, key=lambda device: len(on[device])) for choose in (max, min))
        times = len(on[least])
        if len(on[most]) == times:
            continue
        last = program.action_of(on[most][times])
        yield (
            last,
            f"{last} is update {times} of stage {stage} on device {most}, but its copy on device {least} has "
            f"only {times}, counted from 0: update all copies alike",
        )


def _of_row(program: Program, device: int, stage: int, early: frozenset[int]) -> Iterator[Wrong]:
    """An update applies what came since the last one, its own microbatch's gradient too; nothing is left."""
    before, here = updates_of(program).before, (program.stage == stage) & (program.device == device)
    updates = np.flatnonzero(here & (program.kind == CODE[Kind.U]))
    gradients = np.flatnonzero(here & program.makes_gradients)
    applies = dict(zip(program.microbatch[gradients].tolist(), before[gradients].tolist(), strict=True))
    for part in updates.tolist():
        action = program.action_of(part)
        m, again = action.microbatch, program.part_of(action) != part  # which is reported
        if applies.get(m) != before[part] and not again and part not in early:
            why = f": an earlier update of stage {stage} did it" if m in applies else ""
            yield action, f"{action} has no gradient of microbatch {m} to apply on device {device}{why}"
    left = gradients[before[gradients] == len(updates)].tolist()
    if left and not early:
        action, s = program.action_of(left[-1]), "es" if left[1:] else ""
        text = f"{action} is behind the last update of stage {stage} on device {device}, which would never "
        yield (
            action,
            text + f"apply the gradient of microbatch{s} {' '.join(map(str, program.microbatch[left]))}",
        )


def _unlike(program: Program, updated: set[int]) -> Iterator[Wrong]:
    """Every stage is updated, if one is, and after the same microbatches."""
    alike = "all stages update after the same microbatches"
    mini_batch, one = updates_of(program).mini_batch, min(updated)
    for stage, own in enumerate(mini_batch):
        if stage not in updated:
            text = f"stage {stage} is never updated, but stage {one} is: {alike}"
        elif (apart := own != mini_batch[one]).any():
            m = int(apart.argmax())
            text = (
                f"the gradient of microbatch {m} goes into update {own[m]} of stage {stage}, "
                f"but into update {mini_batch[one, m]} of stage {one}: {alike}"
            )
        else:
            continue
        yield Action(stage, Kind.U, program.microbatches - 1), text
        return
