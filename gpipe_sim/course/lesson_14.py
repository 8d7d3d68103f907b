"""Lesson 14: zero bubble."""

import re
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise, permutations, product

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.core.bubbles import bubble_fraction, bubble_overhead, peak_in_flight, span_bubble
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.schedule import needs
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.course import answers
from gpipe_sim.course.build import build, exercise
from gpipe_sim.course.called import called
from gpipe_sim.course.halves import what_is_wrong_with_halves
from gpipe_sim.course.lesson_12 import simulators
from gpipe_sim.course.own_rows import drawn
from gpipe_sim.course.reply import Reply, almost, apart, correct, is_number, keep_working
from gpipe_sim.course.rows import (
    KINDS,
    Rows,
    check_row,
    done_on,
    first_other,
    in_a_row,
    in_words,
    is_need,
    parsed,
    rows_from,
    rows_of,
    spelled,
    who_is_stuck,
)
from gpipe_sim.course.waits import first_wait
from gpipe_sim.errors import Real
from gpipe_sim.families import ZBH1, ZBH2, OneFOneB
from gpipe_sim.why.metrics import idle_spans

GIVEN = ZBH1(devices=3, microbatches=4)  #: all rows but the last are given; its length is the goal
LAST = GIVEN.devices - 1

#: (devices, microbatches, F, I, W), where a span bubble is tried; ZB-H2's formula needs W <= F, M >= 2K-1.
SETTINGS = (
    (3, 7, 5, 7, 1),
    (4, 12, 20, 21, 1),
    (2, 5, 3, 3, 0),
    (6, 11, 4, 4, 4),
    (5, 30, 10, 12, 7),
    (4, 8, 4, 6, 4),  # W as long as F alone, and as I alone
    (4, 8, 6, 4, 4),
)
ROUNDED = 5.1e-5  #: how far off an answer may be that was rounded to four digits

SPLIT_TIMES = {"F": 3, "I": 5, "W": 11}  #: W is long, so that waiting for one shows
NEVER = float("inf")
#: delays, microbatches
HIDDEN_DELAYS = (
    ([0, 1, 2], 5),
    ([2, 0, 1, 1], 7),
    ([1, 1, 1], 2),
    ([4, 5], 3),
    ([3], 4),
    ([1, 0, 2, 1], 2),
    ([0, 2, 4, 6, 8], 12),
)


@build("input_gradient", "weight_gradient", "SPLIT")
def two_halves(input_gradient: Callable, weight_gradient: Callable, table: dict) -> Reply:
    """Check the two halves of a backward on several steps, W in another order than I, and their needs."""
    for half in (input_gradient, weight_gradient):
        if not callable(half):
            return keep_working(f"pass in two functions and a table; one of the functions is {half!r}")
    what_is_wrong_with_halves(input_gradient, weight_gradient)
    if table is None:
        return keep_working("both halves are right. Now SPLIT: which lines has it besides those of NEEDS?")
    _wrong_needs(table)
    return correct(
        f"the gradients of one device to 1e-12, and the table lets run what can run in all {6**3} orders"
    )


def _wrong_needs(table: object) -> None:
    """Raise what is wrong with a table of needs, by all orders of a microbatch's F, I and W on 3 devices."""
    if wrong := _what_is_no_table(table):
        raise keep_working(wrong)
    for rows in product(*(permutations([(k, kind, 0) for kind in "FIW"]) for k in range(3))):
        ends = answers.clock(rows, table, SPLIT_TIMES)
        if ends != (right := answers.clock(rows, answers.SPLIT, SPLIT_TIMES)):
            raise keep_working(_what_is_wrong_with_needs(rows, ends, right))


def _what_is_no_table(table: object) -> str:
    if not isinstance(table, dict):
        return f"SPLIT should be a table as NEEDS is, with lists for I and W too (got {type(table).__name__})"
    if missing := [kind for kind in KINDS if kind not in table]:
        return f"your table has no line for {' and '.join(missing)}. Which has NEEDS, and which are new?"
    for kind in KINDS:
        if not isinstance(table[kind], list | tuple):
            return f"what {kind} needs should be a list of pairs such as ('F', -1); it is {table[kind]!r}"
        for need in table[kind]:
            if not is_need(need, KINDS):
                return f"{need!r} is no need of {kind}; a need is a pair such as ('F', -1)"
    if changed := [kind for kind in "FB" if set(table[kind]) != set(answers.NEEDS[kind])]:
        return f"the line for {' and '.join(changed)} is not that of NEEDS. Does it read anything new?"
    return ""


def _what_is_wrong_with_needs(rows: tuple, ends: dict, right: dict) -> str:
    """A question about the first action that itself runs too early, too late or never."""
    where = f"on the rows {in_words(rows)} (F, I, W take {', '.join(map(str, SPLIT_TIMES.values()))})"
    for row in rows:
        free = there = 0
        for action in row:
            reads = answers.needs(action, len(rows), answers.SPLIT)
            there = max([free, *(ends.get(need, NEVER) for need in reads)])
            free = ends.get(action, NEVER)
            start = free - SPLIT_TIMES[action[1]]
            begins = f"{spelled(action)} would " + ("never run" if free == NEVER else f"start at {start}")
            if start < there:
                return f"{where}, {begins}. What does it read, and when is that there?"
            if start > there:
                return f"{where}, {begins}; all that it reads is there at {there}. What does it wait for?"
    raise AssertionError((ends, right))


@build("putting_off")
def putting_off(answer: Callable) -> Reply:
    """Check ``answer(delays, M)``: 1F1B's forwards and input gradients, W some microbatches late."""
    for delays, M in HIDDEN_DELAYS:
        wanted, where = answers.putting_off(delays, M), f"with delays {delays}, M = {M}"
        rows = rows_from(answer, delays, M, wanted=wanted, where=where, tuples=True, whole=("delays",))
        if rows != wanted:
            k = first_other(rows, wanted)
            reply = _what_is_wrong_with_delays(rows, wanted, k, f"{where}, device {k}")
            named = re.search(r"\d+(W)(\d+) comes", reply.text)
            wrong = (k, named[1], int(named[2])) if named else rows[k][first_other(rows[k], wanted[k])]
            return drawn(reply, rows, (k, rows[k].index(wrong)))
    told = f"the rows at {len(HIDDEN_DELAYS)} sizes that are not on this page. Drawn are those {where}"
    return drawn(correct(told), rows)


def _what_is_wrong_with_delays(rows: Rows, wanted: Rows, k: int, where: str) -> Reply:
    yours, its = ([action for action in row if action[1] != "W"] for row in (rows[k], wanted[k]))
    if yours != its:
        ahead = [kind for _, kind, _ in yours].index("I")
        if ahead != [kind for _, kind, _ in its].index("I"):
            return keep_working(f"{where} does {ahead} forwards before its first I. How many would 1F1B do?")
        said = f"without its W, its row is {in_a_row(yours, most=8, end='.')}"
        return keep_working(f"{where}: {said} In which order does 1F1B do its F and B?")
    weights = [m for _, kind, m in rows[k] if kind == "W"]
    if weights != sorted(weights):
        return keep_working(f"{where} does its W in the order {weights}. Which of them has waited longest?")
    for m in weights:
        if rows[k].index((k, "W", m)) < rows[k].index((k, "I", m)):
            return keep_working(f"{where}: {k}W{m} comes before {k}I{m}. What does a W read?")
    after, due = (_behind(row) for row in (rows[k], wanted[k]))
    if after == due:
        n = first_other(rows[k], wanted[k])
        said = f"after {spelled(rows[k][n - 1])} comes {spelled(rows[k][n])}"
        return keep_working(f"{where}: {said}. Right behind which action should a W come?")
    m = next(m for m in weights if after[m] != due[m])
    late, last = after[m] - m, weights[-1]
    reply = almost if all(after[n] == min(n + late, last) for n in weights) else keep_working
    return reply(f"{where}: {k}W{m} comes right after {k}I{after[m]}. How many microbatches late is that?")


def _behind(row: list) -> list[int]:
    """Of each microbatch the last one whose I comes before its W on the row."""
    last, behind = -1, {}
    for _, kind, m in row:
        if kind == "I":
            last = m
        elif kind == "W":
            behind[m] = last
    return [behind[m] for m in sorted(behind)]


@exercise(f"write the row of device {LAST} as text: four F, four I and four W")
def put_off(answer: object) -> Reply:
    """Check the row of the last of three devices: with the given rows, a step as short as that of ZB-H1."""
    goal = simulate(GIVEN).makespan
    schedule = _with_row(answer)
    timeline, held = simulate(schedule), peak_in_flight(schedule)[LAST]
    rows = rows_of(schedule)
    if timeline.makespan > goal:
        told, late = _who_waits(timeline)
        at = (LAST, rows[LAST].index(late)) if late else None
        return drawn(almost(f"it takes {timeline.makespan}. {told}"), rows, at)
    asks = "Which of your W fills a hole, and which the corner?"
    told = f"{goal} long, and device {LAST} holds at most {held}. {asks}"
    return drawn(correct(told), rows)


def _with_row(answer: object) -> Explicit:
    """The given rows and the student's as a schedule; raises a Reply to a wrong row."""
    if not isinstance(answer, str):
        raise keep_working(f"write the row as text, such as '2F0 2I0 2W0' (got {type(answer).__name__})")
    rows = [line for line in answer.splitlines() if line.strip()]
    if len(rows) != 1:
        raise keep_working(f"one row please, that of device {LAST} (got {len(rows)})")
    cells = rows[0].rpartition(":")[2].replace(",", " ").split()
    _wrong_row(cells)
    placement, given = GIVEN.placement, str(GIVEN).splitlines()[:LAST]
    schedule = Explicit.parse("\n".join([*given, " ".join(cells)]), placement=placement)
    if stuck := who_is_stuck(schedule):
        raise drawn(keep_working(f"{stuck}. Which of these on your row comes too early?"), rows_of(schedule))
    return schedule


def _wrong_row(cells: list[str]) -> None:
    """Raise a sentence on a cell that is not of this row, is there twice, is missing or comes too early."""
    for cell in cells:
        if re.fullmatch(r"\d{1,18}B\d{1,18}", cell):
            raise keep_working(f"{cell} is a backward in one piece. Which two halves has it?")
        if not re.fullmatch(r"\d{1,18}[FIW]\d{1,18}", cell):
            said = f"{cell!r} is not an F, I or W; write stage, letter, microbatch, such as {LAST}F0"
            raise keep_working(said)
    row = [action for cell in cells for action in parsed(cell)[0]]
    rows: Rows = [*rows_of(GIVEN)[:LAST], row]  # type: ignore[list-item]
    check_row(rows, LAST, rows_of(GIVEN)[LAST], "your row is")
    for m in range(GIVEN.microbatches):
        for first, then in pairwise((LAST, kind, m) for kind in "FIW"):
            if row.index(then) < row.index(first):
                late = spelled(then)
                said = f"{late} stands before {spelled(first)} on your row. What does {late} read?"
                raise drawn(keep_working(said), rows)


def _who_waits(timeline: Timeline) -> tuple[str, Action | None]:
    """A sentence on the first wait of device 1 that a W of the student causes, and what it waits for.

    Or else a sentence on the student's own waits.
    """
    row = [action for action, *_ in done_on(timeline, LAST)]
    for start, end in idle_spans(timeline, LAST - 1):
        for late in _awaited(timeline, end):
            ahead = [action for action in row[: row.index(late)] if action.kind is Kind.W]
            if ahead:
                waits = f"waits from {start} to {end} for {late}"
                behind = f"stands behind {ahead[-1]} on your row"
                return f"Device {LAST - 1} {waits}, which {behind}. Who waits for {ahead[-1]}?", late
    first, *_, last = timeline.on(LAST)
    if wait := first_wait(timeline, LAST):
        return f"Device {LAST} waits from {wait[0]} to {wait[1]}. What could it do then?", None
    return f"Device {LAST} starts at {first.start} and ends at {last.end}. What do the others wait for?", None


def _awaited(timeline: Timeline, at: Real) -> list[Action]:
    """What the device before the last got from the last one, for the action that it starts at this time."""
    started = [span.action for span in timeline.on(LAST - 1) if span.start == at]
    wanted = (need for action in started for need in needs(action, timeline.schedule))
    return [need for need in wanted if timeline.schedule.device_of(need) == LAST]


@exercise("write a function of (K, M, F, I, W) and pass it in")
def small_weight_times(answer: Callable | None) -> Reply:
    """Check ``answer(K, M, F, I, W)``: ZB-H2's span bubble as an exact fraction, also for W small or 0."""
    for setting in SETTINGS:
        _what_is_wrong(called(answer, *setting, without=simulators(answer)), *setting)
    return correct(
        f"exact in {len(SETTINGS)} settings, down to W = 0. What can ZB-H2 fill its bubble with then?"
    )


def _what_is_wrong(said: object, K: int, M: int, F: int, I: int, W: int) -> None:
    where = f"K = {K}, M = {M}, F = {F}, I = {I}, W = {W}"
    if not is_number(said):
        raise keep_working(
            f"{where}: you say {said!r}; the span bubble is a number, such as Fraction(1, 10). "
            "What does your function return?"
        )
    costs = Costs(Fraction(F), Fraction(I), Fraction(W))
    timeline = simulate(ZBH2(K, M), costs)
    measured = span_bubble(timeline)
    if said == measured:
        return
    if apart(said, measured) < ROUNDED:
        raise almost(f"{where}: {float(said):.4f} is right but for rounding. What keeps it exact?")
    for name, other in _mistaken_for(timeline, M * (F + I + W), costs).items():
        if apart(said, other) < ROUNDED:
            raise almost(f"{where}: {name}")
    raise keep_working(
        f"{where}: you say {float(said):.4g}, measured {float(measured):.4f}. "
        "How long is the longest span, and how much of it is work?"
    )


def _mistaken_for(timeline: Timeline, useful: int, costs: Costs) -> dict[str, Real]:
    """Wrong numbers that one easily arrives at, each with the question that leads on from it."""
    longest = max(row[-1].end - row[0].start for row in timeline.rows)
    K, M = timeline.schedule.devices, timeline.schedule.microbatches
    return {
        "that is in percent. As a fraction of 1?": 100 * span_bubble(timeline),
        "that is idle over the makespan. Is any device there from 0 to the end?": (
            (longest - useful) / timeline.makespan
        ),
        "that is the bubble time. Over how long a span?": longest - useful,
        "that is idle over useful time. Over what is a span bubble counted?": (longest - useful) / useful,
        "that is the bubble fraction, corners and all. Which corners does a span leave out?": bubble_fraction(
            timeline
        ),
        "that is idle over useful time, corners and all. Which corners does a span leave out?": (
            bubble_overhead(timeline)
        ),
        "that is ZB-H1's. How many W does a device of ZB-H2 put off?": span_bubble(
            simulate(ZBH1(K, M), costs)
        ),
        "that is 1F1B's. What has moved into its holes?": span_bubble(simulate(OneFOneB(K, M), costs)),
    }
