"""What to say of devices none of which can go on."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpipe_sim.errors import DeadlockError, ScheduleError
from gpipe_sim.programs.blocking import BlockedCycle, round_trip
from gpipe_sim.programs.program_device import ProgramDevice, key_of
from gpipe_sim.programs.transfers import Recv, Send, Step, Transfer, Way


class Wait(NamedTuple):
    """A device is at a step, and waits for the other end of a message, which is the step itself or not."""

    at: Step
    on: Transfer

    @property
    def other(self) -> int:
        return self.on.other

    @property
    def brief(self) -> str:
        return self.on.brief if self.at is self.on else str(self.at)

    def __str__(self) -> str:
        return str(self.on) if self.at is self.on else f"{self.at} for {self.on}"


def cannot_finish(
    waits: dict[int, Wait],
    devices: Sequence[ProgramDevice],
    ended: Sequence[bool],
    sent: Sequence[Way],
    blocking: bool,
) -> ScheduleError:
    """The error: ScheduleError if a device waits for one that has ended, else DeadlockError.

    ``sent`` has what was sent and not received. Of many lines the first four tell enough.
    """
    head = f"the programs of {len(devices)} devices cannot finish{' with blocking sends' * blocking}:"
    astray = [] if blocking else list(_astray(waits, sent))
    in_vain = [k for k, wait in waits.items() if ended[wait.other]]
    if in_vain:
        lines = [f"device {k} waits in {waits[k]}, whose program has ended" for k in in_vain]
        lines += astray + [f"device {k} waits in {wait}" for k, wait in waits.items() if k not in in_vain]
        return ScheduleError("\n  ".join([head, *lines[:4]]))
    found = round_trip(waits)
    sender = next((k for k, wait in found.items() if isinstance(wait.on, Send)), None)
    if sender is None:
        sentence = _all_receive(found, devices)
    else:
        early = Recv(found[sender].on.what, sender)
        sentence = BlockedCycle(found, found[sender].other, early).sentence
    return DeadlockError("\n  ".join([head, sentence, *astray[:3]]))


def _astray(waits: dict[int, Wait], sent: Sequence[Way]) -> Iterator[str]:
    """Messages that a device waits for under another name, or from or on another device."""
    wanted = {key_of(wait.on.what) for wait in waits.values()}
    for what, source, target in sent:
        if key_of(what) in wanted:
            yield f"device {source} has sent {what} to device {target}, which has not received it"


def _all_receive(found: dict[int, Wait], devices: Sequence[ProgramDevice]) -> str:
    """A cycle of receives; one that could send first should."""
    who = "; ".join(f"device {device} waits in {wait}" for device, wait in found.items())
    for device, wait in found.items():
        what, other = wait.on.what, wait.other
        early, where = Send(what, device), devices[other]
        if where.has_made(what):
            return f"{who}. On device {other}, put {early.brief} before {found[other].brief}"
        if what not in where.ran and what.stage in where.partitions and where.lacks(what) is None:
            return f"{who}. On device {other}, put {what} and {early.brief} before {found[other].brief}"
    return who
