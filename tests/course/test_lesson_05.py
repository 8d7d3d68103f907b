"""Lesson 05: what the checks say to right answers and to the usual wrong ones."""

from functools import cache, partial
from itertools import pairwise

import numpy as np
import pytest
from replies import assert_each_is_told, changed, each_reply, natural

import gpipe_sim as gp
from gpipe_sim.course import answers, called, lesson_05
from gpipe_sim.course.answers import NEEDS, needs
from gpipe_sim.course.lesson_05 import clock

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


def by_heart(action, S, table):
    s, kind, m = action
    if kind == "F":
        return [(s - 1, "F", m)] if s > 0 else []
    return [(s, "F", m)] + ([(s + 1, "B", m)] if s < S - 1 else [])


def shortens_its_table(action, S, table):
    s, kind, m = action
    table[kind] = [(other, way) for other, way in table[kind] if 0 <= s + way < S]
    return [(s + way, other, m) for other, way in table[kind]]


def in_a_loop(action, S, table):
    found = []
    for kind, way in table[action[1]]:
        stage = action[0] + way
        if stage in range(S):
            found.append((stage, kind, action[2]))
    return found


def of_needs(change):
    return lambda action, S, table: change(needs(action, S, table))


def each_need(change):
    return of_needs(lambda found: [change(*one) for one in found])


def of_ends(change):
    return lambda rows, table, cost: change(answers.clock(rows, table, cost), rows, cost)


in_floats = of_ends(lambda ends, *_: {action: float(end) for action, end in ends.items()})


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


def eats_its_rows(rows, table, cost):
    S = 1 + max(s for row in rows for s, _, _ in row)
    ends, free = {}, [0] * len(rows)
    while able := [k for k, row in enumerate(rows) if row and set(needs(row[0], S, table)) <= set(ends)]:
        action = rows[able[0]].pop(0)
        begins = max([free[able[0]]] + [ends[one] for one in needs(action, S, table)])
        ends[action] = free[able[0]] = begins + cost[action[1]]
    return ends


F, B = [("F", -1)], [("F", 0), ("B", +1)]
N, C = partial(changed, needs), partial(changed, answers.clock)
START = "max([free[k], *arrived])"


def warming_up(depths: tuple[int, ...], microbatches: int = 4) -> gp.Explicit:
    """Each device does so many forwards, then a forward and a backward in turn, then what is left."""
    rows = []
    for device, depth in enumerate(depths):
        row = [gp.core.F(device, m) for m in range(depth)]
        for m in range(microbatches - depth):
            row += [gp.core.F(device, depth + m), gp.core.B(device, m)]
        rows.append([*row, *(gp.core.B(device, m) for m in range(microbatches - depth, microbatches))])
    return gp.Explicit(rows)


SHORT = "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3\n1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3\n2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3"


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


def test_a_clock_that_eats_its_rows_is_told_so_and_leaves_those_of_the_check():
    said = repr(clock(eats_its_rows))
    assert said.startswith(
        "almost: every end is right. But with the rows 0F0 0F1 0B1 0B0 and F = 1, B = 2, the "
    )
    assert said.endswith("the rows are empty when your clock is done. Who else may need them?")
    assert all(row for rows, _, _ in lesson_05.CLOCKED[:4] for row in rows)


def test_a_clock_that_rounds_is_told_where_and_not_that_it_is_late():
    from_zeros = C(("[0] * len(rows)", "[0.0] * len(rows)"))
    for rounds in (in_floats, from_zeros):
        said = repr(clock(rounds))
        assert said.startswith("almost: every end is nearly right. But with the rows 0F0 0F1 0F2 0B0")
        assert "F = 1/3, B = 3/4, 0F0 ends at 0.333333333333333" in said
        assert said.endswith("by your clock, and should at 1/3. Where does your clock begin to round?")


def test_a_clock_that_never_gives_up_is_stopped(monkeypatch):
    monkeypatch.setattr(called, "SECONDS", 0.3)
    said = clock(waits_for_ever).text
    assert "2F0 2B0 2B1 2F1 and F = 1, B = 2 it was still running after 0.3 seconds, in your line" in said


def reply(check, answer) -> str:
    return repr(check(answer))


def test_an_order_that_cannot_run_is_explained():
    ask = " What would have to come earlier, and on which row?"
    assert reply(lesson_05.unlock, lesson_05.KNOT) == (
        f"keep working: 0B0 needs 1B0, queued behind 1F1, which needs 0F1, queued behind 0B0.{ask}"
    )
    assert lesson_05.unlock(str(lesson_05.KNOT)) == lesson_05.unlock(lesson_05.KNOT)
    said = reply(lesson_05.short_and_small, warming_up((0, 1, 0)))
    assert said == f"keep working: 0B0 needs 1B0, queued behind 1F1, which needs 0F1, queued behind 0B0.{ask}"
    backward_first = "0B0 0F0 0F1 0B1\n1F1 1B1 1F0 1B0"
    assert reply(lesson_05.unlock, backward_first) == f"keep working: 0B0 needs 0F0, queued behind 0B0.{ask}"
    head_on = "0F0 0B0 0F1 0B1\n1F1 1B1 1F0 1B0".replace("1F1 1B1 1F0 1B0", "1B0 1F1 1F0 1B1")
    assert reply(lesson_05.unlock, head_on) == f"keep working: 1B0 needs 1F0, queued behind 1B0.{ask}"


def test_one_swap_and_only_one_unlocks():
    freed = [swapped for swapped in swaps() if lesson_05.unlock(swapped).verdict == "correct"]
    assert [str(order) for order in freed] == ["device 0: 0F0 0F1 0B0 0B1\ndevice 1: 1F1 1B1 1F0 1B0"]
    assert "it runs and takes 12. Device 0 now does two forwards before its first b" in reply(
        lesson_05.unlock, freed[0]
    )
    assert gp.peak_in_flight(freed[0]) == (2, 1)
    assert all(
        lesson_05.unlock(swapped).verdict == "keep working" for swapped in swaps() if swapped not in freed
    )


def swaps() -> list[gp.Explicit]:
    found = []
    for device in range(2):
        for i in range(4):
            for j in range(i):
                rows = [list(row) for row in lesson_05.KNOT.actions]
                rows[device][i], rows[device][j] = rows[device][j], rows[device][i]
                found.append(gp.Explicit(rows))
    return found


def test_another_order_altogether_is_more_than_a_swap():
    said = reply(lesson_05.unlock, gp.OneFOneB(2, 2))
    assert said.startswith(
        "keep working: it runs and takes 9, but 0F1, 0B0, 1F0, 1B0, 1F1, 1B1 stand elsewhere now."
    )
    two_swaps = "0F0 0F1 0B1 0B0\n1F1 1B1 1F0 1B0"
    assert reply(lesson_05.unlock, two_swaps).startswith("almost: it runs and takes")


def test_the_natural_wrong_predictions_are_what_they_are_said_to_be():
    order = gp.Explicit.parse("0F0 0F1 0F2 0B0 0B1 0B2\n1F0 1B0 1F1 1B1 1F2 1B2")
    other = gp.Explicit.parse("0F0 0F1 0F2 0B2 0B1 0B0\n1F2 1B2 1F1 1B1 1F0 1B0")
    four = [gp.core.Action.parse(text) for text in ("0F1", "1F1", "1B1", "0B1")]
    needs = {str(action): list(map(str, gp.core.needs(action, order))) for action in four}
    assert needs == {"0F1": [], "1F1": ["0F1"], "1B1": ["1F1"], "0B1": ["0F1", "1B1"]}
    before = {str(b): str(a) for row in order.actions for a, b in pairwise(row)}
    on_the_row = sum(len({*found, before[text]}) for text, found in needs.items())
    count = sum(map(len, needs.values()))
    one_and_two = sum(1 + ("B" in text) for text in needs)
    wrong = [count - 1, count + 1, one_and_two, on_the_row, 2 * len(four)]
    assert list(natural("05", "What the four actions need")) == wrong
    assert list(natural("05", "How long the other order takes")) == [
        3 * 3,
        gp.simulate(order).makespan,
        2 * 3 * 3,
    ]
    step, path = lengths((1, 2, 1))
    assert list(natural("05", "What each stage would bring")) == [
        0,
        (path[0] - 2) / 2,
        (path[0] - 1) / 2,
        path[0],
        4 * 3 / 2,
        path[1] / 2,
        step / 2,
    ]
    for right, wrong in {
        count: natural("05", "What the four actions need"),
        gp.simulate(other).makespan: natural("05", "How long the other order takes"),
        "0F0": natural("05", "Which action ends last"),
        "false": natural("05", "All such orders"),
        24: natural("05", "The gradients of the drawing"),
        step - lengths((0.5, 2, 1))[0]: natural("05", "What each stage would bring"),
    }.items():
        assert_each_is_told(wrong, right)


def lengths(times) -> tuple[float, list[float]]:
    """How long GPipe takes on three such stages, and how much of its critical path is on each device."""
    timeline = gp.simulate(gp.GPipe(3, 4), gp.Costs(forward=times, input_grad=times, weight_grad=times))
    path = gp.why.critical_path(timeline)
    on = [sum(span.end - span.start for span in path if span.device == k) for k in range(3)]
    return timeline.makespan, on


FUNCTIONS = [
    (shortens_its_table, "(0, 'F', 0), 3, NEEDS) it leaves the table as {'F': [],"),
    (N((" if 0 <= s + way < S", "")), "(0, 'F', 0), 3, NEEDS) it gives -1F0. The stages are 0 to"),
    (N(("0 <= s + way < S", "s + way >= 0")), "(2, 'B', 0), 3, NEEDS) it gives 2F0 and 3B0. The stages are"),
    (N(("< S", "<= S")), "The stages are 0 to 2. Where is stage 3?"),
    (N(("0 <= s", "0 < s")), "an entry that leads to 0F0. Where does your function drop it?"),
    (N(("s + way", "s - way")), "(0, 'F', 0), 3, NEEDS) it gives 1F0. Which entry of the table"),
    (N(("way, other,", "way, kind,")), "it gives 0B0 and 1B0. The table has an entry that leads to 0F0."),
    (of_needs(lambda found: found[:1]), "leads to 1B0. Where does your function drop it?"),
    (by_heart, "'B': [('F', 0)]}) it gives 0F0 and 1B0. Which entry"),
    (
        N((" if 0 <= s + way < S", " if (way, s) not in ((-1, 0), (1, S - 1))")),
        "it gives -2B0 and 0F0. The stages are 0 to 2. Where is stage -2?",
    ),
    (
        N(("s + way, other", "s + max(-1, min(1, way)), other")),
        "it gives 1F0. The table has an entry that leads to 2F0.",
    ),
    (
        lambda action, S, table: needs(action, S, table) if action[:2] != (0, "F") else [],
        "that leads to 2F0. Where does your function drop it?",
    ),
    (lambda action, S, table: needs(action, S, NEEDS), "Which entry of the table leads to 1B0?"),
    (
        of_needs(lambda found: found + [(s, kind, m - 1) for s, kind, m in found[:1] if m]),
        "Of which microbatch does it read something?",
    ),
    (each_need(lambda s, kind, _: (s, kind, 0)), "Of which microbatch does it read something?"),
    (each_need(lambda s, kind, m: (kind, s, m)), "it gives [('F', 0, 0), ('B', 1, 0)]. What is in a list"),
    (each_need(lambda *one: list(one)), "What is in a list of actions, each (stage, kind, microbatch)?"),
    (each_need("{}{}{}".format), "it gives ['0F0', '1B0']. What is in a list"),
    (of_needs(iter), "it gives a list_iterator. Later lessons read it more than once"),
    (of_needs(set), "it gives a set. Later lessons read"),
    (of_needs(lambda found: 2 * found), "Does it need one of them twice?"),
    (lambda action, S, table: table[action[0]], "it stopped: KeyError: 0"),
]
TABLES = [
    ({"F": F, "B": [("F", 0), ("B", -1)]}, "1B2 needs 1F2 and 0B2. What"),
    ({"F": F, "B": [*B, ("F", +1)]}, "1B2 needs 1F2 and 2B2 and 2F2. What"),
    ({"F": F, "B": [*B, ("F", 0)]}, "Does it need one of them twice?"),
    ({"F": [("F", +1)], "B": B}, "1F2 needs 2F2. From where does a forward"),
    ({"F": [], "B": B}, "1F2 needs nothing. From where"),
    ({"F": F}, "NEEDS has the keys ['F']. What does B need?"),
    ({"F": F, "B": B[0]}, "NEEDS[\"B\"] is ('F', 0). How is it written"),
    ({"F": F, "B": [(0, "F"), (1, "B")]}, "[(0, 'F'), (1, 'B')]. How is it written"),
    ({"F": F, "B": ["0F0", "1B0"]}, "['0F0', '1B0']. How is it written"),
    ([F, B], "Which two kinds of action want an entry in a dict?"),
    (None, "NEEDS is None. Which two kinds"),
]
NEEDED = {
    "correct": [
        ((NEEDS, needs), ""),
        ((NEEDS, in_a_loop), ""),
        (({"B": B[::-1], "F": [("F", np.int64(-1))]}, of_needs(lambda found: found[::-1])), ""),
    ],
    "almost": [
        (({"F": F, "B": [("B", +1)]}, needs), "1B2 needs 2B2. What does a backward read that its own"),
        (({"F": F, "B": [("F", 0)]}, needs), "1B2 needs 1F2. What does a backward read"),
    ],
    "keep working": [
        *(((NEEDS, function), words) for function, words in FUNCTIONS),
        *(((table, needs), words) for table, words in TABLES),
        ((NEEDS, None), 'the table is right. What does it say that (1, "F", 2) needs'),
    ],
}
#: It used to pass: all orders that were tried end within a round more than there are devices.
some_rounds = C(("while moved:", "for _ in range(len(rows) + 1):"))
CLOCKS = {
    "correct": [(answers.clock, ""), (by_recursion, ""), (with_places, "")],
    "almost": [
        (raises_at_a_deadlock, "There no finger can move any more. What should your clock return then?"),
        (eats_its_rows, "every end is right. But with"),
        (in_floats, "every end is nearly right. But with"),
    ],
    "keep working": [
        (C((START, "max([0, *arrived])")), "0F1 ends at 1 by your clock, so it starts at 0. Until when"),
        (C((START, "free[k]")), "so it starts at 0. When does the last thing that it needs arrive?"),
        (C((START, "min([free[k], *arrived])")), "0B0 ends at 3 by your clock, so it starts at 1."),
        (C((START, "sum([free[k], *arrived])")), "Why later?"),
        (C((START, "max([free[k], *arrived[:1]])")), "When does the last thing that it needs arrive?"),
        (
            C((START, "max([free[k], *arrived[-1:]])")),
            "and the table {'F': [('F', -1)], 'B': [('B', 1), ('F', 0)]}",
        ),
        (C(("cost[action[1]]", 'cost["F"]')), "0B1 lasts from 2 to 3 by your clock. How long does B take?"),
        (C(("cost[action[1]]", "1")), "by your clock. How long does B take?"),
        (C((" + cost[action[1]]", "")), "0F0 lasts from 0 to 0 by your clock. How long does F take?"),
        (C(("free[k] = ends[action]", "ends[action]")), "Until when is its device busy with"),
        (C(("all(need", "any(need")), "your clock stops before 0F0, and it needs nothing."),
        (
            C(("S, table", "S, {'F': [('F', -1)], 'B': [('F', 0), ('B', 1)]}")),
            "and the table {'F': [('F', -1)]",
        ),
        (one_pass, "B = 4, your clock stops before 1B1, and its needs, 1F1 and 2B1, have their ends."),
        (one_clock_for_all, "Why later?"),
        (in_steps, "1F1 lasts from 16 to 19 by your clock. How long does F take?"),
        (takes_any_that_can_run, "Until when is its device busy with what stands before it?"),
        (lambda rows, table, cost: answers.clock(rows, table | {"B": [("B", +1)]}, cost), "by your clock"),
        (some_rounds, "48 of 64 actions have an end. What could still move after your last round?"),
        (C(("while moved:", "for _ in range(40):")), "318 of 480 actions have an end."),
        (
            C(("while row and", "if row and"), ("while moved:", "for _ in range(100):")),
            "What could still move",
        ),
        (C(("need in ends for", "ends.get(need) for")), "your clock stops before 1F0, and its needs, 0F0,"),
        (never_forgets, "which no row has. Where does your dict begin?"),
        (
            of_ends(lambda ends, rows, cost: [[ends.get(action) for action in row] for row in rows]),
            "it gives [[1, 2, 4, 6]]. Which moment belongs to which action, in a dict?",
        ),
        (
            of_ends(lambda ends, *_: {"{}{}{}".format(*action): end for action, end in ends.items()}),
            "it gives an end to '0F0'. How is an action written as a tuple?",
        ),
        (
            of_ends(lambda ends, rows, cost: {a: (end - cost[a[1]], end) for a, end in ends.items()}),
            "it says that 0F0 ends at (0, 1). Which number would that be?",
        ),
        (of_ends(lambda ends, *_: max(ends.values())), "it gives 6. Which moment belongs to which action"),
        (
            of_ends(lambda ends, *_: {action: int(end) for action, end in ends.items()}),
            "and F = 1/3, B = 3/4, 0F0 lasts from 0 to 0 by your clock. How long does F take?",
        ),
        (
            lambda rows, table, cost: answers.clock(rows, table, {"F": 1, "B": 2}),
            "0F0 lasts from 0 to 1 by your clock",
        ),
        (
            of_ends(lambda ends, rows, _: {action: ends.get(action) for row in rows for action in row}),
            "ends at None. Which number would that be?",
        ),
        (
            of_ends(lambda ends, rows, _: {action: ends.get(action, 0) for row in rows for action in row}),
            "has an end. Did all that it needs, and all before it on its row, end?",
        ),
        (
            C(("1 + max(s for row in rows for s, kind, m in row)", "len(rows)")),
            "1B0 ends at 11 by your clock, so it starts at 6. When does the last",
        ),
        (C(("free[k]", "free[action[0]]")), "it stopped: IndexError"),
        (C(("while row and", "while")), "it stopped: IndexError: list index out of range. How many"),
        (C(("    return ends", "    return ends[max(ends)]")), "Which moment belongs to which action"),
    ],
}
LONG_ENOUGH = gp.OneFOneB(3, 4)
RENAMED = [[a._replace(microbatch=(1, 0, 3, 2)[a.microbatch]) for a in row] for row in LONG_ENOUGH.actions]
SHORTEST = {
    "correct": [
        (str(LONG_ENOUGH), "18 long, peaks 3, 2, 1."),
        (LONG_ENOUGH, "18 long, peaks 3, 2, 1."),
        (gp.Explicit(RENAMED), ""),
        (answers.capped_rows(3, 4, lesson_05.ROOM, NEEDS, {"F": 1, "B": 2}), "18 long, peaks 3, 2, 1."),
        (SHORT.splitlines(), "18 long, peaks 3, 2, 1."),
    ],
    "almost": [
        (warming_up((3, 2, 1)), "also 18, but peaks 4, 3, 2. What did the extra forward buy?"),
        (warming_up((1, 1, 0)), "takes 24, with peaks 2, 2, 1. Device 2 waits from 8 to 11 for 1F2."),
    ],
    "keep working": [
        (gp.GPipe(3, 4), "also 18, but peaks 4, 4, 4. What did the extra forwards buy?"),
        (gp.Naive(3, 4), "it takes 36, with peaks 1, 1, 1. Device 2 waits from 5 to 11 for 1F1."),
        (WAITS_AT_ONCE, "it takes 21, with peaks 4, 4, 2. Device 2 waits from 3 to 6 for 1F1. What"),
        (PUT_OFF, "Device 2 is done at 14; the others go on until 24. What have they put off?"),
        (LATE, "Device 2 starts at 5, and could at 2. What do the others do first?"),
    ],
    "wrong": [
        *(warming_up(depths) for depths in ((0, 1, 0), (2, 2, 0), (3, 3, 2), (1, 0, 0))),
        gp.GPipe(3, 4, drain="in_order"),
        gp.OneFOneB(3, 3),
        gp.OneFOneB(2, 4),
        SHORT.replace("0F3 0B1", "0B1 0F3"),
        SHORT.replace("2F1 2B1", "2B1 2F1"),
        SHORT.replace("2B3", "2B2"),
    ],
}
ORDERS = {
    "keep working": [
        (5, "write the rows as one text, such as '0F0 0B0' (got int)"),
        ("", "one row for each of the 2 devices, please (got 0)"),
        ("0F0 0B0", "one row for each of the 2 devices, please (got 1)"),
        ("0F0 and so on\n1F0", "'and' is no action: write stage, F or B, microbatch, such as 0F0"),
        (
            "0F0 0x1 0B0 0B1\n1F0 1F1 1B0 1B1",
            "'0x1' is no action: write stage, F or B, microbatch, such as 0F0",
        ),
        ("0F0;0F1 0B0 0B1\n1F0 1F1 1B0 1B1", "'0F0;0F1' is no action: write"),
        ("F0 F1 B0 B1\nF1 B1 F0 B0", "'F0' is no action: write stage, F or B, microbatch, such as 0F0"),
        ("0F0 0F1 0B0 0B1\n1F0 1F1 1B0", "1B1 is missing"),
        ("0F0 0F0 0F1 0B0 0B1\n1F0 1F1 1B0 1B1", "0F0 stands 2 times"),
        ("1F0 1F1 1B0 1B1\n0F0 0F1 0B0 0B1", "0F0 is on device 1, but stage 0 is on device 0 (and"),
        ("0F0 0F1 0I0 0W0 0B1\n1F0 1B0 1F1 1B1", "'0I0' is no action: write stage, F or B, microbatch"),
        ("0F0 0F1 0B0 0B1\n(1F0;1B0)OVERLAP_F_B 1F1 1B1", "'(1F0;1B0)OVERLAP_F_B' is no action: write stage"),
        ("99999999999F0 0F1\n1F0 0F99999999999", "99999999999F0 is out of range"),
        ([["0F0", "0B0"], ["1F0", "1B0"]], "the row of device 0 has '0F0'. How is 0F0 written as a tuple"),
        ([[(0, "F", 0), None], [(1, "F", 0)]], "the row of device 0 has None. How is 0F0 written as a tuple"),
        ([[(0, "F", 0)]], "one row for each of the 2 devices, please (got 1)"),
    ],
}
test_replies = each_reply(
    lesson_05, table_and_needs=NEEDED, clock=CLOCKS, short_and_small=SHORTEST, unlock=ORDERS
)


@pytest.fixture(autouse=True)
def nothing_is_remembered():
    shared.cache_clear()


def test_what_is_asked_for_is_what_1f1b_does():
    assert (gp.simulate(LONG_ENOUGH).makespan, gp.peak_in_flight(LONG_ENOUGH)) == (
        lesson_05.LONG,
        lesson_05.ROOM,
    )


def test_rows_may_have_commas_and_small_letters():
    assert lesson_05.unlock("0f0, 0f1, 0b0, 0b1\n1f1,1b1,1f0,1b0").verdict == "correct"


def test_the_replies_draw_the_students_rows():
    long, stuck = lesson_05.short_and_small(str(gp.GPipe(3, 4))), lesson_05.unlock(lesson_05.KNOT)
    assert long.picture.more == str(gp.GPipe(3, 4)) and "Your rows" in long.picture.says
    assert stuck.picture.says == "Your rows, stuck at 0B0 and 1F1"
    assert "Your rows, as far as they run" in str(stuck.picture)
    twice = lesson_05.unlock("0F0 0F1 0B0 0B1 0F1\n1F0 1F1 1B0 1B1")
    assert twice.picture.says == "Your rows, here: 0F1"
    assert twice.picture.more.startswith("device 0: 0F0 0F1 0B0 0B1 0F1")
