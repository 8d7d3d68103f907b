"""Actions: the things that a device can be told to do.

An action is written as PyTorch writes it, stage first: ``2F0`` is the forward of stage 2 on
microbatch 0. A schedule is one row of actions for each device, and nothing more.
"""

import math
import re
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from gpipe_sim.errors import got, require, short, whole


class Kind(StrEnum):
    """What one action does to one microbatch at one stage."""

    F = "F"  #: forward
    B = "B"  #: full backward: I, then W
    I = "I"  #: input gradient: what the stage before waits for
    W = "W"  #: weight gradient: only the update waits for it
    R = "R"  #: recompute the forward from the saved boundary input
    U = "U"  #: update the stage's weights; ``2U7``: once microbatch 7's gradient is in

    @classmethod
    def _missing_(cls, value):
        raise ValueError(f"there are the kinds {', '.join(cls)} {got(value)}")

    @property
    def meaning(self) -> str:
        """What it does, in a few words."""
        return MEANINGS[self]


MEANINGS = {
    Kind.F: "forward",
    Kind.B: "backward",
    Kind.I: "input gradient",
    Kind.W: "weight gradient",
    Kind.R: "recompute",
    Kind.U: "weight update",
}


class Action(NamedTuple):
    """One kind of work on one microbatch at one stage; ``str`` gives ``2F0``.

    >>> action = gp.core.Action.parse("2F0")
    >>> action.stage, action.kind, action.microbatch, str(action)
    (2, <Kind.F: 'F'>, 0, '2F0')
    """

    stage: int
    kind: Kind
    microbatch: int

    @property
    def parts(self) -> tuple["Action", ...]:
        """The plain actions that this is made of: itself alone. An ``OverlapFB`` has two."""
        return (self,)

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"

    @staticmethod
    def parse(text: str) -> "Action | OverlapFB":
        """Read ``2F0``, or ``(0F3;7B1)OVERLAP_F_B`` for an overlapped pair.

        Raises ValueError for anything else.
        """
        require("Action.parse", text, str, "a text")
        found = [Action(int(stage), Kind(kind), int(m)) for stage, kind, m in _WORD.findall(text)]
        if _PAIR.fullmatch(text.strip()):
            return OverlapFB(*found)
        if _WORD.fullmatch(text.strip()):
            return found[0]
        raise ValueError(
            f"{short(text)} is not an action; write stage, kind, microbatch, such as 2F0, "
            f"with a kind out of {', '.join(Kind)}, or a pair such as (0F3;7B1)OVERLAP_F_B"
        )


class OverlapFB(NamedTuple):
    """A forward and a backward run as one block (DualPipe); both end when the block ends."""

    forward: Action
    backward: Action

    @property
    def parts(self) -> tuple[Action, ...]:
        """The forward and the backward."""
        return (self.forward, self.backward)

    def __str__(self) -> str:
        return f"({self.forward};{self.backward})OVERLAP_F_B"


def plain(action: Action) -> Action:
    """The action with Python's own ints and a ``Kind``; it may have been made with NumPy's, or a string."""
    try:
        stage = whole("it", "its stage", action.stage, low=-math.inf)
        return Action(
            stage, Kind(action.kind), whole("it", "its microbatch", action.microbatch, low=-math.inf)
        )
    except (TypeError, ValueError) as error:
        raise type(error)(f"{short(str(action))} is not an action: {error}") from None


def require_labels(owner: str, labels: Iterable[int]) -> None:
    """ValueError for a label beyond 64 bits: no table holds it, and Python may not even print it."""
    for label in labels:
        if not -(1 << 63) <= label < 1 << 63:
            raise ValueError(f"{owner} has a label of about {int(math.log10(abs(label))) + 1} digits")


_WORD = re.compile(r"([0-9]{1,18})([FBIWRU])([0-9]{1,18})")  # more digits than any label has
_PAIR = re.compile(r"\([0-9]{1,18}F[0-9]{1,18};[0-9]{1,18}B[0-9]{1,18}\)OVERLAP_F_B")


def F(stage: int, microbatch: int) -> Action:
    """The forward of a stage on a microbatch.

    >>> print(gp.core.F(2, 0))
    2F0
    >>> gp.core.F(2, 0) == gp.core.Action.parse("2F0")
    True
    """
    return Action(stage, Kind.F, microbatch)


def B(stage: int, microbatch: int) -> Action:
    """The full backward: input gradient, then weight gradient.

    >>> print(gp.core.B(2, 0))
    2B0
    >>> gp.core.needs(gp.core.B(2, 0), gp.GPipe(devices=4, microbatches=8))
    (Action(stage=2, kind=<Kind.F: 'F'>, microbatch=0), Action(stage=3, kind=<Kind.B: 'B'>, microbatch=0))
    """
    return Action(stage, Kind.B, microbatch)


def I(stage: int, microbatch: int) -> Action:
    """The input gradient. The zero-bubble papers call this B; PyTorch calls it I."""
    return Action(stage, Kind.I, microbatch)


def W(stage: int, microbatch: int) -> Action:
    """The weight gradient; it may run any time after I."""
    return Action(stage, Kind.W, microbatch)


def R(stage: int, microbatch: int) -> Action:
    """Recompute the forward from its boundary input."""
    return Action(stage, Kind.R, microbatch)


def U(stage: int, microbatch: int) -> Action:
    """Update the stage's weights once this microbatch's gradient is in."""
    return Action(stage, Kind.U, microbatch)
