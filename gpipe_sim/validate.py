"""What is wrong with a schedule, in words.

``problems`` finds everything; ``check`` raises what it finds. Simulating or running a schedule
checks it first, so a wrong one is refused with a reason and never half done.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from gpipe_sim.actions import Action, Kind, OverlapFB
from gpipe_sim.schedule import Schedule, needs


class ScheduleError(ValueError):
    """The schedule cannot mean a training step; the message says why."""


class DeadlockError(ScheduleError):
    """Every action is there, but the devices end up waiting for each other."""


class Problem(NamedTuple):
    """One thing that is wrong: a short name for the rule, the action, and a sentence."""

    rule: str
    action: Action
    sentence: str


class Wait(NamedTuple):
    """A device that cannot go on: its next action needs another, which stands at ``place`` in its queue."""

    device: int
    action: Action | OverlapFB
    need: Action
    other: int
    place: int

    @property
    def sentence(self) -> str:
        needed = f"{self.need} (queued on device {self.other})"
        return f"device {self.device} is stuck at {self.action}: it needs {needed}"


def check(schedule: Schedule) -> None:
    """Raise ScheduleError, or DeadlockError if the order is complete and cannot finish."""
    check_actions(schedule)
    if waits := waiting(schedule):
        lines = [f"{schedule!r} cannot finish:", *(f"  {wait.sentence}" for wait in waits)]
        raise DeadlockError("\n".join(lines))


def check_actions(schedule: Schedule, at_most: int = 8) -> None:
    """Raise ScheduleError if actions are missing, repeated or misplaced; say the first few."""
    found = list(_action_problems(schedule))
    if found:
        lines = [f"{schedule!r} is not a training step:"]
        lines += [f"  {problem.sentence}" for problem in found[:at_most]]
        if len(found) > at_most:
            lines.append(f"  ... and {len(found) - at_most} more")
        raise ScheduleError("\n".join(lines))


def problems(schedule: Schedule) -> list[Problem]:
    """Everything that is wrong with a schedule; an empty list if it is sound."""
    found = list(_action_problems(schedule))
    return found or [Problem("deadlock", wait.action, wait.sentence) for wait in waiting(schedule)]


def _action_problems(schedule: Schedule) -> Iterator[Problem]:
    """Problems that need no clock: labels, copies, gaps, places."""
    located = schedule.located
    placed = sum(len(slots) - slots.count(None) for slots in located.values())
    written = sum(len(action.parts) for row in schedule.actions for action in row)
    if placed != written:
        yield from _labels_and_copies(schedule)
    yield from _gaps(schedule)
    yield from _places(schedule)


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


def blocked(schedule: Schedule) -> dict[int, int]:
    """Which devices cannot finish: device -> index in its row of the action it is stuck at.

    Empty if the order can finish. Each device runs its row as far as it can; whoever waits is woken
    by the action that it waits for.
    """
    done: set[Action] = set()
    at = [0] * schedule.devices
    waiting: dict[Action, list[int]] = {}
    runnable = list(range(schedule.devices))
    while runnable:
        device = runnable.pop()
        for action in schedule.actions[device][at[device] :]:
            if missing := next((n for n in needs(action, schedule) if n not in done), None):
                waiting.setdefault(missing, []).append(device)
                break
            at[device] += 1
            for part in action.parts:
                done.add(part)
                runnable += waiting.pop(part, ())
    return {d: i for d, i in enumerate(at) if i < len(schedule.actions[d])}


def waiting(schedule: Schedule) -> list[Wait]:
    """For each device that cannot finish, what it is stuck at and what it waits for; else nothing."""
    stuck = blocked(schedule)
    return [_wait(schedule, device, schedule.actions[device][at], stuck) for device, at in stuck.items()]


def _wait(schedule: Schedule, device: int, action: Action | OverlapFB, stuck: dict[int, int]) -> Wait:
    """The first of its needs that is not done."""
    waits = (Wait(device, action, need, *_place(schedule, need)) for need in needs(action, schedule))
    return next(wait for wait in waits if wait.other in stuck and wait.place >= stuck[wait.other])


def _place(schedule: Schedule, part: Action) -> tuple[int, int]:
    """The device on whose row an action stands, and where in it."""
    device = schedule.device_of(part)
    return device, next(i for i, action in enumerate(schedule.actions[device]) if part in action.parts)
