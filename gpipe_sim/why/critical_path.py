"""Why a timeline looks as it does: what held each action back, and so why a device waits.

An action can start when its device is free and everything that it needs has arrived. One of the two happens
last and so determines the start. A message leaves when its action has ended and its link is free. Follow
these from the last action of a step back to time 0, and you have the critical path. Follow them from the end
of a gap, one or two links back, and you have the reason for the gap. A simulated action starts as soon as it
can; a measured one a little later, but the same thing came last.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, takewhile

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.core.schedule import needs
from gpipe_sim.core.timeline import Message, Span, Timeline, number, of_timeline
from gpipe_sim.errors import Real, got
from gpipe_sim.errors import number as read_number
from gpipe_sim.links.collective import Collective, collectives_of
from gpipe_sim.why.gaps import assumed

Cause = Span | Message | Collective

#: Added to an explanation that rests on a message nobody measured: a measured timeline has only actions.
ASSUMED = "; messages were not measured: what another device made counts as there when it ends"


@of_timeline
def critical_path(timeline: Timeline) -> tuple[Cause, ...]:
    """One chain of spans and messages from time 0 to the makespan, each starting when the one before allows.

    Collectives are in it too, where the timeline has any: each held back by the one before it on one of its
    devices, or by the backward that made the last of what it sums.

    Making anything else faster does not end the step sooner. Messages that take no time are left out; one
    that waited for its link stands after the one that was on it, which may still be on its way (latency). In
    a measured timeline there is also the time that a device takes to start an action that is ready, and with
    ``overlap=False`` that in which devices send and receive. If a message arrives just when the device's
    previous action ends, the chain stays on the device.
    """
    held_back = _HeldBack(timeline)
    every: list[Cause] = [*timeline.spans, *held_back.collectives]
    chain = [max(every, key=lambda each: each.end)]
    while chain[-1].start > 0 and (cause := held_back.by(chain[-1])):
        chain.append(cause)
    return tuple(reversed(chain))


class _HeldBack:
    """For each span, message and collective of a timeline, the predecessor that determined its start."""

    def __init__(self, timeline: Timeline):
        self.timeline, self.collectives = timeline, collectives_of(timeline)
        self.messages = {(message.action, message.target): message for message in timeline.messages}
        in_order = sorted(self.messages.values(), key=lambda each: (each.source, each.target, each.start))
        self.on_link = {b: a for a, b in pairwise(in_order) if a[1:3] == b[1:3]}  # the one before it
        self.of = {part: span for span in timeline.spans for part in span.action.parts}
        self.before = {after: span for row in timeline.rows for span, after in pairwise(row)}

    def by(self, cause: Cause) -> Cause | None:
        """That predecessor, or None. The device's own previous action wins if a message came as it ended."""
        if isinstance(cause, Message):
            return self.ahead(cause) or self.of[cause.action]
        if isinstance(cause, Collective):
            return self.before_together(cause)
        if cause.start > self.could_start(cause) and (summed := self.together(cause.device, cause.start)):
            return summed
        previous, need = self.before.get(cause), self.need(cause)
        if need is None or (previous and previous.end >= self.arrival(need, cause)):
            return previous
        message = self.message(need, cause)
        return message if message and message.end > self.of[need].end else self.of[need]

    def took_time(self, span: Span) -> Span:
        """The span, or the last one before it that kept the device busy, if updates took no time."""
        while span.start == span.end and (before := self.before.get(span)) and before.end == span.end:
            span = before
        return span

    def together(self, device: int, end: Real, before: Collective | None = None) -> Collective | None:
        """A collective of this device that ends just then; of those before another, if that takes no time."""
        those = takewhile(lambda each: each is not before, self.collectives)
        return next((each for each in those if each.end == end and device in each.devices), None)

    def before_together(self, cause: Collective) -> Cause | None:
        """What a collective waited for: another one on a device of its own, or what it sums or passes on."""
        found: list[Cause] = [
            each for k in cause.devices if (each := self.together(k, cause.start, before=cause))
        ]
        for span in (span for device in cause.devices for span in self.timeline.rows[device]):
            here = cause.stage is None or any(part.stage == cause.stage for part in span.action.parts)
            if here and span.start < cause.start and span.action.parts[-1].kind is not Kind.U:
                found.append(span)
        return max(found, key=lambda each: min(each.end, cause.start), default=None)

    def ahead(self, message: Message) -> Message | None:
        """What it waited for after its action had ended: the message before it on its link.

        If that had arrived by then, it waited for one between other devices: on a wire that they share, or
        because its sender was busy with that.
        """
        if message.start <= self.of[message.action].end:
            return None
        before = self.on_link.get(message)
        if before and before.end >= message.start:
            return before
        sharing = (each for each in self.messages.values() if each.start < message.start <= each.end)
        return max(sharing, key=lambda each: each.start, default=None)

    def need(self, span: Span) -> Action | None:
        """Of everything that the span needs, what arrived last; None if it needs nothing."""
        wanted = needs(span.action, self.timeline.schedule)
        return max(wanted, key=lambda need: self.arrival(need, span), default=None)

    def could_start(self, span: Span) -> Real:
        """When its device was free and all that it needs had arrived."""
        previous, need = self.before.get(span), self.need(span)
        return max(previous.end if previous else 0, self.arrival(need, span) if need else 0)

    def arrival(self, need: Action, span: Span) -> Real:
        """When what a span needs reaches its device; if there is no message, when the needed action ends."""
        message = self.message(need, span)
        return message.end if message else self.of[need].end

    def message(self, need: Action, span: Span) -> Message | None:
        """What brings a span what it needs, if anything does.

        An update needs the gradients of other copies, of which none is a message to it; but what made one may
        have sent something else to the same device.
        """
        return None if span.action.parts[0].kind is Kind.U else self.messages.get((need, span.device))


@dataclass(frozen=True, repr=False)
class Explanation:
    """What a device does from ``start`` to ``end``, as a sentence and as spans.

    While the device is busy, ``links`` holds the span of that action. While it waits, ``links`` holds the
    span that it waits for, then what held that back in turn. It is empty when the device is done, when it
    sends and receives, and when nothing in the schedule kept it from going on.
    """

    device: int
    start: Real
    end: Real
    links: tuple[Span, ...]
    sentence: str

    def __repr__(self) -> str:
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
        ends = "with it the step ends" if start == until else f"the step ends at {number(until)}"
        says = f"is done at {number(start)}; {ends}" if row else "has no actions"
        return Explanation(device, start, until, (), f"device {device} {says}")
    held_back = _HeldBack(timeline)
    first = ", before its first action," if after is row[0] else ""
    waits = f"device {device} waits from {number(start)} to {number(after.start)}{first} for"
    at_once = held_back.could_start(after)
    if at_once < after.start and (summed := held_back.together(device, after.start)):
        return Explanation(device, start, after.start, (), f"{waits} the {summed}")
    if at_once <= start:
        says = f"{waits} nothing that the schedule knows of: {after.action} could start at {number(start)}"
        if not timeline.measured:  # nothing else keeps a simulated device from what it could start
            says = f"device {device} sends or receives from {number(start)} to {number(after.start)}"
        return Explanation(device, start, after.start, (), says)
    links, reasons = zip(*_chain(held_back, after, start), strict=True)
    says = f"{waits} {'; '.join(reasons)}"
    if links[0].device != device:
        says += _assumed(timeline, links[0].device, device)
    if at_once < after.start and not timeline.measured:
        says += f"; device {device} receives what {held_back.need(after)} made until {number(after.start)}"
    elif timeline.arrived is not None and at_once - start < after.start - at_once:
        says += f"; most of that is later: {after.action} could start at {number(at_once)}"
    return Explanation(device, start, after.start, links, says)


def _assumed(timeline: Timeline, source: int, target: int) -> str:
    """What an explanation adds if its message was not measured, or is perhaps one of those filled in."""
    if timeline.arrived is None:
        return ASSUMED
    some = assumed(timeline, (source, target))
    return f"; {some} messages from device {source} to device {target} are assumed" if some else ""


def _chain(held_back: _HeldBack, span: Span, since: Real) -> Iterator[tuple[Span, str]]:
    """What a span waited for, then what held that back if it could not start before the gap; with words.

    ``since`` is when the gap begins. There are at most three links. The chain ends early at a span that could
    start by then, or at the action with which the device was busy instead.
    """
    head, more = "", 2
    while more and (need := held_back.need(span)):
        source = held_back.of[need]
        yield source, head + _runs(need, source, held_back, held_back.message(need, span))
        if held_back.could_start(source) <= since:
            return
        cause = held_back.by(source)
        if isinstance(cause, Span) and cause.device == source.device:
            busy = held_back.took_time(cause)
            yield busy, f"device {busy.device} is busy with {busy.action} until {number(busy.end)}"
            return
        span, head, more = source, f"{need} itself waits for ", more - 1


def _runs(need: Action, source: Span, held_back: _HeldBack, message: Message | None) -> str:
    """When it runs; and if that takes a while, when what it made arrives, and which link was not free."""
    says = f"{need}, which device {source.device} runs from {number(source.start)} to {number(source.end)}"
    if message is None or message.end <= source.end:
        return says
    if ahead := held_back.ahead(message):
        on_it, same_link = ahead.action, ahead[1:3] == message[1:3]
        where = f"for the link, where {on_it} is" if same_link else f"while what {on_it} made is sent"
        says += f" and which waits until {number(message.start)} {where}"
        return f"{says}, and arrives at {number(message.end)}"
    return f"{says} and which arrives at {number(message.end)}"
