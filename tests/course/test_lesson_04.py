"""Lesson 04: what the checks say to right answers and to the usual wrong ones."""

from fractions import Fraction
from itertools import chain
from math import ceil

import pytest
from replies import assert_each_is_told, each_reply, natural

from gpipe_sim import Costs, GPipe, bubble_fraction, simulate
from gpipe_sim.core import B, F
from gpipe_sim.course import answers, lesson_04
from gpipe_sim.why import speedup


def rows_by(row):
    """A student's function: rows of ``row(k, K, M)``."""
    return lambda K, M: [row(k, K, M) for k in range(K)]


def forwards(k, M):
    return [(k, "F", m) for m in range(M)]


def backwards(k, M):
    return [(k, "B", m) for m in reversed(range(M))]


def forgets_the_row(K, M):
    rows = []
    for k in range(K):
        rows.append(forwards(k, M).extend(backwards(k, M)))
    return rows


def keeps_its_rows(K, M, rows=[]):  # noqa: B006
    rows += answers.gpipe_rows(K, M)
    return rows


def test_the_natural_wrong_guesses_are_wrong_and_are_told_what_they_are():
    timeline = simulate(GPipe(4, 8))
    times = ([Fraction(1), half, half] for half in (Fraction(1), Fraction(5, 2)))
    bubbles = {bubble_fraction(simulate(GPipe(4, 8), Costs(*each))) for each in times}
    assert len(bubbles) == 1
    predictions = (
        (sum(F + B for F, B in [(1, 2)] * (6 - 1)), natural("04", "How long device 0 waits")),
        ("same", natural("04", "The share that is waiting")),
        (round(float(speedup(timeline)), 2), natural("04", "How much faster four devices are")),
        ("true", natural("04", "Both orders of the backwards")),
        ("false", natural("04", "More and more stages")),
    )
    for measured, wrong in predictions:
        assert_each_is_told(wrong, measured)


def test_the_natural_wrong_guesses_are_what_their_sentences_say():
    timeline = simulate(GPipe(4, 8))
    one, done = 4 * 8 * 3, timeline.on(3)[-1].end
    six, shorter = simulate(GPipe(6, 8)), simulate(GPipe(4, 4)).on(0)
    leaves, comes_back = six.ends[F(0, 7)], six.ends[B(1, 7)]
    before = shorter[4].start - shorter[3].end
    assert 2 * before == 6 * (1 + 2)
    assert list(natural("04", "How long device 0 waits")) == [
        six.ends[F(5, 7)] - leaves,
        leaves,
        before,
        comes_back - six.ends[B(5, 7)] + 2,
        before * 6 / 4,
        comes_back - leaves + 2,
        6 * (1 + 2),
        comes_back,
    ]
    assert list(natural("04", "How much faster four devices are")) == [
        4,
        8,
        one / done,
        timeline.makespan / (one // 4),
        one // 4 / timeline.makespan,
    ]


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


ROWS = {
    "correct": [
        (answers.gpipe_rows, ""),
        (turned_round, ""),
        (rows_by(lambda k, K, M: forwards(k, M) + backwards(k, M)), ""),
        (lambda K, M: [list(row) for row in GPipe(K, M).actions], ""),
    ],
    "almost": [
        (rows_by(lambda k, K, M: forwards(k, M) + backwards(k, M)[::-1]), "Which backward comes first"),
        (
            rows_by(lambda k, K, M: forwards(k, M) + backwards(k, M)[:1] + backwards(k, M)[:0:-1]),
            "called with (2, 4), the row of device 0 is 0F0 0F1 0F2 0F3 0B3 0B0 0B1 0B2.",
        ),
    ],
    "keep working": [
        (
            rows_by(lambda k, K, M: list(chain(*zip(forwards(k, M), backwards(k, M)[::-1], strict=True)))),
            "Which of these come first in GPipe?",
        ),
        (
            rows_by(lambda k, K, M: forwards(k, M)[::-1] + backwards(k, M)),
            "With which forward does it begin?",
        ),
        (rows_by(lambda k, K, M: backwards(k, M) + forwards(k, M)), "Which of these come first"),
        (
            rows_by(lambda k, K, M: forwards(0, M) + backwards(0, M)),
            "0F0 is work of stage 0. Which stage is on this device?",
        ),
        (
            rows_by(lambda k, K, M: [(m, kind, k) for _, kind, m in forwards(k, M) + backwards(k, M)]),
            "1F0 is work of stage 1. Which stage is on this device?",
        ),
        (lambda K, M: answers.gpipe_rows(K, min(M, 7)), "called with (4, 8), the row of device 0 is"),
        (lambda K, M: answers.gpipe_rows(2, 4), "called with (3, 2) it gives a list of 2"),
        (forgets_the_row, "the row of device 0 is None. What would a list of actions be?"),
        (keeps_its_rows, "called with (3, 2) it gives a list of 5"),
        (lambda K, M: answers.gpipe_rows(K, M)[K], "called with (2, 4) it stopped: IndexError"),
    ],
}
BUBBLES = {
    "correct": [
        (Fraction(3, 11), "3/11: device 0 waits 9 of 33 units. Do the others"),
        (Fraction(9, 33), "3/11: device 0"),
    ],
    "almost": [
        (Fraction(3, 8), "that is the waiting over the work. How long are the two together?"),
        (0.375, "waiting over the work"),
        (0.2727, "0.2727 is near it, but rounded. Which two whole numbers"),
        (3 / 11, "0.2727 is near it, but rounded"),
        (Fraction(8, 11), "in that share of the time devices work"),
        (27.3, "in percent"),
    ],
    "keep working": [
        (9, "9 is how long device 0 waits. Out of how long?"),
        (36, "36 is the waiting of all 4 devices, in units of time. How long is"),
        (Fraction(3, 4), "so much idles in the naive order"),
        (Fraction(1, 4), "with a share of 1/4, device 0 would wait 8.25 of 33 units. How far does"),
        (1 / 3, "with a share of 0.3333, device 0 would wait 11 of 33 units"),
        (-1, "-1 is no share. Which numbers can a share be?"),
        (float("nan"), "nan is no share. Which"),
        ("3/11", "'3/11' is not a number. How is it written as a Fraction"),
        (True, "True is not a number"),
    ],
}


def counted_up(K, share):
    M = 1
    while Fraction(K - 1, K - 1 + M) > share:
        M += 1
    return M


def of_the_formula(change):
    return lambda K, share: change((K - 1) * (1 - share) / share, K, share)


FEWEST = {
    "correct": [
        (counted_up, "the fewest for 7 pipelines"),
        (of_the_formula(lambda M, *_: max(1, ceil(M))), ""),
    ],
    "almost": [
        (of_the_formula(lambda M, K, share: max(1, ceil((K - 1) / share))), "You have divided by the work."),
        (
            lambda K, share: max(1, ceil((K - 1) * (1 - float(share)) / float(share))),
            "called with (2, Fraction(1, 3)) it gives 3, and then 1/4 of all device time is waiting. "
            "With 2 it is 1/3. Is that too much, exactly?",
        ),
        (
            of_the_formula(lambda M, *_: int(M) + 1),
            "called with (4, Fraction(1, 10)) it gives 28, and then 3/31 of all device time is waiting. "
            "With 27 it is 1/10. Is that too much, exactly?",
        ),
    ],
    "keep working": [
        (of_the_formula(lambda M, *_: max(1, int(M))), "it gives 8, and then 5/13 of all device time is"),
        (of_the_formula(lambda M, *_: max(1, round(M))), "Is that at most 3/8?"),
        (
            lambda K, share: counted_up(K, share.limit_denominator(1000)),
            "called with (4, Fraction(1, 1001)) it gives 2997",
        ),
        (of_the_formula(lambda M, *_: ceil(M)), "it gives 0. How many microbatches has a step at least?"),
        (
            of_the_formula(lambda M, *_: float(M)),
            "it gives 27.0. Which whole number of",
        ),
        (of_the_formula(lambda M, *_: None), "it gives nothing back."),
    ],
}
test_replies = each_reply(lesson_04, gpipe_rows=ROWS, name_the_bubble=BUBBLES, fewest=FEWEST)


@pytest.mark.parametrize(("K", "share"), lesson_04.SHARES[:5])
def test_the_fewest_are_the_fewest_by_the_clock(K, share):
    M = counted_up(K, share)
    assert bubble_fraction(lesson_04.exact_gpipe(K, M)) <= share
    assert M == 1 or bubble_fraction(lesson_04.exact_gpipe(K, M - 1)) > share


def test_the_reply_draws_the_students_rows():
    in_order = lesson_04.gpipe_rows(rows_by(lambda k, K, M: forwards(k, M) + backwards(k, M)[::-1]))
    assert in_order.picture.says == "Your rows, here: 0B0"
    shown = str(in_order.picture)
    assert "Your rows, up to where they go wrong" in shown and ">F takes 1, B 2<" in shown
    assert lesson_04.gpipe_rows(answers.gpipe_rows).picture.more == str(GPipe(2, 4))
