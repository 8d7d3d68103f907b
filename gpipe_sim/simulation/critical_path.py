"""Why a timeline looks as it does: what held each action back, and so why a device waits.

An action can start when its device is free and everything that it needs has arrived; one of the two came
last. Following that from the end of a step back to its start gives the critical path, and from the end
of a gap one or two links back the reason for the gap. A simulated action starts that very moment; in a
measured timeline a little later, which changes neither what came last nor what is followed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real

from gpipe_sim.schedule.actions import Action
from gpipe_sim.schedule.base import needs
from gpipe_sim.simulation.timeline import Span, Timeline, number, of_timeline

#: Said where it matters: a measured timeline knows when actions ended, not when messages came.
ASSUMED = "; messages were not measured: what another device made counts as there when it ends"


@of_timeline
def critical_path(timeline: Timeline) -> tuple[Span, ...]:
    """One chain of spans from time 0 to the makespan, each starting the moment the one before allows.

    Making anything else faster does not end the step sooner. Between two spans of the chain stands
    either nothing or a message; in a measured timeline also what passes before a device starts what it could.
    Where several chains exist, the device's own previous action is preferred.
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
        """Of several, the device's own previous action; None if there was nothing to wait for."""
        previous, need = self.before.get(span), self.need(span)
        if need is None or (previous and previous.end >= self.arrival(need, span)):
            return previous
        return self.of[need]

    def need(self, span: Span) -> Action | None:
        """What arrived last of everything that it needs; None if it needs nothing."""
        return max(needs(span.action, self.schedule), key=lambda need: self.arrival(need, span), default=None)

    def could_start(self, span: Span) -> Real:
        """When its device was free and all that it needs had arrived."""
        previous, need = self.before.get(span), self.need(span)
        return max(previous.end if previous else 0, self.arrival(need, span) if need else 0)

    def arrival(self, need: Action, span: Span) -> Real:
        """When what a span needs reaches its device; as it ends, where nobody measured messages."""
        return self.arrived.get((need, span.device), self.of[need].end)


@dataclass(frozen=True)
class Explanation:
    """What a device does from ``start`` to ``end``, as a sentence (``str``) and as spans.

    ``links`` holds the action that it is busy with; or, while it waits, the one that it waits for and what
    held that back in turn. It is empty when the device is done, or could have gone on.
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
    """What a device waits for at a time, and why that comes so late; or that it does not wait.

    A time at which an action ends and the next does not start yet belongs to the gap. In a measured timeline
    some gaps have no reason in the schedule, and the sentence says so. ValueError for a device that the
    schedule does not have, or a time before 0 or after the makespan.
    """
    devices, until = timeline.schedule.devices, timeline.makespan
    if device not in range(devices):
        raise ValueError(f"why_idle needs a device from 0 to {devices - 1} (got {device!r})")
    if not 0 <= time <= until:
        raise ValueError(f"why_idle needs a time from 0 to {until} (got {time!r})")
    row = timeline.on(device)
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
    """What a span waited for, and what that waited for in turn if it, too, started late; each with its words.

    It ends at whatever a device was busy with instead, or could start before the gap began.
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
