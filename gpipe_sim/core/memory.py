"""What a simulated device holds: arrays by category, and a meter that counts their bytes.

The meter counts bytes that exist. Views of the same array are counted once, as the one root array that owns
the bytes, under the first category of ``CATEGORIES`` that holds it: a boundary input that the first layer
also saves is a boundary input. A message on its way belongs to its receiver. A sample is taken when an
action ends or a message is sent. The outputs of the last stage go to the host, and are not counted.

What there is while an action runs is told apart (``MemoryTrace.inside``), by another meter: see ``METER``.
"""

import weakref
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import numpy as np

from gpipe_sim.core.actions import Action, OverlapFB
from gpipe_sim.core.boundary import Boundary
from gpipe_sim.core.meta_array import ARRAYS, root_of
from gpipe_sim.core.rules import BOUNDARY, MESSAGES, PENDING, SAVED
from gpipe_sim.core.timeline import Span, number, rounded
from gpipe_sim.errors import Real, one_of, require_in

PARAMETERS, GRADIENTS, STATE = "parameters", "gradients", "optimizer state"
OLDER = "older weights"  #: versions that an update has replaced and a later action still uses
#: In order of precedence.
CATEGORIES = (PARAMETERS, OLDER, GRADIENTS, STATE, BOUNDARY, SAVED, PENDING, MESSAGES)
ACTIVATIONS = (BOUNDARY, SAVED, PENDING)  #: what microbatches in flight hold
_RANK = {category: rank for rank, category in enumerate(CATEGORIES)}


class Memory:
    """What one device holds, by category and key; this one does not count bytes."""

    def __init__(self):
        self.held: dict[tuple[str, Hashable], Any] = {}

    def keep(self, category: str, key: Hashable, value: Any) -> None:
        self.held[category, key] = value

    def came_in(self, key: Hashable, boundary: Boundary) -> None:
        """Note what came into a stage: wherever the stage keeps it, it is a boundary input."""

    def take(self, category: str, key: Hashable) -> Any:
        """Hand a value out and forget it."""
        return self.held.pop((category, key))

    def begin(self, span: Span) -> None:
        """Called when an action starts; in a pair, when each of its two parts does."""

    def look(self, stays: Any, passes: Boundary | None = None) -> None:
        """Called between the layers of an action: what the last one left, and what passes on to the next."""

    def watching(self) -> AbstractContextManager:
        """Around an action: a meter then sees what layers that are made of layers hold meanwhile."""
        return nullcontext()

    def sample(self, time: Real, instant: bool = False) -> None:
        """Called when an action ends or a message is sent; a meter then notes what is held."""


class MeteredMemory(Memory):
    """A memory that counts bytes. ``samples`` are (time, bytes per category), in order of time."""

    def __init__(self):
        super().__init__()
        self.samples: list[tuple[Real, tuple[int, ...]]] = []
        self._bytes = [0] * len(CATEGORIES)
        self._roots: dict[int, tuple[int, list[int]]] = {}  # id -> nbytes, holders per category
        self._boundaries: dict[Hashable, list[weakref.ref]] = {}  # what came in from outside, by key
        self._counted: dict[tuple[str, Hashable], list[tuple[np.ndarray, int]]] = {}

    def keep(self, category: str, key: Hashable, value: Any) -> None:
        super().keep(category, key, value)
        of_stage = category in (SAVED, PENDING)
        came_in = [id(known()) for known in self._boundaries.get(key, ())] if of_stage else ()
        ranks = (_RANK[category], _RANK[BOUNDARY])
        found = roots_by_id(value).items()
        self._count(category, key, [(root, ranks[root_id in came_in]) for root_id, root in found])

    def came_in(self, key: Hashable, boundary: Boundary) -> None:
        self._boundaries[key] = [weakref.ref(root) for root in roots(boundary)]

    def take(self, category: str, key: Hashable) -> Any:
        for root, rank in self._counted.pop((category, key)):
            nbytes, holders = self._roots[id(root)]
            self._bytes[_first(holders)] -= nbytes
            holders[rank] -= 1
            if any(holders):
                self._bytes[_first(holders)] += nbytes
            else:
                del self._roots[id(root)]
                self.let_go(root)
        return super().take(category, key)

    def let_go(self, root: np.ndarray) -> None:
        """Called when nothing that is held keeps an array any more."""

    def _count(self, category: str, key: Hashable, ranked: list[tuple[np.ndarray, int]]) -> None:
        self._counted[category, key] = ranked
        for root, rank in ranked:
            if id(root) in self._roots:
                nbytes, holders = self._roots[id(root)]
                self._bytes[_first(holders)] -= nbytes
            else:
                nbytes, holders = self._roots[id(root)] = root.nbytes, [0] * len(CATEGORIES)
            holders[rank] += 1
            self._bytes[_first(holders)] += nbytes

    def sample(self, time: Real, instant: bool = False) -> None:
        """Keep the last sample of each moment; an action of length zero (``instant``) appends its own."""
        if self.samples and self.samples[-1][0] == time and not instant:
            self.samples.pop()
        self.samples.append((time, tuple(self._bytes)))

    def trace(self) -> "MemoryTrace":
        """The samples as columns."""
        times, rows = zip(*self.samples, strict=True)
        return MemoryTrace(times, dict(zip(CATEGORIES, zip(*rows, strict=True), strict=True)))


@rounded
class Inside(NamedTuple):
    """The most bytes, of all categories, that a device held while an action ran, from start to end."""

    action: Action | OverlapFB | None
    bytes: int
    start: Real
    end: Real


@rounded
class Moment(NamedTuple):
    """What a device held from a time on, when this action had ended: None for what came before or between."""

    time: Real
    bytes: int
    action: Action | OverlapFB | None


@dataclass(frozen=True, repr=False)
class MemoryTrace:
    """What one device held over a step: ``bytes[category][i]`` from ``times[i]`` until the next time.

    That is where actions end. ``inside`` has the most that was held while each action ran, in their order;
    a pair has an entry for each of its two parts.
    """

    times: tuple[Real, ...]
    bytes: dict[str, tuple[int, ...]]
    inside: tuple[Inside, ...] = ()

    def __repr__(self) -> str:
        """One line, however many samples there are."""
        at, inside = self.peak_moment, self.peak_inside
        after = f" after {at.action}" if at.action else ""
        while_ = f", {inside.bytes:,} while {inside.action} runs" if inside.action else ""
        return f"<MemoryTrace: at most {at.bytes:,} bytes{after} at {number(at.time)}{while_}>"

    def over_time(self, *categories: str) -> tuple[int, ...]:
        """Bytes at each of ``times``: the sum of the named categories, or of all if none is named.

        ValueError for a category that does not exist.
        """
        chosen = (self.bytes[_category(each)] for each in categories or CATEGORIES)
        return tuple(map(sum, zip(*chosen, strict=True)))

    def peak(self, *categories: str) -> int:
        """The most bytes held where an action ends: of the named categories, or of all if none is named."""
        return max(self.over_time(*categories))

    def only(self, *categories: str) -> "MemoryTrace":
        """The same trace with nothing in all other categories, and without ``inside``.

        ValueError for one that does not exist.
        """
        nothing = dict.fromkeys(self.bytes, (0,) * len(self.times))
        return MemoryTrace(self.times, nothing | {_category(each): self.bytes[each] for each in categories})

    @property
    def peak_moment(self) -> Moment:
        """When ``peak()`` was first reached, and which action had just ended then."""
        held = self.over_time()
        i = held.index(max(held))
        ended = [*dict.fromkeys(each.action for each in self.inside if each.end == self.times[i])]
        later = self.times[i + 1 :].count(self.times[i])  # an action of length zero has a sample of its own
        return Moment(self.times[i], held[i], ended[-1 - later] if later < len(ended) else None)

    @property
    def peak_inside(self) -> Inside:
        """The most bytes held at any time, also while an action runs, and the first action that has them.

        The action is None, and the bytes are ``peak()``, for a trace without ``inside``.
        """
        at = self.peak_moment
        nothing = Inside(None, at.bytes, at.time, at.time)
        return max(self.inside, key=lambda each: each.bytes, default=nothing)

    @property
    def activation_peak(self) -> int:
        """The most bytes of boundary inputs, saved activations and what W still needs, together."""
        return self.peak(*ACTIVATIONS)

    def at(self, time: Real) -> dict[str, int]:
        """Bytes per category at a time: those of the last sample up to then."""
        require_in("MemoryTrace.at", "time", time, -inf, inf)
        i = max(0, bisect_right(self.times, time) - 1)
        return {category: held[i] for category, held in self.bytes.items()}


def _category(name: str) -> str:
    return one_of("a memory trace", "category", name, CATEGORIES)


def roots(value: Any) -> Iterator[np.ndarray]:
    """The distinct root arrays inside nested tuples, lists and dicts."""
    return iter(roots_by_id(value).values())


def roots_by_id(value: Any) -> dict[int, np.ndarray]:
    found: dict[int, np.ndarray] = {}
    _collect((value,), found)
    return found


def _collect(values: Iterable[Any], found: dict[int, np.ndarray]) -> None:
    for value in values:
        if isinstance(value, ARRAYS):
            root = value if value.base is None else root_of(value)
            found[id(root)] = root
        elif isinstance(value, (tuple, list, dict)):
            _collect(value.values() if isinstance(value, dict) else value, found)


def _first(holders: list[int]) -> int:
    rank = 0  # a loop, because a generator takes twice as long, and this runs for every array
    while not holders[rank]:
        rank += 1
    return rank
