"""Lesson 04: what the checks say to right answers and to the usual wrong ones."""

from fractions import Fraction

import pytest

from gpipe_sim import Costs, GPipe, bubble_fraction, simulate, speedup
from gpipe_sim.course import reveal
from gpipe_sim.course.lesson_04 import (
    LENGTHS,
    SLOW_BACKWARDS,
    SPEED_UPS,
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
