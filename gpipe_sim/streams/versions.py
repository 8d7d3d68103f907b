"""Which version of its weights a stage uses for each microbatch, where updates stand on the way.

A version is named by the number of updates that made it: 0 is what the step begins with. ``weights`` says
which one a stage uses for a mini-batch, for its forwards and, but for "latest", for its backwards:

    "stashed"   the version that is there when the mini-batch's first forward runs on this stage
    "vertical"  the version that is there when its first forward runs on stage 0, the same on every stage
    "double"    the version before the last mini-batch's update: j - 1 for mini-batch j, and 0 for the first
    "latest"    whatever is there when the action runs: another one in the backward than in the forward

A version is set aside by the update that would overwrite it, if an action further on in the row reads it, and
is let go when the last of these has run. W counts among them, though no layer here reads weights in it.
"""

from typing import NamedTuple

import numpy as np

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.core.program import CODE, Column, Program
from gpipe_sim.core.schedule import WEIGHTS, Schedule
from gpipe_sim.errors import one_of
from gpipe_sim.streams.updates import updates_of


class Lives(NamedTuple):
    """``reads``: the version that each action uses. ``keeps``: the updates that set aside what they replace.

    ``frees``: for each action that is the last to use such a version, which one. ``held``: by device and
    stage, how many versions there are at most, the newest among them.
    """

    reads: dict[Action, int]
    keeps: frozenset[Action]
    frees: dict[Action, int]
    held: dict[tuple[int, int], int]


def read_weights(owner: str, schedule: Schedule, weights: str | None) -> str:
    """Which of ``WEIGHTS`` to use: the schedule's first unless another is asked for.

    ValueError for one that the schedule cannot have, or if there is nothing to choose.
    """
    if weights is None:
        return schedule.weights[0]
    one_of(owner, "weights", weights, WEIGHTS)
    if Kind.U not in schedule.program.where:
        raise ValueError(
            f"{schedule!r} updates no weights on the way, so all its actions read the same and {owner} takes "
            "no weights=; PipeDream does"
        )
    if weights not in schedule.weights:
        raise ValueError(
            f"{schedule!r} is trained with weights={' or '.join(map(repr, schedule.weights))}, or it would "
            f"be another family; PipeDream can have weights={weights!r}"
        )
    return weights


def versions(program: Program, weights: str) -> Column:
    """Per part, the version of its stage's weights that it uses; for an update, the one that it replaces.

    ValueError if that version does not exist yet where the part stands.
    """
    before = updates_of(program).before
    if weights == "latest":
        return before
    reads = _choose(program, weights)[program.stage, program.microbatch]
    updates = program.kind == CODE[Kind.U]
    reads[updates] = before[updates]
    if (early := reads > before).any():
        part = int(early.argmax())
        raise ValueError(_too_early(program, weights, part, int(reads[part])))
    return reads


def _too_early(program: Program, weights: str, part: int, version: int) -> str:
    """Why a part cannot use this version, and what would help."""
    action, device = program.action_of(part), int(program.device[part])
    own = (program.stage == action.stage) & (program.device == device) & (program.kind == CODE[Kind.U])
    makes = program.action_of(int(np.flatnonzero(own)[version - 1]))
    return (
        f"weights={weights!r} has {action} use version {version} of stage {action.stage}, but {makes}, which "
        f"makes it, stands behind {action} on device {device}: put it before, or let each update have more "
        "microbatches, such as every=devices"
    )


def _choose(program: Program, weights: str) -> Column:
    """By stage and microbatch, the version for it: one for a mini-batch."""
    mini_batch = updates_of(program).mini_batch
    if weights == "double":
        return np.maximum(mini_batch - 1, 0)
    forwards = program.kind == CODE[Kind.F]
    stage, microbatch = program.stage[forwards], program.microbatch[forwards]
    own = mini_batch[stage, microbatch]
    found = np.full((program.stages, updates_of(program).count), np.iinfo(np.int32).max, np.int32)
    np.minimum.at(found, (stage, own), updates_of(program).before[forwards])
    if weights == "vertical":
        found[:] = found[0]
    return np.take_along_axis(found, mini_batch, axis=1)


def lives(program: Program, weights: str) -> Lives:
    """When each version is used, set aside and let go."""
    reads = versions(program, weights).tolist()
    actions = list(map(program.action_of, range(len(program.kind))))
    places = list(zip(program.device.tolist(), program.stage.tolist(), strict=True))
    #: (device, stage, version) -> the last part that uses it, or the update that replaces it
    last = {(*place, reads[part]): part for part, place in enumerate(places)}
    keeps, frees, held = set[Action](), dict[Action, int](), dict[tuple[int, int], int]()
    aside: dict[tuple[int, int], set[int]] = {}  # by place, the versions that are set aside
    for part, (place, version) in enumerate(zip(places, reads, strict=True)):
        kept, action = aside.setdefault(place, set()), actions[part]
        if action.kind is Kind.U:
            if last[*place, version] > part:
                keeps.add(action)
                kept.add(version)
        elif version in kept and last[*place, version] == part:
            frees[action] = version
            kept.discard(version)
        held[place] = max(held.get(place, 1), 1 + len(kept))
    return Lives(dict(zip(actions, reads, strict=True)), frozenset(keeps), frees, held)
