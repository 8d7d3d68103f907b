"""A layer's backward: one matrix makes numbers, and another says how much of each gets through."""

from collections.abc import Callable, Iterator

import numpy as np

from gpipe_sim.course.called import result_of
from gpipe_sim.course.exercises.seeded import drawn_by, hidden, seeded
from gpipe_sim.course.one_device import is_close, off
from gpipe_sim.course.reply import Reply, correct, is_array, keep_working, shown

Array = np.ndarray
SHAPES = ((1, 1, 1), (5, 3, 3), (4, 3, 5), (1, 2, 6))  #: samples, features before and behind
NUDGE = 0.001
OTHER_WAY = "that is what comes back through {} alone. By which other way does x reach y?"
SLOPE = "How does sigmoid(z) change if z does?"


def task(seed: object = 0) -> str:
    """One sample with one feature, and what y becomes if one of the numbers is a little larger."""
    rng = drawn_by(seed, "gate")
    start = {"x": rng.choice((1, 2, 3)), "A": rng.choice((2, 3, 4)), "B": rng.choice((-1, 0.5, -0.5))}
    given = ", ".join(f"{name} = {value}" for name, value in start.items())
    lines = [f"{given}: y = {_y(**start):.6f}"]
    for name, value in start.items():
        lines.append(f"with {name} larger by {NUDGE}: y = {_y(**(start | {name: value + NUDGE})):.6f}")
    return "\n".join(lines)


def _y(x: float, A: float, B: float) -> float:
    return x * A / (1 + np.exp(-x * B))


def gradients(x: Array, A: Array, B: Array, dy: Array) -> dict[str, Array]:
    """What a backward returns, in this order."""
    u, s = x @ A, 1 / (1 + np.exp(-x @ B))
    through, moved = dy * s, dy * u * s * (1 - s)
    return {"dx": through @ A.T + moved @ B.T, "dA": x.T @ through, "dB": x.T @ moved}


def mistakes(x: Array, A: Array, B: Array, dy: Array) -> Iterator[tuple[str, Array, str]]:
    """(what is returned, what it would be with one mistake, a question)."""
    u, s = x @ A, 1 / (1 + np.exp(-x @ B))
    right = gradients(x, A, B, dy)
    yield "dx", (dy * s) @ A.T, OTHER_WAY.format("A")
    yield "dx", (dy * u * s * (1 - s)) @ B.T, OTHER_WAY.format("B")
    yield "dA", x.T @ dy, "that is so if all gates were open. How much of a change gets through?"
    yield "dA", right["dB"], "that is the gradient of B. In which order do you return them?"
    yield "dB", x.T @ (dy * s * (1 - s)), "that is how the gates move. What do they let through?"
    yield "dB", x.T @ (dy * u), f"that is so if the gate were x B itself. {SLOPE}"
    yield "dB", x.T @ (dy * u * s), f"that has the gate in place of its slope. {SLOPE}"
    yield "dB", 0 * B, "that is so if no gate could move. How does y change if one opens a little?"
    for name, wanted in right.items():
        yield name, wanted / len(x), f"that is divided by {len(x)}. What does this layer know of a mean?"


@seeded("write gate_backward in this cell, and run it again")
def check(answer: Callable, seed: object) -> Reply:
    """Check ``answer(x, A, B, dy)``: the gradients of x, A and B, where y = (x A) * sigmoid(x B)."""
    for each in hidden(seed):
        rng = drawn_by(each, "arrays of a gate")
        for n, before, behind in (*SHAPES, [rng.randint(2, 6) for _ in range(3)]):
            given = [
                np.array([[rng.gauss(0, 1) for _ in range(columns)] for _ in range(rows)])
                for rows, columns in ((n, before), (before, behind), (before, behind), (n, behind))
            ]
            where = f"with x of shape {(n, before)}, A and B of shape {(before, behind)},"
            got = result_of(answer, *given, where=where, whole=("x", "A", "B", "dy"))
            _what_is_wrong(got, given, where)
    return correct("the gradients of x, A and B to 1e-12. Which arrays did you need from the forward?")


def _what_is_wrong(got: object, given: list[Array], where: str) -> None:
    if not isinstance(got, tuple | list) or len(got) != 3:
        raise keep_working(f"{where} you return {shown(got)}. Which three gradients does a backward make?")
    for (name, wanted), found in zip(gradients(*given).items(), got, strict=True):
        if not is_array(found) or found.shape != wanted.shape:
            says = f"{name} is {shown(found)}, and {name[1:]} has shape {wanted.shape}"
            raise keep_working(f"{where} {says}. How large is the gradient of an array?")
        if not is_close(found, wanted):
            asks = (asks for one, wrong, asks in mistakes(*given) if one == name and is_close(found, wrong))
            nudged = f"how much does the sum of dy * y change if one number of {name[1:]} does?"
            raise keep_working(
                f"{where} {name} is off by {off(found, wanted)} of its largest entry: {next(asks, nudged)}"
            )
