"""The replies of a check: a verdict and a sentence. A check gives one back, or raises it from any depth."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from html import escape
from numbers import Integral
from numbers import Real as AnyReal
from typing import TypeGuard

import numpy as np

from gpipe_sim.errors import Real

MOST = 800  #: characters of a reply
NOTHING_BACK = "it gives nothing back. What should come after return?"


@dataclass(unsafe_hash=True, repr=False)
class Reply(Exception):
    """A verdict and a sentence; a notebook shows both. Raised, it ends the check, which gives it back."""

    verdict: str
    text: str

    def __post_init__(self):
        if len(self.text) > MOST:  # a student's list of a million numbers is quoted in the middle
            vars(self)["text"] = f"{self.text[: MOST // 2]} ... {self.text[-MOST // 2 :]}"

    def __setattr__(self, name: str, value: object) -> None:
        """A reply stays as it was given; Python may note on it where it was raised."""
        if name in vars(self):
            raise AttributeError(f"a reply's {name} stays as it was given")
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"{self.verdict}: {self.text}"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """What a notebook shows: a paragraph breaks between words, however narrow the page is."""
        return f"<p><b>{self.verdict}</b>: {escape(self.text)}</p>"


correct = partial(Reply, "correct")
almost = partial(Reply, "almost")
keep_working = partial(Reply, "keep working")
your_turn = partial(Reply, "your turn")


def is_number(value: object) -> TypeGuard[Real]:
    """Whether the value is a number that fits into a float; very large whole numbers do not."""
    if isinstance(value, bool) or not isinstance(value, AnyReal):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def is_array(found: object) -> TypeGuard[np.ndarray]:
    """Whether it is an array of numbers."""
    return isinstance(found, np.ndarray) and found.dtype.kind in "fiu"


def is_whole(value: object) -> TypeGuard[int]:
    """Whether the value is a whole number by its type: one of Python's or NumPy's, and no bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def apart(one: Real, other: Real) -> Real:
    """How far two numbers are from each other."""
    return one - other if one > other else other - one


def listed(values: Iterable[object]) -> str:
    """The values with commas between them."""
    return ", ".join(map(str, values))


def shown(found: object) -> str:
    """What a student returned, sent or kept, in a few words."""
    if isinstance(found, np.ndarray):
        of = f"shape {found.shape}" if is_array(found) else found.dtype
        return f"an array of {of}"
    if found is None or isinstance(found, str | bool):
        return repr(found)
    if is_number(found):
        return "one number"
    if isinstance(found, tuple | list):
        return f"a {type(found).__name__} of {len(found)}"
    return f"an object of type {type(found).__name__}"


def quoted(found: object) -> str:
    """It as Python writes it, if that is short."""
    return text if len(text := repr(found)) < 200 and not isinstance(found, np.ndarray) else shown(found)
