"""In which order devices get to what stands in their rows, round by round; and where they get stuck.

In each round every device whose next entry has all that it needs runs it, all at once. An entry's round is
its level: it needs only entries of lower levels. Where no device can go on, the order deadlocks.
"""

from itertools import accumulate
from typing import NamedTuple

import numpy as np

Column = np.ndarray


class Levels(NamedTuple):
    """Entries by level. Level i is ``order[bounds[i]:bounds[i + 1]]``; no device is in one twice.

    ``rank`` is the place of each entry in ``order``. ``before`` has a column for each place in ``order``: the
    place of the entry before it on its device, then those of its needs, filled up with the number of entries,
    which stands for the beginning. ``stuck`` is device -> the entry that it never gets to start; where there
    is any, ``order`` ends early.
    """

    order: Column
    bounds: list[int]
    rank: Column
    before: Column
    stuck: dict[int, int]


def find_levels(rows: Column, needs_from: Column, needed: Column) -> Levels:
    """``rows`` says where each device's entries begin, ``needed`` which entry each need is of."""
    size = int(rows[-1])
    start, never = size, size + 1  # two entries more: one that has always run, one that never does
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
    return Levels(order, bounds, rank[:-1], before, stuck)


def _padded(starts: Column, values: Column, fill: int, width: int) -> Column:
    """Runs of values as the columns of a table, each filled up below; run i begins at ``starts[i]``."""
    table = np.full((max(1, int((starts[1:] - starts[:-1]).max(initial=0))), width), fill)
    table[places(starts)] = values
    return table


def places(starts: Column) -> tuple[Column, Column]:
    """In a table whose columns are runs of values: the row and the column of each value."""
    run = np.repeat(np.arange(len(starts) - 1), starts[1:] - starts[:-1])
    return np.arange(len(run)) - starts[run], run
