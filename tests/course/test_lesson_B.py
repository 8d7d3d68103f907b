"""Lesson B: what the checks say to right answers and to the usual wrong ones."""

import json
from pathlib import Path

import numpy as np
from replies import assert_each_is_told, each_reply, natural

import gpipe_sim as gp
from gpipe_sim.course import answers, lesson_B

ROOT = Path(__file__).parents[2]
cut, alone = answers.cut_matrices, answers.partial_output


def halves(a_axis, b_axis):
    def cut(A, B, t):
        return list(zip(np.split(A, t, axis=a_axis), np.split(B, t, axis=b_axis), strict=True))

    return cut


def dealt_like_cards(A, B, t):
    """Every t-th column, and the rows that meet these: right too."""
    return [[A[:, d::t], B[d::t]] for d in range(t)]


def by_slices(A, B, t):
    n = A.shape[1] // t
    return tuple((A[:, d * n : d * n + n], B[d * n : d * n + n, :]) for d in range(t))


def in_two_lines(x, A, B):
    made = x @ A
    return (made * (made > 0)) @ B


def tried_on_a(A, B, t):
    """The columns of A in another order than the rows of B."""
    return [(A[:, d::t], own) for d, own in enumerate(np.split(B, t))]


def right(x, A, B, dy):
    """In other words than the answer's: the gradients of an uncut network that is this small."""
    layers = gp.mlp([A.shape[0], A.shape[1], B.shape[1]])
    layers[0].parameters["W"][:], layers[2].parameters["W"][:] = A, B
    model, gradients = gp.core.Partition(layers), {}
    _, saved = model.forward(x, gp.core.Context())
    return [model.backward(saved, dy, gradients), gradients[0, "W"], gradients[2, "W"]]


def other(change):
    """The right three, but for a change."""

    def answer(x, A, B, dy):
        there = x @ A > 0
        inside = (dy @ B.T) * there
        three = {"dx": inside @ A.T, "dA": x.T @ inside, "dB": np.maximum(x @ A, 0).T @ dy}
        return tuple((three | change(x, A, B, dy, three)).values())

    return answer


def test_each_wrong_guess_is_told_what_it_is():
    s, h, t = 2048, 12_288, 8
    times = 96 * gp.formulas.tensor_parallel_bytes(s, 1, h, t) / (2 * gp.formulas.message_bytes(s, 1, h))
    assert times == 336
    assert_each_is_told(natural("B", "How much more it sends"), times)
    assert_each_is_told(natural("B", "How many sums, and how large"), 2)
    assert_each_is_told(natural("B", "Scattered columns"), "true")
    assert_each_is_told(natural("B", "A wider model"), "false")
    assert_each_is_told(natural("B", "Eight in one node, and in eight"), 4.7, within=0.05)


def test_what_the_wrong_guesses_are():
    """In units of what a stage sends: bsh there and bsh back. An all-reduce is 2(t-1)/t of half of that."""
    one = 2 * 7 / 8 / 2
    known = [4 * one, 12 * 4 * one, 96 * one, 96, 96 * 2 * one, 96 * 4 / 2, 96 * 4 * 2 / 2, 96 * 4 * one * 2]
    known += [4 * one * 2, 96 * 4 * one * one * 2]
    assert sorted(known) == sorted(natural("B", "How much more it sends"))


def test_the_picture_is_told_in_its_own_numbers():
    found = json.loads((ROOT / "figures/four_sums.json").read_text())
    text = (ROOT / "notebooks/B_tensor_parallelism.ipynb").read_text()
    for where, times in (("in one machine", "7.6 times as fast"), ("each in its own", "4.7 times")):
        waits = sum(end - start for _, kind, start, end in found[where] if kind == "sum")
        until = found[where][-1][-1]
        assert f"{waits:.1f} of {until:.1f} ms" in text
        assert f"{8 * (until - waits) / until:.1f} times" in times and times in text


def test_what_eight_nodes_and_a_wider_model_do():
    """By hand: 8bsh(t-1)/t numbers of 2 bytes for a block, and 72sh² + 12s²h FLOPs over eight devices."""

    def times(h, speed, s=2048, t=8):
        return (72 * s * h**2 + 12 * s**2 * h) / (t * 140e12), 2 * 8 * s * h * (t - 1) / t / speed

    (works, near), (_, far), (more, later) = times(12_288, 300e9), times(12_288, 25e9), times(24_576, 300e9)
    assert [round(8 * works / (works + waits), 1) for waits in (near, far)] == [7.6, 4.7]
    assert round(8 * works / (8 * works / 7.6 * 12), 1) == 0.6 and later / more < near / works


def test_a_block_computes_what_the_lesson_says():
    s, h = 2048, 12_288
    x = gp.MetaArray((1, s, h), np.float16)
    assert gp.transformers.TransformerBlock(h, 96, rng=None).work(x).flops == 24 * s * h**2 + 4 * s**2 * h


NETWORKS = {
    "correct": [
        ((own_cut, output), "How much did the devices send")
        for own_cut in (cut, dealt_like_cards, by_slices)
        for output in (alone, in_two_lines)
    ],
    "keep working": [
        ((halves(0, 1), alone), "rows of A, which make one term of each sum"),
        ((halves(0, 0), alone), "rows of A, which make one term of each sum"),
        ((halves(1, 1), alone), "Which numbers of B does each of them meet?"),
        (
            (lambda A, B, t: [(A, B)] * t, alone),
            "device 0 has 8 x 24 of A and 24 x 8 of B: one of them as a whole",
        ),
        (
            (lambda A, B, t: [(a, B) for a in np.split(A, t, 1)], alone),
            "one of them as a whole. What is a t-th",
        ),
        (
            (lambda A, B, t: (np.split(A, t, 1), np.split(B, t)), alone),
            "cut_matrices gives 2 parts. How many",
        ),
        ((lambda A, B, t: [(b, a) for a, b in cut(A, B, t)], alone), "Which way is each cut"),
        ((lambda A, B, t: [(a.T, b.T) for a, b in cut(A, B, t)], alone), "Which way is each cut"),
        ((lambda A, B, t: [(a / t, b) for a, b in cut(A, B, t)], alone), "not in A or B. What changed them?"),
        ((lambda A, B, t: cut(A, B, t)[:-1], alone), "cut_matrices gives 3 parts. How many devices"),
        (
            (lambda A, B, t: [cut(A, B, t)[0]] * t, alone),
            "no device has column 6 of A. Who makes that feature?",
        ),
        ((lambda A, B, t: cut(A, B, 2), alone), "cut_matrices gives 2 parts"),
        ((tried_on_a, alone), "Which row of B meets what column 0 of A makes?"),
        (
            (lambda A, B, t: np.split(A, t, axis=1), alone),
            "device 0 gets one array of 8 x 6. It should be two arrays",
        ),
        ((lambda A, B, t: None, alone), "cut_matrices gives nothing. It should be a list"),
        ((lambda A, B, t: dict(enumerate(cut(A, B, t))), alone), "cut_matrices gives a dict"),
        (
            (lambda A, B, t: [(a.tolist(), b.tolist()) for a, b in cut(A, B, t)], alone),
            "device 0 gets 2 things",
        ),
        ((cut, lambda x, A, B: x @ A @ B), "has no ReLU. Between which two products does it stand?"),
        ((cut, lambda x, A, B: np.maximum(x @ A @ B, 0)), "takes ReLU of a part of the sum"),
        (
            (cut, lambda x, A, B: np.maximum(np.maximum(x @ A, 0) @ B, 0)),
            "Where does ReLU(x A) B have its ReLU?",
        ),
        ((cut, lambda x, A, B: np.maximum(x @ A, 0) @ B / 4), "divides by t. Is y the sum of the parts"),
        ((cut, lambda x, A, B: np.maximum(x @ A, 0)), "gives 5 x 6, and"),
        ((cut, lambda x, A, B: np.maximum(x @ A, 0) @ B + x), "other numbers than its columns and rows make"),
        ((cut, lambda x, A, B: None), "device 0 gives nothing. Which array can it add to the others'?"),
        ((cut, lambda x, A, B: B @ np.maximum(x @ A, 0)), "ValueError"),
    ],
}


def spoils(which, of):
    """Right, but one of its arguments is 0 afterwards."""

    def answer(*arguments):
        made = of(*arguments)
        arguments[which][:] = 0
        return made

    return answer


AS_BEFORE = "is not what it was before. Who else may need it?"
NETWORKS["almost"] = [
    *(((cut, spoils(i, alone)), f"{name} {AS_BEFORE}") for i, name in enumerate(("x", "A_own", "B_own"))),
    ((spoils(1, lambda A, B, t: cut(A.copy(), B.copy(), t)), alone), f"B {AS_BEFORE}"),
]
GRADIENTS = {
    "correct": [(right, "nobody else needs your dA and dB")],
    "almost": [
        (spoils(3, right), f"dy {AS_BEFORE}"),
        (lambda x, A, B, dy: right(x, A, B, dy)[::-1], "in another order. Which one comes first?"),
        (lambda x, A, B, dy: right(x, A, B, dy)[1:] + right(x, A, B, dy)[:1], "in another order"),
        (other(lambda x, A, B, dy, is_: {"dx": dy @ B.T @ A.T}), "Where ReLU gave 0"),
        (other(lambda x, A, B, dy, is_: {"dx": is_["dx"] / 4}), "Is dx the sum of the parts, or their mean?"),
        (other(lambda x, A, B, dy, is_: {"dx": is_["dx"] + dy}), "the part of dx is not what your own"),
        (other(lambda x, A, B, dy, is_: {"dA": x.T @ (dy @ B.T)}), "Where ReLU gave 0"),
        (other(lambda x, A, B, dy, is_: {"dA": is_["dA"] / 4}), "Which other device has these columns?"),
        (other(lambda x, A, B, dy, is_: {"dA": 2 * is_["dA"]}), "dA_own is not what your own"),
        (other(lambda x, A, B, dy, is_: {"dB": (x @ A).T @ dy}), "before or after ReLU?"),
        (other(lambda x, A, B, dy, is_: {"dB": (x @ A > 0).T @ dy}), "only where it was above 0"),
        (other(lambda x, A, B, dy, is_: {"dB": is_["dB"] / 4}), "Which other device has these rows?"),
    ],
    "keep working": [
        (other(lambda x, A, B, dy, is_: {"dB": dy.T @ x}), "dB_own is 8 x 8, and what it is"),
        (lambda x, A, B, dy: right(x, A, B, dy)[0], "you give one array of 5 x 8; it"),
        (lambda x, A, B, dy: right(x, A, B, dy)[:2], "you give 2 things"),
        (lambda x, A, B, dy: [each.T for each in right(x, A, B, dy)], "the part of dx is 8 x 5"),
        (other(lambda x, A, B, dy, is_: {"dA": is_["dA"].T, "dB": is_["dB"].T}), "dA_own is 6 x 8"),
        (lambda x, A, B, dy: None, "you give nothing"),
        (lambda x, A, B, dy: (dy @ B.T, x.T @ dy, A.T @ x.T @ dy), "the part of dx is 5 x 6"),
        (lambda x, A, B, dy: dy @ B, "it stopped: ValueError: matmul"),
    ],
}
test_replies = each_reply(lesson_B, network=NETWORKS, partial_gradients=GRADIENTS)
