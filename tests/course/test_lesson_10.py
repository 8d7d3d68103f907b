"""Lesson 10: what the check says to right answers and to the usual wrong ones."""

from fractions import Fraction
from math import isclose, sqrt

import numpy as np
from replies import assert_each_is_told, each_reply, natural

import gpipe_sim as gp
from gpipe_sim.course import lesson_10
from gpipe_sim.course.lesson_10 import HIDDEN_BATCHES


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
    return min(lengths, key=lengths.get)


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
        (8, natural("10", "The shortest step")),
        ("lower", natural("10", "After five epochs")),
        (round(67 / 7, 2), natural("10", "In the same time")),
        (4, natural("10", "Twice as many devices")),
        (17.8, natural("10", "When it is negligible")),
        ("true", natural("10", "The best pieces")),
        ("false", natural("10", "With larger updates")),
    )
    for measured, wrong in predictions:
        assert_each_is_told(wrong, measured)


def test_the_natural_wrong_guesses_are_what_their_sentences_say():
    batch = lesson_10.Batch(4, 256, 8)
    assert by_formula(*batch) == 8 and {8, *natural("10", "The shortest step")} == {*batch.cuts(), 9.8, 10}
    assert round(root(*batch), 1) == 9.8
    assert isclose(lesson_10.timed(batch, 16).makespan / lesson_10.shortest(batch), 1.036, abs_tol=0.001)


def test_four_doublings_gain_1_5_times_and_the_fifth_a_little_less():
    """In turns: K devices take K+31 of them, each 1/K as long."""
    gains = [Fraction(2 * (K + 31), 2 * K + 31) for K in (1, 2, 4, 8, 16, 32)]
    assert [gain >= 1.5 for gain in gains] == [True] * 4 + [False] * 2
    assert set(range(11)) | {16} == {4, *natural("10", "Twice as many devices")}


def test_a_bubble_of_5_percent_takes_19_turns_of_work_for_each_of_15_that_wait():
    bubbles = {M: gp.bubble_fraction(gp.simulate(gp.OneFOneB(16, M))) for M in (64, 284, 285)}
    assert bubbles[284] > 0.05 >= bubbles[285] and round(285 / 16, 1) == 17.8
    assert [round(15 / bubbles[64]), 18.75] == [15 + 64, 15 / 0.05 / 16]
    for times, says in natural("10", "When it is negligible").items():
        assert times > 17 or says.endswith(f"works on {16 * times}. What share is that?")


def test_an_update_of_64_microbatches_takes_67_turns_and_one_of_4_takes_7():
    long, short = (gp.simulate(gp.GPipe(4, m)).makespan for m in (64, 4))
    assert Fraction(long, short) == Fraction(67, 7)
    guesses = list(natural("10", "In the same time"))
    assert guesses == [0.1, 1, 2.2, round(64 / 7, 2), 16]


def test_of_a_larger_batch_the_best_pieces_are_larger():
    pieces = [samples // by_formula(4, samples, 8) for samples in (64, 256, 1024, 4096)]
    assert pieces == [16, 32, 64, 128]


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
        (root, "you say 12.83. Which whole number of microbatches is that?"),
        (lambda k, s, o: min(divisors(s), key=lambda m: abs(m - root(k, s, o))), "you say 8."),
        (best_by(lambda k, s, o, m: (m + k) * (o + Fraction(s, m))), "you say 16."),
        (best_by(lambda k, s, o, m: (m + k - 1) * Fraction(s, m)), "8064 on starting actions"),
        (best_by(lambda k, s, o, m: m * (o + Fraction(s, m))), "3519 on waiting"),
        (best_by(lambda k, s, o, m: Fraction(k - 1, k - 1 + m)), "8064 on starting actions"),
        (lambda k, s, o: 0, "you say 0. Which whole number of microbatches is that?"),
        (lambda k, s, o: -by_formula(k, s, o), "you say -12. Which whole"),
        (lambda k, s, o: None, "it gives nothing back. What should come after return?"),
        (lambda k, s, o: float("nan"), "you say nan. Which whole"),
        (lambda k, s, o: True, "you say True. Which whole"),
        (lambda k, s, o: float(with_floats(k, s, o)), "Which whole number of microbatches is that?"),
        (lambda k, s, o: divisors(s), "Which whole number of microbatches is that?"),
    ],
    "almost": [
        (
            lambda k, s, o: by_formula(k, s, o) if s < 300 or o else 256,
            "for 3 devices, 512 samples and a start-up of 0 you say 256.",
        ),
        (
            lambda k, s, o: s if not o else min(divisors(s), key=lambda m: abs(m - root(k, s, o))),
            "Did you compare it with its neighbours?",
        ),
    ],
}


def there_first(needed, devices):
    return min(needed, key=lambda m: needed[m] * (m + devices - 1))


SOONEST = {
    "correct": [
        (there_first, "no other M is there sooner, in 8 cases"),
        (lambda needed, devices: np.int64(there_first(needed, devices)), "no other M"),
    ],
    "almost": [
        (lambda needed, K: (there_first(needed, K), needed.clear())[0], "needed is not what it was before"),
    ],
    "keep working": [
        (
            lambda needed, devices: min(needed, key=needed.get),
            "you say 64, whose 31 updates take 6231. Another M needs 3420. How long is one update?",
        ),
        (lambda needed, devices: min(needed), "you say 4, whose 200 updates take 4200"),
        (lambda needed, devices: min(needed, key=lambda m: needed[m] * m), "you say 4, whose 200"),
        (
            lambda needed, devices: there_first(needed, 4),
            "and {8: 90, 64: 24, 128: 17} you say 8, whose",
        ),
        (lambda needed, K: min(needed, key=lambda m: needed[m] * (m + K)), "for 1 device and {1: 50, 4: 13}"),
        (
            lambda needed, devices: needed[there_first(needed, devices)],
            "you say 60. Which of these M is that?",
        ),
        (lambda needed, devices: [4], "Which of these M is that?"),
        (
            lambda needed, devices: float(there_first(needed, devices)),
            "you say 16. Which of these M is that?",
        ),
        (lambda needed, devices: None, "it gives nothing back. What should come after return?"),
        (
            lambda needed, K: min(needed, key=lambda m: needed[m] * (m + 2 * (K - 1))),
            "for 4 devices and {4: 180, 16: 70} you say 16",
        ),
        (
            lambda needed, K: there_first({m: needed[m] for m in list(needed)[:2]}, K),
            "for 2 devices and {4: 300, 16: 60, 64: 12} you say 16",
        ),
        (
            lambda needed, K: there_first({m: needed[m] for m in list(needed)[-2:]}, K),
            "for 8 devices and {2: 60, 8: 50, 32: 40} you say 8",
        ),
    ],
}
test_replies = each_reply(lesson_10, quickest=BATCHES, soonest=SOONEST)
