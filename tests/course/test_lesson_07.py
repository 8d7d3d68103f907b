"""Lesson 07: what the checks say to right answers and to the usual wrong ones."""

from itertools import product

import numpy as np
import pytest
from replies import assert_each_is_told
from test_answers import rows_of

import gpipe_sim as gp
from gpipe_sim.course import answers, lesson_07
from gpipe_sim.course.answers import NEEDS, gpipe_rows, needs
from gpipe_sim.course.lesson_07 import (
    CAPPED,
    capped_rows,
    fewest_buffers,
    overwritten,
    receive_buffers,
    run,
    smallest_caps,
)

UNIT = {"F": 1, "B": 2}


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


def counting(
    K,
    M,
    caps,
    table,
    cost,
    over=0,
    first="BF",
    late=False,
    newest=False,
    latest=False,
    free_all=0,
    unasked=False,
    endless=False,
):
    """The answer, with switches for what may go wrong in it."""
    rows, ends, free = [[] for _ in range(K)], {}, [0] * K
    forwards, backwards = [0] * K, [[] for _ in range(K)]
    while sum(map(len, rows)) < 2 * K * M:
        found = []
        for k in range(K):
            waiting = [m for m in range(forwards[k]) if m not in backwards[k]]
            backs = [(k, "B", m) for m in (waiting[::-1] if newest else waiting)]
            backs = [(k, "B", len(backwards[k]))] if unasked else backs
            ahead = (endless or forwards[k] < M) and len(waiting) < caps[0 if late else k] + over
            for action in backs + ahead * [(k, "F", forwards[k])]:
                if unasked or all(each in ends for each in needs(action, K, table)):
                    arrived = [ends.get(each, 0) for each in needs(action, K, table)]
                    start = max([0 if free_all else free[k], *arrived])
                    found.append((start, first.index(action[1]), len(found), action))
        start, _, _, action = max(found) if latest else min(found)
        k, kind, m = action
        rows[k].append(action)
        free[k] = ends[action] = start + cost[kind]
        if kind == "F":
            forwards[k] += 1
        else:
            backwards[k].append(m)
    return rows


def changed(**switches):
    return lambda K, M, caps, table, cost: counting(K, M, caps, table, cost, **switches)


def planned(K, M, caps, table, cost):
    costs = gp.Costs(forward=cost["F"], input_grad=cost["B"], weight_grad=0)
    return rows_of(gp.greedy(K, M, memory_limit=caps, costs=costs))


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


def edited(change):
    """The right rows, changed afterwards."""

    def answer(K, M, caps, table, cost):
        rows = answers.capped_rows(K, M, caps, table, cost)
        return change(rows) or rows

    return answer


def caps_of(rule):
    return lambda k, K, M: rule(k, K, M)


WRONG = {
    "capped_rows": [
        changed(over=1),
        changed(over=-1),
        changed(first="FB"),
        changed(late=True),
        changed(latest=True),
        changed(free_all=1),
        changed(unasked=True),
        changed(endless=True),
        by_unit_costs,
        by_the_usual_costs,
        one_f_one_b,
        naive,
        groups,
        warming_up_by_caps,
        lambda K, M, caps, table, cost: gpipe_rows(K, M),
        edited(lambda rows: rows[:-1]),
        edited(lambda rows: rows[-1].pop() and None),
        edited(lambda rows: rows[0].append(rows[0][0])),
        edited(lambda rows: rows.reverse()),
        edited(lambda rows: [[f"{s}{kind}{m}" for s, kind, m in row] for row in rows]),
        edited(lambda rows: [" ".join("".join(map(str, a)) for a in row) for row in rows]),
        edited(lambda rows: [[*row[:-1], None] for row in rows]),
        edited(lambda rows: [[(s, kind.lower(), m) for s, kind, m in row] for row in rows]),
        edited(lambda rows: [[(kind, s, m) for s, kind, m in row] for row in rows]),
        edited(lambda rows: [[(s, kind, m + 1) for s, kind, m in row] for row in rows]),
        edited(lambda rows: dict(enumerate(rows))),
        edited(iter),
        edited(lambda rows: [[list(action) for action in row] for row in rows]),
        edited(lambda rows: rows[0]),
        edited(lambda rows: (rows, {})),
        lambda K, M, caps, table, cost: None,
        lambda K, M: gpipe_rows(K, M),
        lambda K, M, caps, table, cost: caps[K],
        [[(0, "F", 0), (0, "B", 0)]],
    ],
    "smallest_caps": [
        caps_of(rule)
        for rule in (
            lambda k, K, M: K,
            lambda k, K, M: M,
            lambda k, K, M: 1,
            lambda k, K, M: 4,
            lambda k, K, M: k + 1,
            lambda k, K, M: K - k - 1,
            lambda k, K, M: K - k + 1,
            lambda k, K, M: max(K - k, 2),
            lambda k, K, M: 2 * (K - k) - 1,
            lambda k, K, M: K // (k + 1),
            lambda k, K, M: max(M - k, 1),
            lambda k, K, M: K - k if M >= K else M + 1,
            lambda k, K, M: max(K - k - 1, 1),
            lambda k, K, M: min(K - k, 3),
            lambda k, K, M: [4, 3, 2, 1][k],
            lambda k, K, M: K - k - 0.5,
        )
    ],
    "receive_buffers": [
        lambda m, k, K: 0,
        lambda m, k, K: m,
        lambda m, k, K: m % 2,
        lambda m, k, K: m % 3,
        lambda m, k, K: m % K,
        lambda m, k, K: m % (K + 1),
        lambda m, k, K: m % (K - k),
        lambda m, k, K: m % (K - k + 2),
        lambda m, k, K: m % (k + 1),
        lambda m, k, K: m // (K - k + 1),
        lambda m, k, K: k,
        lambda m, k, K: (m + 1) % (K - k),
        lambda m, k, K: m % max(K - k, 2),
    ],
}


@pytest.mark.parametrize(
    "answer",
    [answers.capped_rows, moment_by_moment, counting, changed(newest=True), planned, spoiling],
)
def test_rows_under_caps_however_they_are_written(answer):
    said = reply(capped_rows, answer)
    assert said.startswith("correct: the rows of the library's planner in all 9 cases. ")


def test_numpys_whole_numbers_will_do():
    def answer(*given):
        rows = moment_by_moment(*given)
        return [[(np.int64(s), kind, np.int64(m)) for s, kind, m in row] for row in rows]

    assert capped_rows(answer).verdict == "correct"


@pytest.mark.parametrize("caps", [*product((1, 2, 4), repeat=3), (7, 5, 3, 1), (4, 4, 4, 4)])
def test_the_rows_are_the_librarys_planners(caps):
    """So the lesson may say so; for costs where forwards are longer than backwards too."""
    for M, F, B in product((1, 5), (1, 2), (1, 2, 3)):
        costs = gp.Costs(forward=F, input_grad=B, weight_grad=0)
        library = gp.greedy(len(caps), M, memory_limit=caps, costs=costs)
        assert answers.capped_rows(len(caps), M, caps, NEEDS, {"F": F, "B": B}) == rows_of(library)


@pytest.mark.parametrize(
    ("answer", "verdict", "says"),
    [
        (
            changed(over=1),
            "almost",
            ": device 0 has a cap of 2 and holds 3 with 0F2, 3 at most. How many are in flight just before a "
            "forward that is allowed?",
        ),
        (
            lambda K, M, caps, table, cost: gpipe_rows(K, M),
            "keep working",
            ": device 0 has a cap of 2 and holds 3 with 0F2, 4 at most. What does your rule count before a "
            "forward?",
        ),
        (
            changed(first="FB"),
            "almost",
            ": at 3 device 2 turns to 2F1 though 2B0 is ready. When could each of them start, and which goes "
            "first if both could?",
        ),
        (
            lambda K, M, caps, table, cost: None,
            "keep working",
            " it gives nothing back. What should come after return?",
        ),
        (
            changed(unasked=True),
            "keep working",
            ", the row of device 0 is 0B0 0B1 0B2 0B3 0B4 0B5 0B6 0B7. 0B4 is of microbatch 4, and 3 is the "
            "last. Where does it come from?",
        ),
        (
            changed(endless=True),
            "keep working",
            ", the row of device 0 is 0F0 0F1 0B0 0F2 0B1 0F3 0B2 0F4. 0F4 is of microbatch 4, and 3 is the "
            "last. Where does it come from?",
        ),
        (
            naive,
            "keep working",
            ": at 1 device 0 could begin a forward: it has room, and the input is there. Why does it wait "
            "for 0B0 until 7?",
        ),
        (
            edited(lambda rows: rows[-1].pop() and None),
            "keep working",
            ", the row of device 2 is 2F0 2B0 2F1 2B1 2F2 2B2 2F3. It lacks 2B3. When should the device do "
            "that?",
        ),
        (
            edited(lambda rows: rows[0].append(rows[0][0])),
            "keep working",
            ", the row of device 0 is 0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3 0F0. 0F0 is in it 2 times. How often "
            "is it done in a step?",
        ),
        (
            edited(lambda rows: [[f"{s}{kind}{m}" for s, kind, m in row] for row in rows]),
            "keep working",
            ", the row of device 0 has '0F0'. How is 0F0 written as a tuple of stage, kind, microbatch: "
            '(0, "F", 0)?',
        ),
        (
            edited(lambda rows: rows.reverse()),
            "keep working",
            ", the row of device 0 is 2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3. 2F0 is work of stage 2. Which stage "
            "is on this device?",
        ),
    ],
)
def test_other_rows_are_told_what_is_wrong(answer, verdict, says):
    where = "with K = 3, M = 4, caps 2, 2, 2, F takes 1, B 2"
    assert reply(capped_rows, answer) == f"{verdict}: {where}{says}"


def test_rows_that_deadlock_are_answered():
    """Device 0 goes back with each microbatch at once, and device 1 takes the last one first."""

    def answer(K, M, caps, table, cost):
        back = [(k, kind, m) for k in range(K) for m in range(M) for kind in "FB"]
        rows = [[a for a in back if a[0] == k] for k in range(K)]
        rows[1].sort(key=lambda action: -action[2])
        return rows

    said = reply(capped_rows, answer)
    assert "0B0 needs 1B0, queued behind 1F3, which needs 0F3, queued behind 0B0. Had what" in said


def test_a_loop_that_never_ends_is_answered(monkeypatch):
    monkeypatch.setattr("gpipe_sim.course.called.SECONDS", 0.3)

    def answer(K, M, caps, table, cost):
        while True:
            pass

    said = reply(capped_rows, answer)
    assert "it was still running after 0.3 seconds, in your line" in said
    assert said.endswith("Which loop never ends?")


def test_the_sizes_tell_the_mistakes_apart():
    """Each of these passes some of the cases, so a single case would not do."""
    for wrong in (by_unit_costs, by_the_usual_costs, one_f_one_b, warming_up_by_caps, changed(first="FB")):
        right = [
            wrong(K, M, caps, NEEDS, {"F": F, "B": B})
            == answers.capped_rows(K, M, caps, NEEDS, {"F": F, "B": B})
            for K, M, caps, F, B in CAPPED
        ]
        assert 0 < sum(right) < len(CAPPED)


def test_room_for_k_minus_k():
    for rule in (lambda k, K, M: K - k, lambda k, K, M: min(K - k, M), lambda k, K, M: np.int64(K - k)):
        said = reply(smallest_caps, rule)
        assert said.startswith("correct: as short as GPipe wherever it was tried, and no device can do with ")
        assert "5 devices with 6 microbatches hold at most 5, 4, 3, 2, 1." in said


@pytest.mark.parametrize(("K", "M"), [*product(range(1, 4), range(1, 5)), (4, 3)])
def test_no_caps_are_as_short_and_less_anywhere(K, M):
    """All caps are tried: K-k is the least on each device, not only in sum."""
    for caps in product(range(1, M + 1), repeat=K):
        if gp.simulate(gp.greedy(K, M, memory_limit=caps)).makespan <= gp.formulas.gpipe_makespan(K, M):
            assert all(cap >= min(K - k, M) for k, cap in enumerate(caps))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            lambda k, K, M: 1,
            "keep working: K = 3, M = 7: caps 1, 1, 1 take 63 units, GPipe 27. "
            "Device 2 waits from 5 to 11 for 1F1. Which device had no room for it?",
        ),
        (
            lambda k, K, M: K,
            "keep working: K = 3, M = 7: caps 3, 3, 3 are as short as GPipe, "
            "and device 1, with room for 3, uses all of it. "
            "When is its first microbatch back, and how many can it take in until then?",
        ),
        (
            lambda k, K, M: max(K - k, 2),
            "almost: K = 3, M = 7: caps 3, 2, 2 are as short as GPipe, "
            "and device 2, with room for 2, holds 1 at most. "
            "When is its first microbatch back, and how many can it take in until then?",
        ),
        (
            lambda k, K, M: K - k - 1,
            "keep working: for k = 2, K = 3, M = 7 you say 0. "
            "With that much room, what could device 2 begin?",
        ),
        (
            lambda k, K, M: K - k - 0.5,
            "keep working: for k = 0, K = 3, M = 7 you say 2.5. How many microbatches is that, as a whole "
            "number?",
        ),
    ],
)
def test_other_caps(answer, says):
    assert reply(smallest_caps, answer) == says


def test_the_buffers_of_1f1b():
    said = reply(receive_buffers, lambda m, k, K: m % (K - k + 1))
    assert said.startswith("correct: nothing is overwritten, and no device could do with fewer.")


def test_one_receive_buffer():
    said = reply(receive_buffers, lambda m, k, K: 0)
    assert said.startswith("keep working: device 1 of 2, 4 microbatches: the loss is right, the gradient is ")
    assert said.endswith("% wrong. 1B0 wants microbatch 0 in buffer 0. Which microbatch sits there now?")


def test_a_buffer_for_each_microbatch_in_flight_and_none_for_the_one_that_arrives():
    said = reply(receive_buffers, lambda m, k, K: m % (K - k))
    assert said.startswith("keep working: device 1 of 2, 4 microbatches: the loss is right, the gradient is ")


def test_two_buffers_are_enough_for_the_last_device_only():
    said = reply(receive_buffers, lambda m, k, K: m % 2)
    assert said.startswith("keep working: device 1 of 3, 8 microbatches: the loss is right, the gradient is ")


def test_a_buffer_for_every_microbatch_is_more_than_needed():
    said = reply(receive_buffers, lambda m, k, K: m)
    assert said == (
        "almost: nothing is overwritten, but on device 1 of 2, 4 microbatches fill 4 buffers. "
        "How many still have to be read while one more arrives?"
    )
    assert receive_buffers(lambda m, k, K: m * 10**15).verdict == "almost"
    assert receive_buffers(lambda m, k, K: np.int64(m % (K - k + 1))).verdict == "correct"


def test_one_buffer_more_than_in_flight():
    """Found by following the row: what is in flight, and the one that arrives, if there is one."""
    for K, M in product(range(2, 6), range(1, 9)):
        for k in range(1, K):
            row = gp.OneFOneB(K, M).actions[k]
            assert fewest_buffers(row) == min(K - k + 1, M), (K, M, k)
            assert overwritten(row, [m % (K - k + 1) for m in range(M)]) is None, (K, M, k)


def test_what_is_overwritten_is_what_changes_the_gradient():
    row = gp.OneFOneB(2, 4).actions[1]
    loss, gradient = run(row, [0, 1, 2, 3])
    assert loss > 0
    for chosen in product(range(3), repeat=4):
        again, other = run(row, list(chosen))
        assert again == loss
        assert np.array_equal(gradient, other) == (overwritten(row, list(chosen)) is None)


@pytest.mark.parametrize("check", [smallest_caps, receive_buffers])
def test_without_a_function_it_says_what_to_do(check):
    assert reply(check, None).startswith("your turn: write a function ")
    assert reply(check, 3) == "keep working: pass in a function, not 3"


def test_a_build_without_an_answer_says_what_to_write():
    assert reply(capped_rows, None).startswith("your turn: write capped_rows in this cell")


@pytest.mark.parametrize("check", [smallest_caps, receive_buffers])
@pytest.mark.parametrize("wrong", [-1, "a", None, True, 0.5, [1]])
def test_what_is_no_count_is_answered(check, wrong):
    said = reply(check, lambda *_: wrong)
    says = (
        "it gives nothing back. What should come after return?" if wrong is None else f"you say {wrong!r}. "
    )
    assert said.startswith("keep working: for ") and says in said and said.endswith("?")


@pytest.mark.parametrize("check", [smallest_caps, receive_buffers])
def test_a_function_that_stops_is_answered(check):
    assert "it stopped: ZeroDivisionError: " in reply(check, lambda *_: 1 // 0)
    said = reply(check, lambda k: k)
    assert "it stopped: TypeError: " in said and said.endswith(
        "given. How many things is it given, and how many does it take?"
    )


def lost(schedule: gp.Schedule) -> int:
    return gp.simulate(schedule, gp.Costs(comm=1)).makespan - gp.simulate(schedule).makespan


def test_more_microbatches_lose_more_to_messages_and_more_room_loses_less():
    for M, own in {4: 10, 8: 16, 16: 28, 32: 52, 64: 100}.items():
        assert (lost(gp.GPipe(4, M)), lost(gp.OneFOneB(4, M))) == (6, own)
        assert lost(gp.greedy(4, M, memory_limit=(7, 5, 3, 1))) == 6


def test_the_natural_wrong_predictions_are_what_they_are_said_to_be():
    dial = [0, *(gp.simulate(gp.greedy(4, 8, memory_limit=room)).makespan for room in range(1, 9))]
    trip = 4 * (1 + 2)
    assert list(lesson_07.DIAL) == [2 * trip, 3 * trip, dial[1] / 2, dial[2], (dial[1] + dial[8]) / 2]
    one_f = gp.peak_in_flight(gp.OneFOneB(4, 8))
    few, many = gp.peak_in_flight(gp.OneFOneB(4, 4)), gp.peak_in_flight(gp.OneFOneB(4, 32))
    assert few == many == one_f and list(lesson_07.GROWTH) == [0, few[0], 32 / 4]
    at_8 = lost(gp.OneFOneB(4, 8))
    assert list(lesson_07.LOST) == [0, lost(gp.GPipe(4, 64)), at_8, 15 * 6, 16 * 6, 8 * at_8]
    both = [gp.simulate(family(8, 32), gp.Costs(1, 1, 0)).makespan for family in (gp.GPipe, gp.OneFOneB)]
    assert both == [78, 78] and 71 == 32 * 2 + 7
    measured = {33: lesson_07.DIAL, 1: lesson_07.GROWTH, 100: lesson_07.LOST, "false": lesson_07.SMALLER}
    assert (dial[4], many[0] / few[0], lost(gp.OneFOneB(4, 64))) == tuple(measured)[:3]
    for right, wrong in measured.items():
        assert_each_is_told(wrong, right)
