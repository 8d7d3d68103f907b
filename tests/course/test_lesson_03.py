"""Lesson 03: what the check says to right answers and to the usual wrong ones."""

import numpy as np
import pytest

from gpipe_sim import GPipe, Naive, digits, simulate
from gpipe_sim.course import lesson_03, reveal
from gpipe_sim.course.lesson_03 import accumulate, one_device

LENGTH, DIGITS = simulate(GPipe(4, 4)).makespan, len(digits().x)


@pytest.mark.parametrize(
    ("measured", "wrong"),
    [
        ("equal", lesson_03.ACCUMULATED),
        ("no", lesson_03.BACKWARDS_BITS),
        ("6", lesson_03.MEAN_OF_MEANS),
        (0, lesson_03.ONE_DIGIT_EACH),
        (LENGTH, lesson_03.LENGTHS),
        (DIGITS // 32, lesson_03.UPDATES),
    ],
)
def test_the_natural_wrong_guesses_are_wrong_and_are_told_what_they_are(measured, wrong):
    for guess, words in wrong.items():
        reply = reveal(guess, measured, wrong=wrong).reply
        assert (reply.verdict, reply.text.endswith(words)) == ("not what happened", True), guess


def test_the_natural_wrong_guesses_are_what_their_sentences_say():
    done = simulate(GPipe(4, 4)).on(3)[-1].end
    one_by_one = simulate(Naive(4, 4)).makespan
    assert list(lesson_03.LENGTHS) == [one_by_one // 4, done, done + 3, one_by_one]
    updates = [-(-DIGITS // 32), DIGITS // 32 * 4, DIGITS // 8, -(-DIGITS // 8)]
    assert list(lesson_03.UPDATES) == updates


def cut(x, y, microbatches):
    return list(zip(np.array_split(x, microbatches), np.array_split(y, microbatches), strict=True))


def by_share(mean_gradient, x, y, microbatches):
    return sum(len(p) / len(x) * mean_gradient(p, q) for p, q in cut(x, y, microbatches))


def in_place(mean_gradient, x, y, microbatches):
    total = np.zeros((64, 10))
    for p, q in cut(x, y, microbatches):
        gradient = mean_gradient(p, q)
        gradient *= len(p)
        total += gradient
    total /= len(x)
    return total


def rest_in_the_last(mean_gradient, x, y, microbatches):
    """Any cut into M pieces will do: 2, 2, 2, 4."""
    size, total = len(x) // microbatches, 0
    for m in range(microbatches):
        stop = len(x) if m == microbatches - 1 else (m + 1) * size
        rows = slice(m * size, stop)
        total = total + (stop - m * size) / len(x) * mean_gradient(x[rows], y[rows])
    return total


def mean_of_means(mean_gradient, x, y, microbatches):
    return sum(mean_gradient(p, q) for p, q in cut(x, y, microbatches)) / microbatches


def sum_of_means(mean_gradient, x, y, microbatches):
    return sum(mean_gradient(p, q) for p, q in cut(x, y, microbatches))


def sum_over_samples(mean_gradient, x, y, microbatches):
    return sum(len(p) * mean_gradient(p, q) for p, q in cut(x, y, microbatches))


def drops_the_rest(mean_gradient, x, y, microbatches):
    size = len(x) // microbatches
    rows = [slice(m * size, (m + 1) * size) for m in range(microbatches)]
    return sum(mean_gradient(x[r], y[r]) for r in rows) / microbatches


def every_microbatch_twice(mean_gradient, x, y, microbatches):
    return sum(len(p) / len(x) * mean_gradient(p, q) for p, q in 2 * cut(x, y, microbatches)) / 2


def last_one_only(mean_gradient, x, y, microbatches):
    for p, q in cut(x, y, microbatches):
        gradient = mean_gradient(p, q)
    return gradient


@pytest.mark.parametrize(
    ("answer", "verdict", "says"),
    [
        (by_share, "correct", "Which weight has one sample in the end?"),
        (in_place, "correct", "10 digits in 4 microbatches"),
        (rest_in_the_last, "correct", "every other cut tried"),
        (
            mean_of_means,
            "almost",
            "the sizes are 3, 3, 2, 2 but every weight is 1/4. What would make every *sample* count equally?",
        ),
        (
            sum_over_samples,
            "almost",
            "and so are the weights: the gradient comes out 10.0 times too large",
        ),
        (sum_of_means, "keep working", "times too large. What is the batch's loss a mean of?"),
        (drops_the_rest, "keep working", "have 2, 2, 2, 2 digits, 8 together. Where are the others?"),
        (every_microbatch_twice, "keep working", "3, 2, 2 digits, 20 together. Which come more than once?"),
        (last_one_only, "keep working", "With which weight does each microbatch come in?"),
        (
            lambda g, x, y, m: g(x, y),
            "almost",
            "you cut it into 10. How many digits may a device hold",
        ),
        (lambda g, x, y, m: by_share(g, x, y, m)[0], "keep working", "an array of shape (10,)"),
        (lambda g, x, y, m: [g(p, q) for p, q in cut(x, y, m)][0:0], "keep working", "you return []"),
        (lambda g, x, y, m: x.T @ x[:, :10], "keep working", "have no digits, 0 together"),
        (lambda g, x, y, m: None, "keep working", "you return None"),
        (lambda g, x: 0, "keep working", "for 10 digits and M = 4 it stopped: TypeError"),
        (4, "keep working", "pass in a function, not 4"),
        (None, "your turn", "write a function accumulate"),
    ],
)
def test_accumulate(answer, verdict, says):
    reply = accumulate(answer)
    assert reply.verdict == verdict
    assert says in reply.text


def test_a_nan_is_not_the_right_gradient():
    reply = accumulate(lambda g, x, y, m: np.nan * by_share(g, x, y, m))
    assert reply.verdict == "keep working"


def test_one_device_gives_a_gradient_of_64_by_10():
    data = digits()
    assert one_device(data.x[:10], data.y[:10]).shape == (64, 10)
