"""A gate's backward: what the check says to right answers and to the usual wrong ones."""

import numpy as np
from replies import changed_text, each_reply

from gpipe_sim.course.exercises import gate

RIGHT = """
def gate_backward(x, A, B, dy):
    u, s = x @ A, 1 / (1 + np.exp(-x @ B))
    du = dy * s
    dv = dy * u * s * (1 - s)
    return du @ A.T + dv @ B.T, x.T @ du, x.T @ dv
"""


def sample_by_sample(x, A, B, dy):
    dx, dA, dB = np.zeros_like(x), np.zeros_like(A), np.zeros_like(B)
    for i, (row, back) in enumerate(zip(x, dy, strict=True)):
        z = row @ B
        s = np.tanh(z / 2) / 2 + 0.5
        v = back * (row @ A) * s * (1 - s)
        dx[i] = A @ (back * s) + B @ v
        dA += np.outer(row, back * s)
        dB += np.outer(row, v)
    return [dx, dA, dB]


def but(*swaps):
    return changed_text(RIGHT, *swaps)


def in_place(x, A, B, dy):
    found = but()(x, A, B, dy)
    dy *= 0
    return found


test_replies = each_reply(
    gate,
    check={
        "correct": [(but(), "to 1e-12"), (sample_by_sample, "to 1e-12")],
        "almost": [(in_place, "dy is not what it was before. Who else may need it?")],
        "keep working": [
            (but((" + dv @ B.T", "")), "through A alone. By which other way does x reach y?"),
            (but(("du @ A.T + ", "")), "through B alone. By which other way does x reach y?"),
            (but(("du = dy * s", "du = dy")), "one number of x does?"),
            (but(("x.T @ du", "x.T @ dy")), "How much of a change gets through?"),
            (but(("x.T @ du, x.T @ dv", "x.T @ dv, x.T @ du")), "In which order do you return them?"),
            (but(("x.T @ dv", "x.T @ (dy * s * (1 - s))")), "What do they let through?"),
            (but(("x.T @ dv", "x.T @ (dy * u)")), "How does sigmoid(z) change if z does?"),
            (but(("x.T @ dv", "x.T @ (dy * u * s)")), "that has the gate in place of its slope"),
            (but(("x.T @ dv", "0 * B")), "How does y change if one opens a little?"),
            (but(("x.T @ du,", "x.T @ du / len(x),")), "What does this layer know of a mean?"),
            (but(("x.T @ du", "du.T @ x")), "if one number of A does?"),
            (but(("du @ A.T + dv @ B.T, ", "")), "a tuple of 2. Which three gradients"),
            (but(("du @ A.T + dv @ B.T", "1.0")), "dx is one number, and x has shape (1, 1)"),
            (lambda x, A, B, dy: dy, "you return an array"),
        ],
    },
)


def test_the_task_says_what_a_nudge_does():
    first, *others = gate.task(0).splitlines()
    assert len(others) == 3 and first.startswith("x = ") and gate.task(0) != gate.task(1)
