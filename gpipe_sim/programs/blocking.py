"""Sends and receives that block: a send ends when the other device receives, as MPI and NCCL allow.

Each device's program follows from its row: right before an action it receives what the action needs from
other devices, right after the action it sends what the action made. If messages are buffered, a send never
waits, and only the order of the actions matters. If sends block, two neighbours that both send first hang,
although the order of their actions is right.

A send and its receive end together, once both devices have come to them: two steps of a ``Machine``.
"""

from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from gpipe_sim.core.actions import Action
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.machine.machine import Machine
from gpipe_sim.programs.device_programs import rows_with_messages
from gpipe_sim.programs.transfers import Send, Transfer, way


class BlockedCycle(NamedTuple):
    """Devices that wait for each other in a cycle, and the swap that would free them.

    ``waits`` maps each device to the transfer that it waits in. They are freed if device ``receiver`` does
    the receive ``early`` before the transfer that it waits in now.
    """

    waits: dict[int, Transfer]
    receiver: int
    early: Transfer

    @property
    def freed_by(self) -> Action:
        """What made the message that is to be received earlier."""
        return self.early.what

    @property
    def sentence(self) -> str:
        who = "; ".join(f"device {device} waits in {transfer}" for device, transfer in self.waits.items())
        now = self.waits[self.receiver]
        return f"{who}. On device {self.receiver}, put {self.early.brief} before {now.brief}"


def transfers(schedule: Schedule) -> list[list[Transfer]]:
    """Per device, its sends and receives in order; the actions in between are left out."""
    return [[step for step in row if isinstance(step, Transfer)] for row in rows_with_messages(schedule)]


def blocked_cycles(schedule: Schedule) -> list[BlockedCycle]:
    """Every point at which the devices hang if sends block. Empty if the schedule can finish.

    After each hang the swap that it names is made, and the devices go on to the next one; with all the swaps
    made, the schedule can finish. It must be one that can finish with buffered messages. The time is linear
    in the number of messages, plus the number of devices for each hang.
    """
    return list(_Replay(transfers(schedule)).cycles())


def round_trip(waits: dict) -> dict:
    """The first cycle of devices that wait for each other, lowest first.

    ``waits`` has what each device waits for, whose ``other`` is a device that waits as well.
    """
    device, seen = min(waits), []
    while device not in seen:
        seen.append(device)
        device = waits[device].other
    found = seen[seen.index(device) :]
    first = found.index(min(found))
    return {device: waits[device] for device in found[first:] + found[:first]}


class _Replay(Machine):
    """Devices that run their sends and receives, each until it has to wait for another device."""

    def __init__(self, programs: list[list[Transfer]]):
        self.steps = [transfer for row in programs for transfer in row]
        super().__init__(list(accumulate(map(len, programs), initial=0)), [()] * len(self.steps))
        ways = [way(device, step) for device, step in zip(self.home, self.steps, strict=True)]
        sum_of_ends = dict.fromkeys(ways, 0)
        for i, each in enumerate(ways):
            sum_of_ends[each] += i
        self.other_side = [sum_of_ends[each] - i for i, each in enumerate(ways)]

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
            sender = next(k for k, step in waits.items() if isinstance(step, Send))
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
        now = {device: step for device in range(len(self.front)) if (step := self._now(device))}
        return round_trip(now) if now else {}
