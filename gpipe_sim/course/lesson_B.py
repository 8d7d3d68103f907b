"""Lesson B: tensor parallelism."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeGuard

import numpy as np

from gpipe_sim.course.build import build, exercise
from gpipe_sim.course.called import called
from gpipe_sim.course.reply import Reply, almost, correct, keep_working, listed

Array = np.ndarray

ARGUMENTS = ("x", "A_own", "B_own")
GRADIENTS = ("the part of dx", "dA_own", "dB_own")


class Size(NamedTuple):
    """Rows of x, its features, those in the middle, and devices."""

    rows: int
    features: int
    middle: int
    devices: int

    def __str__(self) -> str:
        return f"with h = {self.features}, {self.middle} features in the middle and t = {self.devices}"

    def arrays(self) -> tuple[Array, Array, Array, Array]:
        """x, A, B, and a gradient of the output."""
        rng, (rows, h, wide, _) = np.random.default_rng(self), self
        x, A, B, dy = (rng.normal(size=shape) for shape in ((rows, h), (h, wide), (wide, h), (rows, h)))
        return x, A, B, dy


HIDDEN = (Size(5, 8, 24, 4), Size(9, 6, 12, 3), Size(7, 3, 10, 2), Size(4, 5, 6, 1))


def middle(x: Array, A: Array) -> Array:
    """ReLU(x A)."""
    return np.maximum(x @ A, 0)


def near(a: Array, b: Array) -> bool:
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-9, atol=1e-12))


@build("cut_matrices", "partial_output")
def network(cut_matrices: Callable, partial_output: Callable) -> Reply:
    """Check ``cut_matrices(A, B, t)`` and ``partial_output(x, A_own, B_own)``: columns, then rows."""
    for size in HIDDEN:
        x, A, B, _ = size.arrays()
        parts = called(cut_matrices, A, B, size.devices, where=f"cut_matrices, {size},", whole=("A", "B"))
        if not isinstance(parts, list | tuple):
            gives = f"cut_matrices gives {_kind(parts)}. It should be a list of a pair for each device"
            return keep_working(f"{size}, {gives}. Which pairs?")
        if wrong := what_is_no_cut(parts, A, B, size):
            return keep_working(f"{size}, {wrong}")
        for device, own in enumerate(parts):
            got = called(partial_output, x, *own, where=f"partial_output, {size},", whole=ARGUMENTS)
            if wrong := wrong_partial(got, size, x, *own):
                return keep_working(f"{size}, device {device} {wrong}")
    return correct(
        "the sum is ReLU(x A) B at four sizes. How much did the devices send between the two products?"
    )


def what_is_no_cut(parts: Sequence, A: Array, B: Array, size: Size) -> str:
    """What is wrong with the devices' parts of A and B; empty if nothing is."""
    if len(parts) != size.devices:
        return f"cut_matrices gives {len(parts)} parts. How many devices are there?"
    for device, pair in enumerate(parts):
        if not (isinstance(pair, list | tuple) and len(pair) == 2 and all(map(_is_matrix, pair))):
            return f"device {device} gets {_kind(pair)}. It should be two arrays: which part of A, and of B?"
        if wrong := _wrong_shapes(size, device, *pair):
            return wrong
    return _wrong_columns(parts, A, B)


def _wrong_shapes(size: Size, device: int, A: Array, B: Array) -> str:
    _, h, wide, t = size
    narrow = wide // t
    if (A.shape, B.shape) == ((h, narrow), (narrow, h)):
        return ""
    has = f"device {device} has {_shape(A)} of A and {_shape(B)} of B"
    if A.shape == (h, wide) or B.shape == (wide, h):
        return f"{has}: one of them as a whole. What is a t-th of each?"
    if A.shape == (h // t, wide):
        return f"{has}: rows of A, which make one term of each sum. Is ReLU(a) + ReLU(b) = ReLU(a + b)?"
    if A.shape == (h, narrow):
        return f"{has}. It makes {narrow} features in the middle. Which numbers of B does each of them meet?"
    return f"{has}, of {h} x {wide} and {wide} x {h}. Which way is each cut, and into how many parts?"


def _wrong_columns(parts: Sequence, A: Array, B: Array) -> str:
    columns = [[_place(column, A.T) for column in own.T] for own, _ in parts]
    rows = [[_place(row, B) for row in own] for _, own in parts]
    for device, (of_a, of_b) in enumerate(zip(columns, rows, strict=True)):
        if None in of_a or None in of_b:
            return f"device {device} has numbers in its part that are not in A or B. What changed them?"
        if of_a != of_b:
            has = f"device {device} has the columns {listed(of_a)} of A and the rows {listed(of_b)} of B"
            return f"{has}. Which row of B meets what column {of_a[0]} of A makes?"
    held = {each for own in columns for each in own}
    missing = next((i for i in range(A.shape[1]) if i not in held), None)
    return "" if missing is None else f"no device has column {missing} of A. Who makes that feature?"


def _place(row: Array, rows: Array) -> int | None:
    """Which of the rows this is."""
    return next((i for i, other in enumerate(rows) if near(row, other)), None)


def wrong_partial(got: object, size: Size, x: Array, A: Array, B: Array) -> str:
    """What is wrong with what a device computed alone; empty if nothing is."""
    if not _is_matrix(got):
        return f"gives {_kind(got)}. Which array can it add to the others'?"
    if near(got, middle(x, A) @ B):
        return ""
    if got.shape != (size.rows, size.features):
        return f"gives {_shape(got)}, and y is {size.rows} x {size.features}. What of B does it have?"
    mistakes = (
        (x @ A @ B, "has no ReLU. Between which two products does it stand?"),
        (
            np.maximum(x @ A @ B, 0),
            "takes ReLU of a part of the sum. Between which two products does it stand?",
        ),
        (middle(middle(x, A), B), "takes ReLU of a part of the sum. Where does ReLU(x A) B have its ReLU?"),
        (middle(x, A) @ B / size.devices, "divides by t. Is y the sum of the parts, or their mean?"),
        (middle(x, A) @ B * size.devices, "multiplies by t. What do the parts make when they are added?"),
    )
    known = (says for wrong, says in mistakes if near(got, wrong))
    return next(
        known, "gives other numbers than its columns and rows make. What is ReLU(x A) B with these alone?"
    )


@exercise("write partial_gradients in this cell, and run it again")
def partial_gradients(answer: Callable | None) -> Reply:
    """Check ``answer(x, A_own, B_own, dy)``: a device's part of dx, and the gradients of its A and B."""
    for size in HIDDEN:
        x, A, B, dy = size.arrays()
        for own in zip(np.split(A, size.devices, axis=1), np.split(B, size.devices), strict=True):
            got = called(answer, x, *own, dy, where=f"{size},", whole=(*ARGUMENTS, "dy"))
            _wrong_gradient(_three(got, [x, *own], size), x, *own, dy, size)
    return correct("the parts of dx add up to the whole one, and nobody else needs your dA and dB")


def _three(got: object, like: list[Array], size: Size) -> Sequence[Array]:
    """The arrays that a student gives; raises a Reply if they are not three of these shapes."""
    if not (isinstance(got, list | tuple) and len(got) == 3 and all(map(_is_matrix, got))):
        asks = "it should be three arrays: a part of dx, dA_own, dB_own. Which?"
        raise keep_working(f"{size}, you give {_kind(got)}; {asks}")
    shapes, wanted = [array.shape for array in got], [array.shape for array in like]
    if shapes[0] != wanted[0] and sorted(shapes) == sorted(wanted):  # else two may be transposed
        raise almost(f"{size}, these are shapes of the three, in another order. Which one comes first?")
    for name, array, of in zip(GRADIENTS, got, like, strict=True):
        if array.shape != of.shape:
            says = f"{name} is {_shape(array)}, and what it is the gradient of is {_shape(of)}"
            raise keep_working(f"{size}, {says}. Which axes meet?")
    return got


def _wrong_gradient(got: Sequence[Array], x: Array, A: Array, B: Array, dy: Array, size: Size) -> None:
    """Raise what is wrong with the first of the three that is."""
    there, t = x @ A > 0, size.devices
    inside = (dy @ B.T) * there
    right = inside @ A.T, x.T @ inside, middle(x, A).T @ dy
    masked = "Where ReLU gave 0, what is its gradient?"
    known = (
        [(dy @ B.T @ A.T, masked), (right[0] / t, "Is dx the sum of the parts, or their mean?")],
        [(x.T @ (dy @ B.T), masked), (right[1] / t, "Which other device has these columns?")],
        [
            ((x @ A).T @ dy, "What did B multiply in the forward: before or after ReLU?"),
            (there.T @ dy, "What did B multiply in the forward? You have only where it was above 0."),
            (right[2] / t, "Which other device has these rows?"),
        ],
    )
    for name, array, wanted, mistakes in zip(GRADIENTS, got, right, known, strict=True):
        if not near(array, wanted):
            says = (question for wrong, question in mistakes if near(array, wrong))
            ask = next(says, "Which arrays does the rule of lesson 02 multiply here?")
            raise almost(f"{size}, {name} is not what your own columns and rows give. {ask}")


def _is_matrix(value: object) -> TypeGuard[Array]:
    return isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype.kind == "f"


def _shape(array: Array) -> str:
    return " x ".join(map(str, array.shape))


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, np.ndarray):
        return f"one array of {_shape(value) or 'no axes'}"
    if isinstance(value, list | tuple):
        return f"{len(value)} things, the first a {type(value[0]).__name__}" if value else "an empty list"
    return f"a {type(value).__name__}"
