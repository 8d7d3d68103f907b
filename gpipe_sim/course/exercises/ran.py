"""A step that looks measured: each action takes a time of its own, and each message too."""

from random import Random
from typing import NamedTuple

from gpipe_sim.core.schedule import Schedule
from gpipe_sim.course.answers import NEEDS, needs
from gpipe_sim.course.rows import Step, rows_of

TAKES = {"F": (3, 9), "B": (6, 18)}  #: how long at least and at most


class Ran(NamedTuple):
    """An action: when its device was free for it, what it waited for, and when it began and ended.

    ``sent`` is when the message that it reads left another device, None if it reads none.
    """

    action: Step
    free: int
    sent: int | None
    start: int
    end: int


def ran(schedule: Schedule, rng: Random, slowest: int = 0) -> list[list[Ran]]:
    """Each device's row, one stage on each; a message takes up to ``slowest``, and none overtakes another."""
    rows: list[list[Step]] = [[(s, str(kind), m) for s, kind, m in row] for row in rows_of(schedule)]
    done: list[list[Ran]] = [[] for _ in rows]
    ends: dict[Step, int] = {}
    arrived: dict[tuple[int, int], int] = {}  # when the last message of one device came to another
    while any(len(row) < len(of) for row, of in zip(done, rows, strict=True)):
        for k, row in enumerate(rows):
            for action in row[len(done[k]) : len(done[k]) + 1]:
                wanted: list[Step] = needs(action, len(rows), NEEDS)
                if not all(need in ends for need in wanted):
                    break
                start = free = done[k][-1].end if done[k] else 0
                sent = None
                for need in (need for need in wanted if need[0] != k):
                    sent, hop = ends[need], (need[0], k)
                    arrived[hop] = max(arrived.get(hop, 0), sent + rng.randint(0, slowest))
                    start = max(free, arrived[hop])
                ends[action] = start + rng.randint(*TAKES[action[1]])
                done[k].append(Ran(action, free, sent, start, ends[action]))
    return done
