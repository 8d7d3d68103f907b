"""Files that ``to_chrome_trace`` wrote, read back: one has all devices, and exact times in ``args``."""

from collections.abc import Iterator
from dataclasses import replace

from gpipe_sim.core.actions import Action
from gpipe_sim.core.timeline import Message, Timeline
from gpipe_sim.errors import require_few, short
from gpipe_sim.traces.files import Json
from gpipe_sim.traces.ran import Ran
from gpipe_sim.traces.tables import MOST_RANKS, MOST_ROWS, in_rows, time_of, whole_of
from gpipe_sim.traces.timeline_of import named, order_of, timeline_of


def is_own(data: Json) -> bool:
    """Whether a file says that it was written here: a trace of one rank never does."""
    own = data.get("gpipe_sim") if isinstance(data, dict) else None
    return isinstance(own, dict) and isinstance(own.get("steps"), list)


def own_timelines(file: str, data: Json) -> list[Timeline]:
    """Its timelines, with the messages that it tells and their notes; ValueError for a broken file."""
    try:
        events = [each for each in data.get("traceEvents", ()) if isinstance(each, dict)]
        require_few("it", len(events), "events", MOST_ROWS)
        return [_timeline(events, number, told) for number, told in enumerate(data["gpipe_sim"]["steps"])]
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ValueError(f"read_trace cannot read {short(file)}: {error}") from None


def _timeline(events: list[dict], number: int, told: dict) -> Timeline:
    spans: dict[int, list[Ran]] = {}
    messages = []
    for event in _of_step(events, number):
        args = event.get("args", {})
        if event.get("ph") == "X" and event.get("cat") == "user_annotation":
            start, end = time_of("start", args.get("start")), time_of("end", args.get("end"))
            ran = Ran(Action.parse(event["name"].removeprefix("PP:")), start, end, start)
            spans.setdefault(whole_of("pid", event.get("pid"), MOST_RANKS), []).append(ran)
        elif event.get("ph") == "s" and event.get("cat") == "message" and "sent" in args:
            action, target = event["name"].split(" to device ")
            pair = whole_of("pid", event.get("pid"), MOST_RANKS), whole_of("device", target, MOST_RANKS)
            times = time_of("sent", args["sent"]), time_of("arrived", args.get("arrived"))
            messages.append(Message(Action.parse(action).parts[0], *pair, *times))
    rows = list(in_rows(spans, max(spans, default=0) + 1))
    schedule, _ = named(order_of(rows))
    notes = tuple(str(note) for note in told.get("notes", ()))
    found = timeline_of(schedule, rows, 0, notes, messages or None)
    return replace(
        found, began=time_of("began", told.get("began", 0)) + found.began, notes=notes or found.notes
    )


def _of_step(events: list[dict], number: int) -> Iterator[dict]:
    """The events of a step, without its own slices: those from its ``ProfilerStep#`` to its end."""
    marks = [event for event in events if event.get("name") == f"ProfilerStep#{number}"]
    if not marks:
        raise ValueError(f"it has no ProfilerStep#{number}")
    low = time_of("ts", marks[0].get("ts"))
    high = low + time_of("dur", marks[0].get("dur"))
    for event in events:
        inside = event.get("ph") in ("X", "s") and low <= time_of("ts", event.get("ts")) <= high
        if inside and not str(event.get("name")).startswith("ProfilerStep#"):
            yield event
