"""Lesson 18: plan a real model, end to end."""

import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from math import isclose, isfinite

import numpy as np

from gpipe_sim.course.build import build, exercise
from gpipe_sim.course.called import called
from gpipe_sim.course.reply import Reply, almost, correct, is_number, keep_working
from gpipe_sim.pricing.cluster import Cluster
from gpipe_sim.pricing.layout import Shape
from gpipe_sim.pricing.rows import Row

NOTHING = "you give nothing back. What should come after return?"
PROMISED, SENT = 312e12, 300e9  #: FLOP/s of an A100, and bytes/s to another in its machine: its data sheet


@dataclass(frozen=True)
class Plan:
    """How a step was laid out. Blocks are recomputed, and a number takes two bytes, of a gradient four."""

    t: int  #: devices that share each block
    K: int  #: devices of a pipeline, by 1F1B
    R: int  #: copies of it
    M: int  #: microbatches of each copy
    b: int  #: samples in a microbatch
    L: int  #: blocks of the model
    h: int  #: features
    s: int  #: places of a text
    weights: int  #: that a device has of each of its blocks
    flops: float = PROMISED
    bandwidth: float = SENT


@cache
def plan_of(row: Row) -> Plan:
    """A measured row, with the rates that the data sheet promises."""
    layout = row.layout
    [block] = [piece for piece in layout.pieces if piece.shape]
    blocks, h, s = (int(row.given[name]) for name in ("layers", "hidden", "sequence"))
    order = layout.schedule
    how = layout.tensor, order.devices, layout.replicas, order.microbatches, layout.microbatch
    return Plan(*how, blocks, h, s, block.weights)


def short_name(row: Row) -> str:
    """Its t, K, R and b, such as "2 2 2 4"."""
    plan = plan_of(row)
    return f"{plan.t} {plan.K} {plan.R} {plan.b}"


def numbers_in(guess: object) -> str | None:
    """The numbers of a guess such as "1 x 2 x 4, b = 2", as ``short_name`` has them; None as it is."""
    return None if guess is None else " ".join(re.findall(r"\d+", str(guess))) or str(guess)


def table(rows: Sequence[Row], says: Callable[[Row], str]) -> str:
    """A line for each t x K x R, a column for each b."""
    found = {(plan.t, plan.K, plan.R, plan.b): says(row) for row in rows for plan in [plan_of(row)]}
    sizes = sorted({b for *_, b in found})
    lines = ["t x K x R" + "".join(f"{f'b = {b}':>9}" for b in sizes)]
    for t, k, r in sorted({(t, k, r) for t, k, r, _ in found}):
        cells = "".join(f"{found.get((t, k, r, b), ''):>9}" for b in sizes)
        lines.append(f"{f'{t} x {k} x {r}':<9}{cells}".rstrip())
    return "\n".join(lines)


@cache
def priced_on(cluster: Cluster) -> Callable[[Row], float]:
    """What a row's step takes on so many of these devices; each row is priced once."""
    return cache(lambda row: row.priced(cluster).time)


def task_of(row: Row) -> tuple[int, int, int, int]:
    """What one would plan: devices, batch, features and blocks."""
    gpus, batch, hidden, layers = (
        int(row.given[name]) for name in ("gpus", "global_batch", "hidden", "layers")
    )
    return gpus, batch, hidden, layers


def shape_of(row: Row) -> Shape:
    """Of its blocks: samples, places, features, and the devices that share one."""
    return row.layout.shapes[0]


def one_of_each_shape(rows: Sequence[Row], seed: int = 0) -> tuple[list[Row], list[Row]]:
    """(a row of each shape of block, by lot; all others)."""
    found: dict[Shape, Row] = {}
    for row in random.Random(seed).sample(list(rows), len(rows)):
        found.setdefault(shape_of(row), row)
    return [*found.values()], [row for row in rows if row not in found.values()]


def regrets(rows: Sequence[Row], predict: Callable[[Row], float]) -> list[float]:
    """For each task of several rows: by what share the one that is chosen takes longer than the fastest."""
    tasks: dict[tuple, list[Row]] = {}
    for row in rows:
        tasks.setdefault(task_of(row), []).append(row)
    several = [some for some in tasks.values() if len(some) > 2]
    return [min(some, key=predict).seconds / min(row.seconds for row in some) - 1 for some in several]


Terms = tuple[float, float, float, float]
NAMES = "the work", "the summing over t devices", "the bubble", "the sum of the gradients"
#: t, K and R of 1 and more; M smaller than K; blocks, features and places that are no powers of two.
HIDDEN = (
    Plan(3, 4, 5, 6, 7, 12, 30, 20, 4000, 1e6, 1e5),
    Plan(1, 3, 2, 2, 4, 6, 16, 50, 3000, 1e6, 1e4),
    Plan(4, 1, 3, 5, 2, 5, 24, 10, 2000, 1e5, 1e5),
    Plan(2, 2, 1, 9, 1, 10, 40, 30, 9000, 1e7, 1e5),
    Plan(8, 6, 4, 3, 2, 18, 64, 12, 7000, 1e6, 1e6),
)


def terms(plan: Plan) -> Terms:
    """The four terms, in seconds: the products of four forwards, and the bytes of rings."""
    blocks = plan.M * plan.L / plan.K
    one = (24 * plan.h + 4 * plan.s) * plan.b * plan.s * plan.h
    work = blocks * 4 * one / plan.t / plan.flops
    array = 2 * plan.b * plan.s * plan.h
    tensor = blocks * 6 * 2 * (plan.t - 1) / plan.t * array / plan.bandwidth
    bubble = (plan.K - 1) / plan.M * (work + tensor)
    gradients = 2 * (plan.R - 1) / plan.R * 4 * plan.L / plan.K * plan.weights / plan.bandwidth
    return work, tensor, bubble, gradients


def mistaken(plan: Plan) -> tuple[dict[str, float], ...]:
    """For each of the terms, what one may give by mistake, by the question that this is asked."""
    work, tensor, bubble, gradients = terms(plan)
    whole, turns = plan.K / (plan.K - 1) if plan.K > 1 else 1, 2 * (plan.t - 1) / plan.t or 1
    return (
        {
            "A forward and a backward are three forwards. And what does a block do that is recomputed?": (
                work * 3 / 4
            ),
            "That is one forward of each block. What else does it do in a step?": work / 4,
            "How much is a backward, if a forward is 1?": work * 3 / 4 * 2 / 3,
            "How many blocks does one device have?": work * plan.K,
            "How much of a block does each of its t devices do?": work * plan.t,
            "How many microbatches go through a device?": work / plan.M,
            "Each copy has M microbatches of its own. Whose blocks do the R copies work on?": work * plan.R,
            "How many texts are in a microbatch?": work / plan.b,
            "What are the products inside attention, 4s of (24h + 4s)?": (
                work * 24 * plan.h / (24 * plan.h + 4 * plan.s)
            ),
        },
        {
            "Two in a forward and two in a backward. And when the block is computed again?": tensor * 4 / 6,
            "That is one forward. When else are arrays summed?": tensor * 2 / 6,
            "How many bytes has a number, and how many rounds a ring: t - 1, or twice that?": tensor / 2,
            "What part of an array does a device send, all rounds together? Lesson 17 counts it.": (
                tensor / turns
            ),
            "How large is a piece in a ring of t?": tensor * plan.t,
            "How many blocks does one device have?": tensor * plan.K,
            "For how many microbatches does it sum?": tensor / plan.M,
            "Each copy has M microbatches of its own. With how many devices does it sum?": tensor * plan.R,
        },
        {
            "That is the share of all time, (K-1)/(K-1+M). How long is that, beside the work?": (
                bubble * plan.M / (plan.K - 1 + plan.M)
            ),
            "Sums are in forwards and backwards, too. Do others not wait for them?": (
                (plan.K - 1) / plan.M * work
            ),
            "That has K in it. For how many others does a device wait?": (
                bubble * whole if plan.K > 1 else (work + tensor) / plan.M
            ),
            "That is K - 1 times all microbatches. For how many does it wait?": bubble * plan.M,
        },
        {
            "How many bytes has a gradient, and how many rounds a ring: R - 1, or twice that?": gradients / 2,
            "How many bytes has a gradient?": gradients / 4,
            "How many blocks does one device have, and how many of them have gradients?": gradients * plan.K,
            "Once for each microbatch? When are gradients summed?": gradients * plan.M,
            "How large is a piece in a ring of R?": gradients * plan.R,
            "Whose gradients are that: of one block, or of all that a device has?": (
                gradients * plan.K / plan.L
            ),
        },
    )


@build("four_terms")
def four_terms(answer: Callable) -> Reply:
    """Check ``answer(plan)``: the seconds of work, tensor sums, bubble and gradients."""
    given = [_four(called(answer, plan, where=f"for {plan}", plain=False), plan) for plan in HIDDEN]
    if _shuffled(given):
        raise almost("these are the four terms, in another order. In which one are they asked for?")
    for i, name in enumerate(NAMES):
        for plan, got in zip(HIDDEN, given, strict=True):
            if not _equal(got[i], terms(plan)[i]):
                said = f"for {plan} you say that {name} takes {got[i]:.6g}, and it is {terms(plan)[i]:.6g}"
                if known := _known([each[i] for each in given], i):
                    raise almost(f"{said}. {known}")
                raise keep_working(f"{said}. What is it made of?")
    return correct(f"four terms of {len(HIDDEN)} plans that are not shown")


def _shuffled(given: Sequence[Terms]) -> bool:
    """Whether these are the right numbers, in one order that is not the one asked for."""
    right = [terms(plan) for plan in HIDDEN]
    return any(
        all(
            _equal(got[j], want[i])
            for got, want in zip(given, right, strict=True)
            for i, j in enumerate(order)
        )
        for order in [*permutations(range(4))][1:]
    )


def _four(got: object, plan: Plan) -> Terms:
    """Four finite numbers; raises a Reply to anything else."""
    if got is None:
        raise keep_working(f"for {plan} {NOTHING}")
    if is_number(got):
        raise almost(f"for {plan} you give one number, {got:g}. Which four is it made of?")
    got = got.tolist() if isinstance(got, np.ndarray) else got
    if not isinstance(got, list | tuple) or len(got) != 4 or not all(map(is_number, got)):
        raise keep_working(
            f"for {plan} you give {got!r}. Which four numbers should it be, and in which order?"
        )
    if not all(map(isfinite, got)):
        raise keep_working(f"for {plan} you give {got!r}. Which line makes that?")
    work, tensor, bubble, gradients = map(float, got)
    return work, tensor, bubble, gradients


def _known(given: Sequence[float], i: int) -> str:
    """The question of the mistake that makes all these numbers, if one does."""
    each = [mistaken(plan)[i] for plan in HIDDEN]
    for ask in each[0]:
        if all(_equal(got, of[ask]) for got, of in zip(given, each, strict=True)):
            return ask
    return ""


def _equal(one: float, other: float) -> bool:
    return isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)


#: Lists of plans, (time, bytes, name): one, ties in time or bytes or both, a late one that is small.
HIDDEN_PLANS: tuple[tuple[tuple[int, int, str], ...], ...] = (
    ((5, 9, "a"), (6, 4, "b"), (7, 6, "c"), (8, 3, "d"), (9, 3, "e")),
    ((5, 9, "a"),),
    ((8, 3, "a"), (5, 9, "b"), (7, 6, "c"), (6, 4, "d")),
    ((4, 8, "a"), (4, 7, "b"), (4, 9, "c"), (6, 7, "d"), (7, 5, "e")),
    ((3, 5, "a"), (3, 5, "b"), (4, 5, "c"), (5, 2, "d")),
    ((9, 1, "a"), (1, 9, "b"), (5, 5, "c"), (6, 6, "d"), (2, 8, "e"), (8, 8, "f")),
    (),
)


def kept(plans: Sequence[tuple]) -> list[tuple]:
    """Those that no other beats."""
    return [plan for plan in plans if not any(beats(other, plan) for other in plans)]


def beats(one: tuple, other: tuple) -> bool:
    """Not worse in time and bytes, and better in one of them."""
    return one[0] <= other[0] and one[1] <= other[1] and one[:2] != other[:2]


@exercise("write unbeaten in this cell, and run it again")
def unbeaten(answer: Callable | None) -> Reply:
    """Check ``answer(plans)``: those of the plans (time, bytes, name) that no other beats."""
    given = []
    for plans in HIDDEN_PLANS:
        where = f"for {list(plans)}"
        given.append(_out_of(plans, called(answer, list(plans), where=where, whole=("plans",)), where))
    for plans, got in zip(HIDDEN_PLANS, given, strict=True):
        _what_is_beaten(plans, got)
    return correct(f"in {len(HIDDEN_PLANS)} lists, all that no other plan beats, and none that one does")


def _out_of(plans: Sequence[tuple], got: object, where: str) -> list[tuple]:
    """The plans that a student's function gives back; raises a Reply unless all are out of these."""
    if got is None:
        raise keep_working(f"{where} {NOTHING}")
    if isinstance(got, str | dict) or not isinstance(got, Iterable):
        raise keep_working(f"{where} you give {got!r}; it should be a list of plans")
    for plan in got:
        if not isinstance(plan, list | tuple) or tuple(plan) not in plans:
            which = "which is none of them. Return whole plans, as they are in the list"
            raise keep_working(f"{where} you give {plan!r}, {which}")
    return [tuple(plan) for plan in got]


def _what_is_beaten(plans: Sequence[tuple], got: list[tuple]) -> None:
    where, right = f"for {list(plans)}", kept(plans)
    if twice := next((plan for plan in got if got.count(plan) > 1), None):
        raise almost(f"{where} you give {twice} twice. When is it added again?")
    for plan in got:
        if other := next((other for other in plans if beats(other, plan)), None):
            which = "faster" if other[0] < plan[0] else "as fast"
            size = "smaller" if other[1] < plan[1] else "as small"
            raise keep_working(f"{where} you keep {plan}. But {other} is {which} and {size}")
    if missing := next((plan for plan in right if plan not in got), None):
        if any(each[:2] == missing[:2] for each in got):
            raise almost(f"{where} you leave out {missing}. Does another plan that is as good beat it?")
        raise keep_working(f"{where} you leave out {missing}. Which plan beats it?")
