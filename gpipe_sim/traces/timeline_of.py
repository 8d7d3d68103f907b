"""A timeline of what each device ran in a step: which schedule it was, and which messages the trace tells."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.problems import problems
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.timeline import Message, Span, Timeline
from gpipe_sim.errors import Real
from gpipe_sim.export.recognize import nearest, same_order
from gpipe_sim.export.spans import from_spans
from gpipe_sim.traces.clocks import Crossing
from gpipe_sim.traces.ran import Ran

Rows = Sequence[Sequence[Ran]]  #: of each device, its actions in the order in which they ran
LATE = 0.25  #: milliseconds after the send; a receiver that came by then can have waited for all of the way


def order_of(rows: Rows) -> Explicit:
    """The order in which they ran; ValueError, in words, for one that is not whole or cannot have run."""
    actions = [[each.action for each in row] for row in rows]
    held = [sorted({part.stage for action in row for part in action.parts}) for row in actions]
    schedule = Explicit(actions, placement=held)
    kinds = set(schedule.program.where)
    if kinds == {Kind.F}:
        _require_every_forward(schedule)
    elif wrong := problems(schedule):
        raise ValueError(wrong[0].sentence)
    return schedule


def _require_every_forward(schedule: Explicit) -> None:
    if idle := [device for device, held in enumerate(schedule.placement) if not held]:
        raise ValueError(f"device {idle[0]} has no action")
    homes = schedule.program.homes(Kind.F)
    for stage, microbatch in zip(*(homes < 0).nonzero(), strict=True):
        raise ValueError(f"{Action(int(stage), Kind.F, int(microbatch))} is missing")


def named(order: Explicit) -> tuple[Schedule, tuple[str, ...]]:
    """The family that has this order, or the order itself and a note that says which is nearest."""
    if same := same_order(order):
        also = [f"{same[0]!r} has the same order as {' and '.join(map(repr, same[1:]))}"] if same[1:] else []
        return same[0], tuple(also)
    if set(order.program.where) == {Kind.F}:
        return order, ("forwards only, which no family here has",)
    return order, (f"no family here has this order; {nearest(order)}",)


def crossings(order: Schedule, rows: Rows) -> Iterator[Crossing]:
    """Every message of a step: sent at the earliest, and received at the latest, as far as is known."""
    ran = {part: each for row in rows for each in row for part in each.action.parts}
    program = order.program
    owners = program.owner[program.crosses].tolist()
    for (action, source, target), entry in zip(program.ways, owners, strict=True):
        made, used = ran[action], ran[program.entry_of(entry).parts[0]]
        sent = made.end if made.sent is None else made.sent
        yield Crossing(action, source, target, sent, used.start if used.received is None else used.received)


def timeline_of(
    schedule: Schedule, rows: Rows, epoch: Real, notes: tuple[str, ...], messages: list[Message] | None = None
) -> Timeline:
    """The timeline of a step, all of whose times are on one clock that was 0 at ``epoch`` milliseconds.

    Messages are those that are given, else those whose whole way is seen; None if no wait is.
    """
    spans = [Span(each.action, at, each.start, each.end) for at, row in enumerate(rows) for each in row]
    first = min(span.start for span in spans)
    spans = [span._replace(start=span.start - first, end=span.end - first) for span in spans]
    if messages is None and any(each.received is not None for row in rows for each in row):
        messages = list(_known(schedule, rows))
    moved = messages and [each._replace(start=each.start - first, end=each.end - first) for each in messages]
    return replace(from_spans(schedule, spans, messages=moved, notes=notes), began=epoch + first)


def _known(schedule: Schedule, rows: Rows) -> Iterator[Message]:
    """The messages whose whole way is seen: the receiver waited, from about when they were sent.

    If it came later, the message may have lain there, or been asked for only then.
    """
    ran = {part: each for row in rows for each in row for part in each.action.parts}
    owners = schedule.program.owner[schedule.program.crosses].tolist()
    for crossing, entry in zip(crossings(schedule, rows), owners, strict=True):
        used = ran[schedule.program.entry_of(entry).parts[0]]
        arrived = min(crossing.received, used.start)
        sent = min(crossing.sent, arrived)
        on_time = used.called - sent <= max(LATE, (arrived - sent) / 4)
        if used.received is not None and on_time and ran[crossing.action].end <= arrived:
            yield Message(crossing.action, crossing.source, crossing.target, sent, arrived)
