"""The clock of a whole order: all actions of a level are timed at once, level after level.

To time many runs of one order at once, as with noise, give columns a second axis: one column for each run.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gpipe_sim.core.levels import Levels, places
from gpipe_sim.core.program import Program

Column = np.ndarray


class Clock(NamedTuple):
    """When entries start and end, by entry; and when messages leave and arrive, by need that crosses."""

    start: Column
    end: Column
    sent: Column
    arrived: Column


def time_program(program: Program, durations: Column, delays: Column, travel: Column | None = None) -> Clock:
    """Every entry lasts as long as its duration says, and every message is on its way for its delay.

    ``travel`` is a mask over the needs: which of them have a delay. By default those that cross to another
    device; only links with ``overlap=False`` pass another.
    """
    travel = program.crosses if travel is None else travel
    start, end = _time_by_level(program, durations, delays, travel)
    sent = end[program.entry[program.needs[travel]]]
    return Clock(start, end, sent, sent + delays)


def _time_by_level(
    program: Program, durations: Column, delays: Column, travel: Column
) -> tuple[Column, Column]:
    """When each entry starts and ends. Inside, columns are sorted by level; what is returned, by entry."""
    levels = program.levels
    before, durations = levels.before, durations[levels.order]
    late = _delays(program, levels, delays, travel) if delays.dtype == object or delays.any() else None
    starts = np.empty_like(durations)
    ends = np.zeros((len(durations) + 1, *durations.shape[1:]), durations.dtype)
    for low, high in pairwise(levels.bounds):
        arrived = ends.take(before[:, low:high], axis=0)
        if late is not None:
            arrived += late[:, low:high]
        start = starts[low:high] = np.maximum.reduce(arrived, axis=0)
        np.add(start, durations[low:high], out=ends[low:high])
    return starts[levels.rank], ends[levels.rank]


def _delays(program: Program, levels: Levels, delays: Column, travel: Column) -> Column:
    """For each cell of ``levels.before``, the time until it is there: a message's delay, or else 0."""
    table = np.zeros((*levels.before.shape, *delays.shape[1:]), delays.dtype)
    row, entry = places(program.needs_from)
    table[row[travel] + 1, levels.rank[entry[travel]]] = delays
    return table
