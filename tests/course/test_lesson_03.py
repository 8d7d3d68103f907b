"""Lesson 03: what the check says to right answers and to the usual wrong ones."""

from functools import partial

import numpy as np
import pytest
from replies import assert_each_is_told, changed, each_reply, natural

from gpipe_sim import GPipe, Naive, digits, simulate
from gpipe_sim.course import lesson_03
from gpipe_sim.course.answers import Links, run
from gpipe_sim.course.lesson_03 import one_device

LENGTH, DIGITS = simulate(GPipe(4, 4)).makespan, len(digits().x)


@pytest.mark.parametrize(
    ("measured", "wrong"),
    [
        ("equal", natural("03", "The sum and the whole")),
        ("6", natural("03", "What a digit counts")),
        (LENGTH, natural("03", "Several microbatches at once")),
        (DIGITS // 32, natural("03", "The updates of an epoch")),
        ("true", natural("03", "A layer that looks at several samples")),
        ("false", natural("03", "One step, or one after each")),
    ],
)
def test_the_natural_wrong_guesses_are_wrong_and_are_told_what_they_are(measured, wrong):
    assert_each_is_told(wrong, measured)


def test_the_natural_wrong_guesses_are_what_their_sentences_say():
    done = simulate(GPipe(4, 4)).on(3)[-1].end
    one_by_one = simulate(Naive(4, 4)).makespan
    assert list(natural("03", "Several microbatches at once")) == [
        one_by_one // 4,
        done,
        done + 3,
        (4 + 4) * (1 + 2),
        one_by_one,
    ]
    updates = [-(-DIGITS // 32), DIGITS // 32 * 4, DIGITS // 8, -(-DIGITS // 8)]
    assert list(natural("03", "The updates of an epoch")) == updates


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
    """Its weights are right, but there is no room for 4: it used to pass."""
    size, total = len(x) // microbatches, 0
    for m in range(microbatches):
        stop = len(x) if m == microbatches - 1 else (m + 1) * size
        rows = slice(m * size, stop)
        total = total + (stop - m * size) / len(x) * mean_gradient(x[rows], y[rows])
    return total


def larger_last(mean_gradient, x, y, microbatches):
    """2, 2, 3, 3: which pieces are the larger ones does not matter."""
    pieces = zip(np.array_split(x[::-1], microbatches), np.array_split(y[::-1], microbatches), strict=True)
    return sum(len(p) / len(x) * mean_gradient(p, q) for p, q in reversed(list(pieces)))


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


def filled_up(mean_gradient, x, y, microbatches):
    """It used to pass: no size was tried of which pieces as large as the room allows are fewer."""
    room = -(-len(x) // microbatches)
    rows = [slice(at, at + room) for at in range(0, len(x), room)]
    return sum(len(x[r]) / len(x) * mean_gradient(x[r], y[r]) for r in rows)


def last_one_only(mean_gradient, x, y, microbatches):
    for p, q in cut(x, y, microbatches):
        gradient = mean_gradient(p, q)
    return gradient


def spoiling_x(mean_gradient, x, y, microbatches):
    total = by_share(mean_gradient, x, y, microbatches)
    x[:] = 0
    return total


ACCUMULATE = {
    "correct": [
        (by_share, "Which weight has one sample in the end?"),
        (in_place, "10 digits in 4 microbatches"),
        (larger_last, "every other cut tried"),
    ],
    "almost": [
        (spoiling_x, "for 10 digits and M = 4 x is not what it was before. Who else may need it?"),
        (rest_in_the_last, "have 2, 2, 2, 4 digits. The device has room for 3 at once"),
        (
            mean_of_means,
            "the sizes are 3, 3, 2, 2 but every weight is 1/4. What would make every *sample* count equally?",
        ),
        (sum_over_samples, "and so are the weights: the gradient comes out 10.0 times too large"),
        (filled_up, "for 13 digits and M = 6 your microbatches have 3, 3, 3, 3, 1 digits. How many"),
        (lambda g, x, y, m: by_share(g, x, y, len(x)), "1, 1 digits. How many microbatches were"),
    ],
    "keep working": [
        (lambda g, x, y, m: np.nan * by_share(g, x, y, m), "With which weight"),
        (sum_of_means, "times too large. What is the batch's loss a mean of?"),
        (drops_the_rest, "have 2, 2, 2, 2 digits, 8 together. Where are the others?"),
        (every_microbatch_twice, "3, 2, 2 digits, 20 together. Which come more than once?"),
        (last_one_only, "With which weight does each microbatch come in?"),
        (
            lambda g, x, y, m: g(x, y),
            "have 10 digits. The device has room for 3 at once: which of them does not fit?",
        ),
        (lambda g, x, y, m: by_share(g, x, y, m)[0], "an array of shape (10,)"),
        (lambda g, x, y, m: [g(p, q) for p, q in cut(x, y, m)][0:0], "you return a list of 0"),
        (lambda g, x, y, m: x.T @ x[:, :10], "have no digits, 0 together"),
        (lambda g, x, y, m: None, "you return None"),
        (np.ones((64, 10)), "pass in a function, not an array of shape (64, 10)"),
    ],
}


def test_one_device_gives_a_gradient_of_64_by_10():
    data = digits()
    assert one_device(data.x[:10], data.y[:10]).shape == (64, 10)


R = partial(changed, run)
WORKS = "        work[kind](stages[s], s, m, links)\n"
LOSS = "loss += (wrong**2).sum() / target.size"


def piece_by_piece(order, stages, x, target, M, work):
    """It cuts in another place, hands each piece out when it is due, and uses up a copy of the order."""
    links, total, order = Links(), [], list(order)
    cuts = [len(x) * m // M for m in range(M + 1)]
    while order:
        s, kind, m = order.pop(0)
        rows = slice(cuts[m], cuts[m + 1])
        if kind == "F" and s == 0:
            links.send(("y", -1, m), x[rows])
        work[kind](stages[s], s, m, links)
        if kind == "F" and s == len(stages) - 1:
            y = links.receive(("y", s, m))
            total.append(((y - target[rows]) ** 2).sum())
            links.send(("dy", s, m), (y - target[rows]) / (0.5 * target.size))
    return np.array(sum(total) / target.size)[()]


def all_in_one(order, stages, x, target, M, work):
    """It used to pass, as the next: the whole batch is the first piece, and the others are empty."""
    take = {"np.array_split(x, M)": "[x] + [x[:0]] * (M - 1)"}
    take["np.array_split(target, M)"] = "[target] + [target[:0]] * (M - 1)"
    return changed(run, *take.items())(order, stages, x, target, M, work)


def rest_goes_last(order, stages, x, target, M, work):
    cuts = "range(len(x) // M, len(x) // M * M, len(x) // M)"
    take = {f"np.array_split({each}, M)": f"np.split({each}, {cuts})" for each in ("x", "target")}
    return changed(run, *take.items())(order, stages, x, target, M, work)


def leaves_y(order, stages, x, target, M, work):
    """It used to pass, as the next."""
    take = {"links.receive((": "links.arrays[(", "last, m)) -": "last, m)] -"}
    return changed(run, *take.items())(order, stages, x, target, M, work)


def uses_up(order, *rest):
    """It used to pass, and trained for one step of many: the next one found an empty order."""
    loss = run(order, *rest)
    while order:
        order.pop(0)
    return loss


def in_the_target(order, stages, x, target, M, work):
    """It used to pass: pieces of an array are written to where the array is."""
    take = {" - targets[m]": "\n            targets[m] -= wrong\n            wrong = -targets[m]"}
    return changed(run, *take.items())(order, stages, x, target, M, work)


def loss_in_the_backward(order, stages, x, target, M, work):
    links, last, loss = Links(), len(stages) - 1, 0
    for m, piece in enumerate(np.array_split(x, M)):
        links.send(("y", -1, m), piece)
    for s, kind, m in order:
        if (s, kind) == (last, "B"):
            wrong = links.receive(("y", last, m)) - np.array_split(target, M)[m]
            links.send(("dy", last, m), 2 * wrong / target.size)
            loss += (wrong**2).sum() / target.size
        work[kind](stages[s], s, m, links)
    return loss


RUNS = {
    "correct": [
        (piece_by_piece, "one device's loss and gradients to 1e-12"),
        (R(), "one device's loss and gradients to 1e-12, in each of 3 orders"),
    ],
    "almost": [
        (R(("/ target.size)", "/ wrong.size)")), "every gradient is 4 times what one device has"),
        (R(("2 * wrong / target.size", "2 * wrong / len(target)")), "every gradient is 4 times"),
        (all_in_one, "your microbatches have 8, 0, 0, 0 samples. What does np.array_split make of 8?"),
        (rest_goes_last, "your microbatches have 2, 2, 2, 4 samples. What does np.array_split make of 10?"),
        (uses_up, "order is not what it was before. Who else may need it?"),
        (in_the_target, "8 samples, microbatch by microbatch, target is not what it was before. Who else"),
        (R(("    return loss", "    x *= 0\n    return loss")), "x is not what it was before. Who else"),
        (leaves_y, "('y', 1, 0) is still on the links when 1B0 begins. Who takes it off, and when?"),
        (loss_in_the_backward, "('y', 1, 0) is still on the links when 1F1 begins"),
        (R(("2 * wrong", "wrong")), "every gradient is 0.5 times what one device has"),
        (R((LOSS, "loss += np.mean(wrong**2)")), "yours is 4 times"),
    ],
    "keep working": [
        (R(("2 * wrong / target", "2 * wrong / M / wrong")), "M = 4 and 10 samples"),
        (R(("2 * wrong / target.size", "wrong.mean()")), "ValueError"),
        (R((LOSS, "loss += np.mean(wrong**2) / M")), "does it average?"),
        (R(("loss +=", "loss =")), "Which numbers does it average?"),
        (R(("    return loss", "")), "you return None; it should be the loss"),
        (R(("targets[m]", "targets[0]")), "Which numbers does it average?"),
        (R(("- targets[m]", "- target")), "it stopped: ValueError"),
        (R(('links.send(("y", -1, m), piece)', 'links.send(("y", -1, 0), piece)')), "KeyError"),
        (R((WORKS, WORKS.replace("work[kind]", "forward"))), "KeyError"),
        (R(("work[kind](", '(forward if kind == "F" else backward)(')), "work['F'] is not"),
        (R(("work[kind](", 'work["F" if kind == "F" else "B"](')), "is done then. What decides"),
        (R((WORKS, '        if kind in "FB":\n    ' + WORKS)), "and `work` has 'wait', but"),
        (R(("in order:", "in sorted(order):")), "number 0 in the order but (0, 'B', 0) is"),
        (R(("in order:", "in order[:-1]:")), "is not called for (0, 'B', 3) of the order"),
        (R(("in order:", "in order + [(0, 'wait', 0)]:")), "is done after the order's end"),
        (R(("stages[s], s", "stages[last], s")), "stage number 0 with another stage's arrays"),
        (R(("stages[s], s, m", "stages[s], m, s")), "with another stage's arrays"),
        (R(("== (last, ", "== (0, ")), "KeyError"),
        (lambda order, stages: 0, "with K = 2, M = 4 and 8 samples, microbatch by microbatch"),
        (lambda *a: 0.5, "work['F'] is not called for (0, 'F', 0) of the order"),
    ],
}
test_replies = each_reply(lesson_03, accumulate=ACCUMULATE, run=RUNS)
