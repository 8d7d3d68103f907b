"""Lesson 11: balance."""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import accumulate, combinations, pairwise, permutations
from math import comb, isfinite

import numpy as np

from gpipe_sim.balance.by_cost import balance_by_cost
from gpipe_sim.balance.by_makespan import balance_by_makespan
from gpipe_sim.balance.cuts import most_even, slowest
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.course.build import build, exercise
from gpipe_sim.course.called import called
from gpipe_sim.course.own_rows import Drawn
from gpipe_sim.course.reply import Reply, almost, correct, is_number, is_whole, keep_working, listed
from gpipe_sim.drawing.svg import draw
from gpipe_sim.errors import Real
from gpipe_sim.families import OneFOneB

#: (what the layers take, stages): heavy ones first, last and in the middle, all alike, fractions.
HIDDEN_MODELS = (
    ((2, 3, 1, 4, 1, 2, 6), 3),
    ((1,) * 11, 4),
    ((9, 1, 1, 1, 1, 1), 3),
    ((1, 1, 1, 1, 1, 6), 4),
    ((4, 3, 3, 4), 4),
    ((3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8), 5),
    ((1, 4, 2, 2, 1, 3), 4),
    ((Fraction(1, 2), 3, Fraction(5, 2), 1, Fraction(3, 2), 2), 2),
    ((5, 2, 7), 1),
    ((Fraction(1, 2),) * 6, 3),
    ((0, 0, 5, Fraction(1, 2), Fraction(1, 2)), 2),
    ((1,) * 17 + (3,), 6),
    ((1,) * 40 + (Fraction(3, 2),), 16),  # far too many to try all
)


SMALLER = "Which smaller question do you ask again and again?"
LIBRARY = (balance_by_cost, balance_by_makespan, most_even, slowest)  #: what an answer has to do without


def stage_costs(costs: Sequence[Real], sizes: Sequence[int]) -> list[Real]:
    """What each stage takes, if the layers are cut into stages of these sizes."""
    return [sum(costs[a:b]) for a, b in pairwise(accumulate(sizes, initial=0))]


def every_cut(layers: int, stages: int) -> Iterator[list[int]]:
    """All ways to cut so many layers into so many stages."""
    for ends in combinations(range(1, layers), stages - 1):
        yield [b - a for a, b in pairwise((0, *ends, layers))]


@cache
def least(costs: tuple[Real, ...], stages: int) -> Real:
    """What the slowest stage takes at least."""
    return max(stage_costs(costs, balance_by_cost(costs, stages)))


@build("best_cut")
def best_cut(answer: Callable) -> Reply:
    """Check ``answer(costs, K)``: how many layers each stage gets, so that the slowest takes the least."""
    wrong, tried = [], []
    for costs, stages in HIDDEN_MODELS:
        where = f"for layers that take {listed(costs)} and K = {stages}"
        cuts = f"{comb(len(costs) - 1, stages - 1):,} cuts"
        asks = f"{len(costs)} layers in {stages} stages have {cuts}. {SMALLER}"
        got = called(
            answer,
            list(costs),
            stages,
            where=where,
            plain=False,
            without=LIBRARY,
            whole=("costs",),
            endless=asks,
        )
        sizes = _sizes(where, got, costs, stages)
        tried.append(((costs, stages), sizes))
        takes, best = stage_costs(costs, sizes), least(costs, stages)
        if max(takes) > best:
            cut = f"{where} you cut {sizes}: the stages take {listed(takes)}"
            wrong.append(f"{cut}, and a cut exists where none takes more than {best}")
    if not wrong:
        return correct(f"no other cut has a faster slowest stage, in {len(HIDDEN_MODELS)} models tried")
    if all(max(stage_costs(model[0], cut[::-1])) == least(*model) for model, cut in tried):
        return almost(f"{wrong[0]}. Which of your numbers is device 0's?")
    if all(max(sizes) - min(sizes) <= 1 for _, sizes in tried):
        return keep_working(f"{wrong[0]}. Where does your cut look at what the layers take?")
    if len(wrong) < len(HIDDEN_MODELS) / 2:
        return almost(f"{wrong[0]}. Do you compare cuts by their slowest stage, and by nothing else?")
    return keep_working(f"{wrong[0]}. What do you compare two cuts by?")


def _sizes(where: str, got: object, costs: Sequence[Real], stages: int) -> list[int]:
    """The layers of each stage; raises a Reply if this is no cut of the model into stages."""
    said = f"{where} you give {got!r}"
    if not isinstance(got, list | tuple | np.ndarray) or not all(map(is_whole, got)):
        raise keep_working(f"{said}. It should list how many layers each stage gets: whole numbers")
    sizes = list(map(int, got))
    if sum(sizes) != len(costs) or min(sizes, default=0) < 0:
        if len(sizes) == stages and sizes == sorted(set(sizes)) and sizes[-1] <= len(costs):
            raise almost(f"{said}. Are those places in the list? How many layers has each stage?")
        runs = {sum(costs[a:b]) for a, b in combinations(range(len(costs) + 1), 2)}
        if len(sizes) == stages and runs.issuperset(sizes):
            raise almost(f"{said}. Is that what stages take? How many layers has each?")
        held = f"these stages hold {sum(sizes)} of {len(costs)} layers"
        raise keep_working(f"{said}: {held}. Where are the others, or which are there twice?")
    if len(sizes) != stages or 0 in sizes:
        there = f"{len(sizes) - sizes.count(0)} stages with layers, and {stages} devices"
        raise almost(f"{said}: {there}. What does each device do?")
    return sizes


#: The devices of the exercise: two at full speed, one at half, and one at two thirds.
SPEEDS = (Fraction(1), Fraction(1), Fraction(1, 2), Fraction(2, 3))


def in_this_order(speeds: Sequence[Real]) -> Timeline:
    """1F1B of eight microbatches on devices of these speeds, in this order."""
    return simulate(OneFOneB(len(speeds), 8), Costs(speed=speeds))


@exercise("write the order of the four devices in this cell, and run it again")
def best_order(answer: object) -> Reply:
    """Check an order of the four devices of ``SPEEDS``, against all others."""
    if not isinstance(answer, list | tuple | np.ndarray) or not all(
        is_number(speed) and isfinite(speed) for speed in answer
    ):
        return keep_working(f"you give {answer!r}. Which speed has device 0, which device 1, ...?")
    speeds = [Fraction(float(speed)).limit_denominator(1000) for speed in answer]
    if sorted(speeds) != sorted(SPEEDS):
        there = listed(map(str, SPEEDS))
        return keep_working(
            f"you give {listed(map(str, speeds))}. There are {there}: which one is missing, or there twice?"
        )
    lengths = {order: in_this_order(order).makespan for order in permutations(SPEEDS)}
    yours, shortest = lengths[tuple(speeds)], min(lengths.values())
    if yours == shortest:
        says = correct(f"{float(yours)} long, and none of the {len(set(lengths))} orders is shorter")
        return _charts(says, speeds, sorted(SPEEDS))
    said = f"{float(yours)} long; another order gives {float(shortest)}"
    if yours <= shortest + 2:
        return _charts(almost(f"{said}. Near: did you measure all {len(set(lengths))}?"), speeds)
    slow = speeds.index(Fraction(1, 2))
    asks = f"{said}. The slowest is device {slow} in yours. Who waits for whom?"
    return _charts(keep_working(asks), speeds)


def _charts(reply: Reply, *orders: Sequence[Real]) -> Reply:
    """The reply, with a chart of each order."""
    found, timelines = Drawn(reply.verdict, reply.text), [*map(in_this_order, orders)]
    titles = [
        f"Speeds {listed(map(str, order))}: {float(timeline.makespan)}"
        for order, timeline in zip(orders, timelines, strict=True)
    ]
    found.picture = draw(*timelines, titles=titles)
    return found
