"""Programs that take turns, each until it has to wait for another device; and what that takes in time.

The next step of a program is asked for when the last one has ended, never ahead. A message crosses once it
is both sent and received. If messages are buffered, the time that it takes begins when it is sent:

    device 0   [ 0F0 ]Send
                      `--- on its way ---.
    device 1   Recv......................[ 1F0 ]      buffered, or device 1 is there first

    device 0   [ 0F0 ]Send...................[ 0F1 ]  blocking: both go on together
                              .-- on its way -.
    device 1   [ 1B0        ]Recv............[ 1F0 ]
"""

from collections.abc import Iterable, Iterator
from numbers import Real
from typing import NamedTuple

from gpipe_sim.core.actions import Action, OverlapFB
from gpipe_sim.core.boundary import Boundary
from gpipe_sim.core.cost_model import CostModel
from gpipe_sim.core.placement import named
from gpipe_sim.core.timeline import Message, Span
from gpipe_sim.errors import ScheduleError, duration
from gpipe_sim.programs.deadlock_messages import Wait, cannot_finish
from gpipe_sim.programs.program_device import Key, ProgramDevice, key_of
from gpipe_sim.programs.transfers import Recv, Send, Step, Transfer, Way, read_step, way

Program = Iterable[Step]


class Rules(NamedTuple):
    """How the devices exchange messages, and what things take."""

    blocking: bool
    check_buffers: bool
    costs: CostModel


class _Sent(NamedTuple):
    arrays: Boundary
    at: Real


class Turns:
    """The step that each program is at, the messages between devices, and when what happened.

    ``spans`` has the actions that ran, per device; ``crossed`` the messages that have been received.
    """

    def __init__(self, programs: list[Program], devices: list[ProgramDevice], rules: Rules):
        self.programs: list[Iterator[Step]] = [iter(program) for program in programs]
        self.devices, self.rules = devices, rules
        self.now: list[Step | None] = [None] * len(devices)  # begun, and not ended
        self.ended = [False] * len(devices)
        self.clock: list[Real] = [0] * len(devices)
        self.sent: dict[Way, _Sent] = {}  # and not yet received
        self.receives: dict[tuple[int, Key], tuple[Recv, Real]] = {}  # by device: all, and since when
        self.crossed: dict[Way, Message] = {}
        self.spans: list[list[Span]] = [[] for _ in devices]

    def run(self) -> None:
        """Let every program run to its end. ScheduleError or DeadlockError if they cannot."""
        moved = True
        while moved:
            moved = False
            for device in range(len(self.devices)):
                while self._goes_on(device):
                    moved = True
        if not all(self.ended):
            waits = {k: wait for k in range(len(self.devices)) if (wait := self._wait(k))}
            raise cannot_finish(waits, self.devices, self.ended, list(self.sent), self.rules.blocking)
        self._require_received()

    def _goes_on(self, device: int) -> bool:
        """Begin the device's next step, or end the one that it is at; False if neither can be."""
        if self.now[device] is None:
            step = None if self.ended[device] else self._next(device)
            if step is None:
                self.ended[device] = True
                return False
            self._begin(device, step)
            self.now[device] = step
        if self._wait(device):
            return False
        self._end(device, self.now[device])
        self.now[device] = None
        return True

    def _next(self, device: int) -> Step | None:
        """What the device's program has next; None if nothing."""
        try:
            for step in self.programs[device]:
                return read_step(f"the program of device {device}", step)
        except Exception as error:
            error.add_note(f"in the program of device {device}")
            raise
        return None

    def _begin(self, device: int, step: Step) -> None:
        match step:
            case Send():
                self._send(device, step)
            case Recv():
                self._post(device, step)
            case _:
                self.devices[device].require_own(step)

    def _wait(self, device: int) -> Wait | None:
        """What the device's step waits for; None if it can end."""
        match self.now[device]:
            case None:
                on = None
            case Send() as step:
                on = step if self.rules.blocking and way(device, step) in self.sent else None
            case Recv() as step:
                on = step if step.wait and not self._is_here(device, step) else None
            case step:
                on = next(
                    (recv for recv in self._posted(device, step) if not self._is_here(device, recv)), None
                )
        return None if on is None else Wait(self.now[device], on)

    def _end(self, device: int, step: Step) -> None:
        match step:
            case Send():
                if self.rules.blocking:
                    self.clock[device] = self.crossed[way(device, step)].end
            case Recv():
                if step.wait:
                    self._wait_until_here(device, [step])
            case _:
                self._wait_until_here(device, self._posted(device, step))
                start, takes = self.clock[device], self.rules.costs.duration(step, device)
                owner = type(self.rules.costs).__name__
                end = self.clock[device] = start + duration(owner, f"duration of {step}", takes)
                self.devices[device].run(step)
                self.spans[device].append(Span(step, device, start, end))

    def _wait_until_here(self, device: int, receives: Iterable[Recv]) -> None:
        for recv in receives:
            self.clock[device] = max(self.clock[device], self.crossed[way(device, recv)].end)

    def _send(self, device: int, step: Send) -> None:
        self._require_other(device, step)
        if not self.devices[device].has_made(step.what):
            raise ScheduleError(f"device {device} comes to {step}, but {self._why_not(device, step.what)}")
        self.sent[way(device, step)] = _Sent(self.devices[device].take_made(step.what), self.clock[device])
        self._meet(way(device, step))

    def _post(self, device: int, step: Recv) -> None:
        self._require_other(device, step)
        if (device, key_of(step.what)) in self.receives:
            raise ScheduleError(f"device {device} comes to {step} again; it must receive that once")
        if self.rules.check_buffers and step.into is not None:
            self._require_no_other(device, step)
            self.devices[device].require_unread(step)
        self.receives[device, key_of(step.what)] = step, self.clock[device]
        self._meet(way(device, step))

    def _meet(self, message: Way) -> None:
        """Hand a message over once it is both sent and received."""
        what, source, target = message
        recv, since = self.receives.get((target, key_of(what)), (None, 0))
        if message not in self.sent or recv is None or way(target, recv) != message:
            return
        arrays, sent = self.sent.pop(message)
        begins = max(sent, since) if self.rules.blocking else sent
        takes, owner = self.rules.costs.transfer(what, source, target), type(self.rules.costs).__name__
        ends = begins + duration(owner, f"transfer of {what}", takes)
        self.crossed[message] = Message(what, source, target, begins, ends)
        self.devices[target].arrive(arrays, recv)

    def _is_here(self, device: int, recv: Recv) -> bool:
        return way(device, recv) in self.crossed

    def _posted(self, device: int, step: Action | OverlapFB) -> Iterator[Recv]:
        """The receives, up to now, that bring what an action needs."""
        for part in step.parts:
            for need in self.devices[device].from_others(part):
                if (device, key_of(need)) in self.receives:
                    yield self.receives[device, key_of(need)][0]

    def _require_other(self, device: int, step: Transfer) -> None:
        """ScheduleError unless the other device is another one, and the message is for one that needs it."""
        says = f"device {device} comes to {step}"
        if step.other == device:
            raise ScheduleError(f"{says}, which is itself: what it makes is there")
        if step.other >= len(self.devices):
            raise ScheduleError(f"{says}, but the devices are 0 to {len(self.devices) - 1}")
        target = self.devices[way(device, step)[2]]
        if not target.wants(step.what):
            kind, stage, m = key_of(step.what)
            held, last = named(sorted(target.partitions)), len(target.inputs.pieces) - 1
            raise ScheduleError(
                f"{says}, which is for {stage}{kind}{m}; "
                f"device {target.number} holds {held}, and microbatches are 0 to {last}"
            )

    def _require_no_other(self, device: int, step: Recv) -> None:
        """ScheduleError if another message is still to come into the buffer of a receive."""
        for (to, _), (recv, _) in self.receives.items():
            if to == device and recv.into == step.into and not self._is_here(device, recv):
                raise ScheduleError(
                    f"device {device} receives {step.what} into buffer {step.into!r}, into which it also "
                    f"receives {recv.what}, which is not there yet: receive into another buffer, or later"
                )

    def _why_not(self, device: int, what: Action) -> str:
        """Why there is nothing to send."""
        if self.devices[device].ran.get(what) != device:
            return f"it has not run {what}"
        to = [to for other, source, to in [*self.sent, *self.crossed] if (other, source) == (what, device)]
        return f"it has sent that to device {to[0]}" if to else f"it has used what {what} made"

    def _require_received(self) -> None:
        for what, source, to in self.sent:
            raise ScheduleError(f"device {source} sends {what} to device {to}, which never receives it")
        for (to, _), (recv, _) in self.receives.items():
            if not self._is_here(to, recv):
                says = f"device {to} receives {recv.what} from device {recv.source}, which never sends it"
                raise ScheduleError(says)
