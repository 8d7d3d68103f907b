"""What to recompute: the layers of a stage that cost the fewest FLOPs for a budget of bytes, found exactly.

Each layer keeps everything that it saves, or all but its attention weights, or only its input. What that
frees depends on its neighbours: an output that a layer saves is also the input that the next one saves,
and counts once. So the layers are a chain with two states between any two, whether the array that passes
there is kept already or not (and as many more if a mask travels along):

    layer 0        layer 1        layer 2
    . -----------> o -----------> . -----------> .      o: the array here is kept, .: it is not

A plan is a path through the chain; its bytes and FLOPs are sums. Of the paths to a state, only those are
followed that no other beats in both.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import floor, inf
from typing import NamedTuple

from gpipe_sim.core.layers import Layer
from gpipe_sim.errors import Real, got, listed, one_of, require, require_in, whole
from gpipe_sim.memory.limit import in_bytes
from gpipe_sim.memory.profile import Array, LayerProfile, Profile, Sizes, size_of
from gpipe_sim.transformers.blocks import Checkpoint

NOTHING, ATTENTION, ALL = "nothing", "attention", "all"
WAYS = (NOTHING, ATTENTION, ALL)  #: what of a layer may be recomputed
MOST = 20_000  #: paths that are followed at once, which take some seconds
State = frozenset[str]  #: which of the arrays that pass between two layers are kept
START: State = frozenset()
_Point = tuple[int, int, tuple[str, ...]]  #: bytes, FLOPs, and what is recomputed of each layer


@dataclass(frozen=True, repr=False)
class RecomputePlan:
    """What of each layer of a stage is recomputed: "nothing", "attention" or "all"; and what that comes to.

    ``bytes`` are kept of one microbatch from its forward to its backward, and ``flops`` are computed again.
    """

    recompute: tuple[str, ...]
    bytes: int
    flops: int

    def __repr__(self) -> str:
        """One line, however many layers there are."""
        counts = ", ".join(f"{self.recompute.count(way)} {way}" for way in WAYS if way in self.recompute)
        return f"<RecomputePlan {counts}; keeps {in_bytes(self.bytes)}, {self.flops:.4g} FLOPs again>"


class Freed(NamedTuple):
    """What one layer of a stage frees if it alone recomputes this of it, for one microbatch."""

    layer: int
    recompute: str
    bytes: int  #: below 0 if the input that it then keeps is larger
    flops: int

    @property
    def per_flop(self) -> float:
        """Bytes freed for each FLOP; infinite where some are freed and nothing is multiplied."""
        if self.flops:
            return self.bytes / self.flops
        return inf if self.bytes > 0 else 0.0


class _Way(NamedTuple):
    """One way through a layer, from a state: what it adds, and what of its output is kept then."""

    recompute: str
    bytes: int
    flops: int
    kept: State


class _Chain(NamedTuple):
    """For each layer and state before it, the ways through; and what the loss keeps, for each state."""

    layers: list[dict[State, list[_Way]]]
    end: dict[State, int]

    def total(self, recompute: Sequence[str]) -> tuple[int, int]:
        """The (bytes, FLOPs) of a choice for every layer."""
        kept, size, flops = START, 0, 0
        for ways, wanted in zip(self.layers, recompute, strict=True):
            way = next(way for way in ways[kept] if way.recompute == wanted)
            kept, size, flops = way.kept, size + way.bytes, flops + way.flops
        return size + self.end[kept], flops


def recompute_plan(profile: Profile, budget: Real, stage: int = 0, microbatches: int = 1) -> RecomputePlan:
    """The fewest recomputed FLOPs with which a stage keeps at most ``budget`` bytes of a microbatch.

    The budget is for the largest of so many microbatches, for everything that is kept from its forward to its
    backward. Of plans with as few FLOPs it is one with the fewest bytes. What is needed while an action runs
    is not counted. ValueError for a budget below the least possible, which says what that takes; and for a
    hundred layers or so of as many sizes, where too many choices are the best for some budget.
    """
    plans = recompute_frontier(profile, stage, microbatches)
    budget = require_in("recompute_plan", "budget", budget, 0, inf)
    if not (within := [plan for plan in plans if plan.bytes <= budget]):
        raise ValueError(
            f"recompute_plan cannot keep {floor(budget):,} bytes or fewer: the least is {plans[0].bytes:,} "
            f"bytes, for which {plans[0].flops:,} FLOPs are computed again"
        )
    return within[-1]


def recompute_frontier(profile: Profile, stage: int = 0, microbatches: int = 1) -> tuple[RecomputePlan, ...]:
    """Every plan that no other beats in both bytes and FLOPs, from the fewest bytes to the most.

    One is given for each pair of bytes and FLOPs. ValueError if there are more than 20,000, as a hundred
    layers of as many sizes may have.
    """
    chain = _read(profile, stage, microbatches)
    states: dict[State, list[_Point]] = {START: [(0, 0, ())]}
    for ways in chain.layers:
        reached: dict[State, list[_Point]] = defaultdict(list)
        for before, points in states.items():
            for word, more, again, kept in ways[before]:
                reached[kept] += (
                    (size + more, flops + again, (*words, word)) for size, flops, words in points
                )
        states = {kept: _unbeaten(points) for kept, points in reached.items()}
        if sum(map(len, states.values())) > MOST:
            raise ValueError(
                f"of {len(chain.layers)} layers, more than {MOST:,} choices may be the best; "
                "ask for fewer layers, or for layers of fewer sizes"
            )
    ends = [
        (size + chain.end[kept], flops, how) for kept, points in states.items() for size, flops, how in points
    ]
    return tuple(RecomputePlan(words, size, flops) for size, flops, words in _unbeaten(ends))


def _unbeaten(points: list[_Point]) -> list[_Point]:
    """Those with fewer FLOPs than any with as few bytes, by bytes."""
    found, fewest = [], inf
    for point in sorted(points, key=lambda point: point[:2]):
        if point[1] < fewest:
            found.append(point)
            fewest = point[1]
    return found


def freed(profile: Profile, stage: int = 0, microbatches: int = 1) -> tuple[Freed, ...]:
    """What each layer would free if it alone recomputed, and the FLOPs of that, in each way that it can.

    What counts is ``per_flop``: the bytes freed for each FLOP.
    """
    chain = _read(profile, stage, microbatches)
    usual = [NOTHING] * len(chain.layers)
    before = chain.total(usual)
    found = []
    for i, ways in enumerate(chain.layers):
        for way in ways[START][1:]:
            after = chain.total([*usual[:i], way.recompute, *usual[i + 1 :]])
            found.append(Freed(i, way.recompute, before[0] - after[0], after[1] - before[1]))
    return tuple(found)


def checkpointed(layers: Sequence[Layer], recompute: Sequence[str]) -> list[Layer]:
    """The layers, each recomputing what a plan says for it: "nothing", "attention" or "all".

    They have the same weights, and compute the same outputs and gradients. A layer that recomputes all is
    inside a ``Checkpoint``, which names its weights 0.W instead of W. ValueError for a layer that has no
    attention to recompute, or for another number of layers.
    """
    layers = listed("checkpointed", "a list of layers, such as mlp([64, 10])", layers)
    ways = listed("checkpointed", "a word for each layer, such as plan.recompute", recompute)
    if len(ways) != len(layers):
        raise ValueError(f"checkpointed needs a word for each of {len(layers)} layers {got(ways)}")
    return [_recomputing(*each) for each in zip(layers, ways, strict=True)]


def _recomputing(layer: Layer, way: str) -> Layer:
    require("checkpointed", layer, Layer, "a list of layers, such as mlp([64, 10])")
    if one_of("checkpointed", "every word", way, WAYS) != ATTENTION:
        return layer if way == NOTHING else Checkpoint(layer)
    if (found := layer.selective()) is None:
        raise ValueError(f"{layer!r} has no attention to recompute; use 'nothing' or 'all'")
    return found


def _read(profile: Profile, stage: int, microbatches: int) -> _Chain:
    """The stage as a chain, in numbers of the largest microbatch."""
    require("a recompute plan", profile, Profile, "a profile, such as profile(partitions, batch, loss)")
    stage = whole("a recompute plan", "stage", stage, low=0, high=len(profile.stages) - 1)
    samples, end = profile.largest(microbatches), profile.ends[stage]
    passing = profile.boundaries[end - len(profile.stages[stage]) : end + 1]
    layers = [
        {kept: list(_ways(layer, *sizes, kept, samples)) for kept in _states(sizes[0])}
        for layer, sizes in zip(profile.stages[stage], pairwise(passing), strict=True)
    ]
    loss = profile.loss.saved if stage == len(profile.stages) - 1 else ()
    sizes = {**passing[-1], "target": profile.target}
    return _Chain(layers, {kept: _added(loss, kept, sizes, samples) for kept in _states(passing[-1])})


def _states(passing: Sizes) -> list[State]:
    """Every choice of what is kept of the arrays that pass."""
    choices = (combinations(passing, count) for count in range(len(passing) + 1))
    return [frozenset(names) for each in choices for names in each]


def _added(saved: Sequence[Array], kept: State, sizes: Sizes, samples: int) -> int:
    """The bytes of what is saved and not kept already."""
    return sum(size_of(array, sizes).of(samples) for array in saved if array not in kept)


def _ways(layer: LayerProfile, comes: Sizes, goes: Sizes, kept: State, samples: int) -> Iterator[_Way]:
    """The ways through a layer of whose inputs these are kept already."""
    names = {name: name.replace("x", "y") for name in goes}  # as the layer calls them: y, y1, ...
    sizes = comes | {names[name]: size for name, size in goes.items()}
    choices = [(NOTHING, layer.saved, layer.recompute_flops)]
    if layer.selective:
        choices.append((ATTENTION, *layer.selective))
    choices.append((ALL, tuple(comes), layer.flops + layer.recompute_flops))
    for way, saved, flops in choices:
        there = kept.union(each for each in saved if isinstance(each, str))
        after = (name for name, array in layer.outputs.items() if {array, names[name]} & there)
        yield _Way(way, _added(saved, kept, sizes, samples), samples * flops, frozenset(after))
