"""Who waits for whom, and for ever: the deadlocks of an order whose messages are buffered.

A device that waits does so at the front of its queue, for an action that stands in another queue or
further back in its own. Where nobody can go on, some of them wait for each other in a circle.
Everything here is asked of a schedule whose actions are all there, once, and in their places.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from gpipe_sim.schedule.actions import Action, Kind, OverlapFB
from gpipe_sim.schedule.base import Schedule, needs
from gpipe_sim.schedule.rules import NEEDS


class Wait(NamedTuple):
    """A device that cannot go on: its next action needs another, which stands at ``place`` in its queue."""

    device: int
    action: Action | OverlapFB
    need: Action
    other: int
    place: int

    @property
    def sentence(self) -> str:
        needed = f"{self.need} (queued on device {self.other})"
        return f"device {self.device} is stuck at {self.action}: it needs {needed}"


def wanted_slots(schedule: Schedule, made: dict, waiting: dict) -> dict[Kind, list[list[tuple]]]:
    """``NEEDS`` spelled out for loops that run once per action: where to look for what an action needs.

    For each kind and stage, (made, located, offset, waiting) of each kind that it needs: look at
    ``offset + microbatch`` in the first two.
    """
    located, stages, size = schedule.located, schedule.stages, schedule.microbatches
    present = {kind for kind in Kind if any(device is not None for device in located[kind])}
    return {
        kind: [
            [
                (made[source], located[source], (stage + step) * size, waiting[source])
                for source, step in NEEDS[kind]
                if source in present and 0 <= stage + step < stages
            ]
            for stage in range(stages)
        ]
        for kind in Kind
    }


def blocked(schedule: Schedule) -> dict[int, int]:
    """Which devices cannot finish: device -> index in its row of the action it is stuck at.

    Empty if the order can finish. Each device runs its row as far as it can; whoever waits is woken
    by the action that it waits for. Linear in the number of actions.
    """
    rows, size = schedule.actions, schedule.microbatches
    done = {kind: bytearray(len(slots)) for kind, slots in schedule.located.items()}
    waiting = {kind: {} for kind in Kind}
    wanted = wanted_slots(schedule, done, waiting)
    at, runnable = [0] * schedule.devices, list(range(schedule.devices))

    def must_wait(device: int, parts: Sequence[Action]) -> bool:
        for stage, kind, microbatch in parts:
            for ended, located, offset, waiters in wanted[kind][stage]:
                slot = offset + microbatch
                if not ended[slot] and located[slot] is not None:
                    waiters.setdefault(slot, []).append(device)
                    return True
        return False

    while runnable:
        device = runnable.pop()
        row = rows[device]
        while at[device] < len(row) and not must_wait(device, parts := row[at[device]].parts):
            at[device] += 1
            for stage, kind, microbatch in parts:
                slot = stage * size + microbatch
                done[kind][slot] = True
                runnable += waiting[kind].pop(slot, ())
    return {d: i for d, i in enumerate(at) if i < len(rows[d])}


def waiting(schedule: Schedule) -> list[Wait]:
    """For each device that cannot finish, what it is stuck at and the first thing that it waits for."""
    return [next(group) for _, group in groupby(all_waits(schedule), key=lambda wait: wait.device)]


def all_waits(schedule: Schedule) -> list[Wait]:
    """As ``waiting``, with everything that each device waits for."""
    stuck = blocked(schedule)
    return [wait for device, at in stuck.items() for wait in _waits(schedule, device, at, stuck)]


def _waits(schedule: Schedule, device: int, at: int, stuck: dict[int, int]) -> Iterator[Wait]:
    action = schedule.actions[device][at]
    for need in needs(action, schedule):
        other = schedule.device_of(need)
        place = next(i for i, queued in enumerate(schedule.actions[other]) if need in queued.parts)
        if other in stuck and place >= stuck[other]:
            yield Wait(device, action, need, other, place)


def circle(waits: Sequence[Wait]) -> list[Wait]:
    """The fewest that wait for each other in a circle, lowest device first; not who queues up behind it.

    ``waits`` holds at least one wait of every stuck device, so there is a circle.
    """
    of = defaultdict(list)
    for wait in waits:
        of[wait.device].append(wait)
    found = min(filter(None, (_way_round(device, of) for device in list(of))), key=len)
    first = found.index(min(found))
    return found[first:] + found[:first]


def _way_round(device: int, of: dict[int, list[Wait]]) -> list[Wait]:
    """The shortest way from a device back to itself along waits; nothing if there is none."""
    ways, reached = deque([wait] for wait in of[device]), {device}
    while ways:
        way = ways.popleft()
        if way[-1].other == device:
            return way
        if way[-1].other not in reached:
            reached.add(way[-1].other)
            ways += ([*way, wait] for wait in of[way[-1].other])
    return []


def in_words(found: Sequence[Wait]) -> str:
    """A circle as one sentence: 0B0 needs 1B0, queued behind 1F1, which needs 0F1, queued behind 0B0."""
    links = []
    for wait, after in zip(found, [*found[1:], found[0]], strict=True):
        in_its_way = "" if wait.need in after.action.parts else f", queued behind {after.action}"
        links.append(f"needs {wait.need}{in_its_way}")
    return f"{found[0].action} {', which '.join(links)}"
