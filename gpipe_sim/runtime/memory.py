"""What a simulated device holds: arrays by category, and a meter that counts their bytes.

The meter counts bytes that exist. Views of the same array are counted once, as the one root array that owns
the bytes, under the first category of ``CATEGORIES`` that holds it: a boundary input that the first layer
also saves is a boundary input. A message on its way belongs to its receiver. A sample is taken when an
action ends or a message is sent; what an action needs only while it runs is not counted. The outputs of the
last stage go to the host, and are not counted either.
"""

import weakref
from bisect import bisect_right
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from math import inf
from numbers import Real
from typing import Any

import numpy as np

from gpipe_sim.errors import one_of, require_in
from gpipe_sim.schedule.rules import BOUNDARY, MESSAGES, PENDING, SAVED

PARAMETERS, GRADIENTS = "parameters", "gradients"
#: In order of precedence.
CATEGORIES = (PARAMETERS, GRADIENTS, BOUNDARY, SAVED, MESSAGES)
_RANK = {category: rank for rank, category in enumerate(CATEGORIES)}
_RANK[PENDING] = _RANK[SAVED]  # between I and W, what is left counts as saved activations


class Memory:
    """What one device holds, by category and key; this one does not count bytes."""

    def __init__(self):
        self.held: dict[tuple[str, Hashable], Any] = {}

    def keep(self, category: str, key: Hashable, value: Any) -> None:
        self.held[category, key] = value

    def came_in(self, key: Hashable, boundary: np.ndarray) -> None:
        """Note that this array came into a stage: wherever the stage keeps it, it is a boundary input."""

    def take(self, category: str, key: Hashable) -> Any:
        """Hand a value out and forget it."""
        return self.held.pop((category, key))

    def sample(self, time: Real, instant: bool = False) -> None:
        """Called when an action ends or a message is sent; a meter then notes what is held."""


class MeteredMemory(Memory):
    """A memory that counts bytes. ``samples`` are (time, bytes per category), in order of time."""

    def __init__(self):
        super().__init__()
        self.samples: list[tuple[Real, tuple[int, ...]]] = []
        self._bytes = [0] * len(CATEGORIES)
        self._roots: dict[int, tuple[int, list[int]]] = {}  # id -> nbytes, holders per category
        self._boundaries: dict[Hashable, weakref.ref] = {}  # what came in from outside, by key
        self._counted: dict[tuple[str, Hashable], list[tuple[int, int]]] = {}

    def keep(self, category: str, key: Hashable, value: Any) -> None:
        super().keep(category, key, value)
        boundary = (
            self._boundaries[key]() if category in (SAVED, PENDING) and key in self._boundaries else None
        )
        ranks = (_RANK[category], _RANK[BOUNDARY])
        self._count(category, key, [(root, ranks[root is boundary]) for root in roots(value)])

    def came_in(self, key: Hashable, boundary: np.ndarray) -> None:
        self._boundaries[key] = weakref.ref(root_of(boundary))

    def take(self, category: str, key: Hashable) -> Any:
        for root_id, rank in self._counted.pop((category, key)):
            nbytes, holders = self._roots[root_id]
            self._bytes[_first(holders)] -= nbytes
            holders[rank] -= 1
            if any(holders):
                self._bytes[_first(holders)] += nbytes
            else:
                del self._roots[root_id]
        return super().take(category, key)

    def _count(self, category: str, key: Hashable, ranked: list[tuple[np.ndarray, int]]) -> None:
        self._counted[category, key] = [(id(root), rank) for root, rank in ranked]
        for root, rank in ranked:
            nbytes, holders = self._roots.setdefault(id(root), (root.nbytes, [0] * len(CATEGORIES)))
            if any(holders):
                self._bytes[_first(holders)] -= nbytes
            holders[rank] += 1
            self._bytes[_first(holders)] += nbytes

    def sample(self, time: Real, instant: bool = False) -> None:
        """Keep the last sample of each moment; an action of length zero (``instant``) appends its own."""
        if self.samples and self.samples[-1][0] == time and not instant:
            self.samples.pop()
        self.samples.append((time, tuple(self._bytes)))


@dataclass(frozen=True, repr=False)
class MemoryTrace:
    """What one device held over a step: ``bytes[category][i]`` from ``times[i]`` until the next time."""

    times: tuple[Real, ...]
    bytes: dict[str, tuple[int, ...]]

    def __repr__(self) -> str:
        """One line, however many samples there are."""
        return f"<MemoryTrace of {len(self.times)} samples, peak {self.peak():,} bytes>"

    def over_time(self, *categories: str) -> tuple[int, ...]:
        """Bytes at each of ``times``: the sum of the named categories, or of all if none is named.

        ValueError for a category that does not exist.
        """
        for category in categories:
            one_of("a memory trace", "category", category, CATEGORIES)
        chosen = categories or CATEGORIES
        return tuple(map(sum, zip(*(self.bytes[category] for category in chosen), strict=True)))

    def peak(self, *categories: str) -> int:
        """The most bytes held at one time: the sum of the named categories, or of all if none is named."""
        return max(self.over_time(*categories))

    def only(self, *categories: str) -> "MemoryTrace":
        """The same trace with nothing in all other categories; ValueError for one that does not exist."""
        for category in categories:
            one_of("a memory trace", "category", category, CATEGORIES)
        nothing = (0,) * len(self.times)
        return MemoryTrace(
            self.times, {name: held if name in categories else nothing for name, held in self.bytes.items()}
        )

    @property
    def activation_peak(self) -> int:
        """The most bytes of boundary inputs and saved activations together."""
        return self.peak(BOUNDARY, SAVED)

    def at(self, time: Real) -> dict[str, int]:
        """Bytes per category at a time: those of the last sample up to then."""
        require_in("MemoryTrace.at", "time", time, -inf, inf)
        i = max(0, bisect_right(self.times, time) - 1)
        return {category: held[i] for category, held in self.bytes.items()}


def trace(memory: MeteredMemory) -> MemoryTrace:
    """The samples of a meter as columns."""
    times, rows = zip(*memory.samples, strict=True)
    return MemoryTrace(times, dict(zip(CATEGORIES, zip(*rows, strict=True), strict=True)))


def roots(value: Any) -> Iterator[np.ndarray]:
    """The distinct root arrays inside nested tuples, lists and dicts."""
    found: dict[int, np.ndarray] = {}
    _collect(value, found)
    return iter(found.values())


def _collect(value: Any, found: dict[int, np.ndarray]) -> None:
    if isinstance(value, np.ndarray):
        root = root_of(value)
        found[id(root)] = root
    elif isinstance(value, (tuple, list)):
        for item in value:
            _collect(item, found)
    elif isinstance(value, dict):
        for item in value.values():
            _collect(item, found)


def root_of(array: np.ndarray) -> np.ndarray:
    """The array that owns the bytes which this one views."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _first(holders: list[int]) -> int:
    return next(rank for rank, count in enumerate(holders) if count)
