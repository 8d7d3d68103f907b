"""Lesson 02: one step on two devices."""

from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from gpipe_sim.course.reply import Reply, almost, called, correct, is_number, keep_working, your_turn
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
