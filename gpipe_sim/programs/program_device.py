"""A device that sends and receives only when its program says so.

What it makes for another stage stays on it until it is sent; what it receives lies in memory of its own, or
in a named buffer that the program receives into.
"""

from collections.abc import Iterator

from gpipe_sim.core.actions import Action, Kind, OverlapFB
from gpipe_sim.core.boundary import Boundary, copied
from gpipe_sim.core.device import LIFE, Device, Made
from gpipe_sim.core.memory import MESSAGES, roots
from gpipe_sim.core.placement import named
from gpipe_sim.core.problems import REASONS
from gpipe_sim.core.rules import BOUNDARY, NEEDS, PENDING, SAVED
from gpipe_sim.core.timeline import Span
from gpipe_sim.errors import ScheduleError
from gpipe_sim.programs.receive_buffers import Buffer
from gpipe_sim.programs.transfers import Recv, receiver

MADE = "made for another stage"  #: until it is sent, or used on this device
Key = tuple[Kind, int, int]  #: of a message: F or B, and the stage and microbatch that need it
_MAKER = {BOUNDARY: Kind.F, PENDING: Kind.I}
_READER = {SAVED: "backward", PENDING: "weight gradient", BOUNDARY: "recompute"}


def key_of(what: Action) -> Key:
    """Where a device keeps the message that this action made."""
    return (Kind.F if what.kind is Kind.F else Kind.B), receiver(what), what.microbatch


class ProgramDevice(Device):
    """A device whose messages wait to be sent and received; ``ran`` has the actions of all devices so far."""

    def __init__(self, number: int, ran: dict[Action, int], *told):
        super().__init__(*told)
        self.number, self.ran = number, ran
        self.buffers: dict[str, Buffer] = {}

    def run(self, action: Action | OverlapFB) -> None:
        """ScheduleError if something that it reads is not there."""
        for part in action.parts:
            self._require_new(part)
            if (need := self.lacks(part)) is not None:
                raise ScheduleError(self._lacking(part, need))
            self.perform(Span(part, self.number, 0, 0))
            self.ran[part] = self.number

    def forward(self, action: Action) -> Made:
        """What a last layer hands on unchanged may lie in a buffer, where the step's output cannot stay."""
        made = super().forward(action)
        if action.stage == self.last_stage:
            self.outputs[action.microbatch] = self.outputs[action.microbatch].copy()
        return made

    def lacks(self, part: Action) -> Action | None:
        """The first action whose result this one reads and that is not on this device; None if all are."""
        stage, kind, m = part
        held, recomputed = self.memory.held, self.inputs.recomputed[stage][m]
        for category in LIFE[kind, recomputed][0]:
            if (category, (stage, m)) not in held:
                return Action(stage, _MAKER.get(category, Kind.R if recomputed else Kind.F), m)
        for need in self.from_others(part):
            if not {(MESSAGES, key_of(need)), (MADE, key_of(need))} & held.keys():
                return need
        return None

    def from_others(self, part: Action) -> Iterator[Action]:
        """What another stage makes for this action; a gradient is made by B or by I."""
        for kind, step in NEEDS[part.kind]:
            if step and 0 <= part.stage + step < self.inputs.stages:
                yield Action(part.stage + step, kind, part.microbatch)

    def has_made(self, what: Action) -> bool:
        """Whether what an action made for another stage is here, and was neither sent nor used."""
        return self.ran.get(what) == self.number and (MADE, key_of(what)) in self.memory.held

    def take_made(self, what: Action) -> Boundary:
        """A copy of what an action made for another stage, which is then no longer here."""
        return copied(self.memory.take(MADE, key_of(what)))

    def arrive(self, message: Boundary, recv: Recv) -> None:
        """Keep a message where its receive wants it."""
        if recv.into is not None:
            message = self.buffers.setdefault(recv.into, Buffer()).write(message, recv.what)
        self.memory.keep(MESSAGES, key_of(recv.what), message)

    def require_unread(self, recv: Recv) -> None:
        """ScheduleError if what is in the buffer of a receive is still needed."""
        buffer = self.buffers.get(recv.into)
        for reader in self._readers(buffer) if buffer else ():
            raise ScheduleError(
                f"device {self.number} receives {recv.what} into buffer {recv.into!r}, where {buffer.holds} "
                f"still is: {reader}. Receive into another buffer, or later"
            )

    def _readers(self, buffer: Buffer) -> Iterator[str]:
        """What still reads the arrays of a buffer, in words."""
        own = {id(array) for array in buffer.arrays}
        for (category, key), value in self.memory.held.items():
            if category in (*_READER, MESSAGES, MADE) and any(id(root) in own for root in roots(value)):
                yield _read_by(category, key)

    def require_own(self, action: Action | OverlapFB) -> None:
        """ScheduleError for an action that no program may have, or not this device's."""
        stages, microbatches = self.inputs.stages, len(self.inputs.pieces)
        for part in action.parts:
            comes = f"device {self.number} comes to {part}"
            if not (0 <= part.stage < stages and 0 <= part.microbatch < microbatches):
                raise ScheduleError(
                    f"{comes}, which is out of range: stages are 0 to {stages - 1}, "
                    f"microbatches 0 to {microbatches - 1}"
                )
            if part.stage not in self.partitions:
                raise ScheduleError(f"{comes}, but holds {named(sorted(self.partitions))}; see placement=")
            if part.kind is Kind.U:
                raise ScheduleError(f"{comes}, but run_programs updates no weights: leave it out")
            if part.kind is Kind.R and not self.inputs.recomputed[part.stage][part.microbatch]:
                raise ScheduleError(
                    f"{comes}, but its forward was not told that it would be run again: a generator cannot "
                    "say so beforehand; give this device's program as a list"
                )

    def wants(self, what: Action) -> bool:
        """Whether an action of this device needs what this one makes."""
        return receiver(what) in self.partitions and what.microbatch < len(self.inputs.pieces)

    def _require_new(self, part: Action) -> None:
        if part in self.ran:
            other = self.ran[part]
            again = " again" if other == self.number else f", which device {other} has run"
            raise ScheduleError(f"device {self.number} comes to {part}{again}; it must run once")

    def _lacking(self, part: Action, need: Action) -> str:
        split = need._replace(kind=Kind.I)
        if need.kind is Kind.B and split in self.ran:
            need = split
        reason = REASONS[part.kind, need.kind]
        says = f"device {self.number} comes to {part}, but {{}}: {part} {reason}"
        if need.stage == part.stage:
            used = "has been used up" if need in self.ran else "has not run"
            return says.format(f"{need} {used}")
        if need.stage in self.partitions and self.ran.get(need, self.number) == self.number:
            return says.format(f"{need} has not run")
        return says.format(f"has not received {need}") + f". Put Recv {need} before {part}"

    def _send(self, kind: Kind, stage: int, m: int, message: Boundary) -> None:
        self.memory.keep(MADE, (kind, stage, m), message)

    def _receive(self, kind: Kind, stage: int, m: int) -> Boundary:
        key = kind, stage, m
        return self.memory.take(MESSAGES if (MESSAGES, key) in self.memory.held else MADE, key)


def _read_by(category: str, key: tuple) -> str:
    if category in (MESSAGES, MADE):
        kind, stage, m = key
        reader = f"{stage}{kind}{m}"
        return f"{reader} has not {'read it' if category == MESSAGES else 'been sent it'} yet"
    stage, m = key
    return f"{stage}F{m} kept it, and the {_READER[category]} of stage {stage} on microbatch {m} reads it"
