"""Sends and receives that block: a send ends when the other device receives, as MPI and NCCL may have it.

Each device's program follows from its row: receive what an action needs from another device right before
it, send what it made right after it. Where messages are buffered a send never waits, and only the order of
actions counts; here two neighbours that both send first hang, although their actions are in a fine order.
"""

from collections import defaultdict
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from gpipe_sim.schedule.actions import Action, OverlapFB
from gpipe_sim.schedule.base import Schedule, needs


class Way(StrEnum):
    """Which side of a message a device is on."""

    SEND = "Send"
    RECV = "Recv"


class Transfer(NamedTuple):
    """One side of a message: ``Send 0F1 to device 1``, or ``Recv 0F1 from device 0``."""

    way: Way
    what: Action
    other: int

    def __str__(self) -> str:
        return f"{self.way} {self.what} {'to' if self.way is Way.SEND else 'from'} device {self.other}"


class Hang(NamedTuple):
    """Devices that wait for each other: device -> the transfer it waits in; and what would free them.

    ``receiver`` frees them if it receives ``early`` before the transfer that it waits in now.
    """

    waits: dict[int, Transfer]
    receiver: int
    early: Transfer

    @property
    def sentence(self) -> str:
        who = "; ".join(f"device {device} waits in {transfer}" for device, transfer in self.waits.items())
        now = self.waits[self.receiver]
        swap = f"{self.early.way} {self.early.what} before {now.way} {now.what}"
        return f"{who}. On device {self.receiver}, put {swap}"


Needed = list[tuple[Action, int]]  #: what an action needs from other devices, and from which


def program(schedule: Schedule) -> list[list[Transfer]]:
    """Per device, its sends and receives in order; what it does in between makes nobody wait.

    A device receives a thing once, and sends it once to each device that needs it.
    """
    needed = [
        [_from_others(schedule, device, action) for action in row]
        for device, row in enumerate(schedule.actions)
    ]
    targets = defaultdict(list)
    for device, row in enumerate(needed):
        for what in dict.fromkeys(what for crossing in row for what, _ in crossing):
            targets[what].append(device)
    return [list(_transfers(row, needed[device], targets)) for device, row in enumerate(schedule.actions)]


def _from_others(schedule: Schedule, device: int, action: Action | OverlapFB) -> Needed:
    sources = ((need, schedule.device_of(need)) for need in needs(action, schedule))
    return [(need, source) for need, source in sources if source != device]


def _transfers(
    row: tuple[Action | OverlapFB, ...], needed: list[Needed], targets: dict[Action, list[int]]
) -> Iterator[Transfer]:
    received = set()
    for action, crossing in zip(row, needed, strict=True):
        for need, source in crossing:
            if need not in received:
                received.add(need)
                yield Transfer(Way.RECV, need, source)
        for part in action.parts:
            yield from (Transfer(Way.SEND, part, other) for other in targets.get(part, ()))


def hangs(schedule: Schedule) -> list[Hang]:
    """Every point at which the devices hang; after each, its swap is made and they go on to the next.

    For a schedule that can finish with buffered messages. Empty if it can finish with blocking ones too;
    with all the swaps it can. Linear in the messages, and in the devices for each hang.
    """
    return list(_Meeting(program(schedule)).hangs())


class _Meeting:
    """Devices that run their programs, each until it has to wait for another."""

    def __init__(self, programs: list[list[Transfer]]):
        self.programs, self.at = programs, [0] * len(programs)
        self.early: set[tuple[int, Transfer]] = set()

    def hangs(self) -> Iterator[Hang]:
        self._run(list(range(len(self.programs))))
        while waits := self._circle():
            receiver, early = self._swap(waits)
            yield Hang(waits, receiver, early)
            self.early.add((receiver, early))
            self.at[early.other] += 1
            self._run([early.other])

    def now(self, device: int) -> Transfer | None:
        """The transfer that a device stands at; None when it is done. What it received early it passes by."""
        row = self.programs[device]
        while self.at[device] < len(row) and (device, row[self.at[device]]) in self.early:
            self.at[device] += 1
        return row[self.at[device]] if self.at[device] < len(row) else None

    def _run(self, runnable: list[int]) -> None:
        """Let devices meet until nobody can: a Send and the Recv of the same thing end together."""
        while runnable:
            device = runnable.pop()
            mine = self.now(device)
            if mine and self.now(mine.other) == _other_side(mine, device):
                self.at[device] += 1
                self.at[mine.other] += 1
                runnable += (device, mine.other)

    def _circle(self) -> dict[int, Transfer]:
        """Those who wait for each other, lowest device first; empty when everybody is done."""
        device = next((device for device in range(len(self.at)) if self.now(device)), None)
        if device is None:
            return {}
        seen: list[int] = []
        while device not in seen:
            seen.append(device)
            device = self.now(device).other
        found = seen[seen.index(device) :]
        first = found.index(min(found))
        return {device: self.now(device) for device in found[first:] + found[:first]}

    def _swap(self, waits: dict[int, Transfer]) -> tuple[int, Transfer]:
        """Who should receive what early: whoever someone in the circle sends to."""
        sender, send = next((d, transfer) for d, transfer in waits.items() if transfer.way is Way.SEND)
        return send.other, _other_side(send, sender)


def _other_side(transfer: Transfer, device: int) -> Transfer:
    return Transfer(Way.RECV if transfer.way is Way.SEND else Way.SEND, transfer.what, device)
