"""A prediction is set beside the measurement, whatever was written as a guess."""

from fractions import Fraction

import numpy as np
import pytest

from gpipe_sim.course import predict
from gpipe_sim.course.reply import called


@pytest.mark.parametrize(
    ("guess", "measured", "verdict", "says"),
    [
        (33, 33, "correct", "you said 33 units, and that is what was measured"),
        (np.int64(33), 33, "correct", "that is what was measured"),
        (24, 33, "keep working", "you said 24 units, measured 33 units: more than you thought"),
        (34, 33, "keep working", "less than you thought"),
        (2.9, 2.91, "almost", "a guess need not be nearer"),
        (0.27, Fraction(3, 11), "almost", "a guess need not be nearer"),
        (2.5, 2.91, "keep working", "more than you thought"),
        ("33", 33, "keep working", "'33' is not a number; write your guess as one (units)"),
        ([33], 33, "keep working", "is not a number"),
        (np.arange(3), 33, "keep working", "is not a number"),
        (True, 1, "keep working", "is not a number"),
        (10**400, 33, "keep working", "is not a number"),
        (None, 33, "your turn", "write your guess in the cell above"),
    ],
)
def test_a_guess_is_answered(guess, measured, verdict, says):
    reply = predict(guess, measured, "units")
    assert reply.verdict == verdict, reply
    assert says in reply.text, reply


@pytest.mark.parametrize(
    ("guess", "measured", "within", "verdict", "says"),
    [
        (3, 4, 0.25, "correct", "you said 3 percent, measured 4 percent: near enough"),
        (5, 4, 0.25, "correct", "near enough"),
        (1.5, 1.2, 0.25, "correct", "near enough"),
        (4, 4, 0.25, "correct", "and that is what was measured"),
        (-3, -4, 0.25, "correct", "near enough"),
        (2.9, 4, 0.25, "keep working", "more than you thought"),
        (6, 4, 0.25, "keep working", "less than you thought"),
        (1, 0, 0.25, "keep working", "less than you thought"),
        (3, 4, 0, "keep working", "more than you thought"),
        (2.9, 2.91, 0.001, "almost", "a guess need not be nearer"),
        (None, 4, 0.25, "your turn", "write your guess in the cell above"),
    ],
)
def test_a_guess_at_what_a_clock_says_may_be_off(guess, measured, within, verdict, says):
    reply = predict(guess, measured, "percent", within=within)
    assert reply.verdict == verdict, reply
    assert says in reply.text, reply


def test_a_check_hands_out_copies():
    layers, x = [1, [2]], np.zeros(3)

    def greedy(layers, x):
        layers.pop()[0] = 7
        x += 1
        return len(layers)

    assert called(greedy, layers, x) == 1
    assert layers == [1, [2]] and not x.any()


def test_a_reply_stays_as_it_was_given():
    """FrozenInstanceError is an AttributeError: keep working stays keep working."""
    reply = predict(24, 33)
    with pytest.raises(AttributeError):
        reply.verdict = "correct"
    assert reply == predict(24, 33) and hash(reply) == hash(predict(24, 33))
