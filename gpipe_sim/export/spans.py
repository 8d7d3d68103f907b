"""Timelines that were measured: from spans, whoever took the times."""

from collections.abc import Iterable

from gpipe_sim.core.rows import read_action
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.core.timeline import Span, Timeline, column_of
from gpipe_sim.errors import duration, listed, require, require_flags, whole

SPANS = "spans, such as Span(F(0, 0), device=0, start=0, end=1)"


def from_spans(schedule: Schedule, spans: Iterable[Span], took_turns: bool = False) -> Timeline:
    """A timeline of measured spans, one for each action of the schedule, in any order; without messages.

    Their times may be of any clock, such as ``time.time()``, in any unit: the first start becomes time 0, and
    ``began`` of the timeline has what it was.

    ValueError if a span is missing, given twice, on the wrong device, or not of this schedule; TypeError
    for anything but spans.
    """
    require_schedule("from_spans", schedule)
    require_flags("from_spans", took_turns=took_turns)
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
    start, end = (column_of([getattr(span, name) - began for span in in_order]) for name in ("start", "end"))
    return Timeline(schedule, start, end, took_turns=took_turns, began=began)


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
