"""What happened, and when. Simulated and measured timelines are the same kind of object."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, wraps
from math import isfinite
from numbers import Real
from typing import NamedTuple

import numpy as np

from gpipe_sim.core import hooks
from gpipe_sim.core.actions import Action, OverlapFB
from gpipe_sim.core.numbers import quotient
from gpipe_sim.core.rows import read
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.errors import duration, got, listed, require, require_flags, whole

Column = np.ndarray
SPANS = "spans, such as Span(F(0, 0), device=0, start=0, end=1)"


class Span(NamedTuple):
    """An action, or an overlapped pair, that runs on a device from ``start`` to ``end``."""

    action: Action | OverlapFB
    device: int
    start: Real
    end: Real


class Message(NamedTuple):
    """What an action made, on its way between two devices from ``start`` to ``end``."""

    action: Action
    source: int
    target: int
    start: Real
    end: Real


ALL_REDUCE, NORM = "all-reduce", "norm"  #: collectives that go around a ring


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
        if self.in_ring:
            few = len(self.devices) <= 4
            on = (
                f"on devices {' '.join(map(str, self.devices))}" if few else f"on {len(self.devices)} devices"
            )
        else:
            on = "from device {} to {}".format(*self.devices)
        of = "" if self.stage is None else f" of stage {self.stage}"
        return f"{self.what}{of} {on}, {number(self.start)}\u2013{number(self.end)}"


@dataclass(frozen=True, eq=False, repr=False)
class Timeline:
    """What each device did and when; it knows nothing about why.

    ``start`` and ``end`` have one time per entry of ``schedule.program``. ``sent`` and ``arrived`` have one
    per need that crosses from one device to another; they are None if nobody measured the messages.
    ``took_turns`` says that only one device worked at a time, as in one process on one processor.
    ``collectives`` are what devices did together besides, as ``all_reduce`` adds it, in the order of starts.
    Spans, rows, ends and messages are made from the columns when first asked for.
    """

    schedule: Schedule
    start: Column
    end: Column
    sent: Column | None = None
    arrived: Column | None = None
    took_turns: bool = False
    collectives: tuple[Collective, ...] = ()

    def __post_init__(self):
        require_schedule("Timeline", self.schedule)
        program = self.schedule.program
        entries, messages = program.size, int(program.crosses.sum())
        for name, size in (("start", entries), ("end", entries), ("sent", messages), ("arrived", messages)):
            column = getattr(self, name)
            if column is None and name in ("sent", "arrived"):
                continue
            if (
                not isinstance(column, np.ndarray)
                or column.shape != (size,)
                or column.dtype.kind not in "fiuO"
            ):
                raise TypeError(f"Timeline needs {name} to be a column of {size} times {got(column)}")
            column.flags.writeable = False
        such_as = "collectives as all_reduce adds them"
        for each in listed("Timeline", such_as, self.collectives):
            require("Timeline", each, Collective, such_as)

    @classmethod
    def from_spans(cls, schedule: Schedule, spans: Iterable[Span], took_turns: bool = False) -> "Timeline":
        """A timeline of measured spans, one for each action of the schedule, in any order; without messages.

        ValueError if a span is missing, given twice, on the wrong device, or not of this schedule; TypeError
        for anything but spans.
        """
        require_schedule("from_spans", schedule)
        require_flags("from_spans", took_turns=took_turns)
        program = schedule.program
        found: list[Span | None] = [None] * program.size
        for span in map(_plain, listed("from_spans", SPANS, spans)):
            part = program.part_of(span.action.parts[0])
            entry = int(program.entry[part]) if part >= 0 else None
            if entry is None or program.entry_of(entry) != span.action:
                raise ValueError(f"{span.action} is not in {schedule!r}")
            if found[entry] is not None:
                raise ValueError(f"{span.action} is measured twice")
            if (home := int(program.device[part])) != span.device:
                where = f"on device {span.device}, but {schedule!r} has it on {home}"
                raise ValueError(f"{span.action} is measured {where}")
            found[entry] = span
        if None in found:
            raise ValueError(f"{program.entry_of(found.index(None))} of {schedule!r} was not measured")
        _require_in_order(found, schedule)
        starts, ends = ([getattr(span, name) for span in found] for name in ("start", "end"))
        return cls(schedule, column_of(starts), column_of(ends), took_turns=took_turns)

    @cached_property
    def makespan(self) -> Real:
        """When the last action ends, and the last collective; the clocks start at 0."""
        last = max(self.end.tolist()) if self.end.dtype == object else self.end.max().item()
        return max([last, *(each.end for each in self.collectives)])

    @cached_property
    def rows(self) -> tuple[tuple[Span, ...], ...]:
        """The spans of each device, in time order, which is the order of its row."""
        starts, ends, at = self.start.tolist(), self.end.tolist(), 0
        rows = []
        for device, row in enumerate(self.schedule.actions):
            until = at + len(row)
            times = zip(row, [device] * len(row), starts[at:until], ends[at:until], strict=True)
            rows.append(tuple(map(Span._make, times)))
            at = until
        return tuple(rows)

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
        if self.arrived is None:
            return ()
        program = self.schedule.program
        needed = program.needs[program.crosses]
        columns = (
            map(program.action_of, needed.tolist()),
            program.device[needed].tolist(),
            program.target[program.crosses].tolist(),
            self.sent.tolist(),
            self.arrived.tolist(),
        )
        found = map(Message._make, zip(*columns, strict=True))
        return tuple(sorted(found, key=lambda message: message.end))

    def __repr__(self) -> str:
        return f"<Timeline of {self.schedule!r}: makespan {number(self.makespan)}>"

    def __str__(self) -> str:
        return hooks.text_of_timeline.filled(self)

    def _repr_html_(self) -> str:
        return hooks.chart_of_timeline.filled(self)._repr_html_()


def _plain(span: Span) -> Span:
    """A span in Python's own numbers; TypeError or ValueError for what is none."""
    action, device, start, end = require("from_spans", span, Span, SPANS)
    action = read("from_spans", action)
    try:
        times = duration("it", "start", start), duration("it", "end", end)
        return Span(action, whole("it", "device", device, 0), *times)
    except (TypeError, ValueError) as error:
        raise type(error)(f"the span of {action} is none: {error}") from None


def _require_in_order(spans: list[Span], schedule: Schedule) -> None:
    """ValueError unless each span ends after it starts, and a device's follow each other as in its row."""
    for before, span in zip([None, *spans], spans, strict=False):
        if span.start > span.end:
            raise ValueError(f"{span.action} is measured from {span.start} to {span.end}")
        if before and before.device == span.device and (span.start, span.end) < (before.start, before.end):
            raise ValueError(
                f"{span.action} is measured before {before.action}, but {schedule!r} has it after: "
                "give the schedule that ran, Explicit([...])"
            )


def column_of(times: list[Real]) -> Column:
    """A column of 64-bit floats if all times are Python's floats; otherwise one of objects."""
    if {*map(type, times)} == {float}:
        return np.array(times)
    found = np.empty(len(times), object)
    found[:] = times
    return found


def require_timeline(owner: str, value) -> None:
    """TypeError unless the value is a timeline; the message says how to get one from what was given."""
    if isinstance(value, Timeline):
        return
    has = isinstance(getattr(value, "timeline", None), Timeline)
    such_as = "such as its .timeline" if has else "such as simulate(GPipe(4, 8))"
    raise TypeError(f"{owner} needs a timeline, {such_as} {got(value)}")


def of_timeline(function: Callable) -> Callable:
    """Decorate a function of a timeline: it raises ``require_timeline``'s TypeError for anything else."""

    @wraps(function)
    def checked(timeline: Timeline, *args, **kwargs):
        require_timeline(function.__name__, timeline)
        return function(timeline, *args, **kwargs)

    return checked


def names_of(timeline: Timeline) -> list[str]:
    """What kinds of collectives a timeline has, each once."""
    return list(dict.fromkeys(each.what for each in timeline.collectives))


def number(value: Real) -> str:
    """A time as text: whole numbers in full, others to four digits, and from 1000 on without decimals."""
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if value == int(value):
        return str(int(value))
    return f"{float(value):.4g}" if abs(value) < 1000 else f"{float(value):.0f}"
