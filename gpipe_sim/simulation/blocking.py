"""Sends and receives that block: a send ends when the other device receives, as MPI and NCCL allow.

Each device's program follows from its row: right before an action it receives what the action needs from
other devices, right after the action it sends what the action made. If messages are buffered, a send never
waits, and only the order of the actions matters. If sends block, two neighbours that both send first hang,
although the order of their actions is right.

A send and its receive end together, once both devices have come to them: two steps of a ``Machine``.
"""

from collections import defaultdict
from collections.abc import Iterator
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

from gpipe_sim.schedule.actions import Action
from gpipe_sim.schedule.base import Schedule
from gpipe_sim.simulation.machine import Machine


class Direction(StrEnum):
    """Which end of a message a device is on."""

    SEND = "Send"
    RECV = "Recv"


class Transfer(NamedTuple):
    """One end of a message: ``Send 0F1 to device 1``, or ``Recv 0F1 from device 0``."""

    direction: Direction
    what: Action
    other: int

    def __str__(self) -> str:
        to = "to" if self.direction is Direction.SEND else "from"
        return f"{self.direction} {self.what} {to} device {self.other}"

    def other_side(self, device: int) -> "Transfer":
        """The same message as the other device sees it, given that ``device`` has this transfer."""
        sends = self.direction is Direction.SEND
        return Transfer(Direction.RECV if sends else Direction.SEND, self.what, device)


class BlockedCycle(NamedTuple):
    """Devices that wait for each other in a cycle, and the swap that would free them.

    ``waits`` maps each device to the transfer that it waits in. They are freed if device ``receiver`` does
    the receive ``early`` before the transfer that it waits in now.
    """

    waits: dict[int, Transfer]
    receiver: int
    early: Transfer

    @property
    def sentence(self) -> str:
        who = "; ".join(f"device {device} waits in {transfer}" for device, transfer in self.waits.items())
        now = self.waits[self.receiver]
        swap = f"{self.early.direction} {self.early.what} before {now.direction} {now.what}"
        return f"{who}. On device {self.receiver}, put {swap}"


def transfers(schedule: Schedule) -> list[list[Transfer]]:
    """Per device, its sends and receives in order; the actions in between are left out.

    What an action made is sent once to each device that needs it, even if several actions there need it.
    """
    program = schedule.program
    crossing, targets = defaultdict(list), defaultdict(dict)
    columns = (column[program.crosses].tolist() for column in (program.owner, program.needs, program.target))
    for entry, part, target in zip(*columns, strict=True):
        crossing[entry].append(part)
        targets[part][target] = True
    rows, parts = program.rows.tolist(), program.parts.tolist()
    return [
        list(_of_row(program, range(rows[k], rows[k + 1]), parts, crossing, targets))
        for k in range(program.devices)
    ]


def _of_row(program, entries: range, parts: list[int], crossing: dict, targets: dict) -> Iterator[Transfer]:
    received = set()
    for entry in entries:
        for part in crossing.get(entry, ()):
            if part not in received:
                received.add(part)
                yield Transfer(Direction.RECV, program.action_of(part), int(program.device[part]))
        for part in range(parts[entry], parts[entry + 1]):
            for other in sorted(targets.get(part, ())):
                yield Transfer(Direction.SEND, program.action_of(part), other)


def blocked_cycles(schedule: Schedule) -> list[BlockedCycle]:
    """Every point at which the devices hang if sends block. Empty if the schedule can finish.

    After each hang the swap that it names is made, and the devices go on to the next one; with all the swaps
    made, the schedule can finish. It must be one that can finish with buffered messages. The time is linear
    in the number of messages, plus the number of devices for each hang.
    """
    return list(_Replay(transfers(schedule)).cycles())


class _Replay(Machine):
    """Devices that run their sends and receives, each until it has to wait for another device."""

    def __init__(self, programs: list[list[Transfer]]):
        self.steps = [transfer for row in programs for transfer in row]
        super().__init__(list(accumulate(map(len, programs), initial=0)), [()] * len(self.steps))
        number = {step: i for i, step in enumerate(zip(self.home, self.steps, strict=True))}
        sides = zip(self.home, self.steps, strict=True)
        self.other_side = [number[step.other, step.other_side(device)] for device, step in sides]

    def _has_needs(self, entry: int) -> bool:
        """Whether the other device has come to its end of this message, or has passed it."""
        other = self.other_side[entry]
        return self.ends[other] is not None or self.next_of(self.home[other]) == other

    def _affected(self, entry: int) -> list[int]:
        after = self.next_of(self.home[entry])
        return [self.other_side[entry]] + ([after, self.other_side[after]] if after is not None else [])

    def cycles(self) -> Iterator[BlockedCycle]:
        self.run()
        while waits := self._cycle():
            sender = next(k for k, step in waits.items() if step.direction is Direction.SEND)
            early = self.other_side[self.next_of(sender)]
            yield BlockedCycle(waits, self.home[early], self.steps[early])
            self.apply(early, force=True)
            self.run()

    def _now(self, device: int) -> Transfer | None:
        """The transfer that a device has come to; None if it has done all of them."""
        step = self.next_of(device)
        return None if step is None else self.steps[step]

    def _cycle(self) -> dict[int, Transfer]:
        """Devices that wait for each other, lowest first, and in which transfer; empty if all are done."""
        devices = range(len(self.front))
        device = next((device for device in devices if self._now(device)), None)
        if device is None:
            return {}
        seen: list[int] = []
        while device not in seen:
            seen.append(device)
            device = self._now(device).other
        found = seen[seen.index(device) :]
        first = found.index(min(found))
        return {device: self._now(device) for device in found[first:] + found[:first]}
