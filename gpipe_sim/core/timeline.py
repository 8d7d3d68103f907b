"""What happened, and when. Simulated and measured timelines are the same kind of object."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from inspect import getattr_static
from itertools import repeat
from math import isfinite
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from gpipe_sim.core.actions import Action, OverlapFB
from gpipe_sim.core.hooks import Hook, Shown
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.errors import Real, require, whole

Column = np.ndarray
T = TypeVar("T")
LONG = re.compile(r"(?=[\d.]{12}|\d+\.\d{5})\d+\.\d+(e[-+]\d+)?")  #: a float that takes many digits


def number(value: Real) -> str:
    """A time as text: whole numbers in full, others to four digits, and from 1000 on without decimals."""
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if value == int(value):
        return str(int(value))
    return f"{float(value):.4g}" if -1000 < value < 1000 else f"{float(value):.0f}"


def _brief(found: re.Match) -> str:
    return number(float(found[0]))


def rounded(cls: type[T]) -> type[T]:
    """Decorate a class of values: its repr has ``number`` for each long float; the fields stay exact."""
    full = cls.__repr__
    cls.__repr__ = lambda self: LONG.sub(_brief, full(self))  # type: ignore[method-assign, assignment]
    return cls


@rounded
class Span(NamedTuple):
    """An action, or an overlapped pair, that runs on a device from ``start`` to ``end``."""

    action: Action | OverlapFB
    device: int
    start: Real
    end: Real


@rounded
class Message(NamedTuple):
    """What an action made, on its way between two devices from ``start`` to ``end``."""

    action: Action
    source: int
    target: int
    start: Real
    end: Real


@runtime_checkable
class Together(Protocol):
    """What several devices do together, beside their actions: an all-reduce, see ``links.collective``."""

    @property
    def start(self) -> Real: ...
    @property
    def end(self) -> Real: ...


@dataclass(frozen=True, eq=False, repr=False)
class Timeline:
    """What each device did and when; it knows nothing about why.

    ``start`` and ``end`` have one time per entry of ``schedule.program``. ``sent`` and ``arrived`` have one
    per need that crosses from one device to another; they are None if nobody measured the messages.
    ``took_turns`` says that only one device worked at a time, as in one process on one processor.
    ``collectives`` are what devices did together besides, as ``all_reduce`` adds it, in the order of starts.
    ``began`` is when, on the clock that measured it, the first action started, which here is time 0.
    ``notes`` say, of a measured timeline, what had to be assumed, and how its messages are known.
    Spans, rows, ends and messages are made from the columns when first asked for.
    """

    schedule: Schedule
    start: Column
    end: Column
    sent: Column | None = None
    arrived: Column | None = None
    took_turns: bool = False
    collectives: tuple[Together, ...] = ()
    began: Real = 0
    notes: tuple[str, ...] = ()

    def __post_init__(self):
        for column in (self.start, self.end, self.sent, self.arrived):
            if column is not None:
                column.flags.writeable = False

    @property
    def measured(self) -> bool:
        """Whether a clock measured it: its messages are not known, or notes say how they are."""
        return self.sent is None or bool(self.notes)

    @cached_property
    def makespan(self) -> Real:
        """When the last action ends, and the last collective; the clocks start at 0."""
        last = max(self.end.tolist()) if self.end.dtype == object else self.end.max().item()
        return max([last, *(each.end for each in self.collectives)])

    @cached_property
    def rows(self) -> tuple[tuple[Span, ...], ...]:
        """The spans of each device, in time order, which is the order of its row."""
        starts, ends = iter(self.start.tolist()), iter(self.end.tolist())  # each row takes its own
        return tuple(
            tuple(map(Span._make, zip(row, repeat(device), starts, ends, strict=False)))
            for device, row in enumerate(self.schedule.actions)
        )

    @property
    def order(self) -> list[int]:
        """The entries in the order in which they end; if two end together, what needs the other is later."""
        return np.lexsort((self.schedule.program.levels.rank, self.start, self.end)).tolist()

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """Every span, in the order in which they end; they can be executed one by one in this order."""
        entries = [span for row in self.rows for span in row]
        return tuple(map(entries.__getitem__, self.order))

    def on(self, device: int) -> tuple[Span, ...]:
        """The spans of one device, in time order; ValueError if the schedule has no such device."""
        return self.rows[whole(repr(self.schedule), "device", device, 0, self.schedule.devices - 1)]

    @cached_property
    def ends(self) -> dict[Action, Real]:
        """When each action ends; both halves of an overlapped pair end with it."""
        return {part: span.end for span in self.spans for part in span.action.parts}

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """What crossed from one device to another, sorted by arrival; empty if that was not measured."""
        if self.sent is None or self.arrived is None:
            return ()
        sent, arrived = self.sent.tolist(), self.arrived.tolist()
        ways = zip(self.schedule.program.ways, sent, arrived, strict=True)
        found = (Message(*way, start, end) for way, start, end in ways)
        return tuple(sorted(found, key=lambda message: message.end))

    def __repr__(self) -> str:
        began = f", began at {self.began}" if self.began else ""
        return f"<Timeline of {self.schedule!r}: makespan {number(self.makespan)}{began}>"

    def __str__(self) -> str:
        return TEXT.filled(self)

    def _repr_html_(self) -> str:
        return CHART.filled(self)._repr_html_()


CHART: Hook[Callable[[Timeline], Shown]] = Hook("chart_of_timeline", "a chart in a notebook")
TEXT: Hook[Callable[[Timeline], str]] = Hook("text_of_timeline", "a timeline as text")


def column_of(times: list[Real]) -> Column:
    """A column of 64-bit floats if all times are Python's floats; otherwise one of objects."""
    return np.array(times, None if {*map(type, times)} == {float} else object)


def require_timeline(owner: str, value) -> None:
    """TypeError unless the value is a timeline; the message says how to get one from what was given."""
    has = getattr_static(value, "timeline", None) is not None  # which runs nothing of a stranger's
    such_as = "such as its .timeline" if has else "such as simulate(GPipe(4, 8))"
    require(owner, value, Timeline, f"a timeline, {such_as}")


def of_timeline(function: Callable) -> Callable:
    """Decorate a function of a timeline: it raises ``require_timeline``'s TypeError for anything else."""

    @wraps(function)
    def checked(timeline: Timeline, *args, **kwargs):
        require_timeline(function.__name__, timeline)
        return function(timeline, *args, **kwargs)

    return checked
