"""Lesson 02: what the checks say to right answers and to the usual wrong ones."""

from functools import partial

import numpy as np
import pytest
from replies import assert_each_is_told, changed, each_reply, natural

from gpipe_sim import SGD, Adam, Costs, Explicit, Naive, digits, mlp, mse, simulate, split, train
from gpipe_sim.course import lesson_02
from gpipe_sim.course.answers import Links, backward, forward, step

HALVES = Explicit(["0F0 0I0 0W0", "1F0 1I0 1W0"])
STEP = simulate(HALVES, Costs(comm=1))


@pytest.mark.parametrize(
    ("measured", "wrong"),
    [
        (32 * 16 * 8, natural("02", "What comes back")),
        (512 / 16, natural("02", "The three messages")),
        (STEP.makespan, natural("02", "The backward in two halves")),
    ],
)
def test_the_natural_wrong_guesses_are_wrong_and_are_told_what_they_are(measured, wrong):
    assert_each_is_told(wrong, measured)


def test_the_natural_wrong_guesses_are_what_their_sentences_say():
    W0, W1 = (layer.parameters["W"] for layer in mlp([64, 16, 10]) if layer.parameters)
    sizes = [8, 32 * 8, W1.nbytes, 32 * 10 * 8, 32 * 16, 32 * 16 * 4, W0.nbytes, 32 * 64 * 8]
    assert list(natural("02", "What comes back")) == sizes
    weights = [layer.parameters["W"].size for layer in mlp([64, 512, 16, 512, 10]) if layer.parameters]
    assert list(natural("02", "The three messages")) == [
        1,
        weights[0] / weights[1],
        max(weights) / min(weights),
        512 / 64,
        512 / 10,
    ]
    done = next(span.end for span in STEP.on(0) if str(span.action) == "0I0")
    whole = simulate(Naive(2), Costs(comm=1)).makespan
    assert list(natural("02", "The backward in two halves")) == [simulate(HALVES).makespan, done, whole]


@pytest.fixture(scope="module", autouse=True)
def each_is_trained_once():
    """The check trains every optimizer with either gradient for every answer, always the same."""
    known, accuracy = {}, lesson_02.accuracy

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


MESSAGES = {
    "correct": [
        (exactly, "every cut sends as many bytes as you say"),
        (lambda *a: float(exactly(*a)), "every cut"),
    ],
    "almost": [
        (lambda la, c, n: n * features(la, c) * 8, "How many bytes has one number here?"),
        (lambda *a: 2 * exactly(*a), "both messages together"),
        (lambda la, c, n: n * features(la, c), "you say 3,600: that many numbers cross"),
        (lambda la, c, n: exactly(la, c, 1), "How many samples cross together?"),
        (lambda la, c, n: n * last_weights(la, c).shape[0] * 8, "What does it hand on?"),
    ],
    "keep working": [
        (lambda la, c, n: last_weights(la, c).nbytes, "that is the size of weights"),
        (lambda *a: 7, "you say 7, measured: 28,800. Which array"),
        (lambda *a: None, "you say None; it should be a number"),
        (lambda *a: np.zeros(3), "it should be a number"),
    ],
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_what_is_measured_is_one_message(dtype):
    layers = mlp([64, 512, 16, 512, 10], dtype=dtype)
    sent = [lesson_02.measured_bytes(layers, cut, samples=32) for cut in range(1, len(layers))]
    assert sent == [32 * width * np.dtype(dtype).itemsize for width in (512, 512, 16, 16, 512, 512)]


HIDES = {
    "correct": [("Adam", "Which comparison shows a wrong gradient"), (" adam ", "At rate 0.1 SGD gets")],
    "keep working": [
        ("neither", "Write down one update of each: where does the 10 go?"),
        ("both", "are both changed?"),
        ("SGD", "With which rate did it really train?"),
        ("RMSProp", "'RMSProp' is not an answer here"),
        (10, "10 is not an answer here"),
    ],
}


def test_a_wrong_choice_is_told_of_that_choice_alone(each_is_trained_once):
    """It was told all four accuracies, and so the answer."""
    assert "Adam" not in lesson_02.which_hides_it("SGD").text
    for answer in ("both", "neither"):
        text = lesson_02.which_hides_it(answer).text
        assert text.count("%") == 1 and "Adam" not in text and "SGD" not in text


def test_adam_learns_with_either_gradient_and_sgd_does_not(each_is_trained_once):
    reached = each_is_trained_once
    assert reached(Adam(0.01), lesson_02.OneHot()) > 0.92
    assert reached(Adam(0.01), lesson_02.OneHot(10)) > 0.92
    assert reached(SGD(1.0), lesson_02.OneHot()) > 0.85
    assert reached(SGD(1.0), lesson_02.OneHot(10)) < 0.3
    assert reached(SGD(0.1), lesson_02.OneHot(10)) > reached(SGD(0.1), lesson_02.OneHot()) + 0.1


def test_a_tenfold_gradient_of_the_right_value_is_what_dividing_by_the_samples_gives():
    outputs, classes = np.random.default_rng(0).normal(size=(6, 10)), np.arange(6)
    target = np.eye(10)[classes]
    loss, saved = lesson_02.OneHot(10).forward(outputs, classes)
    assert loss == mse(outputs, target)
    assert np.allclose(
        lesson_02.OneHot(10).backward(saved, 1.0), 2 * (outputs - target) / len(outputs), rtol=1e-12
    )
    assert np.allclose(
        lesson_02.OneHot().backward(saved, 1.0), mse.backward(mse.forward(outputs, target)[1], 1.0)
    )


def test_the_accuracies_that_are_told_are_those_after_five_epochs():
    run = {"loss": lesson_02.OneHot(), "optimizer": SGD(0.1), "batch_size": 32, "report": None}
    found = train(split(mlp([64, 32, 10]), stages=2), Naive(2), digits(), epochs=5, **run).accuracies
    assert lesson_02.accuracy(SGD(0.1), lesson_02.OneHot()) == found[4] > found[3]


F, B = partial(changed, forward), partial(changed, backward)
IF, UPDATE = "    if s > 0", '\n    stage["W"] = stage["W"] * 0.9'
SENDS = '    links.send(("y", s, m), y)'
RELU = '    if stage["relu"]:\n        y = np.maximum(y, 0)\n'
MASK = '    if stage["relu"]:\n        dy = dy * (y > 0)\n'
DX = 'links.send(("dy", s - 1, m), dy @ stage["W"].T)'


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


ELSEWHERE: dict = {}


def remembers(stage, s, m, links):
    """A stage that others can read: with the next, it used to pass."""
    ELSEWHERE[s] = stage
    forward(stage, s, m, links)


def reads_the_stage_before(stage, s, m, links):
    if s:
        stage["kept"][m] = ELSEWHERE[s - 1]["kept"][m][1], stage["kept"][m][1]
    backward(stage, s, m, links)


STAGES = {
    "correct": [
        ((F(), B()), "No stage needed what another holds"),
        ((other_forward, other_backward), "No stage needed what another holds"),
    ],
    "almost": [
        ((F((SENDS, '    links.arrays["y", s, m] = y')), B()), "as ('y', 0, 0) is the stage's own array"),
        ((F(), B((IF, "    links.arrays.clear()\n" + IF))), "('y', 0, 9) was on its way, and is gone. Who"),
        ((F((RELU, "")), B()), "are sent. What does this stage end with?"),
        ((F(('if stage["relu"]', "if True")), B()), "What does `relu` say of this stage?"),
        ((F((RELU, ""), (SENDS, SENDS + "\n" + RELU)), B()), "What does this stage end with?"),
        ((F((' + stage["b"]', "")), B()), "Which array of the stage has no part in it?"),
        ((F(("s, m), y", "s + 1, m), y")), B()), "the stage that comes next looks for ('y', 0, 0)"),
        ((F(("s, m), y", "s, 0), y")), B()), "at 0F2, with 5 samples"),
        ((F(("links.receive(", "links.arrays[("), ("- 1, m))", "- 1, m))]")), B()), "takes it off?"),
        ((F(("= x, y", "= x")), B()), "an array of shape (5, 5) is kept; later lessons look for"),
        ((F(("= x, y", "= y, x")), B()), "what is kept as x of microbatch 0 is not x, what came in"),
        ((F(('["kept"][m] = x, y', '["kept"] = {m: (x, y)}')), B()), "microbatch 0 is not kept any more"),
        ((F(), B((MASK, ""))), "dW would be right if every y were above 0. What does a ReLU do"),
        ((F(), B(('if stage["relu"]', "if True"))), "dW leaves out dy where y is not above 0"),
        ((F(), B((MASK, ""), (IF, MASK + IF))), "dW would be right if every y"),
        ((F(), B(("x.T @ dy", "x.T @ dy / len(x)"))), "dW is divided by 5, the samples"),
        ((F(), B(("x.T @ dy", "dy.T @ x"))), "dW is turned over: W has a row for each feature of x."),
        ((F(), B(("dy.sum(axis=0)", "dy.mean(axis=0)"))), "db is divided by 5, the samples"),
        ((F(), B(('stage["dW"] + ', ""))), "dW is this microbatch's alone"),
        ((F(), B(('stage["db"] + ', ""))), "db is this microbatch's alone"),
        ((F(), B(("s - 1, m", "s, m"))), "is still on the link"),
        ((F(), B(("    if s > 0:\n    ", ""))), "('dy', -1, 2) is sent too. Which device"),
        ((F(), B(('["kept"].pop(m)', '["kept"][m]'))), "are still kept afterwards. Who will read them?"),
        ((F(), B(('["kept"].pop(m)', '["kept"].pop(0)'))), "of microbatch 0 is taken out, and that of 2"),
        ((F(), B(('["kept"].pop(m)', '["kept"].popitem()[1]'))), "3 is taken out"),
        ((F(), B((IF, '    stage["kept"].clear()\n' + IF))), "microbatch 0 is not kept any more"),
    ],
    "keep working": [
        ((remembers, reads_the_stage_before), "it stopped: KeyError: 'kept', in your line"),
        ((F(("x @", "x.T @")), B()), "How is y made from x?"),
        ((F(('stage["W"]', 'stage["W"].T')), B()), "How is y made from x?"),
        ((F((SENDS, "")), B()), "nothing is sent under ('y', 0, 0). Who waits for it?"),
        ((F(("s - 1, m", "s, m")), B()), "it stopped: KeyError: ('y', 0, 0). Which keys"),
        ((F(('stage["kept"][m] = x, y', 'stage["kept"][0] = x, y')), B()), "under 2, only 0."),
        ((F(('    stage["kept"][m] = x, y\n', "")), B()), "What will the backward"),
        ((F((SENDS, SENDS + UPDATE)), B()), "W of the stage has changed. Who updates weights"),
        ((F(), B(("y > 0", "x > 0"))), "Which entries of y does one entry of W change?"),
        ((F(), B(("x.T @ dy", "x @ dy"))), "dW is off by"),
        ((F(), B(("x.T @ dy", "dy.T @ x.T"))), "dW is off by"),
        ((F(), B(("dy.sum(axis=0)", "dy.sum(axis=1)"))), "Which entries of y does b[0] change?"),
        ((F(), B(("dy.sum(axis=0)", "dy.sum()"))), "db is one number. What does"),
        ((F(), B(("dy.sum(axis=0)", "dy"))), "db has the shape (5, 5), b has (5,)"),
        ((F(), B(('    stage["db"] = stage["db"] + dy.sum(axis=0)\n', ""))), "db is still 0. What"),
        ((F(), B(("dy @ stage", "(dy @ stage"), (".T)", ".T) / len(x))"))), "does x[0, 0] change?"),
        ((F(), B(('stage["W"].T', 'stage["W"]'))), "Which entries of y does x[0, 0] change?"),
        ((F(), B(('dy @ stage["W"].T', "dy"))), "dW and db are right, but what is sent is off"),
        ((F(), B(('dy @ stage["W"].T', "x.T @ dy"))), "dW and db are right, but what is sent"),
        ((F(), B((DX, "pass"))), "nothing is sent under ('dy', 1, 2)"),
        ((F(), B((IF, UPDATE + "\n" + IF))), "W of the stage has changed. Who updates"),
        ((F(), None), "Now write backward"),
        ((None, B()), "now write forward"),
        ((3, B()), "pass in a function, not 3"),
    ],
}


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


BEFORE = Links()


def over_old_links(stages, x, target):
    """It used to pass, and the next step may find what is left on them."""
    BEFORE.send(("y", -1, 0), x)
    for s, stage in enumerate(stages):
        forward(stage, s, 0, BEFORE)
    wrong = BEFORE.receive(("y", len(stages) - 1, 0)) - target
    BEFORE.send(("dy", len(stages) - 1, 0), 2 * wrong / wrong.size)
    for s in reversed(range(len(stages))):
        backward(stages[s], s, 0, BEFORE)
    return np.mean(wrong**2)


def without_links(stages, x, target):
    """It used to pass: every stage reads what the one before it made, on whatever device."""
    inputs = [x]
    for stage in stages:
        y = inputs[-1] @ stage["W"] + stage["b"]
        inputs.append(np.maximum(y, 0) if stage["relu"] else y)
    dy = 2 * (inputs[-1] - target) / target.size
    for stage, before, y in zip(stages[::-1], inputs[-2::-1], inputs[:0:-1], strict=True):
        dy = dy * (y > 0) if stage["relu"] else dy
        stage["dW"], stage["db"] = before.T @ dy, dy.sum(axis=0)
        dy = dy @ stage["W"].T
    return np.mean((inputs[-1] - target) ** 2)


def in_the_target(stages, x, target):
    """It used to pass, and the next step on this batch would learn something else."""
    links, last = Links(), len(stages) - 1
    links.send(("y", -1, 0), x)
    for s, stage in enumerate(stages):
        forward(stage, s, 0, links)
    target -= links.receive(("y", last, 0))
    links.send(("dy", last, 0), -2 * target / target.size)
    for s in reversed(range(len(stages))):
        backward(stages[s], s, 0, links)
    return np.mean(target**2)


S = partial(changed, step)
BACK = "    for s in reversed(range(len(stages))):\n        backward(stages[s], s, 0, links)\n"
ZERO = "    for each in stages:\n        each['dW'], each['db'] = 0 * each['W'], 0 * each['b']\n"
OVER = {
    "correct": [
        (S(), "one device's to 1e-12, for 1, 3 and 5 stages"),
        (while_loops, "one device's to 1e-12"),
    ],
    "almost": [
        (over_old_links, "but no links that the step makes carry ('dy', 0, 0). How does that cross"),
        (without_links, "all is right, but no links that the step makes carry"),
        (S(("    wrong =", "    x *= 0\n    wrong =")), "5 samples, x is not what it was before. Who else"),
        (in_the_target, "with 1 stage and 5 samples, target is not what it was before. Who else may need"),
        (
            S(("links.receive((", "links.arrays[("), ("last, 0)) -", "last, 0)] -")),
            "all is right, but ('y', 0, 0) is still on the links. Who takes it off?",
        ),
        (S(("/ wrong.size", "")), "every gradient is 20 times what one device has"),
        (S(("/ wrong.size", "/ len(wrong)")), "every gradient is 4 times what one device has"),
        (S(("2 * wrong /", "wrong /")), "0.5 times what one device has. What is the derivative"),
        (S(("2 * wrong", "-2 * wrong")), "every gradient is -1 times what one device has. Which way"),
        (S(("wrong**2)", "wrong**2) * wrong.size")), "yours is 20 times that. Over how many numbers"),
        (S((BACK, BACK + "    stages[0]['kept'][0] = x, x\n")), "keeps something of microbatch 0"),
    ],
    "keep working": [
        (S(("np.mean(wrong**2)", "np.mean(abs(wrong))")), "Which numbers does it average?"),
        (S(("return np.mean(wrong**2)", "")), "you return None; it should be the loss"),
        (S(("return np.mean(wrong**2)", "return wrong**2")), "an array of shape (5, 4); it"),
        (S(("reversed(range(len(stages)))", "range(len(stages))")), "KeyError: ('dy', 0, 0)"),
        (S(("in range(len(stages)):\n", "in range(1, len(stages)):\n")), "it stopped: KeyError"),
        (S((BACK, ZERO)), "stage 0 ends without a gradient in 'dW'. Which action puts it there?"),
        (S((BACK, "")), "stage 0 ends without a gradient in 'dW'. Which action puts it there?"),
        (S(('    links.send(("y", -1, 0), x)\n', "")), "KeyError: ('y', -1, 0)"),
        (S(("stages[s], s, 0, links", "stages[0], s, 0, links")), "with 3 stages and 8 samples,"),
        (S(("2 * wrong", "2 * (wrong > 0)")), "stage 0 is off by"),
        (S(("- target", "")), "Which numbers does it average?"),
        (S((BACK, BACK + "    stages[0]['W'] *= 0.9\n")), "Who updates weights"),
        (S((BACK, BACK + "    stages[-1]['db'] = stages[-1]['db'][None]\n")), "has the shape (1, 4), b"),
        (lambda *a: 0.25, "ends without a gradient"),
    ],
}


test_replies = each_reply(
    lesson_02, message_bytes=MESSAGES, which_hides_it=HIDES, forward_and_backward=STAGES, step=OVER
)
