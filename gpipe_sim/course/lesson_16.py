"""Lesson 16: Transformers and giants, in bytes."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations
from math import isfinite
from typing import NamedTuple

import numpy as np

from gpipe_sim.core.losses import mse
from gpipe_sim.core.meta_array import MetaArray
from gpipe_sim.core.split import split
from gpipe_sim.course.attended import mix_and_shares, mixed_samples, wrong_mix, wrong_shares
from gpipe_sim.course.build import build, exercise
from gpipe_sim.course.called import called
from gpipe_sim.course.reply import Reply, almost, apart, correct, is_number, keep_working, listed
from gpipe_sim.errors import Real
from gpipe_sim.memory.profile import Size
from gpipe_sim.memory.shape_inference import profile
from gpipe_sim.transformers.blocks import TransformerBlock

#: samples, places, features, heads: where attention is tried
HIDDEN_SHAPES = ((3, 5, 12, 4), (10, 4, 8, 2), (2, 7, 6, 1))
#: places, features, heads: where a block's bytes are asked
HIDDEN_BLOCKS = ((6, 20, 5), (96, 64, 2), (1024, 1600, 25), (10, 48, 12))


def core_share(places: int, features: int) -> float:
    """The share of a block's FLOPs that the core takes: its products are those without weights."""
    block, x = TransformerBlock(features, 1, rng=None), MetaArray((1, places, features), np.float16)
    return 1 - block.work(x).weight_flops / block.work(x).flops


def half_the_work(features: int) -> int:
    """From how many places on the core takes half of a block's FLOPs, found by trying."""
    return bisect_left(range(100 * features), 0.5, lo=1, key=lambda places: core_share(places, features))


#: What a block in front of whose parts a LayerNorm stands saves, in this order.
SAVED = (
    *("normalised", "1/std", "input of Linear", "q, k, v", "shares", "dropout's mask", "shares after it"),
    *("input of Linear", "dropout's mask"),
    *("normalised", "1/std", "input of Linear", "input of GELU", "input of Linear", "dropout's mask"),
)


def account(saved: Sequence[int], s: int, h: int, a: int) -> str:
    """A line for each array that a block saves, with its bytes, and these as a multiple of sh, as² or s."""
    units = {"as²": a * s * s, "sh": s * h, "s": s}
    lines = []
    for name, size in zip(SAVED, saved, strict=True):
        unit = next(unit for unit, each in units.items() if size % each == 0 and size // each < 10)
        lines.append(f"{name:<16}{size / 1e6:>8.1f} MB  {size // units[unit]}{unit}")
    return "\n".join(lines)


@build("attention")
def attention(answer: Callable) -> Reply:
    """Check ``answer(q, k, v, heads)``: the mix of the values, and the shares of every head."""
    for b, s, h, heads in HIDDEN_SHAPES:
        arrays = np.random.default_rng(b).normal(size=(3, b, s, h))
        where = f"with {b} samples, {s} places, {h} features and {heads} head{'s' * (heads > 1)}"
        given = mix_and_shares(answer, arrays, heads, where)
        if wrong := mixed_samples(answer, given, arrays, heads) or wrong_shares(given[1], arrays, heads):
            return keep_working(f"{where}, {wrong}")
        if wrong := wrong_mix(given[0], arrays, heads):
            return almost(f"{where} the shares are right, but {wrong}")
    return correct(
        "the mix and the shares of every sample and head, at three sizes. Which of the two grows with s²?"
    )


class Shape(NamedTuple):
    """The arguments of the student's function."""

    places: int
    features: int
    heads: int

    def __str__(self) -> str:
        return f"for s = {self.places}, h = {self.features}, a = {self.heads}"


@build("block_bytes")
def block_bytes(answer: Callable) -> Reply:
    """Check ``answer(s, h, a)``: what a TransformerBlock saves of one sample, with dropout, in bytes."""
    shapes, given = [Shape(*each) for each in HIDDEN_BLOCKS], []
    for shape in shapes:
        got = called(answer, *shape)
        if not is_number(got) or not isfinite(got):
            return keep_working(f"{shape} you say {got!r}; it should be a number of bytes")
        given.append(got)
    measured = [saved_bytes(*shape) for shape in shapes]
    if given == measured:
        return correct("as many bytes as the library's block would save, at four sizes")
    if question := _in_another_unit(given, measured):
        return almost(f"{_off(shapes[0], given[0], measured[0])}. {question}")
    errors = [(got - right, shape) for got, right, shape in zip(given, measured, shapes, strict=True)]
    for terms, question in MISTAKES.items():
        if all(apart(error, off_by(terms, *shape)) < 0.5 for error, shape in errors):
            return almost(f"{_off(shapes[0], given[0], measured[0])}. {question}")
    wrong = next(i for i in range(len(given)) if given[i] != measured[i])
    off = _off(shapes[wrong], given[wrong], measured[wrong])
    return keep_working(f"{off}. {_which_part(shapes, given, measured)}")


@cache
def saved_bytes(places: int, features: int, heads: int) -> int:
    """What a block in 2-byte numbers saves of one sample, by its profile."""
    block = TransformerBlock(features, heads, dropout=0.1, rng=None, dtype=np.float16)
    sample = MetaArray((1, places, features), np.float16)
    saved = profile(split([block], stages=1), (sample, sample), mse).stages[0][0].saved
    return sum(array.of(1) for array in saved if isinstance(array, Size))


def _off(shape: Shape, got: Real, measured: int) -> str:
    return f"{shape} you say {got:,.10g} bytes, and the library's block saves {measured:,}"


#: By how many sh, as², s² and s bytes a mistake is off, and the question that it calls for.
MISTAKES = {
    (0, 0, 0, -4): "4s are missing: what does a LayerNorm keep of each place?",
    (2, 1, 0, 0): "That gives what dropout keeps 2 bytes for each entry. How many does yes or no take?",
    (-2, -3, 0, 0): ("That leaves dropout out. What does it keep, and which array is another one behind it?"),
    (0, -5, 5, 0): "That is right for one head. How many tables of s x s does each sample have?",
    (0, 2, 0, 0): "That has 7as². Which table of s x s does no backward read: the scores, or the shares?",
    (0, -2, 0, 0): "That has 3as². What does the backward of softmax read, and what that of the mix?",
    (0, -1, 0, 0): "That has 4as². There is dropout on the shares, too. What does it keep?",
    (-12, 0, 0, 0): "That has 12sh too few. How wide is the middle of the network, which two layers read?",
    (-8, 0, 0, 0): (
        "That has 8sh too few. The GELU and the second linear layer each save an input. Are they the same?"
    ),
    (-4, 0, 0, 0): (
        "That has 4sh too few. A LayerNorm's weights scale what it saved: is its output the same array? And "
        "how many arrays of s x h go into the core?"
    ),
    (-2, 0, 0, 0): (
        "That has 2sh too few. Each of two Dropouts, and each of two LayerNorms: what do they keep?"
    ),
    (2, 0, 0, 0): "That has 2sh too many. Which array did you count that no backward reads?",
    (4, 0, 0, 0): (
        "That has 4sh too many. Do q, k and v come from one input or three? And what does a sum save?"
    ),
}


def off_by(terms: Sequence[int], s: int, h: int, a: int) -> int:
    """So many sh, as², s² and s."""
    return sum(n * size for n, size in zip(terms, (s * h, a * s * s, s * s, s), strict=True))


#: How many of another unit a byte is, and the question that it calls for.
UNITS = {
    0.5: "That is how many 2-byte numbers it would be. How many bytes?",
    2: "How many bytes does a number take here?",
    **dict.fromkeys((1 / 1000, 1 / 1024, 1e-6, 1 / 2**20, 1e-9, 1 / 2**30), "Is that in bytes?"),
}


def _in_another_unit(given: Sequence[Real], measured: Sequence[int]) -> str:
    """The question for what is right in another unit; empty if it is not."""
    rates = [got / each for got, each in zip(given, measured, strict=True)]
    near = (says for unit, says in UNITS.items() if all(abs(rate / unit - 1) < 1e-3 for rate in rates))
    return next(near, "")


def _which_part(shapes: Sequence[Shape], given: Sequence[Real], measured: Sequence[int]) -> str:
    """Which of sh, as² and s it is that the student has another number of."""
    terms = np.array([(s * h, a * s * s, s) for s, h, a in shapes], float)
    off = np.array([float(got) for got in given]) - np.array(measured, float)
    found, *_ = np.linalg.lstsq(terms, off, rcond=None)
    whole = np.allclose(terms @ found, off, rtol=1e-6, atol=1e-3)
    if not whole or (abs(found) > 1e-3).all():  # all three terms would be the answer
        return "Which arrays have a row for each place, and which one for each pair of places?"
    parts = [
        f"{abs(n):.3g}{name} too {'many' if n > 0 else 'few'}"
        for n, name in zip(found, ("sh", "as²", "s"), strict=True)
        if abs(n) > 1e-3
    ]
    return f"That is {' and '.join(parts)}. Which arrays make that up?"


class Part(NamedTuple):
    """A part of a model: the bytes that go if it is computed again, and the FLOPs of that."""

    name: str
    frees: int
    flops: int


#: (parts, bytes to free), each another trap: the cheapest first, the most bytes first, the best ratio first
HIDDEN_PARTS = (
    ((("a", 10, 1), ("b", 12, 2), ("c", 90, 6)), 90),
    ((("a", 30, 10), ("b", 100, 90), ("c", 40, 12), ("d", 60, 20)), 100),
    ((("a", 60, 10), ("b", 50, 15), ("c", 100, 24)), 110),
    ((("norm", 4, 1), ("core", 160, 16), ("network", 32, 64), ("qkv", 12, 24)), 164),
    ((("a", 5, 7), ("b", 8, 3)), 0),
    ((("a", 7, 5), ("b", 7, 5), ("c", 14, 11)), 14),
    ((("a", 3, 4), ("b", 9, 9), ("c", 6, 2), ("d", 1, 8)), 19),
)


@exercise("write to_recompute in this cell, and run it again")
def to_recompute(answer: Callable | None) -> Reply:
    """Check ``answer(parts, bytes_to_free)``: the names of the parts that free it with the fewest FLOPs."""
    for parts, goal in HIDDEN_PARTS:
        named = {name: Part(name, frees, flops) for name, frees, flops in parts}
        where = f"to free {goal} of {listed(f'{name} ({frees} for {flops})' for name, frees, flops in parts)}"
        got = called(answer, [tuple(part) for part in named.values()], goal, where=where, whole=("parts",))
        _what_is_not_cheapest(where, _chosen(where, got, named), list(named.values()), goal)
    return correct(f"enough bytes for the fewest FLOPs, in {len(HIDDEN_PARTS)} models that are not shown")


def _chosen(where: str, got: object, named: dict[str, Part]) -> list[Part]:
    """The parts that a student names; raises a Reply to anything else."""
    if not isinstance(got, list | tuple | set | frozenset):
        gives = "nothing" if got is None else repr(got)
        raise keep_working(f"{where} you give {gives}; it should be a list of names")
    for name in got:
        if not isinstance(name, str) or name not in named:
            says = f"you name {name!r}. Give the names only, such as {next(iter(named))!r}"
            raise keep_working(f"{where} {says}: which ones?")
    if len(set(got)) < len(got):
        raise keep_working(f"{where} you name {listed(got)}. What does the second time free?")
    return [named[name] for name in got]


def _what_is_not_cheapest(where: str, chosen: list[Part], parts: list[Part], goal: int) -> None:
    frees, flops = _total(chosen)
    names = listed(part.name for part in chosen) or "nothing"
    if frees < goal:
        raise keep_working(f"{where} you recompute {names}, which frees {frees}. What else has to go?")
    choices = (_total(some) for n in range(len(parts) + 1) for some in combinations(parts, n))
    fewest = min(spent for freed, spent in choices if freed >= goal)
    if flops == fewest:
        return
    said = f"{where} you recompute {names}: {flops} FLOPs, and {fewest} would do"
    spare = [part for part in chosen if frees - part.frees >= goal]
    if spare:
        raise keep_working(f"{said}. What if {spare[0].name} is kept after all?")
    if chosen == _taken(parts, goal, key=lambda part: -part.frees / part.flops):
        raise almost(f"{said}. The best rate first is near. What did the last one free beyond the goal?")
    raise keep_working(f"{said}. Which parts free more bytes for each FLOP?")


def _total(parts: Sequence[Part]) -> tuple[int, int]:
    return sum(part.frees for part in parts), sum(part.flops for part in parts)


def _taken(parts: Sequence[Part], goal: int, key: Callable[[Part], float]) -> list[Part]:
    """One after the other, until enough is freed."""
    taken: list[Part] = []
    for part in sorted(parts, key=key):
        if _total(taken)[0] < goal:
            taken.append(part)
    return taken
