"""Lesson 05: what the checks say to right answers and to the usual wrong ones."""

import inspect
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from replies import assert_each_is_told, assert_says

import gpipe_sim as gp
from gpipe_sim.course import answers, called, lesson_05
from gpipe_sim.course.answers import NEEDS, needs
from gpipe_sim.course.lesson_05 import (
    CLOCKED,
    KNOT,
    LONG,
    ROOM,
    clock,
    short_and_small,
    table_and_needs,
    unlock,
)

PUT_OFF = """
0F0 0F1 0F2 0F3 0B3 0B1 0B2 0B0
1F0 1F1 1F2 1F3 1B0 1B1 1B2 1B3
2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3"""
WAITS_AT_ONCE = """
0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3
1F0 1F2 1F3 1F1 1B0 1B1 1B2 1B3
2F0 2F1 2B0 2B1 2F2 2B2 2F3 2B3"""
LATE = """
0F0 0F1 0F2 0F3 0B3 0B2 0B1 0B0
1F3 1F2 1F1 1F0 1B3 1B2 1B1 1B0
2F3 2F2 2F1 2F0 2B3 2B2 2B1 2B0"""


def no_bounds(action, S, table):
    s, kind, m = action
    return [(s + way, other, m) for other, way in table[kind]]


def no_upper_bound(action, S, table):
    s, kind, m = action
    return [(s + way, other, m) for other, way in table[kind] if s + way >= 0]


def one_stage_too_many(action, S, table):
    s, kind, m = action
    return [(s + way, other, m) for other, way in table[kind] if 0 <= s + way <= S]


def drops_stage_0(action, S, table):
    s, kind, m = action
    return [(s + way, other, m) for other, way in table[kind] if 0 < s + way < S]


def the_other_way(action, S, table):
    s, kind, m = action
    return [(s - way, other, m) for other, way in table[kind] if 0 <= s - way < S]


def same_kind(action, S, table):
    s, kind, m = action
    return [(s + way, kind, m) for other, way in table[kind] if 0 <= s + way < S]


def only_the_first(action, S, table):
    return needs(action, S, table)[:1]


def by_heart(action, S, table):
    s, kind, m = action
    if kind == "F":
        return [(s - 1, "F", m)] if s > 0 else []
    return [(s, "F", m)] + ([(s + 1, "B", m)] if s < S - 1 else [])


def the_notebooks_table(action, S, table):
    return needs(action, S, NEEDS)


def the_row_before(action, S, table):
    s, kind, m = action
    return needs(action, S, table) + ([(s, kind, m - 1)] if m > 0 else [])


def microbatch_0(action, S, table):
    return [(s, kind, 0) for s, kind, _ in needs(action, S, table)]


def kind_first(action, S, table):
    return [(kind, s, m) for s, kind, m in needs(action, S, table)]


def as_lists(action, S, table):
    return [list(one) for one in needs(action, S, table)]


def as_text(action, S, table):
    return ["{}{}{}".format(*one) for one in needs(action, S, table)]


def none_at_stage_0(action, S, table):
    return needs(action, S, table) or None


def twice(action, S, table):
    return 2 * needs(action, S, table)


def looks_up_a_stage(action, S, table):
    return table[action[0]]


def shortens_its_table(action, S, table):
    s, kind, m = action
    table[kind] = [(other, way) for other, way in table[kind] if 0 <= s + way < S]
    return [(s + way, other, m) for other, way in table[kind]]


def one_by_one(action, S, table):
    yield from needs(action, S, table)


def as_a_set(action, S, table):
    return set(needs(action, S, table))


F, B = [("F", -1)], [("F", 0), ("B", +1)]
NEEDED = [
    (({"F": F, "B": [("B", +1)]}, needs), "almost", "1B2 needs 2B2. What does a backward read that its own"),
    (({"F": F, "B": [("F", 0)]}, needs), "almost", "1B2 needs 1F2. What does a backward read"),
    (({"F": F, "B": [("F", 0), ("B", -1)]}, needs), "keep working", "1B2 needs 1F2 and 0B2. What"),
    (({"F": F, "B": [*B, ("F", +1)]}, needs), "keep working", "1B2 needs 1F2 and 2B2 and 2F2. What"),
    (({"F": F, "B": [*B, ("F", 0)]}, needs), "keep working", "Does it need one of them twice?"),
    (({"F": [("F", +1)], "B": B}, needs), "keep working", "1F2 needs 2F2. From where does a forward"),
    (({"F": [], "B": B}, needs), "keep working", "1F2 needs nothing. From where"),
    (({"F": F}, needs), "keep working", "NEEDS has the keys ['F']. What does B need?"),
    (
        ({"F": F, "B": B[0]}, needs),
        "keep working",
        "NEEDS[\"B\"] is ('F', 0). How is it written",
    ),
    (({"F": F, "B": [(0, "F"), (1, "B")]}, needs), "keep working", "[(0, 'F'), (1, 'B')]. How is it written"),
    (({"F": F, "B": ["0F0", "1B0"]}, needs), "keep working", "['0F0', '1B0']. How is it written"),
    (([F, B], needs), "keep working", "Which two kinds of action want an entry in a dict?"),
    ((None, needs), "keep working", "NEEDS is None. Which two kinds"),
    ((NEEDS, None), "keep working", 'the table is right. What does it say that (1, "F", 2) needs'),
    ((NEEDS, NEEDS), "keep working", "pass in a function, not {"),
    ((NEEDS, shortens_its_table), "keep working", "(0, 'F', 0), 3, NEEDS) it leaves the table as {'F': [],"),
    (
        (NEEDS, no_bounds),
        "keep working",
        "(0, 'F', 0), 3, NEEDS) it gives -1F0. The stages are 0 to",
    ),
    ((NEEDS, no_upper_bound), "keep working", "(2, 'B', 0), 3, NEEDS) it gives 2F0 and 3B0. The stages are"),
    ((NEEDS, one_stage_too_many), "keep working", "The stages are 0 to 2. Where is stage 3?"),
    ((NEEDS, drops_stage_0), "keep working", "an entry that leads to 0F0. Where does your function drop it?"),
    ((NEEDS, the_other_way), "keep working", "(0, 'F', 0), 3, NEEDS) it gives 1F0. Which entry of the table"),
    ((NEEDS, same_kind), "keep working", "it gives 0B0 and 1B0. The table has an entry that leads to 0F0."),
    ((NEEDS, only_the_first), "keep working", "leads to 1B0. Where does your function drop it?"),
    (
        (NEEDS, by_heart),
        "keep working",
        "'B': [('F', 0)]}) it gives 0F0 and 1B0. Which entry",
    ),
    ((NEEDS, the_notebooks_table), "keep working", "Which entry of the table leads to 1B0?"),
    ((NEEDS, the_row_before), "keep working", "Of which microbatch does it read something?"),
    ((NEEDS, microbatch_0), "keep working", "Of which microbatch does it read something?"),
    (
        (NEEDS, kind_first),
        "keep working",
        "it gives [('F', 0, 0), ('B', 1, 0)]. What is in a list",
    ),
    ((NEEDS, as_lists), "keep working", "What is in a list of actions, each (stage, kind, microbatch)?"),
    ((NEEDS, as_text), "keep working", "it gives ['0F0', '1B0']. What is in a list"),
    ((NEEDS, none_at_stage_0), "keep working", "it gives nothing back. What should come after return?"),
    ((NEEDS, one_by_one), "keep working", "it gives a generator. Later lessons read it more than once"),
    ((NEEDS, as_a_set), "keep working", "it gives a set. Later lessons read"),
    ((NEEDS, twice), "keep working", "Does it need one of them twice?"),
    ((NEEDS, looks_up_a_stage), "keep working", "it stopped: KeyError: 0, in your line"),
]


def mutated(old: str, new: str, count: int = -1):
    """The folded clock with some of its text exchanged."""
    source = inspect.getsource(answers.clock)
    assert old in source
    names = {"needs": needs}
    exec(source.replace(old, new, count), names)
    return names["clock"]


def one_pass(rows, table, cost):
    S = 1 + max(s for row in rows for s, _, _ in row)
    ends = {}
    for row in rows:
        free = 0
        for action in row:
            if not all(need in ends for need in needs(action, S, table)):
                break
            arrived = [ends[need] for need in needs(action, S, table)]
            free = ends[action] = max([free, *arrived]) + cost[action[1]]
    return ends


def one_clock_for_all(rows, table, cost):
    ends, now = {}, 0
    todo = [list(row) for row in rows]
    while any(todo):
        S = 1 + max(s for row in rows for s, _, _ in row)
        able = [row for row in todo if row and all(need in ends for need in needs(row[0], S, table))]
        if not able:
            break
        now += cost[able[0][0][1]]
        ends[able[0].pop(0)] = now
    return ends


def in_steps(rows, table, cost):
    """All that can begin do so together, and nobody goes on before the longest of them has ended."""
    ends, now = {}, 0
    todo = [list(row) for row in rows]
    S = 1 + max(s for row in rows for s, _, _ in row)
    while able := [row for row in todo if row and all(need in ends for need in needs(row[0], S, table))]:
        now += max(cost[row[0][1]] for row in able)
        for action in [row.pop(0) for row in able]:
            ends[action] = now
    return ends


def takes_any_that_can_run(rows, table, cost):
    ends, S = {}, 1 + max(s for row in rows for s, _, _ in row)
    free, todo = [0] * len(rows), [list(row) for row in rows]
    moved = True
    while moved:
        moved = False
        for k, row in enumerate(todo):
            for action in list(row):
                if all(need in ends for need in needs(action, S, table)):
                    arrived = [ends[need] for need in needs(action, S, table)]
                    free[k] = ends[action] = max([free[k], *arrived]) + cost[action[1]]
                    row.remove(action)
                    moved = True
    return ends


def only_the_previous_stage(rows, table, cost):
    return answers.clock(rows, {"F": [("F", -1)], "B": [("B", +1)]}, cost)


def waits_for_ever(rows, table, cost):
    ends = {}
    while len(ends) < sum(map(len, rows)):
        ends |= answers.clock(rows, table, cost)
    return ends


def raises_at_a_deadlock(rows, table, cost):
    ends = answers.clock(rows, table, cost)
    if len(ends) < sum(map(len, rows)):
        raise ValueError("deadlock")
    return ends


@cache
def shared() -> dict:
    return {}


def never_forgets(rows, table, cost):
    shared().update(answers.clock(rows, table, cost))
    return shared()


def in_lists(rows, table, cost):
    ends = answers.clock(rows, table, cost)
    return [[ends.get(action) for action in row] for row in rows]


def spelled_out(rows, table, cost):
    return {"{}{}{}".format(*action): end for action, end in answers.clock(rows, table, cost).items()}


def with_starts(rows, table, cost):
    return {action: (end - cost[action[1]], end) for action, end in answers.clock(rows, table, cost).items()}


def how_long_in_all(rows, table, cost):
    return max(answers.clock(rows, table, cost).values())


def rounded(rows, table, cost):
    return {action: int(end) for action, end in answers.clock(rows, table, cost).items()}


def at_the_lessons_costs(rows, table, cost):
    return answers.clock(rows, table, {"F": 1, "B": 2})


def gives_none_to_the_stuck(rows, table, cost):
    ends = answers.clock(rows, table, cost)
    return {action: ends.get(action) for row in rows for action in row}


def zero_for_the_stuck(rows, table, cost):
    ends = answers.clock(rows, table, cost)
    return {action: ends.get(action, 0) for row in rows for action in row}


def a_stage_for_each_row(rows, table, cost):
    return mutated("1 + max(s for row in rows for s, kind, m in row)", "len(rows)")(rows, table, cost)


def stage_is_device(rows, table, cost):
    return mutated("free[k]", "free[action[0]]")(rows, table, cost)


def eats_its_rows(rows, table, cost):
    S = 1 + max(s for row in rows for s, _, _ in row)
    ends, free = {}, [0] * len(rows)
    while able := [k for k, row in enumerate(rows) if row and set(needs(row[0], S, table)) <= set(ends)]:
        action = rows[able[0]].pop(0)
        begins = max([free[able[0]]] + [ends[one] for one in needs(action, S, table)])
        ends[action] = free[able[0]] = begins + cost[action[1]]
    return ends


def in_floats(rows, table, cost):
    return {action: float(end) for action, end in answers.clock(rows, table, cost).items()}


START = "max([free[k], *arrived])"
CLOCKS = [
    (
        mutated(START, "max([0, *arrived])"),
        "0F1 ends at 1 by your clock, so it starts at 0. Until when",
    ),
    (mutated(START, "free[k]"), "so it starts at 0. When does the last thing that it needs arrive?"),
    (
        mutated(START, "min([free[k], *arrived])"),
        "0B0 ends at 3 by your clock, so it starts at 1.",
    ),
    (mutated(START, "sum([free[k], *arrived])"), "Why later?"),
    (mutated(START, "max([free[k], *arrived[:1]])"), "When does the last thing that it needs arrive?"),
    (
        mutated(START, "max([free[k], *arrived[-1:]])"),
        "and the table {'F': [('F', -1)], 'B': [('B', 1), ('F', 0)]}",
    ),
    (mutated("cost[action[1]]", 'cost["F"]'), "0B1 lasts from 2 to 3 by your clock. How long does B take?"),
    (mutated("cost[action[1]]", "1"), "by your clock. How long does B take?"),
    (mutated(" + cost[action[1]]", ""), "0F0 lasts from 0 to 0 by your clock. How long does F take?"),
    (
        mutated("free[k] = ends[action]", "ends[action]"),
        "Until when is its device busy with",
    ),
    (
        mutated("all(need", "any(need"),
        "your clock stops before 0F0, and it needs nothing.",
    ),
    (
        mutated("S, table", "S, {'F': [('F', -1)], 'B': [('F', 0), ('B', 1)]}"),
        "and the table {'F': [('F', -1)]",
    ),
    (
        one_pass,
        "B = 4, your clock stops before 1B1, and its needs, 1F1 and 2B1, have their ends.",
    ),
    (one_clock_for_all, "Why later?"),
    (in_steps, "1F1 lasts from 16 to 19 by your clock. How long does F take?"),
    (takes_any_that_can_run, "Until when is its device busy with what stands before it?"),
    (only_the_previous_stage, "by your clock"),
    (raises_at_a_deadlock, "it stopped: ValueError: deadlock"),
    (never_forgets, "which no row has. Where does your dict begin?"),
    (in_lists, "it gives [[1, 2, 4, 6]]. Which moment belongs to which action, in a dict?"),
    (spelled_out, "it gives an end to '0F0'. How is an action written as a tuple?"),
    (with_starts, "it says that 0F0 ends at (0, 1). Which number would that be?"),
    (how_long_in_all, "it gives 6. Which moment belongs to which action"),
    (rounded, "and F = 1/3, B = 3/4, 0F0 lasts from 0 to 0 by your clock. How long does F take?"),
    (at_the_lessons_costs, "0F0 lasts from 0 to 1 by your clock"),
    (gives_none_to_the_stuck, "ends at None. Which number would that be?"),
    (zero_for_the_stuck, "has an end. Did all that it needs, and all before it on its row, end?"),
    (a_stage_for_each_row, "1B0 ends at 11 by your clock, so it starts at 6. When does the last"),
    (stage_is_device, "it stopped: IndexError"),
    (mutated("while row and", "while"), "it stopped: IndexError: list index out of range. How many"),
    (mutated("    return ends", "    return ends[max(ends)]"), "Which moment belongs to which action"),
    (mutated("    return ends", "    ends"), "it gives nothing back. What should come after return?"),
    ({(0, "F", 0): 1}, "pass in a function"),
]


def warming_up(depths: tuple[int, ...], microbatches: int = 4) -> gp.Explicit:
    """Each device does so many forwards, then a forward and a backward in turn, then what is left."""
    rows = []
    for device, depth in enumerate(depths):
        row = [gp.F(device, m) for m in range(depth)]
        for m in range(microbatches - depth):
            row += [gp.F(device, depth + m), gp.B(device, m)]
        rows.append([*row, *(gp.B(device, m) for m in range(microbatches - depth, microbatches))])
    return gp.Explicit(rows)


SHORT = "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3\n1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3\n2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3"
LONGER = [
    (
        gp.Naive(3, 4),
        "keep working",
        "takes 36, with peaks 1, 1, 1. Device 2 waits from 5 to 11 for 1F1.",
    ),
    (WAITS_AT_ONCE, "keep working", "takes 21, with peaks 4, 4, 2. Device 2 waits from 3 to 6 for 1F1. What"),
    (warming_up((1, 1, 0)), "almost", "takes 24, with peaks 2, 2, 1. Device 2 waits from 8 to 11 for 1F2."),
    (PUT_OFF, "keep working", "Device 2 is done at 14; the others go on until 24. What have they put off?"),
    (LATE, "keep working", "Device 2 starts at 5, and could at 2. What do the others do first?"),
]
SWAPS = [
    "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1",
    "0F0 0F1 0B1 0B0\n1F1 1B1 1F0 1B0",
    "0F0 0B0 0F1 0B1\n1F1 1F0 1B1 1B0",
    "0F0 0B1 0F1 0B0\n1F1 1B1 1F0 1B0",
    "0F1 0B0 0F0 0B1\n1F1 1B1 1F0 1B0",
    "0F0 0B0 0F1 0B1\n1F0 1B1 1F1 1B0",
    "0F0 0B0 0B1 0F1\n1F1 1B1 1F0 1B0",
]
NO_ORDERS = [
    (5, "write the rows as one text, such as '0F0 0B0' (got int)"),
    ("", "one row for each of the 2 devices, please (got 0)"),
    ("0F0 0B0", "one row for each of the 2 devices, please (got 1)"),
    ("0F0 and so on\n1F0", "'and' is no action: write stage, F or B, microbatch, such as 0F0"),
    ("0F0 0f1 0B0 0B1\n1F0 1F1 1B0 1B1", "'0f1' is no action: write stage, F or B, microbatch, such as 0F0"),
    ("0F0,0F1 0B0 0B1\n1F0 1F1 1B0 1B1", "'0F0,0F1' is no action: write"),
    ("F0 F1 B0 B1\nF1 B1 F0 B0", "'F0' is no action: write stage, F or B, microbatch, such as 0F0"),
    ("0F0 0F1 0B0 0B1\n1F0 1F1 1B0", "1B1 is missing"),
    ("0F0 0F0 0F1 0B0 0B1\n1F0 1F1 1B0 1B1", "0F0 stands 2 times"),
    ("1F0 1F1 1B0 1B1\n0F0 0F1 0B0 0B1", "0F0 is on device 1, but stage 0 is on device 0 (and"),
    ("0F0 0F1 0I0 0W0 0B1\n1F0 1B0 1F1 1B1", "'0I0' is no action: write stage, F or B, microbatch"),
    (
        "0F0 0F1 0B0 0B1\n(1F0;1B0)OVERLAP_F_B 1F1 1B1",
        "'(1F0;1B0)OVERLAP_F_B' is no action: write stage",
    ),
    ("99999999999F0 0F1\n1F0 0F99999999999", "99999999999F0 is out of range"),
    ([["0F0", "0B0"], ["1F0", "1B0"]], "the row of device 0 has '0F0'. How is 0F0 written as a tuple"),
    ([[(0, "F", 0), None], [(1, "F", 0)]], "the row of device 0 has None. How is 0F0 written as a tuple"),
    ([[(0, "F", 0)]], "one row for each of the 2 devices, please (got 1)"),
]
WRONG = {
    "table_and_needs": [case[0] for case in NEEDED],
    "clock": [eats_its_rows, in_floats, *(case[0] for case in CLOCKS)],
    "unlock": [KNOT, *SWAPS, *(case[0] for case in NO_ORDERS)],
    "short_and_small": [
        *(case[0] for case in LONGER),
        *(warming_up(depths) for depths in ((0, 1, 0), (3, 2, 1), (2, 2, 0), (3, 3, 2), (1, 0, 0))),
        gp.GPipe(3, 4),
        gp.GPipe(3, 4, drain="in_order"),
        gp.OneFOneB(3, 3),
        gp.OneFOneB(2, 4),
        SHORT.replace("0F3 0B1", "0B1 0F3"),
        SHORT.replace("2F1 2B1", "2B1 2F1"),
        SHORT.replace("2B3", "2B2"),
    ],
}


@pytest.mark.parametrize(("answer", "verdict", "says"), NEEDED)
def test_needs_that_are_not_the_lessons_are_told_by_an_action(answer, verdict, says):
    assert_says(table_and_needs(*answer), verdict, says)


def test_needs_may_be_written_in_any_way():
    def in_a_loop(action, S, table):
        found = []
        for kind, way in table[action[1]]:
            stage = action[0] + way
            if stage in range(S):
                found.append((stage, kind, action[2]))
        return found

    for right in (needs, in_a_loop, lambda *each: needs(*each)[::-1]):
        assert (
            table_and_needs({"B": [("B", 1), ("F", 0)], "F": [("F", np.int64(-1))]}, right).verdict
            == "correct"
        )


@pytest.mark.parametrize(("answer", "says"), CLOCKS)
def test_a_clock_that_is_wrong_is_told_the_first_moment_at_which_it_is(answer, says):
    shared.cache_clear()
    reply = clock(answer)
    assert (reply.verdict, says in reply.text) == ("keep working", True), reply


def by_recursion(rows, table, cost):
    """When an action ends, asked of what it needs and of the action before it."""
    S = 1 + max(s for row in rows for s, _, _ in row)
    before = {b: a for row in rows for a, b in pairwise(row)}
    every = {action for row in rows for action in row}
    ends, asking = {}, set()

    def end(action):
        if action in asking or action not in every:
            return None
        if action not in ends:
            asking.add(action)
            known = [
                end(one)
                for one in [*needs(action, S, table), *([before[action]] if action in before else [])]
            ]
            asking.remove(action)
            if None in known:
                return None
            ends[action] = max(known, default=0) + cost[action[1]]
        return ends[action]

    for row in rows:
        for action in row:
            end(action)
    return ends


def with_places(rows, table, cost):
    S = max(action[0] for row in rows for action in row) + 1
    ends, places, free = {}, [0 for _ in rows], [0 for _ in rows]
    while True:
        done = len(ends)
        for k, row in reversed(list(enumerate(rows))):
            if places[k] < len(row) and ends.keys() >= set(needs(row[places[k]], S, table)):
                for one in needs(row[places[k]], S, table):
                    free[k] = max(free[k], ends[one])
                free[k] += cost[row[places[k]][1]]
                ends[row[places[k]]] = free[k]
                places[k] += 1
        if len(ends) == done:
            return ends


@pytest.mark.parametrize("right", [answers.clock, by_recursion, with_places])
def test_a_clock_may_be_written_in_any_way(right):
    assert clock(right).verdict == "correct", clock(right)


def test_a_clock_that_eats_its_rows_is_told_so_and_leaves_those_of_the_check():
    said = repr(clock(eats_its_rows))
    assert said.startswith(
        "almost: every end is right. But with the rows 0F0 0F1 0B1 0B0 and F = 1, B = 2, the "
    )
    assert said.endswith("the rows are empty when your clock is done. Who else may need them?")
    assert all(row for rows, _, _ in CLOCKED[:4] for row in rows)


def test_a_clock_that_rounds_is_told_where_and_not_that_it_is_late():
    from_zeros = mutated("[0] * len(rows)", "[0.0] * len(rows)")
    for rounds in (in_floats, from_zeros):
        said = repr(clock(rounds))
        assert said.startswith("almost: every end is nearly right. But with the rows 0F0 0F1 0F2 0B0")
        assert "F = 1/3, B = 3/4, 0F0 ends at 0.333333333333333" in said
        assert said.endswith("by your clock, and should at 1/3. Where does your clock begin to round?")


def test_a_clock_that_never_gives_up_is_stopped(monkeypatch):
    monkeypatch.setattr(called, "SECONDS", 0.3)
    said = clock(waits_for_ever).text
    assert "2F0 2B0 2B1 2F1 and F = 1, B = 2 it was still running after 0.3 seconds, in your line" in said


def test_without_a_build_it_says_what_to_write():
    assert repr(table_and_needs(None, None)).startswith("your turn: write NEEDS and needs in this cell")
    assert repr(clock(None)).startswith("your turn: write clock in this cell")


def reply(check, answer) -> str:
    return repr(check(answer))


def test_what_is_asked_for_is_what_1f1b_does():
    schedule = gp.OneFOneB(3, 4)
    assert (gp.simulate(schedule).makespan, gp.peak_in_flight(schedule)) == (LONG, ROOM)
    assert reply(short_and_small, str(schedule)).startswith("correct: 18 long, peaks 3, 2, 1.")
    assert short_and_small(schedule).verdict == "correct"


def test_any_order_as_short_and_as_small_will_do():
    other = (1, 0, 3, 2)
    rows = gp.OneFOneB(3, 4).actions
    renamed = [[action._replace(microbatch=other[action.microbatch]) for action in row] for row in rows]
    assert short_and_small(gp.Explicit(renamed)).verdict == "correct"


def test_one_warm_up_too_many():
    said = reply(short_and_small, warming_up((3, 2, 1)))
    assert said == "almost: also 18, but peaks 4, 3, 2. What did the extra forward buy?"


def test_all_forwards_first():
    said = reply(short_and_small, gp.GPipe(3, 4))
    assert said == "keep working: also 18, but peaks 4, 4, 4. What did the extra forwards buy?"


@pytest.mark.parametrize(("answer", "verdict", "says"), LONGER)
def test_too_long(answer, verdict, says):
    said = reply(short_and_small, answer)
    assert said.startswith(f"{verdict}: it takes" if "takes" in says else verdict) and says in said


def test_an_order_that_cannot_run_is_explained():
    ask = " What would have to come earlier, and on which row?"
    assert reply(unlock, KNOT) == (
        f"keep working: 0B0 needs 1B0, queued behind 1F1, which needs 0F1, queued behind 0B0.{ask}"
    )
    assert unlock(str(KNOT)) == unlock(KNOT)
    said = reply(short_and_small, warming_up((0, 1, 0)))
    assert said == f"keep working: 0B0 needs 1B0, queued behind 1F1, which needs 0F1, queued behind 0B0.{ask}"
    backward_first = "0B0 0F0 0F1 0B1\n1F1 1B1 1F0 1B0"
    assert reply(unlock, backward_first) == f"keep working: 0B0 needs 0F0, queued behind 0B0.{ask}"
    head_on = "0F0 0B0 0F1 0B1\n1F1 1B1 1F0 1B0".replace("1F1 1B1 1F0 1B0", "1B0 1F1 1F0 1B1")
    assert reply(unlock, head_on) == f"keep working: 1B0 needs 1F0, queued behind 1B0.{ask}"


def test_one_swap_and_only_one_unlocks():
    freed = [swapped for swapped in swaps() if unlock(swapped).verdict == "correct"]
    assert [str(order) for order in freed] == ["device 0: 0F0 0F1 0B0 0B1\ndevice 1: 1F1 1B1 1F0 1B0"]
    assert "it runs and takes 12. Device 0 now does two forwards before its first b" in reply(
        unlock, freed[0]
    )
    assert gp.peak_in_flight(freed[0]) == (2, 1)
    assert all(unlock(swapped).verdict == "keep working" for swapped in swaps() if swapped not in freed)


def swaps() -> list[gp.Explicit]:
    found = []
    for device in range(2):
        for i in range(4):
            for j in range(i):
                rows = [list(row) for row in KNOT.actions]
                rows[device][i], rows[device][j] = rows[device][j], rows[device][i]
                found.append(gp.Explicit(rows))
    return found


def test_another_order_altogether_is_more_than_a_swap():
    said = reply(unlock, gp.OneFOneB(2, 2))
    assert said.startswith(
        "keep working: it runs and takes 9, but 0F1, 0B0, 1F0, 1B0, 1F1, 1B1 stand elsewhere now."
    )
    two_swaps = "0F0 0F1 0B1 0B0\n1F1 1B1 1F0 1B0"
    assert reply(unlock, two_swaps).startswith("almost: it runs and takes")


def test_an_order_may_come_as_rows_of_tuples():
    rows = answers.capped_rows(3, 4, ROOM, NEEDS, {"F": 1, "B": 2})
    assert short_and_small(rows) == short_and_small(gp.OneFOneB(3, 4))


def test_an_order_may_come_as_a_list_of_texts():
    assert (
        short_and_small(SHORT.splitlines())
        == short_and_small(tuple(SHORT.splitlines()))
        == short_and_small(SHORT)
    )


@pytest.mark.parametrize("check", [short_and_small, unlock])
def test_without_an_answer_it_says_what_to_do(check):
    assert reply(check, None).startswith("your turn: write ")


@pytest.mark.parametrize(("answer", "says"), NO_ORDERS)
def test_what_is_no_order_is_answered_too(answer, says):
    said = reply(unlock, answer)
    assert said.startswith("keep working: ") and says in said


def test_the_natural_wrong_predictions_are_what_they_are_said_to_be():
    order = gp.Explicit.parse("0F0 0F1 0F2 0B0 0B1 0B2\n1F0 1B0 1F1 1B1 1F2 1B2")
    other = gp.Explicit.parse("0F0 0F1 0F2 0B2 0B1 0B0\n1F2 1B2 1F1 1B1 1F0 1B0")
    four = [gp.Action.parse(text) for text in ("0F1", "1F1", "1B1", "0B1")]
    needs = {str(action): list(map(str, gp.needs(action, order))) for action in four}
    assert needs == {"0F1": [], "1F1": ["0F1"], "1B1": ["1F1"], "0B1": ["0F1", "1B1"]}
    before = {str(b): str(a) for row in order.actions for a, b in pairwise(row)}
    on_the_row = sum(len({*found, before[text]}) for text, found in needs.items())
    count = sum(map(len, needs.values()))
    assert list(lesson_05.COUNTS) == [count - 1, count + 1, on_the_row]
    assert list(lesson_05.LENGTHS) == [3 * 3, gp.simulate(order).makespan, 2 * 3 * 3]
    step, path = lengths((1, 2, 1))
    assert list(lesson_05.SOONER) == [0, path[0], 4 * 3 / 2, path[1] / 2, step / 2]
    for right, wrong in {
        count: lesson_05.COUNTS,
        gp.simulate(other).makespan: lesson_05.LENGTHS,
        "0F0": lesson_05.LAST,
        "false": lesson_05.SAME_ORDER,
        24: lesson_05.DRAWN,
        step - lengths((0.5, 2, 1))[0]: lesson_05.SOONER,
    }.items():
        assert_each_is_told(wrong, right)


def lengths(times) -> tuple[float, list[float]]:
    """How long GPipe takes on three such stages, and how much of its critical path is on each device."""
    timeline = gp.simulate(gp.GPipe(3, 4), gp.Costs(forward=times, input_grad=times, weight_grad=times))
    path = gp.critical_path(timeline)
    on = [sum(span.end - span.start for span in path if span.device == k) for k in range(3)]
    return timeline.makespan, on
