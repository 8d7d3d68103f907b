"""Collectives: what several devices send each other together, beside what they compute."""

from typing import NamedTuple

from gpipe_sim.core.numbers import quotient
from gpipe_sim.core.timeline import Timeline, number, rounded
from gpipe_sim.errors import Real

ALL_REDUCE, NORM = "all-reduce", "norm"  #: collectives that go around a ring


@rounded
class Collective(NamedTuple):
    """What several devices send each other together, from ``start`` to ``end``, beside what they compute.

    ``what`` is a word for it, such as "all-reduce"; ``stage`` is None for what is of the whole model.
    ``bytes`` is how large the thing is that they sum, or pass on.
    """

    what: str
    stage: int | None
    devices: tuple[int, ...]
    start: Real
    end: Real
    bytes: Real

    @property
    def through(self) -> Real:
        """The bytes that each of its devices sends and receives: of a transfer, ``bytes``.

        Around a ring of n devices it sends 2(n-1)/n of the whole, and receives as much.
        """
        n = len(self.devices)
        return quotient(4 * (n - 1) * self.bytes, n) if self.in_ring else self.bytes

    @property
    def in_ring(self) -> bool:
        """Whether it goes around a ring of its devices; otherwise it goes from the first to the second."""
        return self.what in (ALL_REDUCE, NORM)

    def __str__(self) -> str:
        on = f"on {len(self.devices)} devices"
        if not self.in_ring:
            on = "from device {} to {}".format(*self.devices)
        elif len(self.devices) <= 4:
            on = f"on devices {' '.join(map(str, self.devices))}"
        of = "" if self.stage is None else f" of stage {self.stage}"
        return f"{self.what}{of} {on}, {number(self.start)}\u2013{number(self.end)}"


def collectives_of(timeline: Timeline) -> list[Collective]:
    """What its devices sent each other together, in the order of starts."""
    return [each for each in timeline.collectives if isinstance(each, Collective)]


def names_of(timeline: Timeline) -> list[str]:
    """What kinds of collectives a timeline has, each once."""
    return list(dict.fromkeys(each.what for each in collectives_of(timeline)))
