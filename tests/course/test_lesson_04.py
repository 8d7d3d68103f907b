"""Lesson 04: what the checks say to right answers and to the usual wrong ones."""

from fractions import Fraction
from math import ceil

import pytest

from gpipe_sim import Costs, GPipe, bubble_fraction, simulate, speedup
from gpipe_sim.course import reveal
from gpipe_sim.course.lesson_04 import (
    HIDDEN,
    LENGTHS,
    SLOW_BACKWARDS,
    SPEED_UPS,
    microbatches_for,
    name_the_bubble,
)


def test_the_natural_wrong_guesses_are_wrong_and_are_told_what_they_are():
    timeline = simulate(GPipe(4, 8))
    times = ([Fraction(1), half, half] for half in (Fraction(1), Fraction(5, 2)))
    bubbles = {bubble_fraction(simulate(GPipe(4, 8), Costs(*each))) for each in times}
    assert len(bubbles) == 1
    predictions = (
        (timeline.makespan, LENGTHS),
        ("same", SLOW_BACKWARDS),
        (round(float(speedup(timeline)), 2), SPEED_UPS),
    )
    for measured, wrong in predictions:
        for guess, words in wrong.items():
            reply = reveal(guess, measured, wrong=wrong).reply
            assert (reply.verdict, reply.text.endswith(words)) == ("not what happened", True), guess


def test_the_natural_wrong_guesses_are_what_their_sentences_say():
    timeline = simulate(GPipe(4, 8))
    one, done = 4 * 8 * 3, timeline.on(3)[-1].end
    assert set(LENGTHS) == {one, one // 4, done, done + 3}
    assert list(SPEED_UPS) == [
        4,
        8,
        Fraction(one, done),
        Fraction(timeline.makespan, one // 4),
        Fraction(one // 4, timeline.makespan),
    ]


@pytest.mark.parametrize(
    ("answer", "verdict", "says"),
    [
        (Fraction(3, 11), "correct", "36 of 132 units are waiting"),
        (Fraction(3, 8), "almost", "that is idle over useful time (overhead). Divide by all device time."),
        (0.375, "almost", "overhead"),
        (0.2727, "almost", "rounded. Which two whole numbers"),
        (Fraction(8, 11), "almost", "in that share of the time devices work"),
        (9, "almost", "9 is how long one device idles. Out of how long?"),
        (36, "almost", "36 is the waiting of all 4 devices"),
        (27.3, "almost", "in percent"),
        (Fraction(3, 4), "keep working", "so much idles in the naive order"),
        (Fraction(1, 4), "keep working", "would leave 33 of 132 units of waiting"),
        (float("nan"), "keep working", "would leave nan of 132"),
        ("3/11", "keep working", "'3/11' is not a number"),
        (True, "keep working", "True is not a number"),
        (None, "your turn", "as a Fraction"),
    ],
)
def test_a_number_for_the_bubble_is_told_what_it_is_the_number_of(answer, verdict, says):
    reply = name_the_bubble(answer)
    assert reply.verdict == verdict
    assert says in reply.text


def exactly(devices: int, percent: int) -> int:
    return max(1, -(-(devices - 1) * (100 - percent) // percent))


def quotient(devices: int, percent: int) -> float:
    return (devices - 1) * (1 - percent / 100) / (percent / 100)


@pytest.mark.parametrize(
    ("answer", "verdict", "says"),
    [
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
            "4 devices and 12% you say 23; but 22 measure 12.0%",
        ),
        (lambda k, p: max(1, ceil((k - 1) * (1 / (p / 100) - 1))), "almost", "is it exact?"),
        (
            lambda k, p: max(1, ceil((k - 1) * Fraction(100, p))),
            "almost",
            "the overhead is 14.3% and the fraction 12.5%",
        ),
        (
            lambda k, p: -(-(k - 1) * (100 - p) // p),
            "almost",
            "1 device and 10% you say 0. What would the device work on?",
        ),
        (
            lambda k, p: 10**12,
            "keep working",
            "but 24 measure 7.7%, not above 15%. What did you solve",
        ),
        (lambda k, p: float("nan"), "keep working", "whole numbers"),
        (quotient, "keep working", "microbatches come in whole numbers"),
        (lambda k, p: "many", "keep working", "you say 'many'"),
        (lambda k, p: float("inf"), "keep working", "whole numbers"),
        (lambda k, p: 1 / 0, "keep working", "called with (3, 15) it stopped: ZeroDivisionError"),
        (27, "keep working", "pass in a function"),
        (None, "your turn", "write a function"),
    ],
)
def test_microbatches_for_a_target(answer, verdict, says):
    reply = microbatches_for(answer)
    assert reply.verdict == verdict, reply
    assert says in reply.text, reply


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
