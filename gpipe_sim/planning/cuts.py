"""The cuts of one way to lay a model out, shortest step first: all of them where they are few enough.

Many cuts are timed at once, as ``balance_by_makespan`` does, and then their rings and updates. A message that
waits for another on its link is not counted there, so such a time is at most that of ``price``.

Where the cuts are too many, those whose every stage could be in a faster step are tried if they are few
(``bounds.stage_table``); otherwise layers are moved about from good cuts, and how far from the best that may
be is what the table's fastest slowest stage says.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from math import comb, inf
from typing import Any, NamedTuple

import numpy as np

from gpipe_sim.balance.by_cost import balance_by_cost
from gpipe_sim.balance.by_makespan import moved
from gpipe_sim.balance.many_cuts import ManyCuts
from gpipe_sim.balance.stage_bounds import TableCuts
from gpipe_sim.core.bubbles import most_held
from gpipe_sim.core.costs import Costs
from gpipe_sim.links.links import OnLinks
from gpipe_sim.links.traffic import traffic_of
from gpipe_sim.planning.bounds import ROUNDING, Order, Rings, stage_table
from gpipe_sim.planning.problem import Column, Cut, Problem, laid_out
from gpipe_sim.planning.space import Way

FEW = 2_000  #: cuts that are all tried
TIMED = 3_000_000  #: actions, in all cuts that are tried where they are more
TRIED = 12  #: cuts that are given where not all are tried
LONG, SHORT = 8, (2, 4)  #: microbatches for each device: of a long step, and of those that tell its pace


class StepCuts(ManyCuts):
    """What a step of one way takes in any number of cuts."""

    def __init__(self, problem: Problem, way: Way):
        columns, schedule = problem.columns(way), laid_out(way.schedule)
        split = Order.of(schedule).split
        back = columns.input_grad if split else columns.backward
        weight = columns.weight_grad if split else 0 * back
        forward, back, weight = (np.diff(each).tolist() for each in (columns.forward, back, weight))
        overhead = problem.cluster.accelerator.overhead
        super().__init__(schedule.program, Costs(forward, back, weight, overhead=overhead), problem.count)
        if schedule.devices > 1:
            zeros = [0.0] * schedule.stages
            nothing = Costs(zeros, zeros, zeros)
            on = OnLinks(schedule, nothing, problem.links(way), None, columns.message, True)
            (_, busy, late), in_units = on.columns(schedule.program)
            self.delays = in_units(busy + late)[traffic_of(schedule.program).of_need].astype(float)[:, None]
        self.weights, self.sizes, self.rings = columns.weights, columns.sizes, Rings.of(problem, way)
        self.constants = problem.constants(schedule.microbatches)
        parts = np.flatnonzero(self.program.makes_gradients)
        by_stage = parts[np.argsort(self.program.stage[parts], kind="stable")]
        self.last = self.program.entry[by_stage]
        self.starts = np.searchsorted(self.program.stage[by_stage], np.arange(self.program.stages))

    def length(self, ends_at: Column, cuts: Column) -> Column:
        """Until the last weights are updated, from when every entry ends; both (..., cuts)."""
        ready = np.maximum.reduceat(ends_at[self.last], self.starts, axis=0)
        weights, sizes = (np.diff(each[cuts], axis=1).T for each in (self.weights, self.sizes))
        ring = self.rings.sums(weights)
        longest = np.zeros(len(cuts))
        for held in map(list, self.program.placement):
            order = np.argsort(ready[held], axis=0)
            mine, takes = (np.take_along_axis(each[held], order, axis=0) for each in (ready, ring))
            free = np.zeros(len(cuts))
            for at, lasts in zip(mine, takes, strict=True):
                free = np.maximum(free, at) + lasts
            free = free + self.rings.updates(weights[held].sum(axis=0), sizes[held].sum(axis=0))
            longest = np.maximum(longest, free)
        return longest + self.constants


class LongStep:
    """What a step of many microbatches takes in any number of cuts, from two that have fewer."""

    def __init__(self, problem: Problem, way: Way):
        self.many = way.schedule.microbatches
        self.few = [StepCuts(problem, each) for each in shorter(way)]
        self.program = self.few[-1].program

    def makespans(self, cuts: Column) -> Column:
        return longer(self.many, [(each.program.microbatches, each.makespans(cuts)) for each in self.few])


def shorter(way: Way) -> list[Way]:
    """The same way with fewer microbatches, twice, if it has many: a step is at an even pace by then."""
    k, schedule = way.pipeline, way.schedule
    if schedule.microbatches <= LONG * k:
        return []
    return [way._replace(schedule=replace(schedule, microbatches=times * k)) for times in SHORT]


def longer(many: int, two: Sequence[tuple[int, Any]]) -> Any:
    """What so many microbatches take, at the pace at which the longer one of two steps differs."""
    (m1, t1), (m2, t2) = two
    return t2 + (many - m2) * (t2 - t1) / (m2 - m1)


class Cuts(NamedTuple):
    """Cuts, shortest step first, with what these take at the least; and what no cut takes less than.

    ``proven``: all others take longer than the first of them.
    """

    cuts: list[Cut]
    times: list[float]
    least: float
    proven: bool = False


def all_are_few(problem: Problem, way: Way) -> bool:
    """Whether there is time for all its cuts."""
    every = comb(problem.count - 1, way.schedule.stages - 1)
    schedule = way.schedule
    return not shorter(way) and every <= FEW and every * 3 * schedule.microbatches * schedule.stages <= TIMED


def cuts_of(problem: Problem, way: Way, least: float, even: bool) -> Cuts:
    """``least`` is what is known of every cut. ``even``: only the cut that deals out blocks evenly."""
    if even:
        return Cuts([problem.even_cut(way)], [least], least)
    timed = LongStep(problem, way) if shorter(way) else StepCuts(problem, way)
    stages = way.schedule.stages
    if all_are_few(problem, way):  # never of a long step
        return _sorted(timed, np.array(list(_all(problem.count, stages))), inf, FEW)
    tables = TableCuts([*_fitting(problem, way)])
    least = max(least, tables.slowest() * ROUNDING)
    if least == inf:
        return Cuts([], [], inf)
    cuts = np.array([np.cumsum([0, *cut]) for cut in _starts(problem, way, tables)])
    times = timed.makespans(cuts)
    best = cuts[times.argmin()]
    if times.min() * ROUNDING <= least:
        return _sorted(timed, cuts, least, TRIED)
    if not shorter(way) and tables.count(times.min()) * timed.program.size <= TIMED:
        better = np.vstack([cuts, tables.cuts(times.min())])
        return _sorted(timed, better, inf, TRIED)
    return _sorted(timed, np.vstack([cuts, moved(timed, best, TIMED)]), least, TRIED)


def _sorted(timed: StepCuts | LongStep, cuts: Column, least: float, most: int) -> Cuts:
    """``least`` is infinite where the shortest of them is proven to be the best."""
    cuts = np.unique(cuts, axis=0)
    times = timed.makespans(cuts)
    order = np.argsort(times, kind="stable")[:most]
    found = [tuple(each) for each in np.diff(cuts[order], axis=1).tolist()]
    shortest = float(times.min()) * ROUNDING
    return Cuts(found, (times[order] * ROUNDING).tolist(), min(least, shortest), least > shortest)


def _all(layers: int, stages: int) -> Iterator[tuple[int, ...]]:
    return ((0, *marks, layers) for marks in combinations(range(1, layers), stages - 1))


def _starts(problem: Problem, way: Way, tables: TableCuts) -> set[Cut]:
    """The even cut, those with the fastest slowest stage, and that of the table, in which stages fit."""
    columns = problem.columns(way)
    work = np.diff(Order.of(way.schedule).work(columns)).tolist()
    stages = way.schedule.stages
    early, late = balance_by_cost(work, stages), balance_by_cost(work[::-1], stages)[::-1]
    return {problem.even_cut(way), tuple(early), tuple(late), tuple(tables.cut())}


def _fitting(problem: Problem, way: Way) -> np.ndarray:
    """The table of single stages, without those that do not fit a device."""
    columns, schedule, n = problem.columns(way), laid_out(way.schedule), problem.count
    placement = schedule.placement
    table = stage_table(problem, way, Order.of(schedule))
    static, width = problem.static(way), table.shape[2]
    first = np.arange(n)[:, None]
    end = np.minimum(first + np.arange(1, width + 1), n)
    fixed = static[end] - static[first]
    kept = columns.entry[first] + columns.kept[end] - columns.kept[first + 1]
    alone = all(len(held) == 1 for held in placement)
    in_flight = most_held(schedule.program) if alone else [0] * schedule.devices
    for device, held in enumerate(placement):
        for stage in held:
            table[stage][fixed + in_flight[device] * kept > problem.cluster.memory] = np.inf
    return table
