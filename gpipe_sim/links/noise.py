"""How long a step takes when no action takes exactly as long as planned: many runs of one order, at once."""

from collections.abc import Callable
from math import log1p, sqrt

import numpy as np

from gpipe_sim.core.clock import time_program
from gpipe_sim.core.cost_model import CostModel, price_program, require_costs
from gpipe_sim.core.costs import UNIT
from gpipe_sim.core.numbers import as_columns
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.core.simulate import simulate, too_long
from gpipe_sim.errors import Real, got, number, require_few, whole

Column = np.ndarray
MOST_NOISE = 3  #: a deviation of three times the mean; whoever says more means per cent
RUNS, NUMBERS = 256, 2_000_000  #: at once, of all actions together: more are no quicker and need more memory


def simulate_many(
    schedule: Schedule,
    costs: CostModel | None = None,
    *,
    noise: Real,
    runs: int = 1000,
    seed: int = 0,
) -> Column:
    """The makespans of many runs, (runs,) floats: each action takes what it costs, times a random factor.

    >>> makespans = gp.simulate_many(gp.OneFOneB(4, 8), noise=0.1, runs=200)
    >>> makespans.shape
    (200,)
    >>> gp.simulate(gp.OneFOneB(4, 8)).makespan < float(makespans.mean())
    True

    ``noise`` is the standard deviation of the factors, 0.1 for 10%; they are log-normal with mean 1, so no
    action takes less than no time. The order of the actions is the schedule's in every run, and messages take
    as long as the costs say.

    The mean is at least the makespan without noise, because the mean of the factors is 1: devices wait for
    the later of two, and the mean of a maximum is no less than the maximum of the means. Same seed, same
    numbers; more runs begin with those of fewer. It refuses what ``simulate`` refuses, and ValueError or
    TypeError for noise that is no number from 0 to 3, and less than one run.
    """
    require_schedule("simulate_many", schedule)
    costs, program = UNIT if costs is None else costs, schedule.program
    require_costs("simulate_many", costs, schedule.stages, schedule.devices)
    draw = log_normal(noise)
    require_few("simulate_many", runs := whole("simulate_many", "runs", runs), "runs")
    rng = np.random.default_rng(whole("simulate_many", "seed", seed, 0))
    simulate(schedule, costs)  # which refuses what cannot run
    columns, in_units = as_columns(*price_program(costs, program))
    try:
        durations, delays = (in_units(column).astype(float)[:, None] for column in columns)
    except OverflowError:  # of whole numbers that no float holds
        raise too_long(schedule) from None
    at_once = max(1, min(RUNS, NUMBERS // program.size))
    found = []
    for first in range(0, runs, at_once):
        factors = [draw(rng, program.size) for _ in range(min(at_once, runs - first))]
        with np.errstate(over="ignore"):
            clock = time_program(program, durations * np.stack(factors, axis=1), delays)
        found += clock.end.max(axis=0).tolist()
    if not np.isfinite(found).all():
        raise too_long(schedule)
    return np.array(found)


def log_normal(noise: Real) -> Callable[[np.random.Generator, int], Column]:
    """A function that draws factors with mean 1 and this standard deviation. ValueError outside 0 to 3."""
    if not 0 <= (spread := number("simulate_many", "noise", noise)) <= MOST_NOISE:
        raise ValueError(
            f"simulate_many needs noise from 0 to {MOST_NOISE}, a share of each time: 0.1 is 10% {got(noise)}"
        )
    variance = log1p(float(spread) ** 2)
    return lambda rng, actions: rng.lognormal(-variance / 2, sqrt(variance), actions)
