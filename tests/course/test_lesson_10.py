"""Lesson 10: what the checks say to right answers and to the usual wrong ones."""

from fractions import Fraction
from itertools import count
from math import ceil, isclose, sqrt

import numpy as np
from replies import assert_each_is_told, each_reply

import gpipe_sim as gp
from gpipe_sim.course import lesson_10
from gpipe_sim.course.lesson_10 import HIDDEN_BATCHES


def exactly(devices: int, percent: int) -> int:
    return max(1, -(-(devices - 1) * (100 - percent) // percent))


def quotient(devices: int, percent: int) -> float:
    return (devices - 1) * (1 - percent / 100) / (percent / 100)


def by_trying(devices, percent):
    return next(m for m in count(1) if 100 * (devices - 1) <= percent * (devices - 1 + m))


def with_numpy(devices, percent):
    return np.int64(max(1, np.ceil((devices - 1) * (100 - percent) / percent)))


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


def root(devices, samples, startup):
    return sqrt((devices - 1) * samples / max(startup, 1))


def test_no_two_cuts_of_a_hidden_batch_are_equally_quick():
    found = {batch: by_formula(*batch) for batch in HIDDEN_BATCHES}
    for batch, best in found.items():
        same = [m for m in batch.cuts() if lesson_10.timed(batch, m).makespan == lesson_10.shortest(batch)]
        assert same == [best]


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


TARGETS = {
    "correct": [
        (by_trying, ""),
        (with_numpy, ""),
        (exactly, "every target tried is met"),
        (lambda k, p: float(exactly(k, p)), "every target tried is met"),
    ],
    "almost": [
        (
            lambda k, p: max(1, int(quotient(k, p))),
            "3 devices and 15% you say 11; measured, that bubble is 15.4%",
        ),
        (lambda k, p: max(1, ceil((k - 1) / (p / 100) - (k - 1))), ""),
        (lambda k, p: max(1, round(quotient(k, p))), "Which way must the quotient be rounded?"),
        (
            lambda k, p: max(1, ceil(quotient(k, p))),
            "4 devices and 12% you say 23; but with 22 the bubble measures 12.0%",
        ),
        (lambda k, p: max(1, ceil((k - 1) * (1 / (p / 100) - 1))), "What do you round or compare there"),
        (
            lambda k, p: max(1, ceil((k - 1) * Fraction(100, p))),
            "the bubble overhead is 14.3% and the fraction 12.5%",
        ),
        (
            lambda k, p: -(-(k - 1) * (100 - p) // p),
            "1 device and 10% you say 0. What would the device work on?",
        ),
        (lambda k, p: max(1, int(quotient(k, p)) + 1), "4 devices and 12% you say 23; but with 22"),
    ],
    "keep working": [
        (lambda k, p: 4 * k, "4 devices and 12% you say 16; measured, that bubble is 15.8%. What did"),
        (lambda k, p: 10**12, "but with 24 the bubble measures 7.7%, not above 15%. What did you solve"),
        (lambda k, p: -1, "you say -1. What would the device work on?"),
        (lambda k, p: 0, "you say 0. What would the device work on?"),
        (lambda k, p: 4, "you say 4; measured, that bubble is 33.3%. What did you solve"),
        (lambda k, p: float("nan"), "whole numbers"),
        (quotient, "15% you say 11.33. Microbatches come in whole numbers"),
        (lambda k, p: "many", "you say 'many'"),
        (lambda k, p: float("inf"), "whole numbers"),
        (lambda k, p: [exactly(k, p)], "you say [12]. Microbatches come in whole numbers"),
        (lambda k, p: exactly(k - 1, p), "What did you solve for M?"),
    ],
}
BATCHES = {
    "correct": [
        (answer, "no other number of equal pieces makes a shorter step, on every batch tried")
        for answer in (by_formula, by_balance, by_simulating, with_floats)
    ],
    "keep working": [
        (lambda k, s, o: s, "In yours each device spends 8064 on starting actions and 72 on waiting."),
        (lambda k, s, o: 1, "each device spends 21 on starting actions and 3519 on waiting"),
        (lambda k, s, o: 4 * k, "you say 28. How many samples would each of these pieces have?"),
        (lambda k, s, o: k, "you say 7. How many samples would each of these pieces have?"),
        (lambda k, s, o: max(divisors(s)[:-1]), "What does M do to each of the two?"),
        (lambda k, s, o: round(root(k, s, o)), "you say 13. How many samples"),
        (root, "you say 12.83. How many microbatches is that?"),
        (lambda k, s, o: min(divisors(s), key=lambda m: abs(m - root(k, s, o))), "you say 8."),
        (best_by(lambda k, s, o, m: (m + k) * (o + Fraction(s, m))), "you say 16."),
        (best_by(lambda k, s, o, m: (m + k - 1) * Fraction(s, m)), "8064 on starting actions"),
        (best_by(lambda k, s, o, m: m * (o + Fraction(s, m))), "3519 on waiting"),
        (best_by(lambda k, s, o, m: Fraction(k - 1, k - 1 + m)), "8064 on starting actions"),
        (lambda k, s, o: 0, "you say 0. How many microbatches is that?"),
        (lambda k, s, o: -by_formula(k, s, o), "you say -12. How many microbatches is"),
        (lambda k, s, o: None, "you say None. How many microbatches is that?"),
        (lambda k, s, o: float("nan"), "you say nan. How many microbatches is"),
        (lambda k, s, o: True, "you say True. How many microbatches is"),
        (lambda k, s, o: divisors(s), "How many microbatches is that?"),
    ],
    "almost": [
        (
            lambda k, s, o: s if not o else min(divisors(s), key=lambda m: abs(m - root(k, s, o))),
            "Did you compare it with its neighbours?",
        )
    ],
}
test_replies = each_reply(lesson_10, microbatches_for=TARGETS, quickest=BATCHES)
