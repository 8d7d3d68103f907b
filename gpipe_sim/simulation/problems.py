"""What is wrong with a schedule, in words.

``problems`` finds everything; ``check`` raises what it finds. Simulating or running a schedule
checks it first, so a wrong one is refused with a reason and never half done.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpipe_sim.errors import DeadlockError, ScheduleError
from gpipe_sim.schedule.actions import Action, Kind
from gpipe_sim.schedule.base import Schedule, needs, require_schedule
from gpipe_sim.simulation.blocking import hangs
from gpipe_sim.simulation.deadlock import Wait, all_waits, circle, in_words, waiting

SENDS = ("buffered", "blocking")  #: a send ends at once, or when the other device receives
#: Why an action of the first kind cannot run before one of the second.
REASONS = {
    (Kind.F, Kind.F): "reads its output",
    (Kind.R, Kind.F): "does it again",
    (Kind.W, Kind.I): "finishes what it starts",
    **{(kind, Kind.F): "reads what it saves" for kind in (Kind.B, Kind.I)},
    **{(kind, Kind.R): "reads what it restores" for kind in (Kind.B, Kind.I)},
    **{(kind, other): "reads its gradient" for kind in (Kind.B, Kind.I) for other in (Kind.B, Kind.I)},
    **{(Kind.U, kind): "applies its gradient" for kind in (Kind.B, Kind.W)},
}


class Problem(NamedTuple):
    """One thing that is wrong: a short name for the rule, the action, and a sentence."""

    rule: str
    action: Action
    sentence: str


def check(schedule: Schedule, sends: str = "buffered") -> None:
    """Raise ScheduleError, or DeadlockError if the order is complete and cannot finish.

    With ``sends="blocking"`` also where it hangs if a send ends only when the other device receives.
    """
    _require_sends(sends)
    check_actions(schedule)
    if waits := waiting(schedule):
        raise DeadlockError(_listed(f"{schedule!r} cannot finish:", waits))
    if sends == "blocking" and (found := hangs(schedule)):
        raise DeadlockError(_listed(f"{schedule!r} cannot finish with blocking sends:", found, at_most=8))


def check_actions(schedule: Schedule) -> None:
    """Raise ScheduleError if actions are missing, repeated or misplaced; say the first few."""
    require_schedule("check", schedule)
    if found := list(_action_problems(schedule)):
        raise ScheduleError(_listed(f"{schedule!r} is not a training step:", found, at_most=8))


def _listed(head: str, found: Sequence, at_most: int | None = None) -> str:
    """A line for each of the first few, and how many more there are."""
    lines = [head, *(f"  {one.sentence}" for one in found[:at_most])]
    if len(lines) <= len(found):
        lines.append(f"  ... and {len(found) + 1 - len(lines)} more")
    return "\n".join(lines)


def problems(schedule: Schedule, sends: str = "buffered") -> list[Problem]:
    """Everything that is wrong with a schedule; an empty list if it is sound.

    First what is wrong with the actions, then actions that stand before what they need on their own device.
    If all actions are right, a deadlock: the shortest circle, then who is stuck where. ``sends="blocking"``
    adds where devices hang if a send ends only when the other device receives, and what to swap.
    ValueError for another ``sends``.
    """
    _require_sends(sends)
    require_schedule("problems", schedule)
    if found := list(_action_problems(schedule)):
        return [*found, *_too_early(schedule)]
    if waits := all_waits(schedule):
        return [*_too_early(schedule), *_deadlock(waits, waiting(schedule))]
    if sends == "buffered":
        return []
    return [Problem("blocking", hang.early.what, hang.sentence) for hang in hangs(schedule)]


def _require_sends(sends: str) -> None:
    if sends not in SENDS:
        raise ValueError(f"sends needs to be one of {SENDS} (got {sends!r})")


def _deadlock(waits: Sequence[Wait], first: Sequence[Wait]) -> Iterator[Problem]:
    """The shortest circle, unless a device waits for itself, which is told already; then who is stuck."""
    found = circle(waits)
    if len(found) > 1:
        yield Problem("deadlock", found[0].action, in_words(found))
    yield from (Problem("stuck", wait.action, wait.sentence) for wait in first)


def _too_early(schedule: Schedule) -> Iterator[Problem]:
    """Actions that stand before one that they need, in the row of one device."""
    for device, row in enumerate(schedule.actions):
        before: set[Action] = set()
        for action in row:
            for part in action.parts:
                for need in needs(part, schedule):
                    if schedule.device_of(need) == device and need not in before:
                        place = "in one block with" if need in action.parts else "before"
                        reason = REASONS[part.kind, need.kind]
                        text = f"{part} stands {place} {need} on device {device}, but {reason}"
                        yield Problem("order", part, text)
            before.update(action.parts)


def _action_problems(schedule: Schedule) -> Iterator[Problem]:
    """Problems that need no clock: labels, copies, gaps, places."""
    located = schedule.located
    placed = sum(len(slots) - slots.count(None) for slots in located.values())
    written = sum(len(action.parts) for row in schedule.actions for action in row)
    if placed != written:
        yield from _labels_and_copies(schedule)
    yield from _no_pairs(schedule)
    yield from _gaps(schedule)
    yield from _places(schedule)


def _no_pairs(schedule: Schedule) -> Iterator[Problem]:
    for action in (action for row in schedule.actions for action in row if len(action.parts) > 1):
        if [part.kind for part in action.parts] != [Kind.F, Kind.B]:
            text = f"{action} is no pair: a forward and a backward overlap, such as (0F3;7B1)OVERLAP_F_B"
            yield Problem("pair", action.parts[0], text)


def _labels_and_copies(schedule: Schedule) -> Iterator[Problem]:
    copies = Counter(part for row in schedule.actions for action in row for part in action.parts)
    for part, times in copies.items():
        if not schedule.contains(part):
            yield Problem(
                "out of range",
                part,
                f"{part} is out of range: stages are 0 to {schedule.stages - 1}, "
                f"microbatches 0 to {schedule.microbatches - 1}",
            )
        elif times > 1:
            yield Problem("duplicate", part, f"{part} stands {times} times; it must run once")


def _gaps(schedule: Schedule) -> Iterator[Problem]:
    """Every (stage, microbatch) runs F once, and either B or I and W, once."""
    kinds = (Kind.F, Kind.B, Kind.I, Kind.W, Kind.R)
    for slot, devices in enumerate(zip(*(schedule.located[kind] for kind in kinds), strict=True)):
        forward, full, input_grad, weight_grad, recompute = devices
        if forward == full and input_grad is weight_grad is recompute is None is not forward:
            continue
        stage, microbatch = divmod(slot, schedule.microbatches)
        yield from _gaps_of(dict(zip(kinds, devices, strict=True)), stage, microbatch)


def _gaps_of(on: dict[Kind, int | None], stage: int, microbatch: int) -> Iterator[Problem]:
    def say(rule: str, kind: Kind, text: str) -> Problem:
        action = Action(stage, kind, microbatch)
        return Problem(rule, action, f"{action} {text}")

    if on[Kind.F] is None:
        yield say("missing", Kind.F, "is missing")
    if on[Kind.B] is None and on[Kind.I] is None:
        yield say("missing", Kind.B, "is missing")
    if on[Kind.B] is not None and on[Kind.I] is not None:
        yield say("both", Kind.B, f"and {stage}I{microbatch} both stand; B is I and W in one")
    if on[Kind.I] is not None and on[Kind.W] is None:
        yield say("missing", Kind.W, f"is missing; {stage}I{microbatch} leaves it to do")
    if on[Kind.W] is not None and on[Kind.I] is None:
        yield say("missing", Kind.I, f"is missing; {stage}W{microbatch} finishes what it starts")
    home = on[Kind.F]
    for kind in (Kind.R, Kind.B, Kind.I, Kind.W):
        if None is not on[kind] != home is not None:
            forward = Action(stage, Kind.F, microbatch)
            yield say(
                "elsewhere",
                kind,
                f"is on device {on[kind]}, but what {forward} saved is on device {home}",
            )


def _places(schedule: Schedule) -> Iterator[Problem]:
    """Every action is on a device that holds its stage."""
    holders = [
        {device for device, held in enumerate(schedule.placement) if stage in held}
        for stage in range(schedule.stages)
    ]
    size = schedule.microbatches
    for kind, slots in schedule.located.items():
        for stage, allowed in enumerate(holders):
            here = slots[stage * size : (stage + 1) * size]
            for device in sorted(set(here) - allowed - {None}):
                action = Action(stage, kind, here.index(device))
                names = " and ".join(map(str, sorted(allowed)))
                text = f"{action} is on device {device}, but stage {stage} is on device {names}"
                yield Problem("misplaced", action, text)
