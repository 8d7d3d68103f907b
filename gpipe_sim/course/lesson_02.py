"""Lesson 02: one step on two devices."""

from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from gpipe_sim.course.called import called
from gpipe_sim.course.reply import Reply, almost, correct, is_number, keep_working, your_turn
from gpipe_sim.families import Naive
from gpipe_sim.nn.data import digits
from gpipe_sim.nn.layers import Layer
from gpipe_sim.nn.losses import CrossEntropy, Loss, cross_entropy
from gpipe_sim.nn.models import mlp
from gpipe_sim.nn.optimizers import SGD, Adam, Optimizer
from gpipe_sim.runtime.partition import split
from gpipe_sim.runtime.step import train_step
from gpipe_sim.runtime.training import train

#: (sizes, samples, dtype) of models that the notebook does not show; the smaller numbers come last.
HIDDEN = (
    ([64, 300, 20, 10], 12, np.float64),
    ([64, 7, 90, 33, 10], 50, np.float64),
    ([64, 300, 20, 10], 12, np.float32),
)
#: What natural wrong guesses at the bytes that device 1 sends back would be.
SENT_BACK = {
    8: "That is the loss, one number. Does device 0 know from it which way to change its weights?",
    256: "That is one number for each sample. Does each of a sample's 16 features have the same gradient?",
    1280: "That is the gradient of W1. Which device needs that one?",
    2560: "That is the gradient of the output. What does device 0 know of W1?",
    8192: "That is the gradient of W0. Which device has the x that it takes to compute it?",
    16384: "That is the gradient of x. Which boundary does x cross?",
}
#: And at how many times larger the largest message is than the smallest.
LARGEST = {
    1: "That is one size for every cut. What is handed on after the narrow layer?",
    6.4: "That is how the weights of the linear layers compare. Do weights cross?",
    8: "That compares a wide place with the data. Who sends the data?",
    51.2: "That compares a wide place with the output. Does the output cross a boundary?",
}
#: And at how many times the multiplications of a forward a backward takes.
BACKWARDS = {
    1: "That is I alone, or W alone. Which of the two could a device leave out?",
    3: "That is forward and backward together. How much of it is the forward?",
}
#: And at the length of the step on two devices whose backwards are split.
SPLIT_LENGTHS = {
    5: "That is without the messages. What does device 1 wait for before it starts?",
    6: "That is when device 0 has done its I. What is still to be done there?",
    8: "That is with B in one piece. When does the gradient leave device 1 now?",
}
TIMES = 8
OPTIMIZERS = {"SGD": partial(SGD, 0.5), "Adam": partial(Adam, 0.01)}  # rates with which they learn the digits
SMALL_RATE = 0.05
ANSWERS = ("SGD", "Adam", "both", "neither")


def message_bytes(answer: Callable | None) -> Reply:
    """Check ``answer(layers, cut, samples)``: the bytes of one message, if device 0 holds ``cut`` layers."""
    if answer is None:
        return your_turn("write a function message_bytes(layers, cut, samples) and pass it in")
    for sizes, samples, dtype in HIDDEN:
        layers = mlp(sizes, dtype=dtype)
        for cut in range(1, len(layers)):
            model = f"mlp({sizes}, dtype={np.dtype(dtype)})"
            where = f"for {model}, cut after {cut} of {len(layers)} layers, and {samples} samples"
            got = called(answer, layers, cut, samples, where=where)
            if isinstance(got, Reply):
                return got
            if not is_number(got) or got % 1:
                return keep_working(f"{where} you say {got!r}; it should be a number of bytes")
            if got != measured_bytes(layers, cut, samples):
                return _what_is_wrong(f"{where} you say {int(got):,}", got, layers, cut, samples)
    return correct("on every model tried, every cut sends as many bytes as you say, each way")


def measured_bytes(layers: list[Layer], cut: int, samples: int) -> int:
    """The bytes of the activations that device 1 receives in one step on two devices."""
    dtype = layers[0].parameters["W"].dtype
    batch = np.ones((samples, 64), dtype), np.zeros(samples, int)
    partitions = split(layers, balance=[cut, len(layers) - cut])
    return train_step(partitions, Naive(devices=2), batch, cross_entropy).memory[1].peak("messages")


def _what_is_wrong(said: str, got: Real, layers: list[Layer], cut: int, samples: int) -> Reply:
    weights = [layer.parameters["W"] for layer in layers[:cut] if layer.parameters]
    read, made = weights[-1].shape
    each, measured = weights[-1].itemsize, measured_bytes(layers, cut, samples)
    if got == 2 * measured:
        if each == 4:
            return almost(f"{said}, twice what was measured. How many bytes has one number here?")
        return almost(f"{said}: that is both messages together, there and back. How many bytes has one?")
    if got == samples * made:
        return almost(f"{said}: that many numbers cross. How many bytes has each?")
    if got == made * each:
        return almost(f"{said}: that is what one sample needs. How many samples cross together?")
    if got == samples * read * each:
        return almost(f"{said}: that is what the last Linear of device 0 reads. What does it hand on?")
    if got in {w.nbytes for w in weights} | {sum(w.nbytes for w in weights)}:
        return keep_working(f"{said}: that is the size of weights. Does device 1 ever read those?")
    return keep_working(f"{said}, measured: {measured:,}. Which array does device 0 make last?")


def which_hides_it(answer: str | None) -> Reply:
    """Check the answer to: does SGD or Adam learn as well with a gradient that is 8 times too large?"""
    if answer is None:
        return your_turn(f"answer with one of {_listed()}; all four trainings are then run")
    if not isinstance(answer, str) or answer.strip().lower() not in map(str.lower, ANSWERS):
        return keep_working(f"{answer!r} is not an answer here; give one of {_listed()}")
    right = {name: accuracy(optimizer(), cross_entropy) for name, optimizer in OPTIMIZERS.items()}
    wrong = {name: accuracy(optimizer(), EightTimes()) for name, optimizer in OPTIMIZERS.items()}
    told = "; ".join(f"{name} {right[name]:.0%}, with the error {wrong[name]:.0%}" for name in OPTIMIZERS)
    hidden_by = [name for name in OPTIMIZERS if wrong[name] > right[name] - 0.02]
    truth = hidden_by[0] if len(hidden_by) == 1 else "both" if hidden_by else "neither"
    question = _question(answer.strip().lower(), truth)
    reply = correct if answer.strip().lower() == truth.lower() else keep_working
    return reply(f"held-out accuracy: {told}. {question}")


def _question(answer: str, truth: str) -> str:
    if answer == truth.lower():
        slow = [accuracy(SGD(SMALL_RATE), loss) for loss in (cross_entropy, EightTimes())]
        told = f"At rate {SMALL_RATE} SGD has {slow[0]:.0%}, with the error {slow[1]:.0%}"
        return f"{told}. Which comparison shows a wrong gradient, whatever the optimizer?"
    if answer == "neither":
        return "Multiply Adam's gradient by 8: what cancels?"
    if answer == "both":
        return "SGD subtracts rate x gradient: with which rate did it really train?"
    return "Which of the two kept its accuracy? Write down one update of each, with the 8 in it."


class EightTimes(CrossEntropy):
    """Cross-entropy with the right value, but a gradient that is eight times too large."""

    def backward(self, saved: Any, weight: float) -> np.ndarray:
        return super().backward(saved, TIMES * weight)


def accuracy(optimizer: Optimizer, loss: Loss) -> float:
    """The accuracy on held-out digits, from 0 to 1, after five epochs on two devices."""
    partitions = split(mlp([64, 32, 10]), stages=2)
    run = {"loss": loss, "optimizer": optimizer, "epochs": 5, "batch_size": 32, "report": None}
    with np.errstate(all="ignore"):  # a training that falls apart may overflow
        return train(partitions, Naive(devices=2), digits(), **run).accuracies[-1]


def _listed() -> str:
    return ", ".join(f'"{name}"' for name in ANSWERS)
