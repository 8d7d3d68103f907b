"""Lesson 02: what the checks say to right answers and to the usual wrong ones."""

from functools import partial

import numpy as np
import pytest
from misused import HANDED_IN
from one_line import changed
from replies import assert_each_is_told, assert_says

from gpipe_sim import (
    SGD,
    Adam,
    Costs,
    Explicit,
    Naive,
    digits,
    mlp,
    mse,
    simulate,
    split,
    train,
)
from gpipe_sim.course import lesson_02
from gpipe_sim.course.answers import Links, backward, forward, step
from gpipe_sim.course.lesson_02 import (
    OneHot,
    accuracy,
    forward_and_backward,
    measured_bytes,
    message_bytes,
    which_hides_it,
)

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
    assert_each_is_told(wrong, measured)


def test_the_natural_wrong_guesses_are_what_their_sentences_say():
    W0, W1 = (layer.parameters["W"] for layer in mlp([64, 16, 10]) if layer.parameters)
    sizes = [8, 32 * 8, W1.nbytes, 32 * 10 * 8, 32 * 16, 32 * 16 * 4, W0.nbytes, 32 * 64 * 8]
    assert list(lesson_02.SENT_BACK) == sizes
    weights = [layer.parameters["W"].size for layer in mlp([64, 512, 16, 512, 10]) if layer.parameters]
    assert list(lesson_02.LARGEST) == [
        1,
        weights[0] / weights[1],
        max(weights) / min(weights),
        512 / 64,
        512 / 10,
    ]
    done = next(span.end for span in STEP.on(0) if str(span.action) == "0I0")
    whole = simulate(Naive(2), Costs(comm=1)).makespan
    assert list(lesson_02.SPLIT_LENGTHS) == [simulate(HALVES).makespan, done, whole]


@pytest.fixture(scope="module")
def each_is_trained_once():
    """The check trains every optimizer with either gradient for every answer, always the same."""
    known = {}

    def once(optimizer, loss):
        key = type(optimizer), optimizer.learning_rate, loss.times
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


MESSAGES = [
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
]


@pytest.mark.parametrize(("answer", "verdict", "says"), MESSAGES)
def test_message_bytes(answer, verdict, says):
    assert_says(message_bytes(answer), verdict, says)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_what_is_measured_is_one_message(dtype):
    layers = mlp([64, 512, 16, 512, 10], dtype=dtype)
    sent = [measured_bytes(layers, cut, samples=32) for cut in range(1, len(layers))]
    assert sent == [32 * width * np.dtype(dtype).itemsize for width in (512, 512, 16, 16, 512, 512)]


HIDES = [
    ("Adam", "correct", "Which comparison shows a wrong gradient"),
    (" adam ", "correct", "At rate 0.1 SGD gets"),
    ("neither", "keep working", "Write down one update of each: where does the 10 go?"),
    ("both", "keep working", "are both changed?"),
    ("SGD", "keep working", "With which rate did it really train?"),
    ("RMSProp", "keep working", "'RMSProp' is not an answer here"),
    (10, "keep working", "10 is not an answer here"),
    (None, "your turn", '"SGD", "Adam", "both", "neither"'),
]


@pytest.mark.parametrize(("answer", "verdict", "says"), HIDES)
def test_which_optimizer_hides_it(answer, verdict, says, each_is_trained_once):
    assert_says(which_hides_it(answer), verdict, says)


def test_a_wrong_choice_is_told_of_that_choice_alone(each_is_trained_once):
    """It was told all four accuracies, and so the answer."""
    assert "Adam" not in which_hides_it("SGD").text
    for answer in ("both", "neither"):
        text = which_hides_it(answer).text
        assert text.count("%") == 1 and "Adam" not in text and "SGD" not in text


def test_adam_learns_with_either_gradient_and_sgd_does_not(each_is_trained_once):
    reached = each_is_trained_once
    assert reached(Adam(0.01), OneHot()) > 0.92
    assert reached(Adam(0.01), OneHot(10)) > 0.92
    assert reached(SGD(1.0), OneHot()) > 0.85
    assert reached(SGD(1.0), OneHot(10)) < 0.3
    assert reached(SGD(0.1), OneHot(10)) > reached(SGD(0.1), OneHot()) + 0.1


def test_a_tenfold_gradient_of_the_right_value_is_what_dividing_by_the_samples_gives():
    outputs, classes = np.random.default_rng(0).normal(size=(6, 10)), np.arange(6)
    target = np.eye(10)[classes]
    loss, saved = OneHot(10).forward(outputs, classes)
    assert loss == mse(outputs, target)
    assert np.allclose(OneHot(10).backward(saved, 1.0), 2 * (outputs - target) / len(outputs), rtol=1e-12)
    assert np.allclose(OneHot().backward(saved, 1.0), mse.backward(mse.forward(outputs, target)[1], 1.0))


def test_the_accuracies_that_are_told_are_those_after_five_epochs():
    run = {"loss": OneHot(), "optimizer": SGD(0.1), "batch_size": 32, "report": None}
    found = train(split(mlp([64, 32, 10]), stages=2), Naive(2), digits(), epochs=5, **run).accuracies
    assert accuracy(SGD(0.1), OneHot()) == found[4] > found[3]


F, B = partial(changed, forward), partial(changed, backward)
IF, UPDATE = "    if s > 0", '\n    stage["W"] = stage["W"] * 0.9'
SENDS = '    links.send(("y", s, m), y)'
RELU = '    if stage["relu"]:\n        y = np.maximum(y, 0)\n'
MASK = '    if stage["relu"]:\n        dy = dy * (y > 0)\n'
DX = 'links.send(("dy", s - 1, m), dy @ stage["W"].T)'
#: (forward, backward, verdict, what the reply says)
STAGES = [
    (F(), B(), "correct", "No stage needed what another holds"),
    (F((RELU, "")), B(), "almost", "are sent. What does this stage end with?"),
    (F(('if stage["relu"]', "if True")), B(), "almost", "What does `relu` say of this stage?"),
    (F((RELU, ""), (SENDS, SENDS + "\n" + RELU)), B(), "almost", "What does this stage end with?"),
    (F((' + stage["b"]', "")), B(), "almost", "Which array of the stage has no part in it?"),
    (F(("x @", "x.T @")), B(), "keep working", "How is y made from x?"),
    (F(('stage["W"]', 'stage["W"].T')), B(), "keep working", "How is y made from x?"),
    (F((SENDS, "")), B(), "keep working", "nothing is sent under ('y', 0, 0). Who waits for it?"),
    (F(("s, m), y", "s + 1, m), y")), B(), "almost", "the stage that comes next looks for ('y', 0, 0)"),
    (F(("s, m), y", "s, 0), y")), B(), "almost", "at 0F2, with 5 samples"),
    (F(("links.receive(", "links.arrays[("), ("- 1, m))", "- 1, m))]")), B(), "almost", "takes it off?"),
    (F(("s - 1, m", "s, m")), B(), "keep working", "it stopped: KeyError: ('y', 0, 0). Which keys"),
    (F(("= x, y", "= x")), B(), "almost", "an array of shape (5, 5) is kept; later lessons look for"),
    (F(("= x, y", "= y, x")), B(), "almost", "what is kept as x of microbatch 0 is not x, what came in"),
    (F(('stage["kept"][m] = x, y', 'stage["kept"][0] = x, y')), B(), "keep working", "under 2, only 0."),
    (F(('["kept"][m] = x, y', '["kept"] = {m: (x, y)}')), B(), "almost", "microbatch 0 is not kept any more"),
    (F(('    stage["kept"][m] = x, y\n', "")), B(), "keep working", "What will the backward"),
    (F((SENDS, SENDS + UPDATE)), B(), "keep working", "W of the stage has changed. Who updates weights"),
    (F(), B((MASK, "")), "almost", "dW would be right if every y were above 0. What does a ReLU do"),
    (F(), B(("y > 0", "x > 0")), "keep working", "Which entries of y does one entry of W change?"),
    (F(), B(('if stage["relu"]', "if True")), "almost", "dW leaves out dy where y is not above 0"),
    (F(), B((MASK, ""), (IF, MASK + IF)), "almost", "dW would be right if every y"),
    (F(), B(("x.T @ dy", "x @ dy")), "keep working", "dW is off by"),
    (F(), B(("x.T @ dy", "dy.T @ x")), "keep working", "dW is off by"),
    (F(), B(("x.T @ dy", "x.T @ dy / len(x)")), "almost", "dW is divided by 5, the samples"),
    (F(), B(("dy.sum(axis=0)", "dy.mean(axis=0)")), "almost", "db is divided by 5, the samples"),
    (F(), B(("dy.sum(axis=0)", "dy.sum(axis=1)")), "keep working", "Which entries of y does b[0] change?"),
    (F(), B(("dy.sum(axis=0)", "dy.sum()")), "keep working", "db is one number. What does"),
    (F(), B(("dy.sum(axis=0)", "dy")), "keep working", "db has the shape (5, 5), b has (5,)"),
    (F(), B(('    stage["db"] = stage["db"] + dy.sum(axis=0)\n', "")), "keep working", "db is still 0. What"),
    (F(), B(('stage["dW"] + ', "")), "almost", "dW is this microbatch's alone"),
    (F(), B(('stage["db"] + ', "")), "almost", "db is this microbatch's alone"),
    (F(), B(("dy @ stage", "(dy @ stage"), (".T)", ".T) / len(x))")), "keep working", "does x[0, 0] change?"),
    (F(), B(('stage["W"].T', 'stage["W"]')), "keep working", "Which entries of y does x[0, 0] change?"),
    (F(), B(('dy @ stage["W"].T', "dy")), "keep working", "dW and db are right, but what is sent is off"),
    (F(), B(('dy @ stage["W"].T', 'x.T @ dy')), "keep working", "dW and db are right, but what is sent"),
    (F(), B((DX, "pass")), "keep working", "nothing is sent under ('dy', 1, 2)"),
    (F(), B(("s - 1, m", "s, m")), "almost", "is still on the link"),
    (F(), B(("    if s > 0:\n    ", "")), "almost", "('dy', -1, 2) is sent too. Which device"),
    (F(), B(('["kept"].pop(m)', '["kept"][m]')), "almost", "are still kept afterwards. Who will read them?"),
    (F(), B(('["kept"].pop(m)', '["kept"].pop(0)')), "almost", "of microbatch 0 is taken out, and that of 2"),
    (F(), B(('["kept"].pop(m)', '["kept"].popitem()[1]')), "almost", "3 is taken out"),  # it used to pass
    (F(), B((IF, '    stage["kept"].clear()\n' + IF)), "almost", "microbatch 0 is not kept any more"),
    (F(), B((IF, UPDATE + "\n" + IF)), "keep working", "W of the stage has changed. Who updates"),
    (F(), None, "keep working", "Now write backward"),
    (None, B(), "keep working", "now write forward"),
    (3, B(), "keep working", "pass in a function, not 3"),
    (F(), lambda stage, s: None, "keep working", "at 2B2, with 5 samples, 5 features in and 5"),
    (None, None, "your turn", "write forward and backward in this cell"),
]  # fmt: skip


@pytest.mark.parametrize(("theirs", "also", "verdict", "says"), STAGES)
def test_forward_and_backward(theirs, also, verdict, says):
    reply = forward_and_backward(theirs, also)
    assert reply.verdict.startswith(verdict), reply
    assert says in reply.text, reply


def other_forward(stage, s, m, links):
    x = links.receive(("y", s - 1, m))
    z = np.dot(x, stage["W"])
    z += stage["b"]
    y = np.where(z > 0, z, 0.0) if stage["relu"] else z
    stage["kept"].update({m: [x, y]})
    links.send(name=("y", s, m), array=y)
    return y


def other_backward(stage, s, m, links):
    dy = links.receive(("dy", s, m))
    x, y = stage["kept"][m]
    del stage["kept"][m]
    if stage["relu"]:
        dy[y == 0] = 0
    stage["dW"] += np.einsum("na,nb->ab", x, dy)
    stage["db"] += np.ones(len(dy)) @ dy
    if s:
        links.send(("dy", s - 1, m), (stage["W"] @ dy.T).T)


def test_a_stage_written_in_another_way_is_right_too():
    assert forward_and_backward(other_forward, other_backward).verdict == "correct"


def while_loops(stages, x, target):
    links, s = Links(), 0
    links.send(("y", -1, 0), x)
    while s < len(stages):
        other_forward(stages[s], s, 0, links)
        s += 1
    output = links.receive(("y", s - 1, 0))
    links.send(("dy", s - 1, 0), (output - target) / (target.size / 2))
    while s:
        s -= 1
        other_backward(stages[s], s, 0, links)
    return float(((output - target) ** 2).sum() / len(target) / target.shape[1])


S = partial(changed, step)
BACK = "    for s in reversed(range(len(stages))):\n        backward(stages[s], s, 0, links)\n"
ZERO = "    for each in stages:\n        each['dW'], each['db'] = 0 * each['W'], 0 * each['b']\n"
OVER = [
    (S(), "correct", "one device's to 1e-12, for 1, 3 and 5 stages"),
    (while_loops, "correct", "one device's to 1e-12"),
    (S(("/ wrong.size", "")), "almost", "every gradient is 20 times what one device has"),
    (S(("/ wrong.size", "/ len(wrong)")), "almost", "every gradient is 4 times what one device has"),
    (S(("2 * wrong /", "wrong /")), "almost", "0.5 times what one device has. What is the derivative"),
    (S(("2 * wrong", "-2 * wrong")), "almost", "every gradient is -1 times what one device has. Which way"),
    (S(("wrong**2)", "wrong**2) * wrong.size")), "almost", "yours is 20 times that. Over how many numbers"),
    (S(("np.mean(wrong**2)", "np.mean(abs(wrong))")), "keep working", "Which numbers does it average?"),
    (S(("return np.mean(wrong**2)", "")), "keep working", "you return None; it should be the loss"),
    (S(("return np.mean(wrong**2)", "return wrong**2")), "keep working", "an array of shape (5, 4); it"),
    (S(("reversed(range(len(stages)))", "range(len(stages))")), "keep working", "KeyError: ('dy', 0, 0)"),
    (S(("in range(len(stages)):\n", "in range(1, len(stages)):\n")), "keep working", "it stopped: KeyError"),
    (S((BACK, ZERO)), "keep working", "stage 0 ends without a gradient in 'dW'. Which action puts it there?"),
    (S((BACK, "")), "keep working", "stage 0 ends without a gradient in 'dW'. Which action puts it there?"),
    (S(("    links.send((\"y\", -1, 0), x)\n", "")), "keep working", "KeyError: ('y', -1, 0)"),
    (S(("stages[s], s, 0, links", "stages[0], s, 0, links")), "keep working", "with 3 stages and 8 samples,"),
    (S(("2 * wrong", "2 * (wrong > 0)")), "keep working", "stage 0 is off by"),
    (S(("- target", "")), "keep working", "Which numbers does it average?"),
    (S((BACK, BACK + "    stages[0]['W'] *= 0.9\n")), "keep working", "Who updates weights"),
    (S((BACK, BACK + "    stages[0]['kept'][0] = x, x\n")), "almost", "keeps something of microbatch 0"),
    (S((BACK, BACK + "    stages[-1]['db'] = stages[-1]['db'][None]\n")), "keep", "has the shape (1, 4), b"),
    (lambda stages, x: 0, "keep working", "with 1 stage and 5 samples, it stopped: TypeError"),
    (lambda *a: 0.25, "keep working", "ends without a gradient"),
    (7, "keep working", "pass in a function, not 7"),
    (None, "your turn", "write step in this cell"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "verdict", "says"), OVER)
def test_a_step_over_all_stages(answer, verdict, says):
    reply = lesson_02.step(answer)
    assert reply.verdict.startswith(verdict), reply
    assert says in reply.text, reply


def test_whatever_is_handed_in_for_a_stage_is_answered():
    for answer in HANDED_IN:
        for pair in ((answer, backward), (forward, answer), (answer, None)):
            assert forward_and_backward(*pair).verdict in ("keep working", "almost")


WRONG = {
    "message_bytes": [answer for answer, verdict, _ in MESSAGES if verdict in ("almost", "keep working")],
    "which_hides_it": [answer for answer, verdict, _ in HIDES if verdict == "keep working"],
    "forward_and_backward": [
        (f, b) for f, b, verdict, _ in STAGES if verdict not in ("correct", "your turn")
    ],
    "step": [answer for answer, verdict, _ in OVER if verdict not in ("correct", "your turn")],
}
