"""The cheapest paths through a chain of layers, in bytes and FLOPs, found exactly.

A path chooses a way through each layer; its bytes and FLOPs are sums. Of the paths to a state, only those are
followed that no other beats in both. With a budget, those are dropped too whose best end is worse than a path
that is known to fit (``Bound``).
"""

from collections import defaultdict
from collections.abc import Sequence
from math import floor, inf
from numbers import Real
from typing import Any, NamedTuple

State = frozenset[str]  #: which of the arrays that pass between two layers are kept
START: State = frozenset()
MOST = 20_000  #: paths that are followed at once, which take some seconds


class Way(NamedTuple):
    """One way through a layer, from a state: what it adds, and what of its output is kept then."""

    recompute: str
    bytes: int
    flops: int
    kept: State

    def price(self, per_byte: int, per_flop: int) -> int:
        return per_byte * self.bytes + per_flop * self.flops


class Chain(NamedTuple):
    """For each layer and state before it, the ways through; and what the loss keeps, for each state."""

    layers: list[dict[State, list[Way]]]
    end: dict[State, int]

    def total(self, recompute: Sequence[str]) -> tuple[int, int]:
        """The (bytes, FLOPs) of a choice for every layer."""
        kept, size, flops = START, 0, 0
        for ways, wanted in zip(self.layers, recompute, strict=True):
            way = next(way for way in ways[kept] if way.recompute == wanted)
            kept, size, flops = way.kept, size + way.bytes, flops + way.flops
        return size + self.end[kept], flops


class Found(NamedTuple):
    """A path: what is recomputed of each layer, and its sums."""

    recompute: tuple[str, ...]
    bytes: int
    flops: int


_Point = tuple[int, int, Any]  #: bytes, FLOPs, and the way there: (the way before, what is recomputed)


def best(chain: Chain, bound: "Bound | None" = None) -> list[Found]:
    """The paths that no other beats, from the fewest bytes to the most; with a bound, only those near it."""
    states: dict[State, list[_Point]] = {START: [(0, 0, None)]}
    for i, ways in enumerate(chain.layers, start=1):
        reached: dict[State, list[_Point]] = defaultdict(list)
        for before, points in states.items():
            for way in ways[before]:
                reached[way.kept] += (
                    (size + way.bytes, flops + way.flops, (path, way.recompute))
                    for size, flops, path in points
                )
        states = {kept: _unbeaten(points) for kept, points in reached.items()}
        if bound:
            states = {kept: bound.worth(i, kept, points) for kept, points in states.items()}
        if sum(map(len, states.values())) > MOST:
            raise ValueError(
                f"of {len(chain.layers)} layers, more than {MOST:,} choices may be the best; "
                "give recompute_plan a budget, or ask for layers of fewer sizes"
            )
    ends = [(size + chain.end[kept], *rest) for kept, points in states.items() for size, *rest in points]
    return [Found(_words(path), size, flops) for size, flops, path in _unbeaten(ends)]


def _unbeaten(points: list[_Point]) -> list[_Point]:
    """Those with fewer FLOPs than any with as few bytes, by bytes."""
    found, fewest = [], inf
    for point in sorted(points, key=lambda point: point[:2]):
        if point[1] < fewest:
            found.append(point)
            fewest = point[1]
    return found


def _words(path: Any) -> tuple[str, ...]:
    found = []
    while path:
        path, word = path
        found.append(word)
    return tuple(reversed(found))


class _Priced(NamedTuple):
    """The cheapest path at a price for each byte and each FLOP."""

    per_byte: int
    per_flop: int
    rest: list[dict[State, int]]  #: from after so many layers, and a state, to the end
    bytes: int
    flops: int


def _priced(chain: Chain, per_byte: int, per_flop: int) -> _Priced:
    rest = [{kept: per_byte * size for kept, size in chain.end.items()}]
    chosen = []
    for ways in reversed(chain.layers):
        costs = {
            kept: [way.price(per_byte, per_flop) + rest[-1][way.kept] for way in each]
            for kept, each in ways.items()
        }
        rest.append({kept: min(each) for kept, each in costs.items()})
        chosen.append({kept: ways[kept][each.index(min(each))] for kept, each in costs.items()})
    kept, recompute = START, []
    for way in reversed(chosen):
        recompute.append(way[kept].recompute)
        kept = way[kept].kept
    return _Priced(per_byte, per_flop, rest[::-1], *chain.total(recompute))


class Bound:
    """How few FLOPs the rest of a path takes at least, within a budget: Lagrange's relaxation, in integers.

    At a price for each byte, the cheapest path of all is easy to find, and no path within the budget costs
    less. The price is the one at which a path that fits costs as much as one that is too large, and no path
    less than these two.
    """

    def __init__(self, chain: Chain, budget: Real):
        self.budget = floor(budget)
        most = [
            [max(way[k] for each in ways.values() for way in each) for ways in chain.layers] for k in (1, 2)
        ]
        all_bytes, all_flops = sum(most[0]) + max(chain.end.values()) + 1, sum(most[1]) + 1
        self.least = fits = _priced(chain, all_flops, 1)  # the fewest bytes, and of these the fewest FLOPs
        if fits.bytes > budget:
            raise ValueError(
                f"recompute_plan cannot keep {budget:,} bytes or fewer: the least is {fits.bytes:,} bytes, "
                f"for which {fits.flops:,} FLOPs are computed again"
            )
        self.at = fastest = _priced(chain, 1, all_bytes)
        if fastest.bytes <= budget:
            fits = fastest
        else:
            fits, self.at = self._between(chain, fits, fastest)
        self.known = fits.flops  #: of a path within the budget

    def _between(self, chain: Chain, fits: _Priced, too_large: _Priced) -> tuple[_Priced, _Priced]:
        """(a path that fits, the cheapest at the price where it costs as much as one that does not)."""
        while True:
            at = _priced(chain, fits.flops - too_large.flops, too_large.bytes - fits.bytes)
            if at.rest[0][START] == at.per_byte * fits.bytes + at.per_flop * fits.flops:
                return fits, at
            if at.bytes <= self.budget:
                fits = at
            else:
                too_large = at

    def worth(self, i: int, kept: State, points: list[_Point]) -> list[_Point]:
        """The points after ``i`` layers that may end within the budget, as well as the path that is known."""
        room = self.budget - self.least.rest[i][kept] // self.least.per_byte  # without the FLOPs in its price
        per_byte, per_flop = self.at.per_byte, self.at.per_flop
        most = per_flop * self.known + per_byte * self.budget - self.at.rest[i][kept]
        return [
            point
            for point in points
            if point[0] <= room and per_byte * point[0] + per_flop * point[1] <= most
        ]
