"""Errors, and the checks of arguments that packages share: a message says who needs what, and got what."""

import math
import operator
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from fractions import Fraction
from itertools import islice
from numbers import Real as AnyReal
from types import UnionType
from typing import Any

import numpy as np

Real = int | float | Fraction  #: a time or an amount, as Python's own number
PLAIN = (float, int)  #: what most numbers are; asking whether another is a real one takes longer
MOST = 10_000_000  #: of whatever a public call makes one by one: more would take minutes and all memory
MOST_YIELDED = 1_000_000  #: by what has no length, and may go on for ever
NO_LISTS = str | bytes | bytearray | memoryview | Set | Mapping  #: these hold items, but do not list them


def got(value, word: str = "got ") -> str:
    """The end of a message, "(got 3)": the value, or only its type if it prints long, as arrays do."""
    try:
        text = str(value) if isinstance(value, Fraction) else repr(value)
    except Exception:  # of a class of one's own; and Python prints no whole number of 5,000 digits
        text = "\n"
    short = len(text) <= 120 and "\n" not in text
    return f"({word}{text if short else type(value).__name__})"


def short(text: str, most: int = 60) -> str:
    """A text as a message quotes it: in quotes, and no longer than a line."""
    return repr(text) if len(text) <= most else f"{text[:most]!r}... ({len(text)} characters)"


def require(owner: str, value, kind: type | UnionType, such_as: str):
    """The value; TypeError unless it is of this kind: a class or a name is no instance."""
    with suppress(Exception):  # of a class of one's own, which a protocol asks what it has
        if isinstance(value, kind):
            return value
    raise TypeError(f"{owner} needs {such_as} {got(value)}")


def one_of(owner: str, name: str, value, choices: Collection[str]) -> str:
    """The value; ValueError unless it is one of a few words."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{owner} needs {name} to be one of {tuple(choices)} {got(value)}")
    return value


def each_of(owner: str, such_as: str, value, unfit: type | UnionType | tuple[()] = ()) -> Iterator:
    """What it lists, one by one; TypeError if it is unfit, a record, such as an action, or has no items."""
    with suppress(Exception):  # of a class of one's own
        if not isinstance(value, unfit) and not hasattr(value, "_fields"):
            return iter(value)
    raise TypeError(f"{owner} needs {such_as} {got(value)}")


def listed(owner: str, such_as: str, value) -> list:
    """The value as a list.

    TypeError for a text, for what has no order, and for what holds no items; ValueError for too many.
    """
    items = each_of(owner, such_as, value, NO_LISTS)
    try:
        length, most = len(value), MOST
    except Exception:
        length, most = 0, MOST_YIELDED
    if length > most or len(found := list(islice(items, most + 1))) > most:
        raise ValueError(f"{owner} needs {such_as}, and at most {most:,} of them {got(value)}")
    return found


def require_flags(owner: str, **flags) -> None:
    """TypeError unless each is True or False: "no" would count as yes."""
    for name, value in flags.items():
        require(owner, value, bool | np.bool_, f"{name} to be True or False")


def require_few(owner: str, count: int, of_what: str, most: int = MOST) -> None:
    """ValueError if there would be more of something than can be made."""
    if count > most:
        raise ValueError(f"{owner} needs at most {most:,} {of_what} {got(count)}")


def whole(owner: str, name: str, value, low: float = 1, high: int | None = None) -> int:
    """The value as Python's own whole number, which no sum can overflow.

    TypeError unless it is one, ValueError outside ``low`` to ``high``, both included.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except Exception:  # of a class of one's own
        number = None
    if number is None:
        raise TypeError(f"{owner} needs {name} to be a whole number {got(value)}")
    if high is not None and not low <= number <= high:
        raise ValueError(f"{owner} needs {name} from {low} to {high} {got(value)}")
    if number < low:
        raise ValueError(f"{owner} needs {name} >= {low} {got(value)}")
    return number


def number(owner: str, name: str, value: Any) -> Any:
    """A number as Python's own; TypeError unless it is a real one."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, bool) or not isinstance(value, AnyReal):
        raise TypeError(f"{owner} needs {name} to be a number {got(value)}")
    return value.item() if hasattr(value, "item") else value


def duration(owner: str, name: str, value) -> Real:
    """A time, or an amount, as Python's own number.

    TypeError unless it is a number, ValueError unless it is finite and >= 0.
    """
    time = number(owner, name, value)
    if not 0 <= time < math.inf:
        raise ValueError(f"{owner} needs {name} to be finite and >= 0 {got(value)}")
    return time


def require_in(owner: str, name: str, value: Real, low: Real, high: Real) -> Real:
    """The value as Python's own number, which no difference can overflow.

    TypeError unless it is a number, ValueError if it is NaN or outside [low, high).
    """
    plain = number(owner, name, value)
    if not low <= plain < high:
        raise ValueError(f"{owner} needs {low} <= {name} < {high} {got(value)}")
    return plain


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


def numbers(owner: str, name: str, value) -> np.ndarray:
    """The value as an array; TypeError unless it holds real numbers: whole ones, floats or truth values."""
    try:
        array = np.asarray(value)
    except TypeError:  # it says itself why it is no array, as one on paper does
        raise
    except Exception:  # rows of several lengths, too many, or a class of one's own
        array = np.asarray(None)
    if array.dtype.kind not in "fiub":
        found = got(value) if array.dtype == object else f"(got {array.dtype})"
        raise TypeError(f"{owner} needs {name} to hold real numbers {found}")
    return array


#: Numbers of 2 bytes that NumPy does not have. On paper they are its own of 2 bytes, by another name.
BFLOAT16 = np.dtype("f2", metadata={"called": "bfloat16"})


def called(dtype: np.dtype) -> str:
    """The name of a dtype."""
    return str(dtype.metadata["called"] if dtype.metadata and "called" in dtype.metadata else dtype)


def as_dtype(value) -> np.dtype:
    """A dtype, also "bfloat16"; what NumPy raises for what is none."""
    return BFLOAT16 if isinstance(value, str) and value == "bfloat16" else np.dtype(value)


def result_type(*dtypes) -> np.dtype:
    """NumPy's, but two bytes that were called bfloat16 are called so again."""
    found = np.result_type(*dtypes)
    renamed = (called(each) for each in dtypes if isinstance(each, np.dtype) and each.metadata)
    return BFLOAT16 if found == BFLOAT16 and "bfloat16" in renamed else found


def floating(owner: str, dtype, on_paper: bool = False) -> np.dtype:
    """The dtype, as NumPy's own; ValueError unless it is one of floats. Only on paper there is bfloat16."""
    try:
        found = as_dtype(dtype) if isinstance(dtype, str | type | np.dtype) else None
    except Exception:  # NumPy prints what it cannot read, and that may raise anything
        found = None
    name = dtype if found is None else called(found)
    if found is None or found.kind != "f" or (called(found) == "bfloat16" and not on_paper):
        other = ""
        if isinstance(name, str) and name.startswith("bf"):
            other = "; NumPy has no bfloat16, and 'f2' is as large. A model on paper takes 'bfloat16'"
        raise ValueError(
            f"{owner} needs a floating dtype {got(dtype) if found is None else f'(got {name})'}{other}"
        )
    return found


class ScheduleError(ValueError):
    """The schedule is not one that a training step can run; the message says why."""


class DeadlockError(ScheduleError):
    """Every action is there, but in an order in which some devices wait for ever."""


class MemoryLimitError(ValueError):
    """A device would hold more than it may; the message says when, what, and what would help."""


class DivergedError(ArithmeticError):
    """The loss is no longer finite; ``losses`` has that of each mini-batch before."""

    def __init__(self, sentence: str, losses: Sequence[float] = ()):
        super().__init__(sentence)
        self.losses = list(losses)


def require_room(partitions: int, devices: Sequence[Hashable]) -> tuple[Hashable, ...]:
    """The names; IndexError, in torchgpipe's words, for fewer than partitions, TypeError for no names."""
    try:
        hash(names := tuple(listed("devices", "a list", devices)))
        wrong = [name for name in names if name != name]  # NaN, which is no name to find again
    except Exception:
        wrong = [devices]
    if wrong:
        raise TypeError(f"devices lists a name for each of {partitions}, such as 'a' {got(devices)}")
    if partitions > len(names):
        raise IndexError(
            "too few devices to hold given partitions "
            f"(devices: {len(names)}, partitions: {partitions}); a device may be listed again"
        )
    return names
