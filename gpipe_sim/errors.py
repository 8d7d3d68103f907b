"""Errors, and the checks of arguments that packages share: a message says who needs what, and got what."""

import math
import operator
from collections.abc import Hashable, Sequence
from numbers import Rational, Real


def got(value) -> str:
    """The end of a message, "(got 3)": the value, or only its type if the value prints long, as arrays do."""
    text = repr(value)
    short = len(text) <= 120 and "\n" not in text
    return f"(got {text if short else type(value).__name__})"


def short(text: str, most: int = 60) -> str:
    """A text as a message quotes it: in quotes, and no longer than a line."""
    return repr(text) if len(text) <= most else f"{text[:most]!r}... ({len(text)} characters)"


def whole(owner: str, name: str, value, low: int = 1, high: int | None = None) -> int:
    """The value as Python's own whole number, which no sum can overflow.

    TypeError unless it is one, ValueError outside ``low`` to ``high``, both included.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{owner} needs {name} to be a whole number {got(value)}")
    if high is not None and not low <= number <= high:
        raise ValueError(f"{owner} needs {name} from {low} to {high} {got(value)}")
    if number < low:
        raise ValueError(f"{owner} needs {name} >= {low} {got(value)}")
    return number


def own(number: Real) -> Real:
    """The number as Python's own if it is NumPy's, so that no sum can overflow."""
    return number.item() if hasattr(number, "item") else number


def duration(owner: str, name: str, value) -> Real:
    """A time, or an amount, as Python's own number.

    TypeError unless it is a number, ValueError unless it is finite and >= 0.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{owner} needs {name} to be a number {got(value)}")
    time = own(value)
    if time < 0 or not (isinstance(time, Rational) or math.isfinite(time)):
        raise ValueError(f"{owner} needs {name} to be finite and >= 0 {got(value)}")
    return time


def require_in(owner: str, name: str, value: float, low: float, high: float) -> None:
    """TypeError unless the value is a number, ValueError if it is NaN or outside [low, high)."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{owner} needs {name} to be a number {got(value)}")
    if not low <= value < high:
        raise ValueError(f"{owner} needs {low} <= {name} < {high} {got(value)}")


def require_text(owner: str, value) -> None:
    """TypeError unless the value is a string."""
    if not isinstance(value, str):
        raise TypeError(f"{owner} reads a text {got(value)}")


def require_batch(batch) -> None:
    """TypeError or ValueError unless the batch is (inputs, targets), with a target for each input."""
    if not isinstance(batch, tuple | list):
        raise TypeError(f"a batch is (inputs, targets) (got {type(batch).__name__})")
    if len(batch) != 2:
        raise ValueError(f"a batch is (inputs, targets) (got {len(batch)} parts)")
    for name, part in zip(("inputs", "targets"), batch, strict=True):
        if not hasattr(part, "__len__") or getattr(part, "shape", None) == ():
            raise TypeError(f"a batch is (inputs, targets), with a row per sample: {name} {got(part)}")
    if len(batch[0]) != len(batch[1]):
        lengths = " and ".join(str(len(part)) for part in batch)
        raise ValueError(f"a batch is (inputs, targets) of equal length (got lengths {lengths})")


def require_numbers(owner: str, name: str, array) -> None:
    """TypeError unless a NumPy array holds real numbers: whole ones, floats or truth values."""
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{owner} needs {name} to hold real numbers (got {array.dtype})")


class ScheduleError(ValueError):
    """The schedule is not one that a training step can run; the message says why."""


class DeadlockError(ScheduleError):
    """Every action is there, but in an order in which some devices wait for ever."""


def require_room(partitions: int, devices: Sequence[Hashable]) -> None:
    """IndexError, in torchgpipe's words, if there are more partitions than devices; TypeError for no list."""
    if isinstance(devices, str) or not isinstance(devices, Sequence):
        raise TypeError(f"devices lists a name for each of {partitions}, such as 'a' {got(devices)}")
    if partitions > len(devices):
        raise IndexError(
            "too few devices to hold given partitions "
            f"(devices: {len(devices)}, partitions: {partitions}); a device may be listed again"
        )
