"""Why a timeline looks as it does: what held each action back, and so why a device waits.

An action can start when its device is free and everything that it needs has arrived. One of the two happens
last and so determines the start. Follow these from the last action of a step back to time 0, and you have the
critical path. Follow them from the end of a gap, one or two links back, and you have the reason for the gap.
A simulated action starts as soon as it can; a measured one a little later, but the same thing came last.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real

from gpipe_sim.errors import got
from gpipe_sim.errors import number as read_number
from gpipe_sim.schedule.actions import Action
from gpipe_sim.schedule.base import needs
from gpipe_sim.simulation.timeline import Span, Timeline, number, of_timeline

#: Added to an explanation that rests on a message nobody measured: a measured timeline has only actions.
ASSUMED = "; messages were not measured: what another device made counts as there when it ends"


@of_timeline
def critical_path(timeline: Timeline) -> tuple[Span, ...]:
    """One chain of spans from time 0 to the makespan, each starting as soon as the one before allows.

    Making anything else faster does not end the step sooner. Between two spans of the chain there is either
    nothing or a message; in a measured timeline also the time that a device takes to start an action that is
    ready. If a message arrives just when the device's previous action ends, the chain stays on the device.
    """
    held_back = _HeldBack(timeline)
    chain = [max(timeline.spans, key=lambda span: span.end)]
    while chain[-1].start > 0 and (cause := held_back.by(chain[-1])):
        chain.append(cause)
    return tuple(reversed(chain))


class _HeldBack:
    """For each span of a timeline, the predecessor that determined its start."""

    def __init__(self, timeline: Timeline):
        self.schedule = timeline.schedule
        self.arrived = {(message.action, message.target): message.end for message in timeline.messages}
        self.of = {part: span for span in timeline.spans for part in span.action.parts}
        self.before = {after: span for row in timeline.rows for span, after in pairwise(row)}

    def by(self, span: Span) -> Span | None:
        """That predecessor, or None. The device's own previous action wins if a message came as it ended."""
        previous, need = self.before.get(span), self.need(span)
        if need is None or (previous and previous.end >= self.arrival(need, span)):
            return previous
        return self.of[need]

    def need(self, span: Span) -> Action | None:
        """Of everything that the span needs, what arrived last; None if it needs nothing."""
        return max(needs(span.action, self.schedule), key=lambda need: self.arrival(need, span), default=None)

    def could_start(self, span: Span) -> Real:
        """When its device was free and all that it needs had arrived."""
        previous, need = self.before.get(span), self.need(span)
        return max(previous.end if previous else 0, self.arrival(need, span) if need else 0)

    def arrival(self, need: Action, span: Span) -> Real:
        """When what a span needs reaches its device; if there is no message, when the needed action ends."""
        return self.arrived.get((need, span.device), self.of[need].end)


@dataclass(frozen=True)
class Explanation:
    """What a device does from ``start`` to ``end``, as a sentence (``str``) and as spans.

    While the device is busy, ``links`` holds the span of that action. While it waits, ``links`` holds the
    span that it waits for, then what held that back in turn. It is empty when the device is done, or when
    nothing in the schedule kept it from going on.
    """

    device: int
    start: Real
    end: Real
    links: tuple[Span, ...]
    sentence: str

    def __str__(self) -> str:
        return self.sentence


@of_timeline
def why_idle(timeline: Timeline, device: int, time: Real) -> Explanation:
    """What a device waits for at a given time, and why that comes so late; or that it does not wait.

    A gap begins at the very time at which the action before it ends. In a measured timeline some gaps have
    no reason in the schedule, and the sentence says so. ValueError for a device that the schedule does not
    have, or a time before 0 or after the makespan.
    """
    row, until = timeline.on(device), timeline.makespan
    if not 0 <= read_number("why_idle", "time", time) <= until:
        raise ValueError(f"why_idle needs a time from 0 to {until} {got(time)}")
    if now := next((span for span in row if span.start <= time < span.end), None):
        says = f"device {device} is busy with {now.action} from {number(now.start)} to {number(now.end)}"
        return Explanation(device, now.start, now.end, (now,), says)
    start = max((span.end for span in row if span.end <= time), default=0)
    after = next((span for span in row if span.start > time), None)
    if after is None:
        return Explanation(device, start, until, (), _done(device, start, until, bool(row)))
    held_back = _HeldBack(timeline)
    first = ", before its first action," if after is row[0] else ""
    waits = f"device {device} waits from {number(start)} to {number(after.start)}{first} for"
    if held_back.could_start(after) <= start:
        says = f"{waits} nothing that the schedule knows of: {after.action} could start at {number(start)}"
        return Explanation(device, start, after.start, (), says)
    links, reasons = zip(*_chain(held_back, after, start), strict=True)
    assumed = timeline.arrived is None and links[0].device != device
    says = f"{waits} {'; '.join(reasons)}{ASSUMED if assumed else ''}"
    return Explanation(device, start, after.start, links, says)


def _done(device: int, start: Real, until: Real, worked: bool) -> str:
    if not worked:
        return f"device {device} has no actions"
    ends = "with it the step ends" if start == until else f"the step ends at {number(until)}"
    return f"device {device} is done at {number(start)}; {ends}"


def _chain(held_back: _HeldBack, span: Span, since: Real) -> Iterator[tuple[Span, str]]:
    """What a span waited for, then what held that back if it could not start before the gap; with words.

    ``since`` is when the gap begins. There are at most three links. The chain ends early at a span that could
    start by then, or at the action with which the device was busy instead.
    """
    head = ""
    for _ in range(2):
        need = held_back.need(span)
        source, arrival = held_back.of[need], held_back.arrival(need, span)
        yield source, head + _runs(need, source, arrival)
        if held_back.could_start(source) <= since:
            return
        if (cause := held_back.by(source)).device == source.device:
            yield cause, f"device {cause.device} is busy with {cause.action} until {number(cause.end)}"
            return
        span, head = source, f"{need} itself waits for "


def _runs(need: Action, source: Span, arrival: Real) -> str:
    late = f" and which arrives at {number(arrival)}" if source.end < arrival else ""
    return (
        f"{need}, which device {source.device} runs from {number(source.start)} to {number(source.end)}{late}"
    )
