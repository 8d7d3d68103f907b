"""Lesson 04: what the checks say to right answers and to the usual wrong ones."""

from fractions import Fraction
from itertools import chain

import numpy as np
import pytest
from replies import assert_each_is_told, assert_says

from gpipe_sim import Costs, GPipe, bubble_fraction, simulate, speedup
from gpipe_sim.course import answers, called
from gpipe_sim.course.lesson_04 import (
    LAST_FIRST,
    LENGTHS,
    MORE_STAGES,
    SLOW_BACKWARDS,
    SPEED_UPS,
    STEPS,
    UNEVEN,
    gpipe_rows,
    name_the_bubble,
)


def rows_by(row):
    """A student's function: rows of ``row(k, K, M)``."""
    return lambda K, M: [row(k, K, M) for k in range(K)]


def forwards(k, M):
    return [(k, "F", m) for m in range(M)]


def backwards(k, M):
    return [(k, "B", m) for m in reversed(range(M))]


def yielding(K, M):
    yield from answers.gpipe_rows(K, M)


def forgets_the_row(K, M):
    rows = []
    for k in range(K):
        rows.append(forwards(k, M).extend(backwards(k, M)))
    return rows


def forgets_to_return(K, M):
    rows = answers.gpipe_rows(K, M)  # noqa: F841


def keeps_its_rows(K, M, rows=[]):  # noqa: B006
    rows += answers.gpipe_rows(K, M)
    return rows


def loops_for_ever(K, M):
    while True:
        pass


ROWS = [
    (rows_by(lambda k, K, M: forwards(k, M) + backwards(k, M)[::-1]), "almost", "Which backward comes first"),
    (
        rows_by(lambda k, K, M: forwards(k, M) + backwards(k, M)[:1] + backwards(k, M)[:0:-1]),
        "almost",
        "called with (2, 4), the row of device 0 is 0F0 0F1 0F2 0F3 0B3 0B0 0B1 0B2.",
    ),
    (
        rows_by(lambda k, K, M: list(chain(*zip(forwards(k, M), backwards(k, M)[::-1], strict=True)))),
        "keep working",
        "Which of these come first in GPipe?",
    ),
    (
        rows_by(lambda k, K, M: forwards(k, M)[::-1] + backwards(k, M)),
        "keep working",
        "With which forward does it begin?",
    ),
    (rows_by(lambda k, K, M: backwards(k, M) + forwards(k, M)), "keep working", "Which of these come first"),
    (rows_by(lambda k, K, M: forwards(k, M)), "keep working", "It lacks 0B3 0B2 0B1 0B0. When should"),
    (
        rows_by(lambda k, K, M: forwards(k, M - 1) + backwards(k, M - 1)),
        "keep working",
        "It lacks 0F3 0B3. When should",
    ),
    (
        rows_by(lambda k, K, M: [(k, kind, m + 1) for _, kind, m in forwards(k, M) + backwards(k, M)]),
        "keep working",
        "0F4 is of microbatch 4, and 3 is the last. Where does it come from?",
    ),
    (
        rows_by(lambda k, K, M: forwards(0, M) + backwards(0, M)),
        "keep working",
        "0F0 is work of stage 0. Which stage is on this device?",
    ),
    (
        rows_by(lambda k, K, M: [(m, kind, k) for _, kind, m in forwards(k, M) + backwards(k, M)]),
        "keep working",
        "1F0 is work of stage 1. Which stage is on this device?",
    ),
    (lambda K, M: answers.gpipe_rows(M, K), "keep working", "a list of 4. How many devices want a row?"),
    (lambda K, M: answers.gpipe_rows(K, M)[::-1], "keep working", "is work of stage 1"),
    (
        lambda K, M: [step for row in answers.gpipe_rows(K, M) for step in row],
        "keep working",
        "a list of 16. How many devices want a row?",
    ),
    (lambda K, M: answers.gpipe_rows(2, 4), "keep working", "called with (3, 2) it gives a list of 2"),
    (
        rows_by(lambda k, K, M: ["0F0", "0B0"]),
        "keep working",
        "the row of device 0 has '0F0'. How is 0F0 written as a tuple",
    ),
    (rows_by(lambda k, K, M: [[k, "F", m] for m in range(M)]), "keep working", "has [0, 'F', 0]. How is 0F0"),
    (rows_by(lambda k, K, M: [("F", k, m) for m in range(M)]), "keep working", "has ('F', 0, 0). How is 0F0"),
    (rows_by(lambda k, K, M: [(k, "f", m) for m in range(M)]), "keep working", "has (0, 'f', 0). How is 0F0"),
    (rows_by(lambda k, K, M: [(float(k), "F", 0)]), "keep working", "has (0.0, 'F', 0). How is 0F0"),
    (rows_by(lambda k, K, M: " ".join(["0F0"])), "keep working", "the row of device 0 is '0F0'"),
    (forgets_the_row, "keep working", "the row of device 0 is None. What would a list of actions be?"),
    (forgets_to_return, "keep working", "it gives nothing back. What should come after return?"),
    (keeps_its_rows, "keep working", "called with (3, 2) it gives a list of 5"),
    (
        lambda K, M: dict(enumerate(answers.gpipe_rows(K, M))),
        "keep working",
        "What stands in a list with a row for each device?",
    ),
    (
        rows_by(lambda k, K, M: [None] * k + forwards(k, M) + backwards(k, M)),
        "keep working",
        "the row of device 1 has None. How is 0F0 written as a tuple",
    ),
    (yielding, "keep working", "it gives a generator. Later lessons read it more than once"),
    (lambda K, M: tuple(answers.gpipe_rows(K, M)), "keep working", "it gives a tuple. Later lessons read"),
    (lambda K, M: answers.gpipe_rows(K, M)[K], "keep working", "called with (2, 4) it stopped: IndexError"),
    ([[(0, "F", 0), (0, "B", 0)]], "keep working", "pass in a function"),
]
BUBBLES = [
    (Fraction(3, 8), "almost", "that is the waiting over the work. How long are the two together?"),
    (0.375, "almost", "waiting over the work"),
    (0.2727, "almost", "0.2727 is near it, but rounded. Which two whole numbers"),
    (3 / 11, "almost", "0.2727 is near it, but rounded"),
    (Fraction(8, 11), "almost", "in that share of the time devices work"),
    (9, "keep working", "9 is how long one device idles. Out of how long?"),
    (36, "keep working", "36 is the waiting of all 4 devices"),
    (27.3, "almost", "in percent"),
    (Fraction(3, 4), "keep working", "so much idles in the naive order"),
    (Fraction(1, 4), "keep working", "with a share of 1/4, 33 of 132 units would be waiting. How long does"),
    (1 / 3, "keep working", "with a share of 0.3333, 44 of 132 units"),
    (-1, "keep working", "-1 is no share. Which numbers can a share be?"),
    (float("nan"), "keep working", "nan is no share. Which"),
    ("3/11", "keep working", "'3/11' is not a number. How is it written as a Fraction"),
    (True, "keep working", "True is not a number"),
]
WRONG = {"gpipe_rows": [case[0] for case in ROWS], "name_the_bubble": [case[0] for case in BUBBLES]}


@pytest.mark.parametrize(("answer", "verdict", "says"), ROWS)
def test_rows_that_are_not_gpipes_are_told_what_they_are(answer, verdict, says):
    assert_says(gpipe_rows(answer), verdict, says)


def test_gpipes_rows_may_be_written_in_any_way():
    def turned_round(K, M):
        rows = [[] for _ in range(K)]
        for m in range(M):
            for k in range(K):
                rows[k].append((k, "F", m))
        while any(len(row) < 2 * M for row in rows):
            for row in rows:
                k, _, m = row[2 * M - 1 - len(row)]
                row.append((k, "B", m))
        return rows

    numpys = rows_by(lambda k, K, M: [(np.int8(s), kind, np.int64(m)) for s, kind, m in forwards(k, M)])
    for right in (
        answers.gpipe_rows,
        turned_round,
        rows_by(lambda k, K, M: forwards(k, M) + backwards(k, M)),
        lambda K, M: [list(row) for row in GPipe(K, M).actions],
        lambda K, M: [row + backwards(k, M) for k, row in enumerate(numpys(K, M))],
    ):
        assert gpipe_rows(right).verdict == "correct"


def test_rows_that_never_end_are_stopped(monkeypatch):
    monkeypatch.setattr(called, "SECONDS", 0.3)
    assert "(2, 4) it was still running" in gpipe_rows(loops_for_ever).text


def test_without_rows_it_says_what_to_write():
    assert repr(gpipe_rows(None)).startswith("your turn: write gpipe_rows in this cell")


def uneven(*layers):
    return simulate(GPipe(4, 8), Costs(forward=layers, input_grad=layers, weight_grad=layers)).makespan


def test_the_natural_wrong_guesses_are_wrong_and_are_told_what_they_are():
    timeline = simulate(GPipe(4, 8))
    times = ([Fraction(1), half, half] for half in (Fraction(1), Fraction(5, 2)))
    bubbles = {bubble_fraction(simulate(GPipe(4, 8), Costs(*each))) for each in times}
    assert len(bubbles) == 1
    predictions = (
        (timeline.makespan, LENGTHS),
        ("same", SLOW_BACKWARDS),
        (round(float(speedup(timeline)), 2), SPEED_UPS),
        (simulate(GPipe(4, 4), Costs(1, 1, 0)).makespan, STEPS),
        (uneven(2, 2, 2, 5), UNEVEN),
        ("false", LAST_FIRST),
        ("false", MORE_STAGES),
    )
    for measured, wrong in predictions:
        assert_each_is_told(wrong, measured)


def test_the_natural_wrong_guesses_are_what_their_sentences_say():
    timeline = simulate(GPipe(4, 8))
    one, done = 4 * 8 * 3, timeline.on(3)[-1].end
    assert set(LENGTHS) == {one, one // 4, done, done + 3, (8 + 4) * 3}
    assert list(SPEED_UPS) == [
        4,
        8,
        Fraction(one, done),
        Fraction(timeline.makespan, one // 4),
        Fraction(one // 4, timeline.makespan),
    ]
    equal = simulate(GPipe(4, 4), Costs(1, 1, 0))
    twice = simulate(GPipe(4, 4)).makespan
    assert list(STEPS) == [4 * (1 + 1), equal.on(3)[-1].end, (4 + 4) * 2, twice, 4 * 4 * (1 + 1)]
    assert list(UNEVEN) == [uneven(3, 3, 3, 2), 11 * 3 * 11 / 4, 8 * 5 * 3, 11 * 3 * 5]


@pytest.mark.parametrize(
    ("answer", "verdict", "says"),
    [
        (Fraction(3, 11), "correct", "36 of 132 units are waiting"),
        (Fraction(9, 33), "correct", "3/11 of all device time"),
        (None, "your turn", "as a Fraction"),
        *BUBBLES,
    ],
)
def test_a_number_for_the_bubble_is_told_what_it_is_the_number_of(answer, verdict, says):
    assert_says(name_the_bubble(answer), verdict, says)
