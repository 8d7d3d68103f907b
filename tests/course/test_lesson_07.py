"""Lesson 07: what the checks say to right answers and to the usual wrong ones."""

from functools import partial
from itertools import product

import numpy as np
import pytest
from replies import assert_each_is_told, changed, each_reply, natural

import gpipe_sim as gp
from gpipe_sim.course import answers, lesson_07
from gpipe_sim.course.answers import NEEDS, gpipe_rows, needs
from gpipe_sim.course.rows import rows_of
from gpipe_sim.memory import greedy

UNIT = {"F": 1, "B": 2}
NO_COUNTS = (-1, "a", True, 0.5, [1])


def reply(check, answer) -> str:
    return repr(check(answer))


def moment_by_moment(K, M, caps, table, cost):
    """At each whole moment every free device chooses."""
    rows, ends, time = [[] for _ in range(K)], {}, 0
    until = [0] * K
    while any(len(row) < 2 * M for row in rows):
        for k, row in enumerate(rows):
            if until[k] > time:
                continue
            done = [a[1] for a in row]
            held = done.count("F") - done.count("B")
            choice = None
            for kind, room in (("B", True), ("F", held < caps[k])):
                action = (k, kind, done.count(kind))
                ready = all(ends.get(each, time + 1) <= time for each in needs(action, K, table))
                if choice is None and room and action[2] < M and ready:
                    choice = action
            if choice:
                row.append(choice)
                until[k] = ends[choice] = time + cost[choice[1]]
        time += 1
    return rows


def planned(K, M, caps, table, cost):
    costs = gp.Costs(forward=cost["F"], input_grad=cost["B"], weight_grad=0)
    return rows_of(greedy(K, M, memory_limit=caps, costs=costs))


def spoiling(K, M, caps, table, cost):
    """It changes what it was given, after use."""
    rows = answers.capped_rows(K, M, caps, table, cost)
    caps.clear(), table.clear(), cost.clear()
    return rows


def by_unit_costs(K, M, caps, table, cost):
    return answers.capped_rows(K, M, caps, table, dict.fromkeys(cost, 1))


def by_the_usual_costs(K, M, caps, table, cost):
    return answers.capped_rows(K, M, caps, table, UNIT)


def one_f_one_b(K, M, caps, table, cost):
    return rows_of(gp.OneFOneB(K, M))


def naive(K, M, caps, table, cost):
    return rows_of(gp.Naive(K, M))


def groups(K, M, caps, table, cost):
    """As many forwards as there is room for, then their backwards, and so on."""
    rows = []
    for k in range(K):
        row = []
        for start in range(0, M, caps[k]):
            row += [(k, kind, m) for kind in "FB" for m in range(start, min(start + caps[k], M))]
        rows.append(row)
    return rows


def warming_up_by_caps(K, M, caps, table, cost):
    """Phases, whatever the caps are: right for caps of K-k only."""
    rows = []
    for k in range(K):
        ahead = min(caps[k] - 1, M)
        row = [(k, "F", m) for m in range(ahead)]
        for m in range(M - ahead):
            row += [(k, "F", ahead + m), (k, "B", m)]
        rows.append(row + [(k, "B", m) for m in range(M - ahead, M)])
    return rows


@pytest.mark.parametrize("caps", [*product((1, 2, 4), repeat=3), (7, 5, 3, 1), (4, 4, 4, 4)])
def test_the_rows_are_the_librarys_planners(caps):
    """So the lesson may say so; for costs where forwards are longer than backwards too."""
    for M, F, B in product((1, 5), (1, 2), (1, 2, 3)):
        costs = gp.Costs(forward=F, input_grad=B, weight_grad=0)
        library = greedy(len(caps), M, memory_limit=caps, costs=costs)
        assert answers.capped_rows(len(caps), M, caps, NEEDS, {"F": F, "B": B}) == rows_of(library)


@pytest.mark.parametrize(("K", "M"), [*product(range(1, 4), range(1, 5)), (4, 3)])
def test_no_caps_are_as_short_and_less_anywhere(K, M):
    """All caps are tried: K-k is the least on each device, not only in sum."""
    for caps in product(range(1, M + 1), repeat=K):
        if gp.simulate(greedy(K, M, memory_limit=caps)).makespan <= gp.formulas.gpipe_makespan(K, M):
            assert all(cap >= min(K - k, M) for k, cap in enumerate(caps))


def lost(schedule: gp.core.Schedule) -> int:
    return gp.simulate(schedule, gp.Costs(comm=1)).makespan - gp.simulate(schedule).makespan


def test_more_microbatches_lose_more_to_messages_and_more_room_loses_less():
    for M, own in {4: 10, 8: 16, 16: 28, 32: 52, 64: 100}.items():
        assert (lost(gp.GPipe(4, M)), lost(gp.OneFOneB(4, M))) == (6, own)
        assert lost(greedy(4, M, memory_limit=(7, 5, 3, 1))) == 6


def test_the_natural_wrong_predictions_are_what_they_are_said_to_be():
    dial = [0, *(gp.simulate(greedy(4, 8, memory_limit=room)).makespan for room in range(1, 9))]
    trip = 4 * (1 + 2)
    assert list(natural("07", "The dial at four")) == [
        2 * trip,
        3 * trip,
        dial[1] / 2,
        dial[2],
        dial[3],
        (dial[1] + dial[8]) / 2,
    ]
    one_f = gp.peak_in_flight(gp.OneFOneB(4, 8))
    few, many = gp.peak_in_flight(gp.OneFOneB(4, 4)), gp.peak_in_flight(gp.OneFOneB(4, 32))
    assert few == many == one_f and list(natural("07", "How the bytes grow")) == [0, few[0], 32 / 4]
    at_8 = lost(gp.OneFOneB(4, 8))
    assert list(natural("07", "What 64 microbatches lose")) == [
        0,
        lost(gp.GPipe(4, 64)),
        at_8,
        14 * 6,
        16 * 6,
        8 * at_8,
    ]
    assert lost(gp.OneFOneB(4, 64)) == at_8 + 14 * 6
    measured = {
        33: natural("07", "The dial at four"),
        1: natural("07", "How the bytes grow"),
        100: natural("07", "What 64 microbatches lose"),
        "false": natural("07", "With a slow stage"),
    }
    assert (dial[4], many[0] / few[0], lost(gp.OneFOneB(4, 64))) == tuple(measured)[:3]
    for right, wrong in measured.items():
        assert_each_is_told(wrong, right)
    assert_each_is_told(natural("07", "Whose rounds these are"), "false")
    assert_each_is_told(natural("07", "The same batch, cut finer"), "true")


def one_after_the_other(K, M, caps, table, cost):
    """Device 0 goes back with each microbatch at once, and device 1 takes the last one first: a deadlock."""
    rows = [[(k, kind, m) for m in range(M) for kind in "FB"] for k in range(K)]
    rows[1].sort(key=lambda action: -action[2])
    return rows


def in_numpy(*given):
    return [[(np.int64(s), kind, np.int64(m)) for s, kind, m in row] for row in moment_by_moment(*given)]


P = partial(changed, answers.capped_rows)
FORWARDS_FIRST = "min(choices, key=lambda choice: (choice[0], -ord(choice[1]), choice[2]))"
ROWS = {
    "correct": [
        (
            answer,
            "the rows of the library's planner in all 10 cases. Which "
            "caps make a step short, and which only make it hold more?",
        )
        for answer in (
            answers.capped_rows,
            moment_by_moment,
            in_numpy,
        )
    ],
    "almost": [
        (spoiling, "B 2 caps is not what it was before. Who else may need it?"),
        (
            P(("< caps[k]", "<= caps[k]")),
            "2, 2, 2, F takes 1, B 2: device 0 has a cap of 2 and holds 3 with 0F2, 3 at most. How "
            "many are in flight just before a forward that is allowed?",
        ),
        (
            P(("min(choices)", FORWARDS_FIRST)),
            "B 2: at 3 device 2 turns to 2F1 though 2B0 is ready. When could each of them "
            "start, and which goes first if both could?",
        ),
    ],
    "keep working": [
        (
            lambda K, M, *_: gpipe_rows(K, M),
            "holds 3 with 0F2, 4 at most. What does your rule count before a forward?",
        ),
        (
            P(("None not in arrived", "True"), ("get(need)", "get(need, 0)")),
            "0 is 0B0 0B1 0B2 0B3 0B4 0B5 0B6 0B7. 0B4 is of microbatch 4, and 3 is the "
            "last. Where does it come from?",
        ),
        (
            P(("forwards < M and ", "")),
            "is 0F0 0F1 0B0 0F2 0B1 0F3 0B2 0F4. 0F4 is of microbatch 4, and 3 is the last. "
            "Where does it come from?",
        ),
        (
            naive,
            ": at 1 device 0 could begin a forward: it has room, and the input is there. Why does it wait "
            "for 0B0 until 7?",
        ),
        (
            planned,
            "by a table in which a B needs its own F alone: you write 0F1 where 0B0 comes first. "
            "Who says what an action needs?",
        ),
        (P(("K, table", "K, NEEDS")), "Who says what an action needs?"),
        (
            one_after_the_other,
            "0B0 needs 1B0, queued behind 1F3, which needs 0F3, queued behind 0B0. Had what "
            "each needs ended by then?",
        ),
    ],
    "wrong": [
        P(("< caps[k]", "< caps[k] - 1")),
        P(("caps[k]", "caps[0]")),
        P(("min(choices)", "max(choices)")),
        P(("[free[k], ", "[0, ")),
        by_unit_costs,
        by_the_usual_costs,
        one_f_one_b,
        groups,
        warming_up_by_caps,
        lambda K, M, caps, table, cost: caps[K],
    ],
}
CAPS = {
    "correct": [
        (rule, "5 devices with 6 microbatches hold at most 5, 4, 3, 2, 1. How many with 1,000 microbatches?")
        for rule in (lambda k, K, M: min(K - k, M), lambda k, K, M: np.int64(min(M, K - k)))
    ],
    "almost": [
        (
            lambda k, K, M: K - k,
            "K = 6, M = 2: caps 6, 5, 4, 3, 2, 1 are as short as GPipe, and device 0, with room for 6, "
            "holds 2 at most. How many are there in all?",
        ),
        (
            lambda k, K, M: max(K - k, 2),
            "M = 7: caps 3, 2, 2 are as short as GPipe, and device 2, with room for 2, "
            "holds 1 at most. When is its first microbatch back, and how many can it take in until then?",
        ),
    ],
    "keep working": [
        (
            lambda k, K, M: 1,
            "M = 7: caps 1, 1, 1 take 63 units, GPipe 27. Device 2 waits from 5 to 11 for 1F1. "
            "Which device had no room for it?",
        ),
        (
            lambda k, K, M: K,
            "caps 3, 3, 3 are as short as GPipe, and device 1, with room for 3, uses all of it. "
            "When is its first microbatch back, and how many can it take in until then?",
        ),
        (
            lambda k, K, M: K - k - 1,
            "for k = 2, K = 3, M = 7 you say 0. With that much room, what could device 2 begin?",
        ),
        (
            lambda k, K, M: K - k - 0.5,
            "for k = 0, K = 3, M = 7 you say 2.5. How many microbatches is that, as a whole number?",
        ),
        *((lambda *_, said=said: said, f"you say {said!r}. ") for said in NO_COUNTS),
    ],
    "wrong": [
        lambda k, K, M: M,
        lambda k, K, M: 4,
        lambda k, K, M: k + 1,
        lambda k, K, M: K - k + 1,
        lambda k, K, M: 2 * (K - k) - 1,
        lambda k, K, M: K // (k + 1),
        lambda k, K, M: max(M - k, 1),
        lambda k, K, M: K - k if M >= K else M + 1,
        lambda k, K, M: max(K - k - 1, 1),
        *(lambda k, K, M, most=most: min(K - k, M, most) for most in (3, 6, 8, 12)),
        lambda k, K, M: min(K - k, M) if K < 12 else 1,
        lambda k, K, M: [4, 3, 2, 1][k],
    ],
}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (P(("< caps[k]", "<= caps[k]")), "Your rows, here: 0F2"),
        (P(("min(choices)", FORWARDS_FIRST)), "Your rows, here: 2F1"),
        (one_after_the_other, "Your rows, stuck at 0B0 and 1F3 and 2F0"),
        (answers.capped_rows, "Chart: Your rows (2 devices, 3 microbatches; F takes 1, B 2)"),
    ],
)
def test_the_reply_draws_the_rows_up_to_where_they_go_wrong(answer, says):
    assert lesson_07.capped_rows(answer).picture.says == says


test_replies = each_reply(lesson_07, capped_rows=ROWS, smallest_caps=CAPS)
