"""Programs that take turns; and where they hang if a send ends only when the other device receives.

Each program goes on until it ends, or until it has to wait for another device. If messages are buffered, a
send never waits, and only the order of the actions matters. If sends block, as MPI and NCCL allow, two
neighbours that both send first hang, although the order of their actions is right.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from gpipe_sim.core.actions import Action
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.programs.device_programs import rows_with_messages
from gpipe_sim.programs.transfers import Key, Recv, Send, Step, Transfer, Way, key_read_by


class Wait(NamedTuple):
    """A device is at a step, and waits for the other end of a message, which is the step itself or not."""

    at: Step
    on: Transfer

    def __str__(self) -> str:
        return str(self.on) if self.at is self.on else f"{self.at} for {self.on}"


class BlockedCycle(NamedTuple):
    """Devices that wait for each other in a cycle, and what would free them.

    ``waits`` says what each device waits for. They are freed if device ``receiver`` does the receive
    ``early`` before the step that it is at.
    """

    waits: dict[int, Wait]
    receiver: int
    early: Recv

    @property
    def freed_by(self) -> Action:
        """What made the message that is to be received earlier."""
        return self.early.what

    @property
    def sentence(self) -> str:
        return f"{in_words(self.waits)}. {put(self.early.brief, self.receiver, self.waits)}"


def in_words(waits: dict[int, Wait]) -> str:
    return "; ".join(f"device {device} waits in {wait}" for device, wait in waits.items())


def put(what: str, device: int, waits: dict[int, Wait]) -> str:
    now = waits[device].at
    return f"On device {device}, put {what} before {getattr(now, 'brief', now)}"


def blocked_cycles(schedule: Schedule) -> list[BlockedCycle]:
    """Every point at which the devices hang if sends block. Empty if the schedule can finish.

    After each hang the swap that it names is made, and the devices go on to the next one; with all the swaps
    made, the schedule can finish. It must be one that can finish with buffered messages. The time is linear
    in the number of messages, plus the number of devices for each hang.
    """
    turns, found = Turns(rows_with_messages(schedule), blocking=True), list[BlockedCycle]()
    while (waits := turns.run()) and (hang := freed_by_a_receive(round_trip(waits))):
        found.append(hang)
        turns.begin(hang.receiver, hang.early)
    return found


def freed_by_a_receive(waits: dict[int, Wait]) -> BlockedCycle | None:
    """A cycle in which a device sends, and the receive that it waits for; None if all devices receive."""
    for sender, wait in waits.items():
        if isinstance(wait.on, Send):
            return BlockedCycle(waits, wait.on.to, Recv(wait.on.what, sender))
    return None


def round_trip(waits: dict[int, Wait]) -> dict[int, Wait]:
    """The first cycle of devices that wait for each other, lowest first; all that are waited for wait."""
    device, seen = min(waits), []
    while device not in seen:
        seen.append(device)
        device = waits[device].on.other
    found = seen[seen.index(device) :]
    first = found.index(min(found))
    return {device: waits[device] for device in found[first:] + found[:first]}


class Turns:
    """The step that each program is at, and the messages between devices.

    The next step of a program is asked for when the last one has ended, never ahead. A message crosses once
    it is both sent and received. If sends are ``blocking``, its send ends then.
    """

    def __init__(self, programs: Iterable[Iterable[Step]], blocking: bool):
        self.programs = [iter(program) for program in programs]
        self.blocking = blocking
        self.now: list[Step | None] = [None] * len(self.programs)  # begun, and not ended
        self.done = [0] * len(self.programs)  # how many steps have ended
        self.ended = [False] * len(self.programs)
        self.sent: dict[Way, Any] = {}  # what was sent and has not crossed
        self.receives: dict[tuple[int, Key], Recv] = {}  # by device: all, also those that were only posted
        self.crossed: dict[Way, Any] = {}
        self.going: deque[int] = deque()

    def run(self) -> dict[int, Wait]:
        """Let every program go on until it ends or has to wait; return what it then waits for, by device."""
        self.going.extend(range(len(self.programs)))
        while self.going:
            device = self.going.popleft()
            while self._goes_on(device):
                pass
        return {k: wait for k in range(len(self.programs)) if (wait := self.wait(k))}

    def _goes_on(self, device: int) -> bool:
        """Begin the device's next step, or end the one that it is at; False if neither can be."""
        step = self.now[device]
        if step is None:
            step = next(self.programs[device], None)
            if step is None:
                self.ended[device] = True
                return False
            self.begin(device, step)
            self.now[device] = step
        if self.wait(device):
            return False
        self.end(device, step)
        self.now[device] = None
        self.done[device] += 1
        return True

    def wait(self, device: int) -> Wait | None:
        """What the device's step waits for; None if it can end."""
        if (step := self.now[device]) is not None:
            for transfer in self.awaited(device, step):
                if transfer.message(device) not in self.crossed:
                    return Wait(step, transfer)
        return None

    def awaited(self, device: int, step: Step) -> Sequence[Transfer]:
        """The messages that must have crossed before a step can end, by their ends on its device."""
        if isinstance(step, Send):
            return [step] if self.blocking else []
        if isinstance(step, Recv):
            return [step] if step.wait else []
        keys = ((device, key_read_by(part)) for part in step.parts)
        return [self.receives[key] for key in keys if key in self.receives]

    def begin(self, device: int, step: Step, sent: Any = None) -> None:
        """Come to a step. A message crosses if this is one end of it and the other end is there."""
        if not isinstance(step, Transfer):
            return
        message = step.message(device)
        if isinstance(step, Send):
            self.sent[message] = sent
        else:
            self.receives[device, step.key] = step
        recv = self.receives.get((message[2], step.key))
        if message in self.sent and recv and recv.message(message[2]) == message:
            self.crossed[message] = self.cross(message, recv, self.sent.pop(message))
            self.going.extend(message[1:])

    def cross(self, message: Way, recv: Recv, sent: Any) -> Any:
        """Hand over what was sent; what is to be kept of the message."""

    def end(self, device: int, step: Step) -> None:
        """Called when a step ends."""
