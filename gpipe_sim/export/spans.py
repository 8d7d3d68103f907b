"""Timelines that were measured: from spans and messages, whoever took the times."""

from collections.abc import Iterable, Sequence
from sys import float_info

from gpipe_sim.core.rows import read_action
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.core.timeline import Message, Span, Timeline, column_of
from gpipe_sim.errors import Real, duration, listed, require, require_flags, whole
from gpipe_sim.why.gaps import Times, Usual, Way, fill, message_bounds, notes_of

SPANS = "spans, such as Span(F(0, 0), device=0, start=0, end=1)"
MESSAGES = "messages, such as Message(F(0, 0), source=0, target=1, start=1, end=2)"
NOTES = "notes, a list of sentences"
ROUNDING = 16 * float_info.epsilon  #: of the latest time on the clock: what two readings of one moment differ


def from_spans(
    schedule: Schedule,
    spans: Iterable[Span],
    took_turns: bool = False,
    messages: Iterable[Message] | None = None,
    notes: Sequence[str] = (),
) -> Timeline:
    """A timeline of measured spans, one for each action of the schedule, in any order.

    Their times may be of any clock, such as ``time.time()``, in any unit: the first start becomes time 0, and
    ``began`` of the timeline has what it was.

    ``messages`` are those that were measured, at most one for each action and device that it was sent to. Any
    other is filled in: sent when its action ended, and on its way as long as is usual between its two
    devices, or anywhere, but there when the action started that needed it. Notes of the timeline say how many
    were. Without ``messages`` the timeline knows none. ``notes`` say what else had to be assumed.

    ValueError if a span is missing, given twice, on the wrong device, or not of this schedule; and for a
    message that nobody needs, that is given twice, that leaves before its action has ended, or that arrives
    after an action that needs it has started. TypeError for anything but spans, messages and sentences.
    """
    require_schedule("from_spans", schedule)
    require_flags("from_spans", took_turns=took_turns)
    said = tuple(require("from_spans", note, str, NOTES) for note in listed("from_spans", NOTES, notes))
    program = schedule.program
    found: dict[int, Span] = {}
    for span in map(_plain, listed("from_spans", SPANS, spans)):
        part = program.part_of(span.action.parts[0])
        entry = int(program.entry[part]) if part >= 0 else None
        if entry is None or program.entry_of(entry) != span.action:
            raise ValueError(f"{span.action} is not in {schedule!r}")
        if entry in found:
            raise ValueError(f"{span.action} is measured twice")
        if (home := int(program.device[part])) != span.device:
            where = f"on device {span.device}, but {schedule!r} has it on {home}"
            raise ValueError(f"{span.action} is measured {where}")
        found[entry] = span
    if missing := set(range(program.size)) - found.keys():
        raise ValueError(f"{program.entry_of(min(missing))} of {schedule!r} was not measured")
    in_order = [found[entry] for entry in range(program.size)]
    _require_in_order(in_order, schedule)
    began = min(span.start for span in in_order)
    start, end = ([getattr(span, name) - began for span in in_order] for name in ("start", "end"))
    sent = arrived = None
    if messages is not None:
        known = _known(schedule, listed("from_spans", MESSAGES, messages), start, end, began)
        usual = Usual.of((way[1:], times[1] - times[0]) for way, times in known.items())
        both = fill(program, start, end, known, usual)
        sent, arrived = (column_of(list(times)) for times in (zip(*both, strict=True) if both else ([], [])))
        said += notes_of(program, known)
    return Timeline(schedule, column_of(start), column_of(end), sent, arrived, took_turns, (), began, said)


def _known(
    schedule: Schedule, messages: list[Message], start: list[Real], end: list[Real], began: Real
) -> dict[Way, Times]:
    """When each of these messages left and arrived, counted from the first start."""
    bounds, found = message_bounds(schedule.program, start, end), dict[Way, Times]()
    for message in messages:
        *way, leaves, arrives = require("from_spans", message, Message, MESSAGES)
        key = read_action("from_spans", way[0]), way[1], way[2]
        says = f"the message of {key[0]} from device {key[1]} to device {key[2]}"
        times = [duration(says, name, time) for name, time in (("start", leaves), ("end", arrives))]
        if key not in bounds:
            raise ValueError(f"{says} was measured, but {schedule!r} has none such")
        if key in found:
            raise ValueError(f"{says} is measured twice")
        left, came = (time - began for time in times)
        ended, wanted = bounds[key]
        slack = ROUNDING * max(times) if float in {*map(type, times)} else 0
        if not (ended - slack <= left <= came + slack and came <= wanted + slack):
            when = f"left at {left} and arrived at {came}, but its action ended at {ended}"
            raise ValueError(f"{says} {when}, and what needs it started at {wanted}")
        left = max(left, ended)
        found[key] = left, max(left, min(came, wanted))
    return found


def _plain(span: Span) -> Span:
    """A span in Python's own numbers; TypeError or ValueError for what is none."""
    action, device, start, end = require("from_spans", span, Span, SPANS)
    action = read_action("from_spans", action)
    owner = f"the span of {action}"
    times = duration(owner, "start", start), duration(owner, "end", end)
    return Span(action, whole(owner, "device", device, 0), *times)


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
