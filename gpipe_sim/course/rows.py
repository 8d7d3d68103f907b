"""A student's rows: a list for each device, of tuples such as (0, "F", 0)."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeGuard

from gpipe_sim.core import deadlock
from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.course.called import result_of
from gpipe_sim.course.own_rows import drawn
from gpipe_sim.course.reply import is_whole, keep_working
from gpipe_sim.errors import Real

A_LIST = "Later lessons read it more than once, as a list. How do you make one?"
KINDS = "FBIW"  #: the letters in which students write rows
MOST = 16  #: actions of a row that a reply quotes
Step = tuple[int, str, int]  #: an action of a student's: stage, kind, microbatch
Rows = list[list[Step]]
Order = Sequence[Sequence[Step]]  #: rows that are only read


def spelled(action: Step) -> str:
    """(2, "F", 0) as ``2F0``."""
    return "".join(map(str, action))


def in_a_row(actions: Sequence[Step], most: int = MOST, end: str = "") -> str:
    """The actions one after the other; of many only the first ones, and dots in place of the ``end``."""
    if not actions:
        return f"empty{end}"
    return " ".join(map(spelled, actions[:most])) + (" ..." if len(actions) > most else end)


def in_words(rows: Iterable[Sequence[Step]]) -> str:
    """All rows on one line."""
    return " / ".join(map(in_a_row, rows))


def parsed(text: str) -> Rows:
    """Rows such as ``0F0 0B0`` as tuples, one row for each line."""
    words = [re.findall(r"(\d+)(\w)(\d+)", line) for line in text.splitlines()]
    return [[(int(s), kind, int(m)) for s, kind, m in line] for line in words]


def rows_of(schedule: Schedule) -> list[list[Action]]:
    """The library's rows as lists; its actions are tuples that equal those of the lessons."""
    return [[part for action in row for part in action.parts] for row in schedule.actions]


def done_on(timeline: Timeline, device: int) -> list[tuple[Action, Real, Real]]:
    """(action, start, end) of what a device does, in time order."""
    return [(part, span.start, span.end) for span in timeline.on(device) for part in span.action.parts]


def as_schedule(rows: Order, placement: Sequence[Sequence[int]] | None = None) -> Explicit:
    """The rows as a schedule of the library."""
    actions = [[Action(stage, Kind[kind], m) for stage, kind, m in row] for row in rows]
    return Explicit(actions, placement=placement)


def who_is_stuck(schedule: Schedule) -> str:
    """Which actions wait for each other in an order that cannot finish; empty if it can."""
    waits = deadlock.all_waits(schedule)
    return deadlock.in_words(deadlock.cycle(waits)) if waits else ""


def first_other(found: Sequence, wanted: Sequence) -> int:
    """The place at which two rows, or lists of rows, begin to differ."""
    return next(place for place, (one, other) in enumerate(zip(found, wanted, strict=True)) if one != other)


def rows_from(
    function: object,
    *arguments: object,
    wanted: Order,
    where: str = "",
    tuples: bool = False,
    whole: Sequence[str] = (),
) -> Rows:
    """The rows that ``function(*arguments)`` gives, in plain Python, if each has the actions that are wanted.

    They may stand in any order, and be ``tuples`` if no later lesson wants lists. Raises a Reply if they are
    no rows, or not of these actions, or if an argument that ``whole`` names has changed.
    """
    where = where or f"called with ({', '.join(map(repr, arguments))})"
    got = result_of(function, *arguments, where=where, plain=False, whole=whole)
    if tuples and isinstance(got, list | tuple):
        got = [list(row) if isinstance(row, tuple) else row for row in got]
    rows = read_rows(got, len(wanted), where, {kind for row in wanted for _, kind, _ in row})
    for k, right in enumerate(wanted):
        check_row(rows, k, right, f"{where}, the row of device {k} is")
    return rows


def check_row(rows: Rows, k: int, right: Sequence[Step], its: str) -> None:
    """Raise, with the rows drawn, that row k does not have exactly the actions of the right one."""
    row = rows[k]
    if wrong := what_is_amiss(row, right):
        again = [i for i, action in enumerate(row) if action not in right or action in row[:i]]
        reply = keep_working(f"{its} {in_a_row(row, end='.')} {wrong}")
        raise drawn(reply, rows, (k, again[0]) if again else None)


def read_rows(got: object, devices: int, where: str, kinds: Iterable[str] = "FB") -> Rows:
    """What a student's function gave, as rows of (int, str, int); raises a Reply if it is anything else."""
    if isinstance(got, Iterator | tuple):
        raise keep_working(f"{where} it gives a {type(got).__name__}. {A_LIST}")
    if not isinstance(got, list):
        raise keep_working(f"{where} it gives {got!r}. What stands in a list with a row for each device?")
    if len(got) != devices:
        raise keep_working(f"{where} it gives a list of {len(got)}. How many devices want a row?")
    for k, row in enumerate(got):
        if wrong := _what_is_no_row(row, kinds):
            raise keep_working(f"{where}, the row of device {k} {wrong}")
    return [[(int(s), str(kind), int(m)) for s, kind, m in row] for row in got]


def _what_is_no_row(row: object, kinds: Iterable[str]) -> str:
    if isinstance(row, Iterator | tuple):
        return f"is a {type(row).__name__}. {A_LIST}"
    if not isinstance(row, list):
        return f"is {row!r}. What would a list of actions be?"
    for each in row:
        if not is_action(each, {*KINDS, *kinds}):
            how = 'How is 0F0 written as a tuple of stage, kind, microbatch: (0, "F", 0)?'
            return f"has {each!r}. {how}"
        if each[1] not in kinds:
            letters = ", ".join(kind for kind in dict.fromkeys([*KINDS, *kinds]) if kind in kinds)
            return f"has {spelled(each)}. Which of {letters} is that?"
    return ""


def is_action(each: object, kinds: Iterable[str] = tuple(KINDS)) -> TypeGuard[Step]:
    """Whether it is a tuple of a whole number, one of the letters, and a whole number."""
    if not isinstance(each, tuple) or len(each) != 3:
        return False
    s, kind, m = each
    return is_whole(s) and is_whole(m) and isinstance(kind, str) and kind in tuple(kinds)


def is_need(entry: object, kinds: Iterable[str] = "FB") -> TypeGuard[tuple[str, int]]:
    """Whether it can stand in a table of needs: a pair of a letter and a whole number."""
    return isinstance(entry, tuple) and len(entry) == 2 and entry[0] in tuple(kinds) and is_whole(entry[1])


def table_lines(table: object, name: str, kinds: str) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """(kind, what it needs) of each line of a student's table; raises a Reply if there is no such line."""
    if not isinstance(table, dict):
        count = {2: "two", 4: "four"}[len(kinds)]
        raise keep_working(f"{name} is {table!r}. Which {count} kinds of action want an entry in a dict?")
    for kind in kinds:
        if kind not in table:
            raise keep_working(f"{name} has the keys {list(table)}. What does {kind} need?")
        entries = table[kind]
        if not isinstance(entries, list) or not all(is_need(entry, kinds) for entry in entries):
            pairs = 'How is it written as a list of pairs such as ("F", -1)?'
            raise keep_working(f'{name}["{kind}"] is {entries!r}. {pairs}')
        yield kind, entries


def what_is_amiss(row: Sequence[Step], wanted: Sequence[Step]) -> str:
    """A question about an action that does not belong on the row, is there twice or is missing; or empty."""
    counts, held = Counter(row), sorted({s for s, _, _ in wanted})
    for action, often in counts.items():
        if action[0] not in held:
            which = "stages are" if len(held) > 1 else "stage is"
            return f"{spelled(action)} is work of stage {action[0]}. Which {which} on this device?"
        if action not in wanted:
            microbatches = 1 + max(m for _, _, m in wanted)
            has = "0 is the only one" if microbatches == 1 else f"{microbatches - 1} is the last"
            return f"{spelled(action)} is of microbatch {action[2]}, and {has}. Where does it come from?"
        if often > 1:
            return f"{spelled(action)} is in it {often} times. How often is it done in a step?"
    if missing := [action for action in wanted if action not in counts]:
        return f"It lacks {in_a_row(missing, most=4, end='.')} When should the device do that?"
    return ""
