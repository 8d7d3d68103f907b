"""What is wrong with a schedule, in words.

``problems`` lists everything that is wrong; ``check`` raises an error if anything is. Every schedule is
checked before it is simulated or run, so a wrong one is refused with a reason and never half run.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from gpipe_sim.core.actions import Action, Kind, OverlapFB
from gpipe_sim.core.deadlock import Wait, all_waits, cycle, in_words, waiting
from gpipe_sim.core.hooks import Hook
from gpipe_sim.core.program import Program
from gpipe_sim.core.schedule import Schedule, needs, require_schedule
from gpipe_sim.errors import DeadlockError, ScheduleError, one_of

HALVES = {Kind.I, Kind.W}
SENDS = ("buffered", "blocking")  #: a send ends at once, or only when the other device receives
#: Why an action of the first kind cannot run before an action of the second.
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
    """One thing that is wrong: a short name for the rule that is broken, the action, and a sentence."""

    rule: str
    action: Action | OverlapFB
    sentence: str


class Queues(Protocol):
    """Programs of sends and receives, run as far as they can: what is wrong, and where each device is then.

    ``rows`` has what each device does, one after the other, in words and by kind; ``stuck`` and ``waits`` say
    where in them it is, as in ``core.deadlock``.
    """

    error: ScheduleError | None
    problems: list[Problem]
    rows: Sequence[Sequence[tuple[str, Kind]]]
    stuck: dict[int, int]
    waits: Sequence[Wait]


#: Given (owner, programs, sends): what comes of the programs of devices, or of a schedule whose sends block.
QUEUES: Hook[Callable[[str, object, str], Queues]] = Hook("queues", "a program of sends and receives")
#: What is wrong with the updates of a program: the action, and a sentence.
WRONG_UPDATES: Hook[Callable[[Program], Iterator[tuple[Action, str]]]] = Hook(
    "wrong_updates", "a schedule with updates, such as 0U0,"
)


def check(schedule: Schedule | Iterable, sends: str = "buffered") -> None:
    """Raise ScheduleError if the actions are wrong, DeadlockError if they are right but cannot all run.

    >>> gp.check(gp.GPipe(4, 8))
    >>> gp.check(gp.Explicit(["0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"]))
    Traceback (most recent call last):
        ...
    gpipe_sim.errors.DeadlockError: Explicit(devices=2, microbatches=2) cannot finish:
      device 0 is stuck at 0B0: it needs 1B0 (queued on device 1)
      device 1 is stuck at 1F1: it needs 0F1 (queued on device 0)

    With ``sends="blocking"``, also raise DeadlockError if devices hang because a send ends only when the
    other device receives. ValueError for another ``sends``.

    It also takes programs of sends and receives, in any form that ``device_programs`` takes, and then raises
    what ``run_programs`` would, for a model whose stages keep their inputs, as most do.
    """
    one_of("check", "sends", sends, SENDS)
    if isinstance(schedule, Schedule):
        check_actions(schedule)
        if waits := waiting(schedule):
            raise DeadlockError(in_lines(f"{schedule!r} cannot finish:", waits, at_most=32))
        if sends == "buffered":
            return
    if error := QUEUES.filled("check", schedule, sends).error:
        raise error


def check_actions(schedule: Schedule) -> None:
    """Raise ScheduleError, naming the first few, if actions are missing, repeated or misplaced."""
    require_schedule("check", schedule)
    if found := schedule.program.once(_action_problems):
        raise ScheduleError(in_lines(f"{schedule!r} is not a training step:", found, at_most=8))


def in_lines(head: str, found: Sequence, at_most: int | None = None) -> str:
    """A line for each of the first few, and how many more there are."""
    lines = [head, *(f"  {one.sentence}" for one in found[:at_most])]
    if len(lines) <= len(found):
        lines.append(f"  ... and {len(found) + 1 - len(lines)} more")
    return "\n".join(lines)


def problems(schedule: Schedule | Iterable, sends: str = "buffered") -> list[Problem]:
    """Everything that is wrong with a schedule; an empty list if nothing is.

    >>> gp.problems(gp.GPipe(4, 8))
    []
    >>> gp.problems(gp.Explicit(["0B0 0F0", "1F0 1B0"]))[0].sentence
    '0B0 stands before 0F0 on device 0, but reads what it saves'

    It lists wrong actions first, then actions that stand before something that they need in the row of their
    own device. If all actions are right but deadlock, it gives the shortest cycle and then what each device
    is stuck at. If there is no deadlock either, ``sends="blocking"`` adds where devices hang because a send
    ends only when the other device receives, and what to swap. ValueError for another ``sends``.

    Of programs, as ``check`` takes them, it lists what stops them first, device by device; then each send and
    receive whose other end no program has, and what is wrong with their actions, as of a schedule.
    """
    one_of("problems", "sends", sends, SENDS)
    if isinstance(schedule, Schedule):
        if found := schedule.program.once(_action_problems):
            return [*found, *_too_early(schedule)]
        if waits := all_waits(schedule):
            return [*_too_early(schedule), *_deadlock(waits, waiting(schedule))]
        if sends == "buffered":
            return []
    return QUEUES.filled("problems", schedule, sends).problems


def _deadlock(waits: Sequence[Wait], first: Sequence[Wait]) -> Iterator[Problem]:
    """The shortest cycle, then who is stuck. A device that waits for itself is left to ``_too_early``."""
    found = cycle(waits)
    if len(found) > 1:
        yield Problem("deadlock", found[0].action, in_words(found))
    yield from (Problem("stuck", wait.action, wait.sentence) for wait in first)


def _too_early(schedule: Schedule) -> Iterator[Problem]:
    """Actions that stand before an action that they need, in the row of one device."""
    program = schedule.program
    places = program.position[program.first][program.owner]
    here = program.device[program.needs] == program.device[program.first][program.owner]
    early = here & (program.position[program.needs] >= places)
    for entry in np.unique(program.owner[early]).tolist():
        parts, device = program.entry_of(entry).parts, int(program.device[program.parts[entry]])
        for part in parts:
            for need in needs(part, schedule):
                index = program.part_of(need)
                if program.device[index] == device and program.entry[index] >= entry:
                    place, reason = "before", REASONS[part.kind, need.kind]
                    if need in parts:
                        place = "in one block with"
                    text = f"{part} stands {place} {need} on device {device}, but {reason}"
                    yield Problem("order", part, text)


def _action_problems(program: Program) -> list[Problem]:
    """Problems that one sees without running the order: labels, copies, pairs, gaps, places, updates."""
    found = [
        problem
        for problems_of in (_out_of_range, _copies, _no_pairs, _gaps, _places)
        for problem in problems_of(program)
    ]
    if Kind.U in program.where:
        found += [Problem("update", *wrong) for wrong in WRONG_UPDATES.filled(program)]
    return found


def _out_of_range(program: Program) -> Iterator[Problem]:
    if program.in_range:
        return
    for part in dict.fromkeys(map(program.action_of, range(len(program.kind)))):
        if not (0 <= part.stage < program.stages and 0 <= part.microbatch < program.microbatches):
            text = (
                f"{part} is out of range: stages are 0 to {program.stages - 1}, "
                f"microbatches 0 to {program.microbatches - 1}"
            )
            yield Problem("out of range", part, text)


def _copies(program: Program) -> Iterator[Problem]:
    """Actions that stand more than once. If there are any, ``where``, which lists each once, is shorter."""
    once = sum(np.count_nonzero(table >= 0) for table in program.where.values())
    if program.in_range and once == len(program.kind):
        return
    copies = Counter(map(program.action_of, range(len(program.kind))))
    for part, times in copies.items():
        if times > 1 and program.part_of(part) >= 0:
            yield Problem("duplicate", part, f"{part} stands {times} times; it must run once")


def _no_pairs(program: Program) -> Iterator[Problem]:
    for entry in map(program.entry_of, np.flatnonzero(np.diff(program.parts) > 1).tolist()):
        if [part.kind for part in entry.parts] != [Kind.F, Kind.B]:
            text = f"{entry} is no pair: a forward and a backward overlap, such as (0F3;7B1)OVERLAP_F_B"
            yield Problem("pair", entry.parts[0], text)


def _gaps(program: Program) -> Iterator[Problem]:
    """What is missing or apart: a (stage, microbatch) needs F, and B or else I and W, all on one device."""
    on = {kind: program.homes(kind) for kind in (Kind.F, Kind.B, Kind.I, Kind.W, Kind.R)}
    home, split = on[Kind.F], on[Kind.I] >= 0
    whole, halves = np.where(split, -1, home), np.where(split, home, -1)
    sound = (home >= 0) & (on[Kind.B] == whole) & (on[Kind.I] == halves) & (on[Kind.W] == halves)
    sound &= (on[Kind.R] == home) | (on[Kind.R] < 0)
    for stage, microbatch in np.argwhere(~sound).tolist():
        found = {kind: int(devices[stage, microbatch]) for kind, devices in on.items()}
        yield from _gaps_of(found, stage, microbatch)


def _gaps_of(on: dict[Kind, int], s: int, m: int) -> Iterator[Problem]:
    """``on``: kind -> the device that runs it for this stage and microbatch, -1 if none does."""

    def say(rule: str, kind: Kind, text: str) -> Problem:
        return Problem(rule, Action(s, kind, m), f"{s}{kind}{m} {text}")

    there = {kind for kind, device in on.items() if device >= 0}
    rules = (
        (Kind.F not in there, "missing", Kind.F, "is missing"),
        (not there & {Kind.B, Kind.I}, "missing", Kind.B, "is missing"),
        (there >= {Kind.B, Kind.I}, "both", Kind.B, f"and {s}I{m} both stand; B is I and W in one"),
        (there & HALVES == {Kind.I}, "missing", Kind.W, f"is missing; {s}I{m} leaves it to do"),
        (there & HALVES == {Kind.W}, "missing", Kind.I, f"is missing; {s}W{m} finishes what it starts"),
    )
    yield from (say(rule, kind, text) for wrong, rule, kind, text in rules if wrong)
    for kind in (Kind.R, Kind.B, Kind.I, Kind.W):
        if {kind, Kind.F} <= there and on[kind] != on[Kind.F]:
            text = f"is on device {on[kind]}, but what {s}F{m} saved is on device {on[Kind.F]}"
            yield say("elsewhere", kind, text)


def _places(program: Program) -> Iterator[Problem]:
    """Actions on a device that does not hold their stage; the first of each kind, stage and device."""
    holds = np.zeros((program.devices, program.stages), bool)
    for device, held in enumerate(program.placement):
        holds[device, list(held)] = True
    if program.in_range and holds[program.device, program.stage].all():
        return
    for kind in Kind:
        homes = program.homes(kind)
        stage, microbatch = np.nonzero((homes >= 0) & ~holds[homes, np.arange(program.stages)[:, None]])
        told = set()
        for action in map(Action, stage.tolist(), [kind] * len(stage), microbatch.tolist()):
            device = int(homes[action.stage, action.microbatch])
            if (action.stage, device) not in told:
                told.add((action.stage, device))
                names = " and ".join(map(str, np.flatnonzero(holds[:, action.stage])))
                text = f"{action} is on device {device}, but stage {action.stage} is on device {names}"
                yield Problem("misplaced", action, text)
