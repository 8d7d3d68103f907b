"""Lesson 03: microbatches."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from gpipe_sim.course.called import called
from gpipe_sim.course.reply import Reply, almost, correct, keep_working, your_turn
from gpipe_sim.nn.data import digits
from gpipe_sim.nn.losses import cross_entropy
from gpipe_sim.nn.models import mlp
from gpipe_sim.runtime.step import single_device_step

Array = np.ndarray
SIZES = ((10, 4), (13, 5), (12, 4), (7, 7), (9, 1))  # digits and microbatches
CLOSE = 1e-12
#: What natural wrong guesses at the sum of the microbatches' gradients mean.
ACCUMULATED = {
    "similar": "That would leave out or change something. Which digit is missing, or counts for more?",
    "nearly equal": "Rounding is all that differs, in about the 16th digit. What else would have to be lost?",
}
#: And at whether two orders of adding up give the same bits.
BACKWARDS_BITS = {"yes": "On paper they are the same. How often does each sum round, and which numbers?"}
#: And at which digits count for more in a mean of means, if microbatches have 7, 7, 6, 6 and 6.
MEAN_OF_MEANS = {
    "7": "A larger microbatch has no more weight than a small one here. Among how many does it share that?",
    "none": "That is so if all microbatches are equally large. How many digits share the weight of each?",
}
#: And at the percentage left of a gradient if a layer subtracts the mean and sees one digit at a time.
ONE_DIGIT_EACH = {
    100: "That is a layer that does not care about the other digits. What is the mean of a single digit?",
    Fraction(
        100, 32
    ): "That is the share of one digit. There are 32 of them: what does the layer give for each?",
}
#: And at the length of four microbatches on four devices that work at the same time.
LENGTHS = {
    12: "That is four devices that never wait. What does device 3 do at time 0?",
    15: "That is when device 3 is done. Where does its last gradient still have to go?",
    18: "That takes 1 for a way back that takes 2: how long is a backward?",
    48: "That is one microbatch after the other. Who could work while device 1 has microbatch 0?",
}
#: And at the number of updates in an epoch over 1,438 digits.
UPDATES = {
    45: "That counts a last batch that is not full. How many digits are left for it?",
    176: "That is one update after each microbatch. Which weights would the second microbatch meet?",
    179: "That is batches of 8. How many microbatches add up to one batch here?",
    180: "That is batches of 8, and a last one that is not full. How many of them make one update here?",
}


def accumulate(answer: Callable | None) -> Reply:
    """Check ``answer(mean_gradient, x, y, microbatches)``: the batch's gradient, made from its microbatches'.

    ``mean_gradient(x, y)`` is the gradient of the mean loss over the samples that it is given.
    """
    if answer is None:
        return your_turn("write a function accumulate(mean_gradient, x, y, microbatches) and pass it in")
    for samples, microbatches in SIZES:
        x, y = (array[:samples] for array in digits()[:2])
        asked: list[tuple[int, Array]] = []

        def mean_gradient(x: Array, y: Array, asked=asked) -> Array:
            asked.append((len(x), one_device(x, y)))
            return asked[-1][1].copy()  # the student may add to it in place

        where = f"for {samples} digits and M = {microbatches}"
        got = called(answer, mean_gradient, x, y, microbatches, where=where)
        if isinstance(got, Reply):
            return got
        if wrong := _what_is_wrong(where, got, asked, one_device(x, y), microbatches, samples):
            return wrong
    return correct(
        "the gradient of one device to 1e-12, for 10 digits in 4 microbatches and every other cut tried. "
        "Which weight has one sample in the end?"
    )


def one_device(x: Array, y: Array) -> Array:
    """The gradient of the weights of one linear layer, for the mean cross-entropy over x; (64, 10)."""
    return single_device_step(mlp([64, 10]), (x, y), cross_entropy).gradients[0, "W"]


def _what_is_wrong(
    where: str, got: Any, asked: list[tuple[int, Array]], whole: Array, microbatches: int, samples: int
) -> Reply | None:
    sizes = [size for size, _ in asked]
    if not isinstance(got, Array) or got.shape != whole.shape or got.dtype.kind not in "fiuc":
        shown = f"an array of shape {got.shape} and type {got.dtype}" if isinstance(got, Array) else repr(got)
        return keep_working(f"{where} you return {shown}; one gradient has the shape {whole.shape}")
    if sum(sizes) != samples:
        question = "Where are the others?" if sum(sizes) < samples else "Which come more than once?"
        return keep_working(
            f"{where} your microbatches have {_listed(sizes)} digits, {sum(sizes)} together. {question}"
        )
    if len(sizes) != microbatches:
        return almost(f"{where} you cut it into {_listed(sizes)}. How many digits may a device hold at once?")
    if _equal(got, whole):
        return None
    return _which_weights(where, got, asked, whole)


def _which_weights(where: str, got: Array, asked: list[tuple[int, Array]], whole: Array) -> Reply:
    sizes, gradients = zip(*asked, strict=True)
    cut = f"{where} the sizes are {_listed(sizes)}"
    too_large = f"the gradient comes out {np.linalg.norm(got) / np.linalg.norm(whole):.1f} times too large"
    if _equal(got, sum(gradients) / len(sizes)):
        question = "What would make every *sample* count equally?"
        return almost(f"{cut} but every weight is 1/{len(sizes)}. {question}")
    if _equal(got, sum(gradients)):
        return keep_working(f"{cut} and every weight is 1: {too_large}. What is the batch's loss a mean of?")
    if _equal(got, sum(size * gradient for size, gradient in asked)):
        return almost(f"{cut} and so are the weights: {too_large}. What should weights add up to?")
    off = abs(got - whole).max() / abs(whole).max()
    question = "With which weight does each microbatch come in?"
    return keep_working(f"{cut}; your gradient is off by {off:.1%} of its largest entry. {question}")


def _equal(a: Array, b: Array) -> bool:
    return bool(abs(a - b).max() <= CLOSE * abs(b).max())


def _listed(numbers) -> str:
    return ", ".join(map(str, numbers)) or "no"
