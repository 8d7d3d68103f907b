"""What a rank did, by its own clock, before anybody has compared clocks."""

from typing import NamedTuple

from gpipe_sim.core.actions import Action, OverlapFB


class Ran(NamedTuple):
    """An action as its rank saw it; times are in milliseconds.

    ``called`` is when the rank came to it: before it waits for its message, or launches it on a GPU.
    ``received`` is when the wait for its message ended, ``sent`` when its own message was handed over; None
    where the trace does not tell.
    """

    action: Action | OverlapFB
    start: float
    end: float
    called: float
    received: float | None = None
    sent: float | None = None

    @property
    def part(self) -> Action:
        """The action, or of a pair its forward."""
        return self.action.parts[0]

    def moved(self, by: float) -> "Ran":
        """The same on a clock that is ``by`` ahead."""
        if not by:
            return self  # whole numbers and fractions stay what they are
        received, sent = (None if time is None else time + by for time in (self.received, self.sent))
        return Ran(self.action, self.start + by, self.end + by, self.called + by, received, sent)


class Run(NamedTuple):
    """What all devices ran, step by step, each by its own clock.

    ``steps`` has for each step, by its name, a row of actions for each device, in the order in which they
    ran. ``epoch`` is 0 of the first device's clock in epoch milliseconds. ``numbered`` says that all devices
    give the same steps the same numbers. ``left_out`` says of which steps nothing else is known here.
    """

    source: str
    names: tuple[str, ...]
    steps: dict[str, list[list[Ran]]]
    epoch: float
    numbered: bool
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    labels: bool = True
