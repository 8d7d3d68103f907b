"""Lesson 12: links."""

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from math import inf
from types import FunctionType

from gpipe_sim.core.costs import Costs
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import number as written
from gpipe_sim.course import answers, mine
from gpipe_sim.course.build import build, exercise
from gpipe_sim.course.called import called, result_of
from gpipe_sim.course.reply import NOTHING_BACK, Reply, almost, correct, is_number, keep_working
from gpipe_sim.course.rows import (
    Order,
    Rows,
    Step,
    first_other,
    in_words,
    parsed,
    read_rows,
    rows_of,
    spelled,
    table_lines,
)
from gpipe_sim.errors import Real
from gpipe_sim.families import GPipe, OneFOneB
from gpipe_sim.links.links import Link
from gpipe_sim.machine.machine import Machine

KINDS = "FfBb"
#: Rows whose links a student's function finds. In the fifth device 1 takes microbatch 1 first; in the sixth
#: stages 1 and 3 are on devices of their own, and a link carries activations and gradients.
HIDDEN_ROWS = (
    answers.gpipe_rows(3, 2),
    rows_of(OneFOneB(4, 5)),
    answers.interleaved_rows(2, 4, 2),
    answers.interleaved_rows(3, 3, 3),
    parsed("0F0 0F1 0B1 0B0\n1F1 1F0 1B0 1B1"),
    parsed("0F0 0F1 2F0 2F1 2B1 2B0 0B1 0B0\n1F0 1F1 1B1 1B0\n3F0 3F1 3B1 3B0"),
    answers.gpipe_rows(1, 3),
)
#: devices, microbatches, F, B, busy, latency
SETTINGS: tuple[tuple, ...] = (
    (4, 8, 1, 2, 2, 0),
    (3, 5, 2, 6, 4, 1),
    (5, 6, 3, 5, 7, 2),
    (2, 9, 4, 6, 1, 5),
    (6, 4, 2, 3, 0, 2),
    (3, 1, 1, 2, 4, 3),
    (1, 6, 1, 2, 5, 1),
    (3, 5, Fraction(1, 2), Fraction(5, 4), Fraction(3, 4), Fraction(1, 4)),
)


@build("ON_LINKS", "with_links")
def on_links(table: dict, answer: Callable) -> Reply:
    """Check the table of needs with messages, and ``answer(rows)``: a row for each device and each link."""
    _wrong_table(table)
    if answer is None:
        return keep_working("the table is right. Which rows are there besides those of the devices?")
    for rows in HIDDEN_ROWS:
        where = f"with the rows {in_words(rows)}"
        got = result_of(answer, rows, where=where, plain=False, whole=("rows",))
        found = read_rows(got, len(got) if isinstance(got, list) else 0, where, KINDS)
        if question := _what_is_off(found, rows):
            return keep_working(f"{where}, {question}")
    return correct(
        f"each message on its link and in its turn, for {len(HIDDEN_ROWS)} orders of one to four devices"
    )


def _wrong_table(table: object) -> None:
    """Raise what is wrong with a student's ON_LINKS, told by what an action would then need."""
    for (kind, entries), stage in zip(table_lines(table, "ON_LINKS", KINDS), (2, 3, 2, 3), strict=True):
        if sorted(entries) != sorted(answers.ON_LINKS[kind]):
            needed = " and ".join(spelled((stage + way, other, 5)) for other, way in entries) or "nothing"
            raise keep_working(f"by your table, {stage}{kind}5 needs {needed}. {_TABLE[kind]}")


_TABLE = {
    "F": "Who has its input last, and is that a device or a link?",
    "f": "What must be there before the link can carry it? (Its place in the line is the row's business.)",
    "B": "It reads what its own forward kept, and a gradient. Who has that one last?",
    "b": "From which side does a gradient come, and what makes it?",
}


def _what_is_off(found: Rows, rows: Order) -> str:
    """What is wrong with rows of devices and links, and a question; empty if nothing is."""
    found, wanted = [row for row in found if row], answers.with_links(rows)
    if sorted(found) == sorted(wanted):
        return ""
    here, due = (Counter(action for row in each for action in row) for each in (found, wanted))
    if extra := [action for action in here if action not in due]:
        return _does_not_belong(extra[0], rows)
    for action in due:
        if here[action] != 1:
            times = f"stands {here[action]} times" if here[action] else "is on no row"
            return f"{spelled(action)} {times}. {_MADE_BY[action[1] in 'fb']}"
    return _wrong_grouping(found, wanted, rows)


_MADE_BY = {
    True: "Which action makes that message, and how often is it sent?",
    False: "How often does its device do it?",
}


def _does_not_belong(action: Step, rows: Order) -> str:
    """A question about an action or a message that there is not."""
    stage, kind, _ = action
    last = 2 * max(s for row in rows for s, _, _ in row)
    if not 0 <= stage <= last:
        says = f"{spelled(action)} is on a row, and the numbers go from 0 to {last}"
        between = "Between which two stages does a gradient go, and which number lies there?"
        return f"{says}. {between if kind == 'b' and stage > 0 else 'Who would receive that?'}"
    if kind in "FB":
        return f"{spelled(action)} is on a row. Is {action[0]} a stage now, or a message?"
    if stage % 2 == 0:
        return f"{spelled(action)} is on a row. Which numbers lie between those of the devices' stages?"
    return f"{spelled(action)} is on a row. Which action of which microbatch makes that?"


def _wrong_grouping(found: Rows, wanted: Rows, rows: Order) -> str:
    """A question about rows that have the right actions, but not each device's or link's own in order."""
    home = {action: i for i, row in enumerate(wanted) for action in row}
    for row in found:
        if mixed := next((each for each in row if home[each] != home[row[0]]), None):
            return _mixed(row[0], mixed, rows)
    for row in wanted:
        if row not in found:
            mine = next(other for other in found if row[0] in other)
            if len(mine) < len(row):
                other = next(each for each in row if each not in mine)
                way = _way(row[0], rows) if row[0][1] in "fb" else "on one device"
                says = f"{spelled(row[0])} and {spelled(other)} are on different rows, and both are {way}"
                return f"{says}. What keeps them from happening at the same time?"
            at = first_other(mine, row)
            says = f"{spelled(mine[at])} comes before {spelled(row[at])}"
            if row[0][1] in "fb":
                link = f"on the row of what is {_way(row[0], rows)}"
                return f"{link}, {says}. Which of the two does the sender make first?"
            return f"on one row, {says}. Who changed that?"
    return f"a row stands more than once among {in_words(found)}. Which one?"


def _mixed(one: Step, other: Step, rows: Order) -> str:
    links = [each[1] in "fb" for each in (one, other)]
    says = f"{spelled(one)} and {spelled(other)} are on one row"
    if all(links):
        ways = f"one is {_way(one, rows)}, the other {_way(other, rows)}"
        return f"{says}; {ways}. Do they wait for each other?"
    if any(links):
        return f"{says}. Must a device wait until its link has carried the message?"
    return f"{says}. Which device does which?"


def _way(message: Step, rows: Order) -> str:
    """From which device to which one a message goes."""
    home = {s: k for k, row in enumerate(rows) for s, _, _ in row}
    below, above = home[message[0] // 2], home[message[0] // 2 + 1]
    source, target = (below, above) if message[1] == "f" else (above, below)
    return f"from device {source} to device {target}"


@exercise("write a function of (K, M, F, B, busy, latency) and pass it in")
def gpipe_on_links(answer: Callable | None) -> Reply:
    """Check ``answer(K, M, F, B, busy, latency)``: how long GPipe takes if every link is like this."""
    for setting in SETTINGS:
        said = called(answer, *setting, without=simulators(answer))
        where = "K = {}, M = {}, F = {}, B = {}, busy {}, latency {}".format(*map(written, setting))
        if said is None:
            return keep_working(f"{where}: {NOTHING_BACK}")
        if not is_number(said):
            return keep_working(f"{where}: you say {said!r}. How long is that, as a number?")
        measured = on_equal_links(*setting)
        if said != measured:
            same = written(said) == written(measured)
            told = f"{where}: you say {said if same else written(said)}, measured {written(measured)}"
            return _mistaken(told, said, setting)
    return correct(
        f"exact in {len(SETTINGS)} settings. What would a faster forward change where busy is above F?"
    )


def simulators(answer: object) -> list[FunctionType]:
    """What simulates: the library, the lesson's clock, the student's, and one in the student's notebook."""
    clocks = (answers.clock, mine.clock, getattr(answer, "__globals__", {}).get("clock"))
    return [each for each in (simulate, Machine.__init__, *clocks) if isinstance(each, FunctionType)]


def on_equal_links(K: int, M: int, F: Real, B: Real, busy: Real, latency: Real) -> Real:
    """The length of GPipe, measured."""
    link = Link(latency, 1 / Fraction(busy) if busy else inf)
    return simulate(GPipe(K, M), Costs(F, B, 0), links=link, message_bytes=1).makespan


def _mistaken(told: str, said: Real, setting: tuple) -> Reply:
    K, M, F, B, busy, latency = setting
    if K == 1:
        return almost(f"{told}. How many links has one device?")
    plain, hops = (M + K - 1) * (F + B), K - 1
    whole, behind = busy + latency, bool(hops) * (M - 1)
    fill, queue = 2 * hops * whole, behind * (max(busy - F, 0) + max(busy - B, 0))
    delayed = plain + fill
    known = {
        plain: "That is without messages. What does the first one delay?",
        delayed: "That is a plain delay. What if the link is still busy when the next message is made?",
        plain + fill / 2 + queue: "That is one way. How do the gradients come back?",
        plain + 2 * hops * busy + queue: "That leaves out the latency. Whom does it delay?",
        delayed + behind * max(busy - F, 0): "Activations queue there. When do gradients?",
        delayed + queue * M / max(M - 1, 1): "How many messages are behind the first one?",
        delayed + hops * queue: (
            "That has each message queue on every link. How far apart does it reach the second?"
        ),
        delayed + behind * (max(whole - F, 0) + max(whole - B, 0)): "Is a link busy during its latency?",
        delayed + (M - 1) * (2 * busy - F - B): "Can a link that is quicker than its sender shorten a step?",
    }
    if said in known:
        return almost(f"{told}. {known[said]}")
    return keep_working(f"{told}. How far apart do the messages leave a device, and how far do they arrive?")
