"""What lesson 08's checks say to right and to wrong answers."""

import numpy as np
import pytest

import gpipe_sim as gp
from gpipe_sim.course import lesson_08


def except_last(K, M, forward, backward, recompute):
    return (M + K - 1) * (forward + backward) + (M - 1) * recompute


def test_nothing_yet():
    assert lesson_08.remat_time(None).verdict == "your turn"
    assert lesson_08.most_microbatches(None).verdict == "your turn"


def test_the_formula_is_correct():
    assert lesson_08.remat_time(except_last).verdict == "correct"


def test_so_is_a_simulation():
    def simulated(K, M, forward, backward, recompute):
        costs = gp.Costs(forward=forward, input_grad=1, weight_grad=backward - 1, recompute=recompute)
        return gp.simulate(gp.remat(gp.GPipe(K, M), "except_last"), costs).makespan

    assert lesson_08.remat_time(simulated).verdict == "correct"


@pytest.mark.parametrize(
    ("wrong", "verdict", "says"),
    [
        (lambda K, M, f, b, r: (M + K - 1) * (f + b + r), "almost", "right if R waits for the gradient"),
        (lambda K, M, f, b, r: (M + K - 1) * (f + b + r) - r, "almost", "Which array does R read"),
        (lambda K, M, f, b, r: (M + K - 1) * (f + b) + M * r, "almost", "every microbatch is recomputed"),
        (lambda K, M, f, b, r: (M + K - 1) * (f + b) + (M - 1) * f, "almost", "as long as F"),
        (lambda K, M, f, b, r: (M + K - 1) * (f + b), "keep working", "without any R"),
        (lambda K, M, f, b, r: 41, "keep working", "must somebody wait for"),
        (lambda K, M, f, b, r: "41", "keep working", "should be a number"),
        (lambda K, M, f, b, r: np.ones(3), "keep working", "should be a number"),
        (lambda K, M, f, b, r: 1 / 0, "keep working", "ZeroDivisionError"),
        (41, "keep working", "pass in a function"),
    ],
)
def test_a_wrong_time_is_told_why(wrong, verdict, says):
    reply = lesson_08.remat_time(wrong)
    assert reply.verdict == verdict
    assert says in reply.text


def test_the_first_size_tells_the_wrong_ideas_apart():
    K, M, f, b, r = lesson_08.HIDDEN_TIMES[0]
    plain = (M + K - 1) * (f + b)
    ideas = {plain, plain + M * r, plain + (M - 1) * r, plain + (M - 1) * f, plain + (M + K - 1) * r}
    assert len(ideas) == 5


def test_the_most_microbatches():
    def answer(limit, boundary, saved):
        return max(0, (limit - (saved - boundary)) // boundary)

    assert lesson_08.most_microbatches(answer).verdict == "correct"


@pytest.mark.parametrize(
    ("wrong", "verdict", "says"),
    [
        (
            lambda limit, boundary, saved: limit // saved,
            "almost",
            "nothing is recomputed. With R the peak would be 190. What more fits?",
        ),
        (lambda limit, boundary, saved: limit // boundary, "almost", "besides the boundary inputs"),
        (lambda limit, boundary, saved: (limit - saved) // boundary, "almost", "an array twice"),
        (lambda limit, boundary, saved: (limit - saved + boundary) // boundary, "almost", "not even one"),
        (
            lambda limit, boundary, saved: (limit - saved + boundary) / boundary,
            "keep working",
            "whole number",
        ),
        (lambda limit, boundary, saved: None, "keep working", "whole number"),
        (lambda limit, boundary, saved: float("inf"), "keep working", "whole number"),
        (lambda limit, boundary, saved: np.ones(3), "keep working", "whole number"),
        (lambda limit, boundary, saved: limit.bytes, "keep working", "AttributeError"),
    ],
)
def test_a_wrong_number_of_microbatches_is_told_why(wrong, verdict, says):
    reply = lesson_08.most_microbatches(wrong)
    assert reply.verdict == verdict
    assert says in reply.text


def test_the_peak_that_the_check_counts_with_is_the_meters():
    layers = gp.mlp([125] * 13, activation="gelu")[:24]
    batch = np.zeros((50, 125)), np.zeros(50, int)
    schedule = gp.remat(gp.GPipe(devices=4, microbatches=5), "always")
    peak = (
        gp.train_step(gp.split(layers, stages=4), schedule, batch, gp.cross_entropy).memory[1].activation_peak
    )
    assert lesson_08._most(peak, 10_000, 60_000) == 5
    assert lesson_08._most(peak - 1, 10_000, 60_000) == 4


def test_the_natural_wrong_predictions_are_what_they_are_said_to_be():
    gpipe = gp.GPipe(4, 8)
    took = {mode: gp.simulate(gp.remat(gpipe, mode)).makespan for mode in ("never", "except_last", "always")}
    inside = gp.simulate(gpipe, gp.Costs(input_grad=2)).makespan
    assert list(lesson_08.LENGTHS) == [took["never"], took["except_last"], inside, took["never"] + 4 * 8]
    assert list(lesson_08.PEAKS) == [6 * 10, 8 * 10, 8 * 10 + 6 * 10, 8 * 6 * 10]
    peak = gp.formulas.remat_activation_units(8, 10, 50)
    wrongs = {
        took["always"]: lesson_08.LENGTHS,
        peak: lesson_08.PEAKS,
        "equal": lesson_08.GRADIENTS,
        "loss": lesson_08.DROPOUT,
    }
    assert set(wrongs) == {41, 130, "equal", "loss"}
    for right, wrong in wrongs.items():
        for guess, says in wrong.items():
            reply = gp.course.reveal(guess, right, wrong=wrong).reply
            assert reply.verdict == "not what happened" and reply.text.endswith(says), reply
