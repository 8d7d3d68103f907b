"""Deadlocks of an order whose messages are buffered: which devices wait for each other for ever.

Read each device's row as a queue. The action at its front may need another one, which stands in another
queue or further back in the same one. If no device can go on, some of them wait for each other in a cycle.
Every function here takes a schedule that ``check_actions`` has passed: each action once, in its place.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from gpipe_sim.core.actions import Action, OverlapFB
from gpipe_sim.core.schedule import Schedule


class Wait(NamedTuple):
    """A device is stuck at ``action``: it needs ``need``, number ``place`` in the row of device ``other``."""

    device: int
    action: Action | OverlapFB
    need: Action
    other: int
    place: int

    @property
    def sentence(self) -> str:
        needed = f"{self.need} (queued on device {self.other})"
        return f"device {self.device} is stuck at {self.action}: it needs {needed}"


def waiting(schedule: Schedule) -> list[Wait]:
    """For each device that cannot finish, the action that it is stuck at and the first that it waits for."""
    return [next(group) for _, group in groupby(all_waits(schedule), key=lambda wait: wait.device)]


def all_waits(schedule: Schedule) -> list[Wait]:
    """As ``waiting``, with everything that each device waits for."""
    stuck = schedule.program.levels.stuck
    return [wait for device, entry in stuck.items() for wait in _waits(schedule, device, entry)]


def _waits(schedule: Schedule, device: int, entry: int) -> Iterator[Wait]:
    program = schedule.program
    for need in program.needs_of(entry):
        other = int(program.device[need])
        if program.entry[need] >= program.levels.stuck.get(other, program.size):
            place = int(program.position[need])
            yield Wait(device, program.entry_of(entry), program.action_of(need), other, place)


def cycle(waits: Sequence[Wait]) -> list[Wait]:
    """The shortest cycle of devices that wait for each other, lowest device first.

    Devices that only wait for one of the cycle are left out. ``waits`` holds at least one wait of every stuck
    device, so there is a cycle.
    """
    of = defaultdict(list)
    for wait in waits:
        of[wait.device].append(wait)
    found = min(filter(None, (_way_round(device, of) for device in list(of))), key=len)
    first = found.index(min(found))
    return found[first:] + found[:first]


def _way_round(device: int, of: dict[int, list[Wait]]) -> list[Wait]:
    """The shortest way along waits from a device back to itself; an empty list if there is none."""
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
    """A cycle as one sentence: 0B0 needs 1B0, queued behind 1F1, which needs 0F1, queued behind 0B0."""
    links = []
    for wait, after in zip(found, [*found[1:], found[0]], strict=True):
        in_its_way = "" if wait.need in after.action.parts else f", queued behind {after.action}"
        links.append(f"needs {wait.need}{in_its_way}")
    return f"{found[0].action} {', which '.join(links)}"
