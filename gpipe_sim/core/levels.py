"""The levels of an order: how far the devices get if they all go on together, and where they get stuck.

In each round, every device runs the next entry of its row if all that this entry needs has run in earlier
rounds. The round in which an entry runs is its level. If a round comes in which no device can go on although
some have entries left, the order deadlocks.
"""

from itertools import accumulate
from typing import NamedTuple

import numpy as np

Column = np.ndarray


class Levels(NamedTuple):
    """The entries sorted by level. Level i is ``order[bounds[i]:bounds[i + 1]]``, at most one per device.

    ``rank`` is the place of each entry in ``order``. ``before`` has a column for each place in ``order``:
    what must have ended before it, first the entry that its device runs just before, then all that it needs,
    each as a place. Cells without such an entry hold a place past the last, which ends at time 0. ``stuck``
    maps a device to the entry that it never gets to start; if any device is stuck, ``order`` ends early.
    """

    order: Column
    bounds: list[int]
    rank: Column
    before: Column
    stuck: dict[int, int]


def find_levels(rows: Column, needs_from: Column, needed: Column) -> Levels:
    """Sort entries into levels. Columns are those of ``Program``, but ``needed`` holds entries, not parts.

    Device k has the entries from ``rows[k]`` up to ``rows[k + 1]``; entry e needs the entries
    ``needed[needs_from[e]:needs_from[e + 1]]``.
    """
    size = int(rows[-1])
    start, never = size, size + 1  # two extra entries: one has always run, one never runs
    waits = _padded(needs_from, needed, fill=start, width=size + 2)
    waits[:, never] = never
    following = np.arange(1, size + 1)
    front = rows[:-1].astype(np.int64)  # NumPy would convert a narrower index in every round
    filled = front < rows[1:]
    following[rows[1:][filled] - 1] = never
    front[~filled] = never
    done = np.zeros(size + 2, bool)
    done[start] = True
    first, *others = waits
    rounds = []
    while True:
        ready = done.take(first.take(front))
        for row in others:
            ready &= done.take(row.take(front))
        started = front[ready]
        if not started.size:
            break
        rounds.append(started)
        done[started] = True
        front[ready] = following[started]
    order = np.concatenate(rounds) if rounds else np.zeros(0, int)
    rank = np.full(size + 1, size)
    rank[order] = np.arange(len(order))
    previous = np.arange(-1, size - 1)
    previous[rows[:-1][filled]] = size
    before = rank[np.vstack([previous[None], waits[:, :size]])[:, order]]
    bounds = list(accumulate(map(len, rounds), initial=0))
    stuck = {int(device): int(front[device]) for device in np.flatnonzero(front != never)}
    for column in (order, rank, before):
        column.flags.writeable = False
    return Levels(order, bounds, rank[:-1], before, stuck)


def _padded(starts: Column, values: Column, fill: int, width: int) -> Column:
    """A table whose column i is the run of values that begins at ``starts[i]``, filled up with ``fill``."""
    table = np.full((max(1, int((starts[1:] - starts[:-1]).max(initial=0))), width), fill)
    table[places(starts)] = values
    return table


def places(starts: Column) -> tuple[Column, Column]:
    """For each value, its row and its column in a table whose columns are runs that begin at ``starts``."""
    run = np.repeat(np.arange(len(starts) - 1), starts[1:] - starts[:-1])
    return np.arange(len(run)) - starts[run], run
