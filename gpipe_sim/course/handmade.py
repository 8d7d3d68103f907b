"""Rows that a student's function made: a list for each device, of tuples (stage, kind, microbatch)."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Integral

from gpipe_sim.course.called import called
from gpipe_sim.course.reply import Reply, keep_working
from gpipe_sim.schedule.actions import Action, Kind
from gpipe_sim.schedule.base import Schedule
from gpipe_sim.schedule.explicit import Explicit

Tuple = tuple[int, str, int]
Rows = list[list[Tuple]]


def rows_of(schedule: Schedule) -> Rows:
    """The library's rows as lists; its actions are tuples that equal those of the lessons."""
    return [list(row) for row in schedule.actions]


def as_schedule(rows: Rows, placement: Sequence[Sequence[int]] | None = None) -> Explicit:
    """The rows as a schedule of the library."""
    actions = [[Action(stage, Kind[kind], m) for stage, kind, m in row] for row in rows]
    return Explicit(actions, placement=placement)


def spelled(action: Tuple) -> str:
    stage, kind, m = action
    return f"{stage}{kind}{m}"


def in_a_row(actions: Iterable[Tuple], most: int = 6) -> str:
    """The first of the actions as the lessons write them, and the end of a sentence."""
    actions = list(actions)
    return " ".join(map(spelled, actions[:most])) + (" ..." if len(actions) > most else ".")


def made_by(function: Callable, wanted: Rows, *arguments: object, where: str) -> Rows | Reply:
    """What the function returns, if it has the actions that are wanted on each row, in whatever order."""
    said = called(function, *arguments, where=f"for {where}")
    if isinstance(said, Reply):
        return said
    if not _is_list(said):
        return keep_working(f"{where}: you return {said!r}. It should be a list with a row for each device")
    rows = [called(iter, row, where=f"for {where}") if isinstance(row, Iterator) else row for row in said]
    if stopped := next((row for row in rows if isinstance(row, Reply)), None):
        return stopped
    if len(rows) != len(wanted):
        return keep_working(f"{where}: you return {len(rows)} rows. How many devices are there?")
    for k, (row, right) in enumerate(zip(rows, wanted, strict=True)):
        if wrong := _what_is_no_row(row, {kind for _, kind, _ in right}) or _what_is_amiss(row, right):
            return keep_working(f"{where}, device {k}: {wrong}")
    return [[(int(stage), str(kind), int(m)) for stage, kind, m in row] for row in rows]


def _is_list(said: object) -> bool:
    return isinstance(said, Iterable) and not isinstance(said, str | dict | set)


def _what_is_no_row(row: object, kinds: set[str]) -> str:
    if not _is_list(row):
        return f"its row is {row!r}. A row is a list of actions"
    for action in row:
        if not _is_action(action):
            return f'{action!r} is no action; an action is a tuple such as (0, "F", 0)'
        if action[1] not in kinds:
            return f"{action[1]!r} in {tuple(action)!r} is none of the kinds {', '.join(sorted(kinds))}"
    return ""


def _is_action(action: object) -> bool:
    if not isinstance(action, tuple | list) or len(action) != 3:
        return False
    stage, kind, m = action
    numbers = all(isinstance(n, Integral) and not isinstance(n, bool) for n in (stage, m))
    return numbers and isinstance(kind, str)


def _what_is_amiss(row: Sequence[Tuple], wanted: Sequence[Tuple]) -> str:
    """A sentence if other actions than those that are wanted are on the row, or one is there twice."""
    counts, right = Counter(map(tuple, row)), set(wanted)
    held = sorted({stage for stage, _, _ in wanted})
    for action, times in counts.items():
        if action[0] not in held:
            return f"{spelled(action)} is on its row. Which stages does it hold?"
        if action not in right:
            return f"{spelled(action)} is on its row. How many microbatches are there, counted from 0?"
        if times > 1:
            return f"{spelled(action)} is on its row {times} times. How often is it done in a step?"
    if missing := [action for action in wanted if action not in counts]:
        return f"it never does {in_a_row(missing, most=4)} Where do these belong?"
    return ""
