"""Stages to try a student's functions on, and the same step on one device: loss, gradients, what is left."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from gpipe_sim.core.layers import Layer, mlp
from gpipe_sim.core.losses import mse
from gpipe_sim.core.memory import roots
from gpipe_sim.core.step import single_device_step
from gpipe_sim.course import answers
from gpipe_sim.course.reply import almost, is_array, is_number, keep_working, shown

Array = np.ndarray
CLOSE = 1e-12
GRADIENTS = {"W": "dW", "b": "db"}
OWN = ("W", "b", "dW", "db", "relu")  #: what a stage holds all the time
OF_THE_LAST = "How much does each sample count, and which gradient came in?"
#: What to ask about a gradient that is too large by these factors.
FACTORS = {-1: "Which way does it point?", 0.5: "What is the derivative of a square?"}


def biased(widths: Sequence[int]) -> list[Layer]:
    """An MLP whose biases are not 0, so that it shows if they are left out."""
    layers, rng = mlp(list(widths)), np.random.default_rng(1)
    for layer in layers:
        if layer.parameters:
            layer.parameters["b"] += rng.normal(0, 0.3, layer.parameters["b"].shape)
    return layers


@dataclass(frozen=True)
class Trial:
    """Stages and samples for a student's step. One device has arrays of its own: a student may change any."""

    stages: list[dict]
    x: Array
    target: Array
    layers: list[Layer]

    @classmethod
    def of(cls, widths: Sequence[int], samples: int) -> "Trial":
        layers, rng = biased(widths), np.random.default_rng(2)
        x, target = (rng.normal(size=(samples, width)) for width in (widths[0], widths[-1]))
        return cls(answers.stages_of(deepcopy(layers)), x, target, layers)

    def unlike_one_device(self, where: str, loss: object) -> None:
        """Raise what is wrong with a step that has run on the stages and returned this loss."""
        alone = single_device_step(self.layers, (self.x, self.target), mse)
        self._changed_or_missing(where)
        _wrong_loss(where, loss, alone.loss, self.target)
        self.wrong_gradients(where)
        _left(where, self.stages)

    def wrong_gradients(self, where: str, question: str = OF_THE_LAST) -> None:
        """Raise what is wrong with the weights and gradients that a step has left.

        The ``question`` is asked where the last stage's own are wrong.
        """
        gradients = single_device_step(self.layers, (self.x, self.target), mse).gradients
        numbers = [i for i, layer in enumerate(self.layers) if layer.parameters]
        wanted = [{name: gradients[i, name] for name in GRADIENTS} for i in numbers]
        self._changed_or_missing(where)
        _wrong_gradients(where, self.stages, wanted, question)

    def _changed_or_missing(self, where: str) -> None:
        held = [layer.parameters for layer in self.layers if layer.parameters]
        for s, (stage, parameters) in enumerate(zip(self.stages, held, strict=True)):
            weights_changed(where, stage, parameters, f"stage {s}")
        _no_gradient(where, self.stages)


def weights_changed(where: str, stage: dict, held: dict[str, Array], which: str = "the stage") -> None:
    """Raise that a stage's parameters are no longer those that it held, to 1e-12."""
    for name in GRADIENTS:
        if not is_close(stage.get(name), held[name]):
            raise keep_working(f"{where} {name} of {which} has changed. Who updates weights, and when?")


def kept_arrays(stage: dict) -> list[Array]:
    """All that a stage keeps for later, each array once, under whatever names a student puts it."""
    return list(roots([value for name, value in stage.items() if name not in OWN]))


def is_close(found: object, wanted: Array) -> bool:
    """Whether it is an array of these numbers, to 1e-12 of the largest."""
    if not is_array(found) or found.shape != wanted.shape:
        return False
    return bool(abs(found - wanted).max(initial=0) <= CLOSE * max(1, float(abs(wanted).max(initial=0))))


def off(found: Array, wanted: Array) -> str:
    """How far two arrays of a shape are apart, in percent of the largest entry."""
    apart = abs(found - wanted).max() / abs(wanted).max()
    return f"{apart:.0%}" if apart >= 0.01 else f"{apart:.1g}"


def _no_gradient(where: str, stages: Sequence[dict]) -> None:
    for s, stage in reversed(list(enumerate(stages))):
        for name in GRADIENTS.values():
            found = stage.get(name)
            zero = not found.any() if is_array(found) else is_number(found) and found == 0
            if found is None or zero:
                missing = f"stage {s} ends without a gradient in {name!r}"
                raise keep_working(f"{where} {missing}. Which action puts it there?")
            if not is_array(found):
                its = f"{name} of stage {s} is {shown(found)}"
                raise keep_working(f"{where} {its}. What does one entry of it say?")


def _wrong_loss(where: str, loss: object, wanted: float, target: Array) -> None:
    if not is_number(loss):
        raise keep_working(f"{where} you return {shown(loss)}; it should be the loss. Which number is that?")
    if abs(loss - wanted) <= CLOSE * max(1, wanted):
        return
    told = f"{where} you return a loss of {loss:.4g}, and one device has {wanted:.4g}"
    ratio = loss / wanted
    if ratio > 0 and any(abs(ratio / known - 1) < 1e-9 for known in _counts(target)):
        raise almost(f"{told}: yours is {ratio:.3g} times that. Over how many numbers is the mean taken?")
    raise keep_working(f"{told}. Which numbers does it average?")


def _counts(target: Array) -> tuple[float, ...]:
    """What a loss or a gradient is too large by if something else is divided by."""
    return (*target.shape, target.size, 0.5, *(np.divide(each, 2) for each in (*target.shape, target.size)))


def _wrong_gradients(where: str, stages: Sequence[dict], wanted: list[dict], question: str) -> None:
    pairs = [
        (s, name, stage[GRADIENTS[name]], array)
        for s, (stage, arrays) in enumerate(zip(stages, wanted, strict=True))
        for name, array in arrays.items()
    ]
    wrong = [pair for pair in pairs if not is_close(*pair[2:])]
    if not wrong:
        return
    ratio = _ratio(*pairs[0][2:])
    if all(is_close(found, ratio * array) for *_, found, array in pairs):
        of_all = FACTORS.get(round(ratio, 9), "By how many numbers should the difference be divided?")
        raise almost(f"{where} every gradient is {ratio:.3g} times what one device has. {of_all}")
    s, name, found, array = wrong[-1]
    told = f"{where} d{name} of stage {s}"
    if found.shape != array.shape:
        raise keep_working(
            f"{told} has the shape {found.shape}, {name} has {array.shape}. What do they share?"
        )
    told = f"{told} is off by {off(found, array)} of its largest entry"
    if s + 1 < len(stages):
        told = f"{told}, though stage {s + 1} is right"
        raise keep_working(f"{told}. Is it what that stage sends, or what stage {s} makes of it?")
    raise keep_working(f"{told}. {question}")


def _ratio(found: Array, wanted: Array) -> float:
    """How many times the right one a gradient is, if it is a multiple of that."""
    return float((found * wanted).sum() / (wanted**2).sum()) if found.shape == wanted.shape else np.nan


def _left(where: str, stages: Sequence[dict]) -> None:
    for s, stage in enumerate(stages):
        if kept := stage.get("kept"):
            left = f"stage {s} still keeps something of microbatch {next(iter(kept))}"
            raise almost(f"{where} {left}. Did all backwards run?")
