"""A student's step over stages, beside the same step on one device: its loss, its gradients, what is left."""

from collections.abc import Sequence

import numpy as np

from gpipe_sim.course.reply import Reply, almost, is_number, keep_working
from gpipe_sim.nn.layers import Layer
from gpipe_sim.nn.losses import mse
from gpipe_sim.runtime.step import single_device_step

Array = np.ndarray
CLOSE = 1e-12
GRADIENTS = {"W": "dW", "b": "db"}
#: What to ask about a gradient that is too large by these factors.
FACTORS = {-1: "Which way does it point?", 0.5: "What is the derivative of a square?"}


def unlike_one_device(
    where: str, loss: object, stages: Sequence[dict], layers: list[Layer], x: Array, target: Array
) -> Reply | None:
    """What is wrong with a step that left these stages and returned this loss; None if nothing is."""
    alone = single_device_step(layers, (x, target), mse)
    linear = [i for i, layer in enumerate(layers) if layer.parameters]
    wanted = [{name: alone.gradients[i, name] for name in GRADIENTS} for i in linear]
    held = [layers[i].parameters for i in linear]
    return (
        _not_run(where, stages)
        or _changed(where, stages, held)
        or _wrong_loss(where, loss, alone.loss, target)
        or _wrong_gradients(where, stages, wanted)
        or _left(where, stages)
    )


def is_close(found: object, wanted: Array) -> bool:
    """Whether it is an array of these numbers, to 1e-12 of the largest."""
    if not is_array(found) or found.shape != wanted.shape:
        return False
    return bool(abs(found - wanted).max(initial=0) <= CLOSE * max(1, abs(wanted).max(initial=0)))


def is_array(found: object) -> bool:
    return isinstance(found, Array) and found.dtype.kind in "fiu"


def off(found: Array, wanted: Array) -> str:
    """How far two arrays of a shape are apart, in percent of the largest entry."""
    apart = abs(found - wanted).max() / abs(wanted).max()
    return f"{apart:.0%}" if apart >= 0.01 else f"{apart:.1g}"


def times(ratio: float) -> str:
    return f"{ratio:.3g} times"


def shown(found: object) -> str:
    """What a student returned, in a few words."""
    if isinstance(found, Array):
        return f"an array of shape {found.shape}"
    short = found is None or isinstance(found, str | bool)
    return repr(found) if short else f"an object of type {type(found).__name__}"


def _not_run(where: str, stages: Sequence[dict]) -> Reply | None:
    for s, stage in reversed(list(enumerate(stages))):
        for name in GRADIENTS.values():
            if not is_array(stage.get(name)):
                return keep_working(
                    f"{where} stage {s} ends without a gradient in {name!r}. Which action puts it there?"
                )
    return None


def _changed(where: str, stages: Sequence[dict], held: list[dict]) -> Reply | None:
    for s, (stage, parameters) in enumerate(zip(stages, held, strict=True)):
        for name, array in parameters.items():
            if not is_close(stage.get(name), array):
                return keep_working(
                    f"{where} {name} of stage {s} is no longer what it was. Who updates weights, and when?"
                )
    return None


def _wrong_loss(where: str, loss: object, wanted: float, target: Array) -> Reply | None:
    if not is_number(loss):
        return keep_working(f"{where} you return {shown(loss)}; it should be the loss. Which number is that?")
    if abs(loss - wanted) <= CLOSE * max(1, wanted):
        return None
    told = f"{where} you return a loss of {loss:.4g}, and one device has {wanted:.4g}"
    ratio = loss / wanted
    if ratio > 0 and any(abs(ratio / known - 1) < 1e-9 for known in _counts(target)):
        return almost(f"{told}: yours is {times(ratio)} that. Over how many numbers is the mean taken?")
    return keep_working(f"{told}. Which numbers does it average?")


def _counts(target: Array) -> tuple[float, ...]:
    """What a loss or a gradient is too large by if something else is divided by."""
    return (*target.shape, target.size, 0.5, *(np.divide(each, 2) for each in (*target.shape, target.size)))


def _wrong_gradients(where: str, stages: Sequence[dict], wanted: list[dict]) -> Reply | None:
    pairs = [
        (s, name, stage[GRADIENTS[name]], array)
        for s, (stage, arrays) in enumerate(zip(stages, wanted, strict=True))
        for name, array in arrays.items()
    ]
    wrong = [pair for pair in pairs if not is_close(*pair[2:])]
    if not wrong:
        return None
    ratio = _ratio(*pairs[0][2:])
    if all(is_close(found, ratio * array) for *_, found, array in pairs):
        question = FACTORS.get(round(ratio, 9), "By how many numbers should the difference be divided?")
        return almost(f"{where} every gradient is {times(ratio)} what one device has. {question}")
    s, name, found, array = wrong[-1]
    told = f"{where} d{name} of stage {s}"
    if found.shape != array.shape:
        return keep_working(
            f"{told} has the shape {found.shape}, {name} has {array.shape}. What do they share?"
        )
    later = f", though stage {s + 1} is right" if s + 1 < len(stages) else ""
    question = "How much does each sample count, and which gradient came in?"
    return keep_working(f"{told} is off by {off(found, array)} of its largest entry{later}. {question}")


def _ratio(found: Array, wanted: Array) -> float:
    """How many times the right one a gradient is, if it is a multiple of that."""
    return float((found * wanted).sum() / (wanted**2).sum()) if found.shape == wanted.shape else np.nan


def _left(where: str, stages: Sequence[dict]) -> Reply | None:
    for s, stage in enumerate(stages):
        if kept := stage.get("kept"):
            left = f"stage {s} still keeps something of microbatch {next(iter(kept))}"
            return almost(f"{where} {left}. Did all backwards run?")
    return None
