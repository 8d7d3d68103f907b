"""Lesson 10: what the checks say to right answers and to the usual wrong ones."""

from fractions import Fraction
from itertools import count
from math import ceil, isclose, sqrt

import numpy as np
import pytest
from replies import assert_each_is_told, assert_says

import gpipe_sim as gp
from gpipe_sim.course import lesson_10
from gpipe_sim.course.lesson_10 import HIDDEN, HIDDEN_BATCHES, microbatches_for, quickest


def exactly(devices: int, percent: int) -> int:
    return max(1, -(-(devices - 1) * (100 - percent) // percent))


def quotient(devices: int, percent: int) -> float:
    return (devices - 1) * (1 - percent / 100) / (percent / 100)


TARGETS = [
    (exactly, "correct", "every target tried is met"),
    (lambda k, p: float(exactly(k, p)), "correct", "every target tried is met"),
    (
        lambda k, p: max(1, int(quotient(k, p))),
        "almost",
        "3 devices and 15% you say 11; measured, that bubble is 15.4%",
    ),
    (lambda k, p: max(1, round(quotient(k, p))), "almost", "Which way must the quotient be rounded?"),
    (
        lambda k, p: 4 * k,
        "keep working",
        "4 devices and 12% you say 16; measured, that bubble is 15.8%. What did",
    ),
    (
        lambda k, p: max(1, ceil(quotient(k, p))),
        "almost",
        "4 devices and 12% you say 23; but with 22 the bubble measures 12.0%",
    ),
    (
        lambda k, p: max(1, ceil((k - 1) * (1 / (p / 100) - 1))),
        "almost",
        "What do you round or compare there",
    ),
    (
        lambda k, p: max(1, ceil((k - 1) * Fraction(100, p))),
        "almost",
        "the bubble overhead is 14.3% and the fraction 12.5%",
    ),
    (
        lambda k, p: -(-(k - 1) * (100 - p) // p),
        "almost",
        "1 device and 10% you say 0. What would the device work on?",
    ),
    (
        lambda k, p: 10**12,
        "keep working",
        "but with 24 the bubble measures 7.7%, not above 15%. What did you solve",
    ),
    (lambda k, p: -1, "keep working", "you say -1. What would the device work on?"),
    (lambda k, p: 0, "keep working", "you say 0. What would the device work on?"),
    (lambda k, p: 4, "keep working", "you say 4; measured, that bubble is 33.3%. What did you solve"),
    (lambda k, p: 11, "keep working", "you say 11; measured, that bubble is 15.4%. What did you solve"),
    (lambda k, p: float("nan"), "keep working", "whole numbers"),
    (quotient, "keep working", "15% you say 11.33. Microbatches come in whole numbers"),
    (lambda k, p: "many", "keep working", "you say 'many'"),
    (lambda k, p: float("inf"), "keep working", "whole numbers"),
    (lambda k, p: 1 / 0, "keep working", "called with (3, 15) it stopped: ZeroDivisionError"),
    (27, "keep working", "pass in a function"),
    (lambda k, p: max(1, int(quotient(k, p)) + 1), "almost", "4 devices and 12% you say 23; but with 22"),
    (lambda k, p: [exactly(k, p)], "keep working", "you say [12]. Microbatches come in whole numbers"),
    (lambda k, p: str(exactly(k, p)), "keep working", "Microbatches come in whole numbers"),
    (lambda k, p: exactly(k - 1, p), "keep working", "What did you solve for M?"),
    (None, "your turn", "write a function"),
]


@pytest.mark.parametrize(("answer", "verdict", "says"), TARGETS)
def test_microbatches_for_a_target(answer, verdict, says):
    assert_says(microbatches_for(answer), verdict, says)


def test_the_hidden_targets_catch_every_way_to_be_inexact():
    """Truncating, rounding, and each of two spellings with floats go wrong somewhere."""
    ways = (
        lambda k, p: int(quotient(k, p)),
        lambda k, p: round(quotient(k, p)),
        lambda k, p: ceil(quotient(k, p)),
        lambda k, p: ceil((k - 1) / (p / 100) - (k - 1)),
        lambda k, p: ceil((k - 1) * (1 / (p / 100) - 1)),
    )
    for way in ways:
        assert any(max(1, way(*size)) != exactly(*size) for size in HIDDEN)


def by_trying(devices, percent):
    return next(m for m in count(1) if 100 * (devices - 1) <= percent * (devices - 1 + m))


def with_numpy(devices, percent):
    return np.int64(max(1, np.ceil((devices - 1) * (100 - percent) / percent)))


def by_measuring(devices, percent):
    """Slow, but right."""
    microbatches = 1
    while 100 * gp.bubble_fraction(gp.simulate(gp.GPipe(devices, microbatches), lesson_10.EXACT)) > percent:
        microbatches += 1
    return microbatches


@pytest.mark.parametrize("answer", [by_trying, with_numpy, by_measuring])
def test_a_right_number_for_a_target_may_be_found_in_another_way(answer):
    assert microbatches_for(answer).verdict == "correct"


# The quickest number of microbatches


def divisors(samples):
    return [m for m in range(1, samples + 1) if samples % m == 0]


def best_by(length):
    """The divisor that makes this length the shortest."""

    def answer(devices, samples, startup):
        return min(divisors(samples), key=lambda m: length(devices, samples, startup, m))

    return answer


by_formula = best_by(lambda k, s, o, m: (m + k - 1) * (o + Fraction(s, m)))
by_balance = best_by(lambda k, s, o, m: m * o + (k - 1) * Fraction(s, m))


def by_simulating(devices, samples, startup):
    def length(m):
        each = startup + samples // m
        return gp.simulate(gp.OneFOneB(devices, m), gp.Costs(each, each, each)).makespan

    return np.int64(min(divisors(samples), key=length))


def with_floats(devices, samples, startup):
    lengths = {m: 3.0 * (m + devices - 1) * (startup + samples / m) for m in divisors(samples)}
    return float(min(lengths, key=lengths.get))


@pytest.mark.parametrize("answer", [by_formula, by_balance, by_simulating, with_floats])
def test_the_quickest_number_may_be_found_in_any_way(answer):
    reply = quickest(answer)
    assert (reply.verdict, reply.text) == (
        "correct",
        "no other number of equal pieces makes a shorter step, on every batch tried",
    )


def root(devices, samples, startup):
    return sqrt((devices - 1) * samples / max(startup, 1))


BATCHES = [
    (
        lambda k, s, o: s,
        "keep working",
        "In yours each device spends 8064 on starting actions and 72 on waiting.",
    ),
    (lambda k, s, o: 1, "keep working", "each device spends 21 on starting actions and 3519 on waiting"),
    (lambda k, s, o: 4 * k, "keep working", "you say 28. How many samples would each of these pieces have?"),
    (lambda k, s, o: k, "keep working", "you say 7. How many samples would each of these pieces have?"),
    (lambda k, s, o: max(divisors(s)[:-1]), "keep working", "What does M do to each of the two?"),
    (lambda k, s, o: round(root(k, s, o)), "keep working", "you say 13. How many samples"),
    (root, "keep working", "you say 12.83. How many microbatches is that?"),
    (lambda k, s, o: min(divisors(s), key=lambda m: abs(m - root(k, s, o))), "keep working", "you say 8."),
    (
        lambda k, s, o: s if not o else min(divisors(s), key=lambda m: abs(m - root(k, s, o))),
        "almost",
        "Did you compare it with its neighbours?",
    ),
    (best_by(lambda k, s, o, m: (m + k) * (o + Fraction(s, m))), "keep working", "you say 16."),
    (best_by(lambda k, s, o, m: (m + k - 1) * Fraction(s, m)), "keep working", "8064 on starting actions"),
    (best_by(lambda k, s, o, m: m * (o + Fraction(s, m))), "keep working", "3519 on waiting"),
    (best_by(lambda k, s, o, m: Fraction(k - 1, k - 1 + m)), "keep working", "8064 on starting actions"),
    (lambda k, s, o: 0, "keep working", "you say 0. How many microbatches is that?"),
    (lambda k, s, o: -by_formula(k, s, o), "keep working", "you say -12. How many microbatches is"),
    (lambda k, s, o: None, "keep working", "you say None. How many microbatches is that?"),
    (lambda k, s, o: "12", "keep working", "you say '12'. How many microbatches is"),
    (lambda k, s, o: float("nan"), "keep working", "you say nan. How many microbatches is"),
    (lambda k, s, o: True, "keep working", "you say True. How many microbatches is"),
    (lambda k, s, o: divisors(s), "keep working", "How many microbatches is that?"),
    (lambda k, s, o: sqrt((k - 1) * s / o), "keep working", "you say 12.83. How many microbatches"),
    (lambda k, s, o: 1 / 0, "keep working", "ZeroDivisionError"),
    (8, "keep working", "pass in a function, not 8"),
    (None, "your turn", "write a function quickest(devices, samples, startup)"),
]


@pytest.mark.parametrize(("answer", "verdict", "says"), BATCHES)
def test_quickest_says_what_a_step_spends(answer, verdict, says):
    assert_says(quickest(answer), verdict, says)


def test_no_two_cuts_of_a_hidden_batch_are_equally_quick():
    """And at some, the nearest to the square root, 4K, all samples and one piece are not the quickest."""
    found = {batch: by_formula(*batch) for batch in HIDDEN_BATCHES}
    for batch, best in found.items():
        same = [m for m in batch.cuts() if lesson_10.timed(batch, m).makespan == lesson_10.shortest(batch)]
        assert same == [best]
    nearest = {b: min(b.cuts(), key=lambda m, b=b: abs(m - root(*b))) for b in found if b.startup}
    assert any(nearest[batch] != found[batch] for batch in nearest)
    for other in (lambda b: 4 * b.devices, lambda b: b.samples, lambda b: 1):
        assert any(other(batch) != best for batch, best in found.items())


# Predictions


def test_the_natural_wrong_guesses_are_wrong_and_are_told_what_they_are():
    predictions = (
        (23, lesson_10.HALVED),
        (8, lesson_10.QUICKEST),
        ("lower", lesson_10.ACCURACY),
        (32, lesson_10.THINNER),
        (19, lesson_10.NEGLIGIBLE),
        ("false", lesson_10.FEWER_STAGES),
        ("false", lesson_10.CUT_OFF),
    )
    for measured, wrong in predictions:
        assert_each_is_told(wrong, measured)


def test_the_natural_wrong_guesses_are_what_their_sentences_say():
    assert round(100 * float(gp.formulas.gpipe_bubble(16, 64)), 1) == 19
    assert list(lesson_10.NEGLIGIBLE) == [0, 5, 100 / 5, round(100 * 15 / 64, 1), 100 * 16 / 64]
    assert gp.formulas.gpipe_bubble(8, 23) * 2 == gp.formulas.gpipe_bubble(8, 8)
    assert 2 * (8 - 1 + 8) == 30 and 4 * 8 == 32
    batch = lesson_10.Batch(4, 256, 8)
    assert by_formula(*batch) == 8 and {8, *lesson_10.QUICKEST} == set(batch.cuts())
    assert isclose(lesson_10.timed(batch, 16).makespan / lesson_10.shortest(batch), 1.036, abs_tol=0.001)
    for V, least in ((1, 63), (2, 32), (4, 16)):
        assert gp.formulas.interleaved_bubble(8, least, V) <= Fraction(1, 10)
        assert gp.formulas.interleaved_bubble(8, least - 1, V) > Fraction(1, 10)


WRONG = {
    name: [answer for answer, verdict, _ in cases if verdict not in ("correct", "your turn")]
    for name, cases in {"microbatches_for": TARGETS, "quickest": BATCHES}.items()
}
