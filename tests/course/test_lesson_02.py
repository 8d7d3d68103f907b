"""Lesson 02: what the checks say to right answers and to the usual wrong ones."""

import numpy as np
import pytest

from gpipe_sim import (
    SGD,
    Adam,
    Costs,
    Explicit,
    Naive,
    cross_entropy,
    digits,
    mlp,
    simulate,
    split,
    train,
)
from gpipe_sim.course import lesson_02, reveal
from gpipe_sim.course.lesson_02 import EightTimes, accuracy, measured_bytes, message_bytes, which_hides_it

HALVES = Explicit(["0F0 0I0 0W0", "1F0 1I0 1W0"])
STEP = simulate(HALVES, Costs(comm=1))


@pytest.mark.parametrize(
    ("measured", "wrong"),
    [
        (32 * 16 * 8, lesson_02.SENT_BACK),
        (512 / 16, lesson_02.LARGEST),
        (2, lesson_02.BACKWARDS),
        (STEP.makespan, lesson_02.SPLIT_LENGTHS),
    ],
)
def test_the_natural_wrong_guesses_are_wrong_and_are_told_what_they_are(measured, wrong):
    for guess, words in wrong.items():
        reply = reveal(guess, measured, wrong=wrong).reply
        assert (reply.verdict, reply.text.endswith(words)) == ("not what happened", True), guess


def test_the_natural_wrong_guesses_are_what_their_sentences_say():
    W0, W1 = (layer.parameters["W"] for layer in mlp([64, 16, 10]) if layer.parameters)
    sizes = [8, 32 * 8, W1.nbytes, 32 * 10 * 8, W0.nbytes, 32 * 64 * 8]
    assert list(lesson_02.SENT_BACK) == sizes
    weights = [layer.parameters["W"].size for layer in mlp([64, 512, 16, 512, 10]) if layer.parameters]
    assert list(lesson_02.LARGEST) == [1, max(weights) / min(weights), 512 / 64, 512 / 10]
    done = next(span.end for span in STEP.on(0) if str(span.action) == "0I0")
    whole = simulate(Naive(2), Costs(comm=1)).makespan
    assert list(lesson_02.SPLIT_LENGTHS) == [simulate(HALVES).makespan, done, whole]


@pytest.fixture(scope="module")
def each_is_trained_once():
    """The check trains every optimizer with either gradient for every answer, always the same."""
    known = {}

    def once(optimizer, loss):
        key = type(optimizer), optimizer.learning_rate, type(loss)
        if key not in known:
            known[key] = accuracy(optimizer, loss)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lesson_02, "accuracy", once)
        yield once


def last_weights(layers, cut):
    return [layer.parameters["W"] for layer in layers[:cut] if layer.parameters][-1]


def features(layers, cut):
    return last_weights(layers, cut).shape[1]


def exactly(layers, cut, samples):
    return samples * features(layers, cut) * last_weights(layers, cut).itemsize


@pytest.mark.parametrize(
    ("answer", "verdict", "says"),
    [
        (exactly, "correct", "every cut sends as many bytes as you say"),
        (lambda *a: float(exactly(*a)), "correct", "every cut"),
        (lambda la, c, n: n * features(la, c) * 8, "almost", "How many bytes has one number here?"),
        (lambda *a: 2 * exactly(*a), "almost", "both messages together"),
        (lambda la, c, n: n * features(la, c), "almost", "you say 3,600: that many numbers cross"),
        (lambda la, c, n: exactly(la, c, 1), "almost", "How many samples cross together?"),
        (lambda la, c, n: n * last_weights(la, c).shape[0] * 8, "almost", "What does it hand on?"),
        (lambda la, c, n: last_weights(la, c).nbytes, "keep working", "that is the size of weights"),
        (lambda *a: 7, "keep working", "you say 7, measured: 28,800. Which array"),
        (lambda *a: None, "keep working", "you say None; it should be a number"),
        (lambda *a: np.zeros(3), "keep working", "it should be a number"),
        (
            lambda la, c, n: la[c - 1].parameters["W"].nbytes // 0,
            "keep working",
            "it stopped: ZeroDivisionError",
        ),
        (lambda layers: 0, "keep working", "12 samples it stopped: TypeError"),
        (28_800, "keep working", "pass in a function, not 28800"),
        (None, "your turn", "write a function"),
    ],
)
def test_message_bytes(answer, verdict, says):
    reply = message_bytes(answer)
    assert reply.verdict == verdict
    assert says in reply.text


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_what_is_measured_is_one_message(dtype):
    layers = mlp([64, 512, 16, 512, 10], dtype=dtype)
    sent = [measured_bytes(layers, cut, samples=32) for cut in range(1, len(layers))]
    assert sent == [32 * width * np.dtype(dtype).itemsize for width in (512, 512, 16, 16, 512, 512)]


@pytest.mark.parametrize(
    ("answer", "verdict", "says"),
    [
        ("Adam", "correct", "Which comparison shows a wrong gradient"),
        (" adam ", "correct", "At rate 0.05 SGD has"),
        ("neither", "keep working", "Multiply Adam's gradient by 8: what cancels?"),
        ("both", "keep working", "with which rate did it really train?"),
        ("SGD", "keep working", "Which of the two kept its accuracy?"),
        ("RMSProp", "keep working", "'RMSProp' is not an answer here"),
        (8, "keep working", "8 is not an answer here"),
        (None, "your turn", '"SGD", "Adam", "both", "neither"'),
    ],
)
def test_which_optimizer_hides_it(answer, verdict, says, each_is_trained_once):
    reply = which_hides_it(answer)
    assert reply.verdict == verdict
    assert says in reply.text


def test_adam_learns_with_either_gradient_and_sgd_does_not(each_is_trained_once):
    reached = each_is_trained_once
    assert reached(Adam(0.01), cross_entropy) > 0.95
    assert reached(Adam(0.01), EightTimes()) > 0.95
    assert reached(SGD(0.5), cross_entropy) > 0.95
    assert reached(SGD(0.5), EightTimes()) < 0.3


def test_eight_times_too_large_a_gradient_of_the_right_value():
    outputs, targets = np.eye(3, 10), np.arange(3)
    saved = cross_entropy.forward(outputs, targets)[1]
    assert EightTimes()(outputs, targets) == cross_entropy(outputs, targets)
    assert np.array_equal(EightTimes().backward(saved, 1.0), 8 * cross_entropy.backward(saved, 1.0))


def test_the_accuracies_that_are_told_are_those_after_five_epochs():
    run = {"loss": cross_entropy, "optimizer": SGD(0.05), "batch_size": 32, "report": None}
    found = train(split(mlp([64, 32, 10]), stages=2), Naive(2), digits(), epochs=5, **run).accuracies
    assert accuracy(SGD(0.05), cross_entropy) == found[4] > found[3]
