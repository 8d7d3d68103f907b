"""Where to cut a model so that a whole step of a schedule is short, and how far from the best that may be.

How fast the slowest stage is does not decide it alone: a slow first stage costs less than a slow stage in the
middle, which waits for more. So cuts are simulated. Most need not be: the layers of a single stage already
show that they take longer (``balance.stage_bounds``). If few cuts are left, all of them are simulated, and
the best one is proven to be the best. Otherwise layers are moved about for as long as that helps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from math import inf
from typing import Any

import numpy as np

from gpipe_sim.balance.by_cost import balance_by_cost, read_stages
from gpipe_sim.balance.costs_of_stages import layers_listed, merged
from gpipe_sim.balance.many_cuts import ManyCuts, layer_times, per_device
from gpipe_sim.balance.stage_bounds import ROUNDING, StageBounds
from gpipe_sim.core.costs import PER_DEVICE, Costs
from gpipe_sim.core.problems import check
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import number
from gpipe_sim.errors import Real, got, require_few

Column = np.ndarray
Cut = tuple[int, ...]  #: the layers of each stage
OWNER = "balance_by_makespan"
MOST = 1_000  #: layers
TIMED = 40_000_000  #: actions, in all cuts that are moved to from one cut, and in all that may be better
CUTS = 200_000  #: at most, of however few actions
STEPS = (-8, -4, -2, -1, 1, 2, 4, 8)  #: layers that are moved at once


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
        return f"<BalancePlan {balance}: makespan {number(self.makespan)}, {within}>"


def balance_by_makespan(schedule: Schedule, costs: Costs) -> BalancePlan:
    """How many layers each stage gets, so that a step of this schedule ends as early as possible.

    ``costs`` are those of single layers, one number or one for each: ``Costs.measured`` and
    ``Profile.costs`` give them for a model that is split into as many stages as it has layers. An embedding
    or a head is part of the first or the last layer. Speeds, overheads and ``comm`` count as ``simulate``
    counts them; the order of the actions is the schedule's, whatever the cut.

    It starts from the cut of ``balance_by_cost`` and simulates all cuts that may be better. Where these are
    too many, it moves layers from stage to stage as long as that helps. What it finds then may not be the
    best; the ``bound`` says how far from the best it is at most. It is right to rounding.

    It takes seconds at most: three for 1,000 layers and 1F1B on 64 devices. ValueError for more stages than
    layers, more than 1,000 layers, or costs that list none; TypeError for another cost model; ScheduleError
    or DeadlockError for a schedule that cannot run.
    """
    require_schedule(OWNER, schedule)
    layers = _layers(costs, schedule)
    check(schedule)
    timed = ManyCuts(schedule.program, costs, layers)
    cuts = np.array([_ends(balance) for balance in even_cuts(schedule, costs, layers)])
    bounds = StageBounds(timed, timed.makespans(cuts).min())
    cuts = np.vstack([cuts, _ends(bounds.cut())])
    if not _few(bounds, timed.makespans(cuts).min()):
        cuts = np.array([moved(timed, cut) for cut in cuts])
    cut, time = _shortest(timed, cuts)
    if proven := _few(bounds, time):
        cut, time = _shortest(timed, np.vstack([cut, bounds.cuts(time)]))
    balance = np.diff(cut).tolist()
    makespan, least = simulate(schedule, merged(costs, balance)).makespan, bounds.least()
    proven |= least >= time * (1 - ROUNDING)
    return BalancePlan(tuple(balance), makespan, makespan if proven else least)


def _shortest(timed: ManyCuts, cuts: Column) -> tuple[Column, float]:
    """(the first of the cuts that are as short, what it takes)."""
    times = timed.makespans(cuts)
    return cuts[times.argmin()], times.min()


def _few(bounds: StageBounds, limit: Real) -> bool:
    """Whether there is time for all cuts that may be shorter than a limit."""
    return bounds.count(limit) <= min(CUTS, TIMED // bounds.program.size)


def moved(timed: Any, cut: Column, most: int = TIMED) -> Column:
    """Move layers from one stage to another, and those in between along, as long as that helps.

    Not more than so many actions are timed in all cuts together.
    """
    left, time = max(1, most // timed.program.size), inf
    while left > 0:
        near = _neighbours(cut)
        near = near[:: -(-len(near) // left)]  # not all, where there are too many
        left -= len(near)
        best, shortest = _shortest(timed, near)
        if shortest >= time:
            break
        cut, time = best, shortest
    return cut


def _neighbours(ends: Column) -> Column:
    """The cut, and those in which some layers went from one stage to another; (cuts, stages + 1)."""
    inner = np.arange(len(ends) - 2)
    first, last = (each[:, None] for each in np.triu_indices(len(inner)))
    between = (inner >= first) & (inner <= last)
    moves = np.concatenate([between * step for step in STEPS]) if len(inner) else np.zeros((0, 0), int)
    found = np.repeat(ends[None], 1 + len(moves), axis=0)
    found[1:, 1:-1] += moves
    return found[(np.diff(found, axis=1) > 0).all(axis=1)]


def _ends(balance: Sequence[int]) -> Column:
    return np.cumsum([0, *balance])


def even_cuts(schedule: Schedule, costs: Costs, layers: int) -> tuple[Cut, Cut]:
    """The cuts of ``balance_by_cost``: with the larger of equal stages in front, and at the end."""
    speed = per_device(costs.speed, schedule.devices)
    speeds = [
        min(speed[device] for device, held in enumerate(schedule.placement) if stage in held)
        for stage in range(schedule.stages)
    ]
    return _even_cuts(costs, layers, tuple(speeds))


@lru_cache(maxsize=8)  # of all families with as many stages these are the same
def _even_cuts(costs: Costs, layers: int, speeds: tuple[Real, ...]) -> tuple[Cut, Cut]:
    work = [sum(times) for times in zip(*layer_times(costs, layers), strict=True)]
    backwards = balance_by_cost(work[::-1], len(speeds), speeds=speeds[::-1])
    return tuple(balance_by_cost(work, len(speeds), speeds=speeds)), tuple(backwards[::-1])


def _layers(costs: Costs, schedule: Schedule) -> int:
    """How many layers the costs list; what cannot be cut is refused."""
    if not (layers := layers_listed(OWNER, costs)):
        raise ValueError(
            f"{OWNER} needs what each layer costs, such as Costs.from_forward([1, 1, 2]) {got(costs)}"
        )
    costs.require_length("devices", schedule.devices, PER_DEVICE)
    require_few(OWNER, layers, "layers", MOST)
    read_stages(OWNER, layers, schedule.stages)
    return layers
