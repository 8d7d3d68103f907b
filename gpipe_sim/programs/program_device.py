"""A device that sends and receives only when its program says so.

What it makes for another stage stays on it until it is sent; what it receives lies in memory of its own, or
in a named buffer that the program receives into. A buffer is written over by the next receive, whoever still
reads what was there:

    Recv 0F0 into a    a [ 0F0 ]
    1F0                a [ 0F0 ] <-- the layer saved its input, which is the buffer itself
    Recv 0F1 into a    a [ 0F1 ] <-- and so 1B0 will read microbatch 1
"""

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from gpipe_sim.core.actions import Action, Kind, OverlapFB
from gpipe_sim.core.boundary import Boundary, copy_boundary
from gpipe_sim.core.device import FREES_AND_MAKES, Device, Made, StepInputs
from gpipe_sim.core.memory import MESSAGES, Memory, roots
from gpipe_sim.core.placement import say_stages
from gpipe_sim.core.problems import REASONS
from gpipe_sim.core.rules import BOUNDARY, PENDING, SAVED
from gpipe_sim.core.step import Share
from gpipe_sim.core.timeline import Span
from gpipe_sim.errors import ScheduleError
from gpipe_sim.programs.transfers import Recv, Send, key_of, key_read_by

MADE = "made for another stage"  #: until it is sent, or used on this device
_MAKER = {BOUNDARY: Kind.F, PENDING: Kind.I}
_READER = {SAVED: "backward", PENDING: "weight gradient", BOUNDARY: "recompute"}


class ProgramDevice(Device):
    """A device whose messages wait to be sent and received; ``ran`` has the actions of all devices so far."""

    def __init__(
        self, number: int, ran: dict[Action, int], check_buffers: bool, inputs: StepInputs, own: Share
    ):
        super().__init__(inputs, *own, Memory(), [])
        self.number, self.ran, self.check_buffers = number, ran, check_buffers
        self.sent_to: dict[Action, int] = {}  # to which device
        self.buffers: dict[str, list[np.ndarray]] = {}
        self.holds: dict[str, Action] = {}  # what was last received into each buffer

    def run(self, action: Action | OverlapFB) -> None:
        """ScheduleError if something that it reads is not there."""
        for part in action.parts:
            if part in self.ran:
                other = self.ran[part]
                again = " again" if other == self.number else f", which device {other} has run"
                raise self.error(f"{part}{again}; it must run once")
            if (need := self.lacks(part)) is not None:
                raise self.error(f"{part}, but {self._lacking(part, need)}")
            self.perform(Span(part, self.number, 0, 0))
            self.ran[part] = self.number

    def error(self, says: str) -> ScheduleError:
        return ScheduleError(f"device {self.number} comes to {says}")

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
        for category in FREES_AND_MAKES[kind, recomputed][0]:
            if (category, (stage, m)) not in held:
                return Action(stage, _MAKER.get(category, Kind.R if recomputed else Kind.F), m)
        key = key_read_by(part)
        made = Action(stage - 1 if kind is Kind.F else stage + 1, key[0], m)
        crosses = kind in (Kind.F, Kind.B, Kind.I) and 0 <= made.stage <= self.last_stage
        return made if crosses and not {(MESSAGES, key), (MADE, key)} & held.keys() else None

    def _lacking(self, part: Action, need: Action) -> str:
        if need.kind is Kind.B and need._replace(kind=Kind.I) in self.ran:
            need = need._replace(kind=Kind.I)
        reason = f"{part} {REASONS[part.kind, need.kind]}"
        if need.stage == part.stage:
            return f"{need} {'has been used up' if need in self.ran else 'has not run'}: {reason}"
        if need.stage in self.partitions and self.ran.get(need, self.number) == self.number:
            return f"{need} has not run: {reason}"
        return f"has not received {need}: {reason}. Put Recv {need} before {part}"

    def has_made(self, what: Action) -> bool:
        """Whether what an action made for another stage is here, and was neither sent nor used."""
        return self.ran.get(what) == self.number and (MADE, key_of(what)) in self.memory.held

    def take_made(self, send: Send) -> Boundary:
        """A copy of what is to be sent, which is then no longer here; ScheduleError if it is not here."""
        what = send.what
        if not self.has_made(what):
            why = f"it has used what {what} made"
            if what in self.sent_to:
                why = f"it has sent that to device {self.sent_to[what]}"
            if self.ran.get(what) != self.number:
                why = f"it has not run {what}"
            raise self.error(f"{send}, but {why}")
        self.sent_to[what] = send.to
        return copy_boundary(self.memory.take(MADE, send.key))

    def arrive(self, message: Boundary, recv: Recv) -> None:
        """Keep a message where its receive wants it."""
        if recv.into is not None:
            given = message if isinstance(message, tuple) else (message,)
            written = self._written(recv.into, recv.what, given)
            message = written if isinstance(message, tuple) else written[0]
        self.memory.keep(MESSAGES, recv.key, message)

    def _written(self, into: str, what: Action, given: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """The arrays as views of the buffer, over what was there; what does not fit gets new memory."""
        flat = self.buffers.get(into, [])
        if [each.dtype for each in flat] != [each.dtype for each in given] or any(
            own.size < each.size for own, each in zip(flat, given, strict=True)
        ):
            flat = [np.empty(each.size, each.dtype) for each in given]
        self.buffers[into], self.holds[into] = flat, what
        views = [own[: prod(each.shape)].reshape(each.shape) for own, each in zip(flat, given, strict=True)]
        for view, each in zip(views, given, strict=True):
            view[...] = each
        return tuple(views)

    def require_free(self, into: str, what: Action, posted: Iterable[Recv]) -> None:
        """ScheduleError if what is in the buffer of a receive is still needed, or another one is to come."""
        says = f"device {self.number} receives {what} into buffer {into!r}"
        for other in posted:
            if other.into == into:
                raise ScheduleError(
                    f"{says}, into which it also receives {other.what}, which is not there yet: "
                    "receive into another buffer, or later"
                )
        own = {id(array) for array in self.buffers.get(into, ())}
        for (category, key), value in self.memory.held.items():
            if category in (*_READER, MESSAGES, MADE) and any(id(root) in own for root in roots(value)):
                raise ScheduleError(
                    f"{says}, where {self.holds[into]} still is: {_read_by(category, key)}. "
                    "Receive into another buffer, or later"
                )

    def require_own(self, action: Action | OverlapFB) -> None:
        """ScheduleError for an action that no program may have, or not this device's."""
        microbatches = len(self.inputs.pieces)
        for part in action.parts:
            stage, kind, m = part
            if not (0 <= stage <= self.last_stage and 0 <= m < microbatches):
                raise self.error(
                    f"{part}, which is out of range: stages are 0 to {self.last_stage}, "
                    f"microbatches 0 to {microbatches - 1}"
                )
            if stage not in self.partitions:
                raise self.error(f"{part}, but holds {say_stages(sorted(self.partitions))}; see placement=")
            if kind is Kind.U:
                raise self.error(f"{part}, but run_programs updates no weights: leave it out")
            if kind is Kind.R and not self.inputs.recomputed[stage][m]:
                raise self.error(
                    f"{part}, but its forward was not told that it would be run again: a generator cannot "
                    "say so beforehand; give this device's program as a list"
                )

    def _send(self, kind: Kind, stage: int, m: int, message: Boundary) -> None:
        self.memory.keep(MADE, (kind, stage, m), message)

    def _receive(self, kind: Kind, stage: int, m: int) -> Boundary:
        key = kind, stage, m
        return self.memory.take(MESSAGES if (MESSAGES, key) in self.memory.held else MADE, key)


def _read_by(category: str, key: Any) -> str:
    if category in (MESSAGES, MADE):
        kind, stage, m = key
        return f"{stage}{kind}{m} has not {'read it' if category == MESSAGES else 'been sent it'} yet"
    stage, m = key
    return f"{stage}F{m} kept it, and the {_READER[category]} of stage {stage} on microbatch {m} reads it"
