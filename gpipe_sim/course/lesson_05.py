"""Lesson 05: what makes an order legal."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from fractions import Fraction
from math import isclose

from gpipe_sim.core.bubbles import peak_in_flight
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.problems import problems
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.core.timeline import number as written
from gpipe_sim.course import answers
from gpipe_sim.course.build import build, exercise
from gpipe_sim.course.called import result_of
from gpipe_sim.course.own_rows import drawn
from gpipe_sim.course.reply import (
    Reply,
    almost,
    correct,
    is_number,
    keep_working,
    listed,
)
from gpipe_sim.course.rows import (
    A_LIST,
    Rows,
    Step,
    in_words,
    is_action,
    parsed,
    read_rows,
    rows_of,
    spelled,
    table_lines,
    who_is_stuck,
)
from gpipe_sim.course.waits import first_wait
from gpipe_sim.errors import Real
from gpipe_sim.families import Interleaved1F1B, OneFOneB

LONG, ROOM = 18, (3, 2, 1)  #: what three devices and four microbatches can do with unit costs
NEAR = 6  #: how much longer an order may be that has nearly the right shape
WORD = re.compile(r"\d{1,18}[FB]\d{1,18}")
KNOT = Explicit.parse("0F0 0B0 0F1 0B1\n1F1 1B1 1F0 1B0")
#: Dependencies that are not the lesson's: whoever reads the table that is passed in gets these right too.
OTHER = {"F": [("F", -1)], "B": [("F", 0)]}
BACKWARD_ONLY = {"F": [], "B": [("F", 0), ("B", -1)]}
FAR = {"F": [("F", 2)], "B": [("B", -2), ("F", 0)]}


@build("NEEDS", "needs")
def table_and_needs(table: dict, answer: Callable) -> Reply:
    """Check the table of needs, and ``answer(action, S, table)``: the actions that an action needs."""
    _wrong_table(table)
    if answer is None:
        return keep_working(
            'the table is right. What does it say that (1, "F", 2) needs, and how do you find it?'
        )
    for each, name in ((table, "NEEDS"), *((other, repr(other)) for other in (OTHER, BACKWARD_ONLY, FAR))):
        for S in (3, 1, 4):
            for action in ((s, kind, m) for m in (0, 5) for s in range(S) for kind in "FB"):
                _wrong_needs(answer, action, S, each, name)
    return correct("the table is right, and needs follows any table that it is given")


def _wrong_table(table: object) -> None:
    """Raise what is wrong with a student's NEEDS, told by what an action would then need."""
    for kind, entries in table_lines(table, "NEEDS", "FB"):
        wanted = answers.needs((1, kind, 2), 3, answers.NEEDS)
        got = [(1 + way, other, 2) for other, way in entries]
        if sorted(got) != sorted(wanted):
            says = f"by your table, 1{kind}2 needs {_named(got)}"
            close = kind == "B" and set(got) < set(wanted) and got
            raise (almost if close else keep_working)(f"{says}. {_table_question(kind, got)}")


def _table_question(kind: str, got: list[Step]) -> str:
    if len(set(got)) < len(got):
        return "Does it need one of them twice?"
    if kind == "F":
        return "From where does a forward get its input, and what else does it read?"
    return "What does a backward read that its own device saved, and what comes from another stage?"


def _wrong_needs(answer: object, action: Step, S: int, table: dict, name: str) -> None:
    where = f"called with ({action!r}, {S}, {name})"
    own = deepcopy(table)
    got = result_of(answer, action, S, own, where=where, copies=False, plain=False)
    if isinstance(got, tuple | set | Iterator) and not is_action(got, "FB"):
        raise keep_working(f"{where} it gives a {type(got).__name__}. {A_LIST}")
    if not isinstance(got, list) or not all(is_action(each, "FB") for each in got):
        raise keep_working(
            f"{where} it gives {got!r}. What is in a list of actions, each (stage, kind, microbatch)?"
        )
    wanted = answers.needs(action, S, table)
    if len(got) == len(wanted) and set(got) == set(wanted):
        if own == table:
            return
        raise keep_working(f"{where} it leaves the table as {own}. Who reads the table next?")
    raise keep_working(f"{where} it gives {_named(got)}. {_needs_question(action, S, got, wanted)}")


def _needs_question(action: Step, S: int, got: list, wanted: list[Step]) -> str:
    if outside := [s for s, _, _ in got if not 0 <= s < S]:
        return f"The stages are 0 to {S - 1}. Where is stage {outside[0]}?"
    if any(m != action[2] for _, _, m in got):
        return "Of which microbatch does it read something?"
    if len(set(got)) < len(got):
        return "Does it need one of them twice?"
    if missing := [one for one in wanted if one not in got]:
        entries = f"The table has an entry that leads to {spelled(missing[0])}."
        return f"{entries} Where does your function drop it?"
    extra = next(one for one in got if one not in wanted)
    return f"Which entry of the table leads to {spelled(extra)}?"


def _named(actions: Iterable[Step]) -> str:
    return " and ".join(map(spelled, actions)) or "nothing"


def _plain(schedule: Schedule) -> Rows:
    return [[(s, str(kind), m) for s, kind, m in row] for row in rows_of(schedule)]


OTHER_WAY_ROUND = {kind: pairs[::-1] for kind, pairs in answers.NEEDS.items()}  #: the same needs
THIRDS = {"F": Fraction(1, 3), "B": Fraction(3, 4)}
#: What a student's clock is tried on: rows, needs, times. No two leave the same mistakes unseen.
CLOCKED: tuple[tuple[Rows, dict, Mapping[str, Real]], ...] = (
    (parsed("0F0 0F1 0B1 0B0"), answers.NEEDS, {"F": 1, "B": 2}),  # one device: one thing at a time
    (answers.gpipe_rows(3, 2), answers.NEEDS, {"F": 3, "B": 4}),
    (parsed("0F0 0F1 0F2 0B0 0B1 0B2\n1F2 1B2 1F0 1B0 1F1 1B1"), answers.NEEDS, {"F": 2, "B": 3}),
    (parsed("1F0 1B0 1F1 1B1\n0F0 0F1 0B0 0B1"), answers.NEEDS, {"F": 1, "B": 3}),  # stage 1 stands first
    (
        parsed("0F0 0F1 0F2 0B0 0B1 0B2\n1F0 1F1 1B0 1F2 1B1 1B2\n2F0 2B0 2F1 2B1 2F2 2B2"),
        answers.NEEDS,
        THIRDS,
    ),
    (parsed("0F0 0F1 0B0 0B1\n1F0 1F1 1B0 1B1"), OTHER, {"F": 1, "B": 5}),
    (parsed("0F0 1F0 1B0 0B0"), answers.NEEDS, {"F": 1, "B": 2}),  # two stages on one device
    (parsed("0F0 0F1 2F0 2B0 2F1 2B1 0B0 0B1\n1F0 1F1 1B0 1B1"), answers.NEEDS, {"F": 2, "B": 5}),
    (parsed("0F0 0F1 0B0 0B1\n1F0 1F1 1B0 1B1"), OTHER_WAY_ROUND, {"F": 2, "B": 3}),
    ([[], *parsed("0F0 0B0")], answers.NEEDS, {"F": 1, "B": 2}),  # a device with nothing to do
    (parsed("0F0 0F1 0B0 0B1\n1F0 1F1 1B1 1B0\n2F0 2B0 2B1 2F1"), answers.NEEDS, {"F": 1, "B": 2}),  # stuck
    (parsed("0B0 0F0\n1F0 1B0"), answers.NEEDS, {"F": 1, "B": 2}),  # nothing can begin
    (_plain(OneFOneB(4, 8)), answers.NEEDS, {"F": 1, "B": 2}),  # more rounds than devices
    (_plain(Interleaved1F1B(3, 6, stages_per_device=2)), answers.NEEDS, {"F": 2, "B": 3}),
    (_plain(OneFOneB(2, 120)), answers.NEEDS, {"F": 1, "B": 2}),  # more rounds than anybody counts to
    (parsed("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1"), answers.NEEDS, {"F": 0, "B": 1}),  # an end at 0
)


@build("clock")
def clock(answer: Callable) -> Reply:
    """Check ``answer(rows, table, cost)``: when each action ends, as far as the rows can run."""
    changed = inexact = ""
    for rows, table, cost in CLOCKED:
        where, own = _where(rows, table, cost), deepcopy((rows, table, cost))
        got = _ends(_said(answer, own, where), where)
        if question := _what_is_off(got, rows, table, cost):
            return keep_working(f"{where}, {question}")
        if own != (rows, table, cost) and not changed:
            changed = f"{where}, the rows are {in_words(own[0])} when your clock is done"
        if not inexact and (rounded := _inexact(got, rows, table, cost)):
            inexact = f"{where}, {rounded}"
    if changed:
        return almost(f"every end is right. But {changed}. Who else may need them?")
    if inexact:
        return almost(f"every end is nearly right. But {inexact}. Where does your clock begin to round?")
    return correct(f"every end is right in {len(CLOCKED)} orders, and where devices are stuck it stops")


def _said(answer: Callable, own: tuple, where: str) -> object:
    """What the student's clock gives; where fingers are stuck, raising is not what was asked for."""
    try:
        return result_of(answer, *own, where=where, copies=False)
    except Reply as reply:
        rows, table, cost = own
        stuck = len(answers.clock(rows, table, cost)) < sum(map(len, rows))
        if not stuck or " it stopped: " not in reply.text:
            raise
        says = reply.text.partition(". ")[0]
        raise almost(
            f"{says}. There no finger can move any more. What should your clock return then?"
        ) from None


def _where(rows: Rows, table: dict, cost: Mapping[str, Real]) -> str:
    times = f"F = {cost['F']}, B = {cost['B']}"
    other = "" if table == answers.NEEDS else f" and the table {table}"
    return f"with the rows {in_words(rows)} and {times}{other}"


def _ends(got: object, where: str) -> dict[Step, Real]:
    """The ends that a student's clock gives; raises a Reply if it is no dict from actions to numbers."""
    if not isinstance(got, dict):
        raise keep_working(f"{where} it gives {got!r}. Which moment belongs to which action, in a dict?")
    for key, end in got.items():
        if not isinstance(key, tuple):
            raise keep_working(f"{where} it gives an end to {key!r}. How is an action written as a tuple?")
        if not is_number(end):
            says = f"it says that {spelled(key)} ends at {end!r}"
            raise keep_working(f"{where} {says}. Which number would that be?")
    return got


def _what_is_off(got: dict, rows: Rows, table: dict, cost: Mapping[str, Real]) -> str:
    """The first moment that is not as the rows have it, and a question; empty if all are."""
    wanted = answers.clock(rows, table, cost)
    S = 1 + max(s for row in rows for s, _, _ in row)
    for action, end in sorted(wanted.items(), key=lambda item: item[1]):
        if action in got and isclose(got[action], end):
            continue
        row, needed = next(row for row in rows if action in row), answers.needs(action, S, table)
        if action not in got:
            known = f"its needs, {_named(needed)}, have their ends" if needed else "it needs nothing"
            there = f"{len(got)} of {len(wanted)} actions have an end"
            says = f"your clock stops before {spelled(action)}, and {known}"
            return f"{says}. {there}. What could still move after your last round?"
        before = row[: row.index(action)][-1:]
        free, arrived = (max((wanted[one] for one in those), default=0) for those in (before, needed))
        return _moment(action, got[action], free, arrived, cost)
    extra = next((action for action in got if action not in wanted), None)
    if extra is not None:
        if not any(extra in row for row in rows):
            return f"your clock knows {spelled(extra)}, which no row has. Where does your dict begin?"
        return f"{spelled(extra)} has an end. Did all that it needs, and all before it on its row, end?"
    return ""


def _inexact(got: dict, rows: Rows, table: dict, cost: Mapping[str, Real]) -> str:
    """The first end that is a rounded one, in words; empty if all are exact."""
    for action, end in answers.clock(rows, table, cost).items():
        if got[action] != end:
            return f"{spelled(action)} ends at {got[action]!s} by your clock, and should at {end}"
    return ""


def _moment(action: Step, got: Real, free: Real, arrived: Real, cost: Mapping[str, Real]) -> str:
    """What is wrong with an action's end, if its device is free and its inputs arrive at these times."""
    name, ready, start = spelled(action), max(free, arrived), got - cost[action[1]]
    known = start in (free, arrived)  # it begins too early, but lasts as long as it should
    if not known and (start < 0 or got in (ready, *(ready + other for other in cost.values()))):
        lasts = f"{name} lasts from {written(ready)} to {written(got)} by your clock"
        return f"{lasts}. How long does {action[1]} take?"
    says = f"{name} ends at {written(got)} by your clock, so it starts at {written(start)}"
    if start < free:
        return f"{says}. Until when is its device busy with what stands before it?"
    if start < arrived:
        return f"{says}. When does the last thing that it needs arrive?"
    could = f"Its device is free at {written(free)}, and all it needs is there at {written(arrived)}"
    return f"{says}. {could}. Why later?"


@exercise("write three rows as text, one per device: twelve forwards and twelve backwards in all")
def short_and_small(answer: str | Schedule | None) -> Reply:
    """Check an order for 3 devices and 4 microbatches that takes 18 and holds at most 3, 2 and 1."""
    schedule = sound(answer, devices=3, microbatches=4)
    timeline, peaks = simulate(schedule), peak_in_flight(schedule)
    extra = max(peak - room for peak, room in zip(peaks, ROOM, strict=True))
    reply = correct(f"{LONG} long, peaks {listed(peaks)}. Could the same rule serve 4 devices?")
    if timeline.makespan > LONG:
        near = timeline.makespan <= LONG + NEAR and extra <= 0
        reply = (almost if near else keep_working)(_too_long(timeline, peaks))
    elif extra > 0:
        bought = "the extra forward" if extra == 1 else "the extra forwards"
        says = f"also {LONG}, but peaks {listed(peaks)}. What did {bought} buy?"
        reply = almost(says) if extra == 1 else keep_working(says)
    return drawn(reply, rows_of(schedule))


@exercise("write the two rows again, with two actions of one row exchanged")
def unlock(answer: str | Schedule | None) -> Reply:
    """Check that the lesson's deadlocked order can run after one swap of two actions within a row."""
    schedule = sound(answer, KNOT.devices, KNOT.microbatches)
    took, moved = simulate(schedule).makespan, []
    for before, after in zip(KNOT.actions, schedule.actions, strict=True):
        moved += [action for was, action in zip(before, after, strict=True) if was != action]
    first = "Device 0 now does two forwards before its first backward"
    reply = correct(f"it runs and takes {took}. {first}. What does it have to keep for that?")
    if len(moved) > 2:
        says = f"it runs and takes {took}, but {listed(moved)} stand elsewhere now"
        says = f"{says}. Are two actions of one row enough?"
        reply = almost(says) if len(moved) <= 4 else keep_working(says)
    return drawn(reply, rows_of(schedule))


def sound(answer: object, devices: int, microbatches: int) -> Schedule:
    """The answer as a schedule that can run, or raise what is wrong with it."""
    rows, placement = _as_text(answer, devices), [(device,) for device in range(devices)]
    try:
        schedule = Explicit.parse(rows, placement=placement, microbatches=microbatches)
    except ValueError as error:
        raise keep_working(str(error)) from None
    found, own = problems(schedule), rows_of(schedule)
    if not found:
        return schedule
    if found[-1].rule == "stuck":
        stuck = f"{who_is_stuck(schedule)}. What would have to come earlier, and on which row?"
        raise drawn(keep_working(stuck), own)
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    ask = "Does each stage do every forward and every backward once, on its own device?"
    places = [(k, i) for k, row in enumerate(own) for i, each in enumerate(row) if each == found[0].action]
    raise drawn(keep_working(f"{found[0].sentence}{more}. {ask}"), own, places[-1] if places else None)


def _as_text(answer: object, devices: int) -> str:
    """An order as text, one row for each device; raises a Reply if that is not what it is."""
    if isinstance(answer, list | tuple) and answer and all(isinstance(row, str) for row in answer):
        answer = "\n".join(answer)
    if isinstance(answer, list) and len(answer) == devices:
        own = read_rows(answer, devices, "as you wrote it")
        return "\n".join(" ".join(map(spelled, row)) for row in own)
    if not isinstance(answer, str | list | Schedule):
        raise keep_working(f"write the rows as one text, such as '0F0 0B0' (got {type(answer).__name__})")
    text = "" if isinstance(answer, list) else str(answer)
    if isinstance(answer, str):
        text = text.replace(",", " ").replace("f", "F").replace("b", "B")
    rows = [row for row in text.splitlines() if row.strip()]
    if len(rows) != devices:
        count = len(answer) if isinstance(answer, list) else len(rows)
        raise keep_working(f"one row for each of the {devices} devices, please (got {count})")
    words = (word for row in rows for word in re.sub(r"^\s*device \d+:", "", row).split())
    if wrong := next((word for word in words if not WORD.fullmatch(word)), None):
        raise keep_working(f"{wrong!r} is no action: write stage, F or B, microbatch, such as 0F0")
    return text


def _too_long(timeline: Timeline, peaks: tuple[int, ...]) -> str:
    """Where the last device, which could work without a break, waits; or what starts or ends too late."""
    last = timeline.schedule.devices - 1
    row = timeline.on(last)
    says = f"it takes {timeline.makespan}, with peaks {listed(peaks)}"
    if wait := first_wait(timeline, last):
        start, end, late = wait
        return f"{says}. Device {last} waits from {start} to {end} for {late}. What keeps {late} so long?"
    if row[0].start > last:
        begins = f"starts at {row[0].start}, and could at {last}"
        return f"{says}. Device {last} {begins}. What do the others do first?"
    left = f"is done at {row[-1].end}; the others go on until {timeline.makespan}"
    return f"{says}. Device {last} {left}. What have they put off?"
