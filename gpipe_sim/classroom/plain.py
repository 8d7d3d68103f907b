"""Plain data between two processes that do not trust each other: JSON, and nothing that runs when it is read.

Numbers, texts, arrays, actions, and tuples, lists, sets and dicts of them arrive as what they were. Of
anything else arrives what it is called and how it is written. A list, dict, set or array that both sides know
is named by its number, so what was the same object stays one, and what changed in it can be told.
"""

import base64
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.families import SCHEDULES, WITHOUT_FLUSH

FAMILIES: dict[str, Any] = {family.__name__: family for family in (*SCHEDULES, *WITHOUT_FLUSH)}
MOST_STEPS = 100_001  #: values of a generator
MOST_DIGITS = 4000  #: of a whole number
MOST = 100_000_000  #: bytes of one message
MOST_WRITTEN = 300  #: characters of how a strange thing is written
Shared = list | dict | set | np.ndarray


@dataclass(frozen=True, repr=False)
class Strange:
    """What is no plain data: how it is written."""

    kind: str
    written: str

    def __repr__(self) -> str:
        return self.written


class Shelf:
    """Objects that both sides know, by number; what is written and what is read come in the same order."""

    def __init__(self) -> None:
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}
        #: What both sides know to be in an object, if that names no new one.
        self.told: dict[int, str | bytes | None] = {}

    def add(self, value: Any) -> None:
        self.numbers[id(value)] = number = len(self.objects)
        self.objects.append(value)
        if isinstance(value, np.ndarray):
            self.told[number] = value.tobytes()

    def news(self, number: int, other: Callable[[Any], list] | None = None) -> list | None:
        """What is in an object, unless both sides know that; from now on they do."""
        value, many = self.objects[number], len(self.objects)
        if isinstance(value, np.ndarray):
            before, self.told[number] = self.told.get(number), value.tobytes()
            return None if before == self.told[number] else self.inside(value, other)
        found = self.inside(value, other)
        written = repr(found)  # 1, 1.0 and True are equal, and not the same
        if written == self.told.get(number):
            return None
        self.told[number] = written if len(self.objects) == many else None
        return found

    # ------------------------------------------------------------------ to JSON
    def write(self, value: Any, other: Callable[[Any], list] | None = None) -> Any:
        """As JSON has it; ``other`` writes what is not plain."""
        if value is None or type(value) in (bool, str, float):
            return value
        if type(value) is int:
            return (
                value if value.bit_length() < 3 * MOST_DIGITS else ["o", "int", "a very large whole number"]
            )
        if isinstance(value, Shared):
            if id(value) in self.numbers:
                return ["r", self.numbers[id(value)]]
            if not isinstance(value, np.ndarray):
                self.add(value)
                return self.inside(value, other)
            written = self.inside(value, other)
            if written[0] != "o":
                self.add(value)
            return written
        return self._fixed(value, other)

    def inside(self, value: Shared, other: Callable[[Any], list] | None = None) -> list:
        """What is in a list, dict, set or array."""

        def each(values: Iterable) -> list:
            return [self.write(one, other) for one in values]

        if isinstance(value, np.ndarray):
            if value.dtype.kind not in "biufcSU":
                return ["o", "ndarray", f"an array of {value.dtype}"]
            plain = ["a", value.dtype.str, [*value.shape], base64.b64encode(value.tobytes()).decode()]
            return self._view(value, plain)
        if isinstance(value, dict):
            return ["d", each(value), each(value.values())]
        return ["l" if isinstance(value, list) else "s", *each(value)]

    def _view(self, value: np.ndarray, plain: list) -> list:
        """An array that looks into another says which part of it."""
        root = value
        while isinstance(root.base, np.ndarray):
            root = root.base
        if root is value or not root.flags.c_contiguous:
            return plain
        start = value.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        return ["v", self.write(root), start, [*value.strides], *plain[1:]]

    def _fixed(self, value: Any, other: Callable[[Any], list] | None) -> list:
        if isinstance(value, Kind):
            return ["K", str(value)]
        if isinstance(value, Action):
            return ["A", *(self.write(part, other) for part in value)]
        if isinstance(value, tuple):
            return ["t", *(self.write(one, other) for one in value)]
        if isinstance(value, frozenset):
            return ["z", *(self.write(one, other) for one in value)]
        if isinstance(value, Fraction):
            return ["q", str(value)[:MOST_DIGITS]]
        if isinstance(value, complex) and type(value) is complex:
            return ["c", value.real, value.imag]
        if isinstance(value, Iterator):
            return ["i", *(self.write(one, other) for one in islice(value, MOST_STEPS))]
        if isinstance(value, bytes):
            return ["b", base64.b64encode(value).decode()]
        if isinstance(value, range):
            return ["g", value.start, value.stop, value.step]
        if isinstance(value, np.generic) and value.dtype.kind in "biufcSU":
            return ["n", value.dtype.str, base64.b64encode(value.tobytes()).decode()]
        if isinstance(value, str | int | float) and not isinstance(value, Enum):
            return self.write(next(kind for kind in (str, int, float) if isinstance(value, kind))(value))
        if isinstance(value, type) and FAMILIES.get(name := value.__name__) is value:
            return ["F", name]
        return other(value) if other else strange(value)

    # ---------------------------------------------------------------- from JSON
    def read(self, found: Any, other: Callable[[list], Any] | None = None) -> Any:
        """What was written; ValueError for what nobody writes."""
        if not isinstance(found, list):
            return found
        tag, *parts = found
        if tag == "r":
            return self.objects[parts[0]]
        if tag in "lds":
            value: Any = {"l": list, "d": dict, "s": set}[tag]()
            self.add(value)
            self.fill(value, found, other)
            return value
        if tag == "a":
            self.add(array := self._array(*parts))
            return array
        if tag == "v":
            return self._read_view(*parts)
        return self._read_fixed(tag, parts, other)

    def fill(self, value: Shared, found: list, other: Callable[[list], Any] | None = None) -> None:
        """Put in it what is written, in place of what was there."""
        tag, *parts = found
        if isinstance(value, np.ndarray):
            if tag == "a" and value.shape == tuple(parts[1]) and value.flags.writeable:
                value[...] = self._array(*parts)
            return
        value.clear()
        if isinstance(value, dict):
            keys, values = ([self.read(one, other) for one in each] for each in parts)
            value.update(zip(keys, values, strict=True))
        elif isinstance(value, list):
            value.extend(self.read(one, other) for one in parts)
        else:
            value.update(self.read(one, other) for one in parts)

    @staticmethod
    def _array(dtype: str, shape: list[int], data: str) -> np.ndarray:
        if np.dtype(dtype).kind not in "biufcSU":
            raise ValueError(f"no plain array is of {dtype}")
        return np.frombuffer(base64.b64decode(data), dtype=dtype).reshape(shape).copy()

    def _read_view(self, root: list, start: int, strides: list[int], *plain: Any) -> np.ndarray:
        base, array = self.read(root), self._array(*plain)
        if isinstance(base, np.ndarray) and base.flags.c_contiguous:
            array = np.ndarray(
                array.shape, array.dtype, base, start, strides
            )  # ValueError if it is not inside
        self.add(array)
        return array

    def _read_fixed(self, tag: str, parts: list, other: Callable[[list], Any] | None) -> Any:
        if tag in "tziA":
            made: dict[str, Callable[[list], Any]] = {"t": tuple, "z": frozenset, "i": iter}
            return made.get(tag, lambda of: Action(*of))([self.read(one, other) for one in parts])
        if tag == "n":
            return self._array(parts[0], [1], parts[1])[0]
        simple: dict[str, Callable[..., Any]] = {
            "q": Fraction,
            "c": complex,
            "g": range,
            "K": Kind,
            "F": FAMILIES.__getitem__,
            "b": base64.b64decode,
            "o": Strange,
        }
        if tag in simple:
            return simple[tag](*parts)
        if other is None:
            raise ValueError(f"nothing plain begins with {tag!r}")
        return other([tag, *parts])


def strange(value: Any) -> list:
    """Of what is no plain data: its type, and how it is written."""
    try:
        written = repr(value)
    except Exception as error:
        written = f"what cannot be written ({type(error).__name__})"
    return ["o", type(value).__name__, written[:MOST_WRITTEN]]
