"""What a device's own program has besides actions: the two ends of a message.

A message is named by the action that made it, on both ends: device 0 has ``Send(F(0, 1), to=1)``, and device
1 has ``Recv(F(0, 1), source=0)``. In a text they are spelled as PyTorch does, which names the receiving end
by the stage that receives: ``0SEND_F1`` and ``1RECV_F1``; ``1SEND_B1`` and ``0RECV_B1`` for a gradient.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gpipe_sim.core.actions import Action, Kind, OverlapFB, require_labels
from gpipe_sim.core.rows import read
from gpipe_sim.errors import MOST, got, require, require_flags, whole


@dataclass(frozen=True)
class Send:
    """Send what an action made, ``what``, to device ``to``: ``Send(F(0, 1), to=1)``.

    TypeError or ValueError for anything but an action whose output or input gradient another stage needs.
    """

    what: Action
    to: int

    def __post_init__(self):
        object.__setattr__(self, "what", _sent("Send", self.what))
        object.__setattr__(self, "to", whole("Send", "to=", self.to, 0, MOST))

    @property
    def other(self) -> int:
        """The device at the other end."""
        return self.to

    @property
    def spelled(self) -> str:
        return f"{self.what.stage}SEND_{_letter(self.what)}{self.what.microbatch}"

    @property
    def brief(self) -> str:
        return f"Send {self.what}"

    def __str__(self) -> str:
        return f"{self.brief} to device {self.to}"


@dataclass(frozen=True)
class Recv:
    """Receive what an action made, ``what``, from device ``source``: ``Recv(F(0, 1), source=0)``.

    With ``wait=False`` the receive is only posted, as MPI's Irecv does: the program goes on at once, and the
    action that needs the message waits for it. With ``into``, a name of your choice, the arrays are written
    into the device's receive buffer of that name, over what was there; otherwise they get memory of their
    own. Errors as for ``Send``.
    """

    what: Action
    source: int
    wait: bool = True
    into: str | None = None

    def __post_init__(self):
        object.__setattr__(self, "what", _sent("Recv", self.what))
        object.__setattr__(self, "source", whole("Recv", "source", self.source, 0, MOST))
        require_flags("Recv", wait=self.wait)
        if self.into is not None:
            name = require("Recv", self.into, str, "into to be a buffer's name, such as 'a'")
            if not name.isidentifier():
                raise ValueError(f"Recv needs into to be a name, such as 'a' {got(name)}")

    @property
    def other(self) -> int:
        """The device at the other end."""
        return self.source

    @property
    def spelled(self) -> str:
        into = f">{self.into}" if self.into else ""
        posted = "" if self.wait else "I"
        return f"{receiver(self.what)}{posted}RECV_{_letter(self.what)}{self.what.microbatch}{into}"

    @property
    def brief(self) -> str:
        return f"Recv {self.what}"

    def __str__(self) -> str:
        return f"{self.brief} from device {self.source}"


Transfer = Send | Recv
Step = Action | OverlapFB | Transfer
Way = tuple[Action, int, int]  #: a message: what, from which device, to which


def receiver(what: Action) -> int:
    """The stage that needs what an action made: the next one for an output, the one before for a gradient."""
    return what.stage + (1 if what.kind is Kind.F else -1)


def spelled(step: Step) -> str:
    """A step as a text has it."""
    return step.spelled if isinstance(step, Transfer) else str(step)


def way(device: int, transfer: Transfer) -> Way:
    """The message of which a device has one end."""
    if isinstance(transfer, Send):
        return transfer.what, device, transfer.to
    return transfer.what, transfer.source, device


def read_step(owner: str, step: object) -> Step:
    """A step of a program; an action may also be its spelling. TypeError or ValueError for anything else."""
    if isinstance(step, Transfer):
        return step
    if not isinstance(step, str | Action | OverlapFB):
        such_as = "actions, Send(F(0, 0), to=1) or Recv(F(0, 0), source=0)"
        raise TypeError(f"{owner} takes {such_as} {got(step)}")
    found = read(owner, step)
    require_labels(owner, (label for part in found.parts for label in part[::2]))
    return found


def actions_of(steps: Iterable[Step]) -> list[Action | OverlapFB]:
    """The steps that are no transfers."""
    return [step for step in steps if not isinstance(step, Transfer)]


def _letter(what: Action) -> str:
    return "F" if what.kind is Kind.F else "B"


def _sent(owner: str, what: object) -> Action:
    """What a message holds, as a plain action; TypeError or ValueError if no other stage needs it."""
    if not isinstance(what, str | Action):
        raise TypeError(f"{owner} needs the action that made the message, such as F(0, 0) {got(what)}")
    action = read(owner, what)
    if not isinstance(action, Action) or action.kind not in (Kind.F, Kind.B, Kind.I):
        raise ValueError(
            f"{owner} needs one F, B or I: what others make stays on its device {got(str(what))}"
        )
    require_labels(owner, action[::2])
    if min(action[::2]) < 0:
        raise ValueError(f"{owner} needs a stage and a microbatch >= 0 {got(str(action))}")
    if receiver(action) < 0:
        raise ValueError(f"{owner} {action}: there is no stage before stage 0 that needs its gradient")
    return action
