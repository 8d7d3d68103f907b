"""When everything happens: a schedule and its costs give a timeline.

There is no tick loop. An action starts at the later of two times: when its device is free, and when the last
thing that it needs has arrived. All actions of a level (``schedule.levels``) are timed at once, level after
level. An order in which some device gets stuck is refused before anything is timed.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from gpipe_sim.errors import got
from gpipe_sim.schedule.base import Schedule, require_schedule
from gpipe_sim.schedule.levels import Levels, places
from gpipe_sim.schedule.program import Program
from gpipe_sim.simulation.costs import UNIT, CostModel, priced, require_costs
from gpipe_sim.simulation.numbers import as_columns
from gpipe_sim.simulation.problems import check
from gpipe_sim.simulation.timeline import Timeline

Column = np.ndarray


def simulate(
    schedule: Schedule, costs: CostModel | None = None, *, profile: Any = None, memory_limit: Any = None
) -> Timeline:
    """Time a schedule. ScheduleError or DeadlockError if it cannot run, ValueError if its costs do not fit.

    With a ``memory_limit``, bytes for all devices or for each, and the ``profile`` of a model, a step that
    does not fit is a MemoryLimitError.

    ``costs`` are ``Costs`` or any other ``CostModel``; they default to 1 for F, I and W each, so that a full
    backward takes 2. Times are in the unit of the costs, and exact if the costs are: whole numbers, however
    large, and ``Fraction``. It takes some microseconds per level and nanoseconds per action, so it is slow
    only for an order in which hardly any two devices ever work at the same time.
    """
    require_schedule("simulate", schedule)
    costs = UNIT if costs is None else require_costs("simulate", costs)
    program = schedule.program
    costs.require_stages(program.stages)
    check(schedule)
    if profile is not None and not hasattr(profile, "require_within"):
        raise TypeError(f"simulate needs a profile, as profile(partitions, batch, loss) gives {got(profile)}")
    if memory_limit is not None:
        if profile is None:
            raise TypeError("simulate needs a profile to know what a step holds: simulate(..., profile=...)")
        profile.require_within(schedule, memory_limit, costs)
    (durations, delays), in_units = as_columns(*priced(costs, program))
    try:
        with np.errstate(over="ignore"):
            start, end = _timed(program, durations, delays)
    except OverflowError:  # of whole numbers beside floats
        raise _too_long(schedule) from None
    needed = program.entry[program.needs[program.crosses]]
    arrived = in_units(end[needed] + delays)
    if end.dtype == float and not np.isfinite(end).all():
        raise _too_long(schedule)
    start, end = in_units(start), in_units(end)
    return Timeline(schedule, start, end, sent=end[needed], arrived=arrived)


def _too_long(schedule: Schedule) -> ValueError:
    return ValueError(f"{schedule!r} lasts longer than the largest float; whole numbers may be any size")


def _timed(program: Program, durations: Column, delays: Column) -> tuple[Column, Column]:
    """When each entry starts and ends. Inside, columns are sorted by level; what is returned, by entry."""
    levels = program.levels
    before, durations = levels.before, durations[levels.order]
    late = _delays(program, levels, delays) if delays.dtype == object or delays.any() else None
    starts, ends = np.empty_like(durations), np.append(durations, durations.dtype.type(0))
    for low, high in pairwise(levels.bounds):
        arrived = ends.take(before[:, low:high])
        if late is not None:
            arrived += late[:, low:high]
        start = starts[low:high] = np.maximum.reduce(arrived, axis=0)
        np.add(start, durations[low:high], out=ends[low:high])
    return starts[levels.rank], ends[levels.rank]


def _delays(program: Program, levels: Levels, delays: Column) -> Column:
    """For each cell of ``levels.before``, the time until it is there: a message's delay, or else 0."""
    table = np.zeros(levels.before.shape, delays.dtype)
    row, entry = places(program.needs_from)
    table[row[program.crosses] + 1, levels.rank[entry[program.crosses]]] = delays
    return table
