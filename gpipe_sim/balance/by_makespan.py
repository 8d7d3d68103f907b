"""Where to cut a model so that a whole step of a schedule is short, and how far from the best that may be.

How fast the slowest stage is does not decide it alone: a slow first stage costs less than a slow stage in the
middle, which waits for more. So cuts are simulated. Most need not be: that they take longer can be seen from
the layers of a single stage (``plan.cut_bounds``). If few are left, all of them are simulated, and the best
is proven to be the best. Otherwise layers are moved about as long as that helps.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from math import inf
from numbers import Real

import numpy as np

from gpipe_sim.balance.by_cost import balance_by_cost, read_stages
from gpipe_sim.balance.cut_bounds import Bounds
from gpipe_sim.balance.many_cuts import Prices, timer
from gpipe_sim.core.costs import PER_DEVICE, Costs
from gpipe_sim.core.numbers import quotient
from gpipe_sim.core.problems import check
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.errors import got, require, require_few

Column = np.ndarray
OWNER = "balance_by_makespan"
MOST = 1_000  #: layers
SEARCHED, PROVEN = 40_000_000, 100_000_000  #: actions that are timed at most, to find a cut and to prove it
CUTS = 200_000  #: at most, of however few actions
KICKS, MOVES = 20, 3  #: how often a search starts anew, so many random moves from the best cut
STEPS = (1, 2, 4, 8)  #: layers that are moved at once


@dataclass(frozen=True, repr=False)
class BalancePlan:
    """How many layers each stage gets, and the makespan. In no cut is it below the ``bound``."""

    balance: tuple[int, ...]
    makespan: Real
    bound: Real

    @property
    def gap(self) -> float:
        """The share by which the step is at most longer than in the best cut; 0 if this is the best."""
        if self.makespan <= self.bound:
            return 0.0
        return float(self.makespan / self.bound - 1) if self.bound else inf

    def __repr__(self) -> str:
        runs = [(size, len(list(run))) for size, run in groupby(self.balance)]
        balance = ", ".join(f"{size}" if times == 1 else f"{size}x{times}" for size, times in runs)
        within = f"at most {self.gap:.1%} above the best" if self.gap else "no cut is better"
        return f"<BalancePlan {balance}: makespan {self.makespan}, {within}>"


def balance_by_makespan(schedule: Schedule, costs: Costs) -> BalancePlan:
    """How many layers each stage gets, so that a step of this schedule ends as early as possible.

    ``costs`` are those of single layers, one number or one for each: ``Costs.measured`` and
    ``Profile.costs`` give them for a model that is split into as many stages as it has layers. An embedding
    or a head is part of the first or the last layer. Speeds, overheads and ``comm`` count as ``simulate``
    counts them; the order of the actions is the schedule's, whatever the cut.

    It starts from the cut of ``balance_by_cost`` and simulates all cuts that may be better. Where these are
    too many, it moves layers from stage to stage as long as that helps. What it finds then may not be the
    best; the ``bound`` says how far from the best it is at most. For floats, both are right to rounding.

    It takes seconds at most: one for 1,000 layers and 1F1B on 64 devices. ValueError for more stages than
    layers, more than 1,000 layers, or costs that list none; TypeError for another cost model; ScheduleError
    or DeadlockError for a schedule that cannot run.
    """
    require_schedule(OWNER, schedule)
    layers = _layers(costs, schedule)
    check(schedule)
    program = schedule.program
    prices = Prices(program, costs, layers)
    known = _Known(timer(program, prices), program.size)
    known.add(np.array([_ends(balance) for balance in _even(schedule, costs, layers)]))
    bounds = Bounds(program, prices, layers, known.best)
    known.add(_ends(bounds.cut())[None])
    bound = known.prove(bounds)
    balance = np.diff(known.cut).tolist()
    makespan = simulate(schedule, costs.merged(balance)).makespan
    bound = makespan if bound == known.best else quotient(bound.item(), prices.unit)
    return BalancePlan(tuple(balance), makespan, bound)


class _Known:
    """The cuts that have been timed; the best is the first of those that are as short."""

    def __init__(self, makespans: Callable[[Column], Column], size: int):
        self.makespans, self.size = makespans, size
        self.left = max(1, SEARCHED // size)  #: how many may still be timed in a search
        self.times: dict[bytes, Real] = {}
        self.best = inf

    def add(self, cuts: Column) -> None:
        new = {cut.tobytes(): cut for cut in cuts if cut.tobytes() not in self.times}
        if not new:
            return
        times = dict(zip(new, self.makespans(np.array(list(new.values()))), strict=True))
        self.times |= times
        self.left -= len(new)
        shortest = min(times, key=times.get)
        if times[shortest] < self.best:
            self.best, self.cut = times[shortest], new[shortest]

    def search(self, least: Real) -> None:
        """Go downhill from the cuts that are known, and then from what a few moves make of the best one."""
        rng = np.random.default_rng(0)
        for start in list(self.times):
            self._descend(np.frombuffer(start, dtype=int))
        for _ in range(KICKS):
            if self.best <= least or self.left <= 0:
                break
            cut = self.cut
            for _ in range(MOVES):
                cut = rng.choice(neighbours(cut))
            self._descend(cut)

    def _descend(self, cut: Column) -> None:
        """To the best neighbour, and to the best of its neighbours, as long as that is shorter."""
        self.add(cut[None])
        time = inf
        while self.left > 0 and self.times[cut.tobytes()] < time:
            time = self.times[cut.tobytes()]
            near = neighbours(cut)
            near = near[:: -(-len(near) // self.left)]  # not all, where there are too many
            self.add(near)
            cut = min(near, key=lambda each: self.times[each.tobytes()])

    def prove(self, bounds: Bounds) -> Real:
        """Time all cuts that may be shorter than the best; where these are too many, search for a better one
        and then time as many as there is time for.

        No cut is shorter than what is returned: the best that is known then, or less.
        """
        if not self.few(bounds, self.best):
            least = bounds.least()
            self.search(least)
            if not self.few(bounds, self.best):
                limit = _last(lambda at: self.few(bounds, at), 0, self.best)
                self.add(bounds.cuts(limit))
                return min(max(limit, least), self.best)
        self.add(bounds.cuts(self.best))
        return self.best

    def few(self, bounds: Bounds, limit: Real) -> bool:
        """Whether there is time for all cuts that may be shorter than a limit."""
        return bounds.count(limit) <= min(CUTS, PROVEN // self.size)


def _last(holds: Callable[[Real], bool], low: Real, high: Real) -> Real:
    """About the largest number for which it holds; it does for ``low`` and not for ``high``."""
    for _ in range(60):
        middle = (low + high) / 2 if isinstance(high, float) else (low + high) // 2
        if not low < middle < high:
            break
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def neighbours(ends: Column) -> Column:
    """Cuts in which some layers went from one stage to another, and those in between moved along."""
    return np.array([ends, *_moved(ends)])


def _moved(ends: Column) -> Iterator[Column]:
    for first in range(1, len(ends) - 1):
        for last in range(first, len(ends) - 1):
            for step in STEPS:
                if ends[first] - ends[first - 1] > step:
                    yield _shifted(ends, first, last, -step)
                if ends[last + 1] - ends[last] > step:
                    yield _shifted(ends, first, last, step)


def _shifted(ends: Column, first: int, last: int, step: int) -> Column:
    moved = ends.copy()
    moved[first : last + 1] += step
    return moved


def _ends(balance: list[int]) -> Column:
    return np.cumsum([0, *balance])


def _even(schedule: Schedule, costs: Costs, layers: int) -> tuple[list[int], list[int]]:
    """The cuts of ``balance_by_cost``: with the larger of equal stages in front, and at the end."""
    alone = costs.merged([1] * layers)
    work = [alone.forward[i] + alone.input_grad[i] + alone.weight_grad[i] for i in range(layers)]
    speed = costs.speed if isinstance(costs.speed, tuple) else (costs.speed,) * schedule.devices
    speeds = [
        min(speed[device] for device, held in enumerate(schedule.placement) if stage in held)
        for stage in range(schedule.stages)
    ]
    backwards = balance_by_cost(work[::-1], schedule.stages, speeds=speeds[::-1])
    return balance_by_cost(work, schedule.stages, speeds=speeds), backwards[::-1]


def _layers(costs: Costs, schedule: Schedule) -> int:
    """How many layers the costs list; what cannot be cut is refused."""
    require(OWNER, costs, Costs, "costs of single layers, such as Costs([1, 1, 2])")
    if type(costs).duration is not Costs.duration or type(costs).transfer is not Costs.transfer:
        raise TypeError(
            f"{OWNER} adds up the costs of layers, so it needs Costs and no subclass {got(costs)}"
        )
    listed = [
        cost for name, cost in vars(costs).items() if isinstance(cost, tuple) and name not in PER_DEVICE
    ]
    if not listed:
        raise ValueError(f"{OWNER} needs what each layer costs, such as Costs([1, 1, 2]) {got(costs)}")
    costs.require_devices(schedule.devices)
    layers = len(listed[0])
    require_few(OWNER, layers, "layers", MOST)
    read_stages(OWNER, layers, schedule.stages)
    return layers
