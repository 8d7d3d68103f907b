"""How long a step takes when no action takes exactly as long as planned: many runs of one order, at once."""

from collections.abc import Callable
from math import log1p, sqrt
from numbers import Real

import numpy as np

from gpipe_sim.core.clock import timed
from gpipe_sim.core.cost_model import CostModel, require_costs
from gpipe_sim.core.costs import UNIT
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.core.simulate import Sizes, simulate, too_long
from gpipe_sim.errors import got, require, require_few, require_in, whole
from gpipe_sim.links.links import Link, Links, OnLinks, message_sizes, queued
from gpipe_sim.links.traffic import traffic_of

Column = np.ndarray
Noise = Real | Callable[[np.random.Generator, int], Column]
RUNS, NUMBERS = 256, 2_000_000  #: at once, of all actions together: more are no quicker and need more memory


def simulate_many(
    schedule: Schedule,
    costs: CostModel | None = None,
    *,
    noise: Noise,
    runs: int = 1000,
    seed: int = 0,
    links: Links | None = None,
    profile: Sizes | None = None,
) -> Column:
    """The makespans of many runs, (runs,) floats: each action takes what it costs, times a random factor.

    ``noise`` is the standard deviation of the factors, 0.1 for 10%; they are log-normal with mean 1, so no
    action takes less than no time. Or it is a function of a generator and a number of actions that gives a
    factor for each, device after device in the order of their rows; it is called once for each run. The
    order of the actions is the schedule's in every run, and messages take as long as ``simulate`` says.

    The mean is at least the makespan without noise, however the factors are drawn, as long as their mean is
    1: devices wait for the later of two, and the mean of a maximum is no less than the maximum of the means.
    Same seed, same numbers; more runs begin with those of fewer. It refuses what ``simulate`` refuses, and
    ValueError or TypeError for other noise, less than one run, and factors that are no times.
    """
    require_schedule("simulate_many", schedule)
    costs = UNIT if costs is None else costs
    require_costs("simulate_many", costs, schedule.stages, schedule.devices)
    draw = noise if callable(noise) else log_normal(noise)
    require_few("simulate_many", whole("simulate_many", "runs", runs), "runs")
    rng = np.random.default_rng(whole("simulate_many", "seed", seed, 0))
    simulate(schedule, costs, links=links, profile=profile)  # which refuses what cannot run
    try:
        durations, clock = _clock(schedule, costs, links, profile)
    except OverflowError:  # of whole numbers that no float holds
        raise too_long(schedule) from None
    at_once = max(1, min(RUNS, NUMBERS // len(durations)))
    found = []
    for first in range(0, runs, at_once):
        factors = [_drawn(draw, rng, len(durations)) for _ in range(min(at_once, runs - first))]
        with np.errstate(over="ignore"):
            found += clock(durations * np.stack(factors, axis=1)).tolist()
    if not np.isfinite(found).all():
        raise too_long(schedule)
    return np.array(found)


def log_normal(noise: Real) -> Callable[[np.random.Generator, int], Column]:
    """A function that draws factors with mean 1 and this standard deviation. ValueError outside [0, 100)."""
    require("simulate_many", noise, Real, "noise to be a number, or a function of (rng, actions)")
    variance = log1p(float(require_in("simulate_many", "noise", noise, 0, 100)) ** 2)
    return lambda rng, actions: rng.lognormal(-variance / 2, sqrt(variance), actions)


def _clock(
    schedule: Schedule, costs: CostModel, links: Links | None, profile: Sizes | None
) -> tuple[Column, Callable[[Column], Column]]:
    """What actions take without noise, (actions, 1), and what turns (actions, runs) into makespans."""
    program, links, profile = schedule.program, *((Link(), None) if links is None else (links, profile))
    columns, in_units = OnLinks(costs, links, message_sizes(schedule, profile), True).columns(program)
    durations, busy, late = (in_units(column).astype(float)[:, None] for column in columns)
    if busy.any():
        return durations, lambda those: queued(program, those, busy, late).end.max(axis=0)
    delays = late[traffic_of(program).of_need]
    return durations, lambda those: timed(program, those, delays).end.max(axis=0)


def _drawn(draw: Callable, rng: np.random.Generator, actions: int) -> Column:
    """The factors of one run; TypeError or ValueError for what is no column of them."""
    found = draw(rng, actions)
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "fiu":
        raise TypeError(f"simulate_many needs noise to give an array of factors {got(found)}")
    if found.shape != (actions,):
        raise ValueError(
            f"simulate_many needs noise to give a factor for each of {actions} actions (got {found.shape})"
        )
    if (unfit := found[~(np.isfinite(found) & (found >= 0))]).size:
        raise ValueError(
            f"simulate_many needs noise to give factors that are finite and >= 0 {got(unfit[0].item())}"
        )
    return found
