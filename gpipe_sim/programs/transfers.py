"""What a device's own program has besides actions: the two ends of a message.

A message is named by the action that made it, on both ends: device 0 has ``Send(F(0, 1), to=1)``, and device
1 has ``Recv(F(0, 1), source=0)``. In a text they are spelled as PyTorch does, which names the receiving end
by the stage that receives: ``0SEND_F1`` and ``1RECV_F1``; ``1SEND_B1`` and ``0RECV_B1`` for a gradient.
"""

from dataclasses import dataclass
from typing import ClassVar

from gpipe_sim.core.actions import Action, Kind, OverlapFB, require_labels
from gpipe_sim.core.rows import read_action
from gpipe_sim.errors import MOST, got, require, require_flags, whole

Way = tuple[Action, int, int]  #: which way a message goes: what, from which device, to which
Key = tuple[Kind, int, int]  #: what a message is for: F or B, and the stage and microbatch that need it


@dataclass(frozen=True)
class Transfer:
    """One end of a message that holds what an action made."""

    what: Action
    end: ClassVar[str]  #: the field that says which device is at the other end

    def __post_init__(self):
        owner = type(self).__name__
        object.__setattr__(self, "what", _sent(owner, self.what))
        object.__setattr__(self, self.end, whole(owner, f"{self.end}=", self.other, 0, MOST))

    @property
    def key(self) -> Key:
        """Which action reads the message: its kind, stage and microbatch."""
        return key_of(self.what)

    @property
    def other(self) -> int:
        """The device at the other end."""
        return getattr(self, self.end)

    def message(self, device: int) -> Way:
        """The message of which this device has one end."""
        source, target = (device, self.other) if isinstance(self, Send) else (self.other, device)
        return self.what, source, target

    @property
    def brief(self) -> str:
        """As sentences name it, such as ``Send 0F1``."""
        return f"{type(self).__name__} {self.what}"

    def __str__(self) -> str:
        return f"{self.brief} {'to' if isinstance(self, Send) else 'from'} device {self.other}"


@dataclass(frozen=True)
class Send(Transfer):
    """Send what an action made, ``what``, to device ``to``: ``Send(F(0, 1), to=1)``.

    TypeError or ValueError for anything but an action whose output or input gradient another stage needs.
    """

    end = "to"
    to: int

    @property
    def spelled(self) -> str:
        """As in a text, such as ``0SEND_F1``."""
        return f"{self.what.stage}SEND_{self.key[0]}{self.what.microbatch}"


@dataclass(frozen=True)
class Recv(Transfer):
    """Receive what an action made, ``what``, from device ``source``: ``Recv(F(0, 1), source=0)``.

    With ``wait=False`` the receive is only posted, as MPI's Irecv does: the program goes on at once, and the
    action that needs the message waits for it. With ``into``, a name of your choice, the arrays are written
    into the device's receive buffer of that name, over what was there; otherwise they get memory of their
    own. Errors as for ``Send``.
    """

    end = "source"
    source: int
    wait: bool = True
    into: str | None = None

    def __post_init__(self):
        super().__post_init__()
        require_flags("Recv", wait=self.wait)
        if self.into is not None:
            name = require("Recv", self.into, str, "into to be a buffer's name, such as 'a'")
            if not name.isidentifier():
                raise ValueError(f"Recv needs into to be a name, such as 'a' {got(name)}")

    @property
    def spelled(self) -> str:
        """As in a text, such as ``1RECV_F1``."""
        kind, stage, m = self.key
        return f"{stage}{'' if self.wait else 'I'}RECV_{kind}{m}{f'>{self.into}' if self.into else ''}"


Step = Action | OverlapFB | Send | Recv


def spelled(step: Step) -> str:
    """As in a text."""
    return step.spelled if isinstance(step, Send | Recv) else str(step)


def key_of(what: Action) -> Key:
    """What an action's message is for: the next stage's forward, or the backward of the stage before."""
    if what.kind is Kind.F:
        return Kind.F, what.stage + 1, what.microbatch
    return Kind.B, what.stage - 1, what.microbatch


def key_read_by(part: Action) -> Key:
    """The key of the message that an F, B or I reads; of another action, one that no message has."""
    return (Kind.B if part.kind is Kind.I else part.kind), part.stage, part.microbatch


def read_step(owner: str, step: object) -> Step:
    """A step of a program; an action may also be its spelling. TypeError or ValueError for anything else."""
    if isinstance(step, Send | Recv):
        return step
    if not isinstance(step, str | Action | OverlapFB):
        such_as = "actions, Send(F(0, 0), to=1) or Recv(F(0, 0), source=0)"
        raise TypeError(f"{owner} takes {such_as} {got(step)}")
    found = read_action(owner, step)
    require_labels(owner, (label for part in found.parts for label in part[::2]))
    return found


def _sent(owner: str, what: object) -> Action:
    """What a message holds, as a plain action; TypeError or ValueError if no other stage needs it."""
    if not isinstance(what, str | Action):
        raise TypeError(f"{owner} needs the action that made the message, such as F(0, 0) {got(what)}")
    action = read_action(owner, what)
    if not isinstance(action, Action) or action.kind not in (Kind.F, Kind.B, Kind.I):
        raise ValueError(
            f"{owner} needs one F, B or I: what others make stays on its device {got(str(what))}"
        )
    require_labels(owner, action[::2])
    if min(action[::2]) < 0:
        raise ValueError(f"{owner} needs a stage and a microbatch >= 0 {got(str(action))}")
    if key_of(action)[1] < 0:
        raise ValueError(f"{owner} {action}: there is no stage before stage 0 that needs its gradient")
    return action
