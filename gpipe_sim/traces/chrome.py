"""Timelines as a file of trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

What is written, of the Trace Event Format's JSON object. A timeline's unit is taken to be the millisecond;
``ts`` and ``dur`` are in microseconds, rounded to nanoseconds, which is as fine as the viewers go.

- Each device is a process: ``pid`` is the device. The top has ``"distributedInfo": {"world_size": K}``,
  without a rank, because one file holds all devices: a reader splits it by ``pid``.
- Each timeline is a step: on each device a slice ``ProfilerStep#n``, n from 0, from the timeline's 0 to its
  makespan. Steps that were measured stand as far apart as they began; others follow each other by 1 us.
- Each span is a slice (``ph: X``, ``cat: user_annotation``, as torch.profiler writes labels) called
  ``PP:2F0``, a pair ``PP:(5F1;2B0)OVERLAP_F_B``. Its ``args`` have ``start`` and ``end`` as the timeline has
  them, whole numbers and floats to the last bit, fractions as the nearest double. ``tid`` is 0; spans that
  overlap others of their device, which viewers do not nest, are on 1 and so on.
- Each message is an arrow (``ph: s`` and ``f``, ``cat: message``) from within the slice that made it to
  within the one that needs it. Where the timeline knows, ``args`` of ``s`` have ``sent`` and ``arrived``.
- A counter (``ph: C``): ``in flight``, as ``gp.why.in_flight`` counts, or with a profile ``held``, in bytes.
- A collective is a slice on each of its devices, ``cat: collective``, on ``tid`` 100 and so on.
- ``"baseTimeNanoseconds"`` is when the first step began, and ``"gpipe_sim"`` has for each step the schedule
  in words, ``began`` and ``notes`` as the timeline has them.

``cname`` asks for a colour near ours, of the few that Chrome has names for; Perfetto leaves it out on purpose
(google/perfetto issues 208 and 624) and gives a colour to each name without its digits: one to each kind.
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from inspect import getattr_static
from itertools import repeat
from os import PathLike
from typing import Any, NamedTuple

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.memory import MeteredMemory
from gpipe_sim.core.timeline import Span, Timeline, require_timeline
from gpipe_sim.errors import Real, listed, require
from gpipe_sim.links.collective import Collective, collectives_of
from gpipe_sim.memory.prediction import devices_on_paper
from gpipe_sim.memory.profile import Profile
from gpipe_sim.traces.whole_files import file_to_write, write_whole
from gpipe_sim.why.metrics import in_flight

Event = dict[str, Any]
#: Of Chrome's reserved colours, for each kind the one whose hue is near that in ``drawing.palette``.
NEAREST = {
    Kind.F: "rail_response",
    Kind.B: "rail_idle",
    Kind.I: "rail_idle",
    Kind.W: "rail_load",
    Kind.R: "thread_state_uninterruptible",
    Kind.U: "heap_dump_stack_frame",
}
COLLECTIVE = "heap_dump_child_node_arrow"
WHOLE = "cq_build_abandoned"  #: a light one without hue, for a whole step
COLLECTIVES = 100  #: the first ``tid`` of theirs
APART = 0.001  #: from a step's end to the next: what takes no time at either end is in one of them
MILLION = 1_000_000  #: nanoseconds in the unit of a timeline


def to_chrome_trace(
    timelines: Timeline | Sequence[Timeline], path: str | PathLike, profile: Profile | None = None
) -> None:
    """Write a timeline, or several as steps, for Perfetto or chrome://tracing; ``.json.gz`` is packed.

    >>> import tempfile
    >>> timeline = gp.simulate(gp.OneFOneB(4, 8))
    >>> gp.to_chrome_trace(timeline, tempfile.mkdtemp() + "/1f1b.json.gz")  # open it in ui.perfetto.dev

    There is a track for each device, with the actions as PyTorch labels them, ``PP:2F0``, an arrow for each
    message, and a counter: microbatches in flight, each at each of its stages, or with the ``profile`` of a
    model the bytes that it holds. A unit of time is shown as a millisecond. ``gpipe_sim.traces.chrome`` says
    exactly what is written.

    TypeError for anything but timelines; ValueError for none, for steps on other numbers of devices, for
    another number of stages than the profile's, for times that are infinite, and for a name that ends in
    neither ``.json`` nor ``.json.gz``; OSError where nothing can be written. A file is written as a whole or
    not at all.
    """
    file = file_to_write("to_chrome_trace", path, (".json", ".json.gz"))
    given = [timelines] if isinstance(timelines, Timeline) else _several(timelines)
    such_as = "profile= of a model, such as gp.profile(...)"
    if profile is not None:
        require("to_chrome_trace", profile, Profile, such_as)
        for timeline in given:
            profile.require_stages(timeline.schedule)
    try:
        text = json.dumps(_trace(given, profile), allow_nan=False, separators=(",", ":"))
    except (ValueError, OverflowError) as error:
        raise ValueError(f"to_chrome_trace cannot write these times as numbers: {error}") from None
    data = text.encode()
    write_whole(file, gzip.compress(data, mtime=0) if file.suffix.lower() == ".gz" else data)


def _several(timelines: Sequence[Timeline]) -> list[Timeline]:
    if getattr_static(timelines, "timeline", None) is not None:  # which runs nothing of a stranger's
        require_timeline("to_chrome_trace", timelines)
    given = listed(
        "to_chrome_trace", "a timeline, or a list of steps, such as simulate(GPipe(4, 8))", timelines
    )
    for timeline in given:
        require_timeline("to_chrome_trace", timeline)
    if len(sizes := sorted({timeline.schedule.devices for timeline in given})) != 1:
        found = f"steps on {' and '.join(map(str, sizes))} devices" if sizes else "no step"
        raise ValueError(f"to_chrome_trace needs steps of one pipeline (got {found})")
    return given


class Step(NamedTuple):
    """A timeline as a step of a trace: its number, and at which time of the trace its own 0 is."""

    number: int
    timeline: Timeline
    at: Real

    def ns(self, time: Real) -> int:
        """A time of the timeline as the trace's, in whole nanoseconds."""
        return round((self.at + time) * MILLION)

    def event(self, ph: str, name: str, device: int, ns: int, **more) -> Event:
        return {"ph": ph, "name": name, "pid": device, "ts": ns / 1000, **more}

    def slice(self, name: str, device: int, tid: int, start: Real, end: Real, **more) -> Event:
        begins = self.ns(start)
        return self.event("X", name, device, begins, dur=(self.ns(end) - begins) / 1000, tid=tid, **more)


def _trace(timelines: Sequence[Timeline], profile: Profile | None) -> dict[str, Any]:
    devices, steps = timelines[0].schedule.devices, list(_steps(timelines))
    events = [event for step in steps for event in _events(step, profile)]
    tracks = sorted({(each["pid"], each["tid"]) for each in events if "tid" in each})
    return {
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": round(Fraction(timelines[0].began) * MILLION),
        "distributedInfo": {"world_size": devices},
        "gpipe_sim": {"steps": [_told(timeline) for timeline in timelines]},
        "traceEvents": [*_names(devices, tracks), *events],
    }


def _steps(timelines: Iterable[Timeline]) -> Iterator[Step]:
    """Where each step stands: as far from the first as it began, but not before the one before has ended."""
    free: Real = 0
    first = None
    for number, timeline in enumerate(timelines):
        first = timeline.began if first is None else first
        step = Step(number, timeline, max(free, timeline.began - first))
        free = step.at + timeline.makespan + APART
        yield step


def _told(timeline: Timeline) -> dict[str, Any]:
    return {
        "schedule": repr(timeline.schedule),
        "began": _number(timeline.began),
        "notes": list(timeline.notes),
    }


def _number(time: Real) -> int | float:
    return time if isinstance(time, int) else float(time)


def _names(devices: int, tracks: Iterable[tuple[int, int]]) -> Iterator[Event]:
    """What viewers call each track, and in which order they show them."""
    for device in range(devices):
        yield _named("process", device, f"device {device}")
        yield _named("process", device, device)
    for device, tid in tracks:
        word, lane = ("collectives", tid - COLLECTIVES) if tid >= COLLECTIVES else ("actions", tid)
        yield _named("thread", device, f"{word}, at the same time" if lane else word, tid)
        yield _named("thread", device, tid, tid)


def _named(what: str, device: int, value: str | int, tid: int = 0) -> Event:
    key = "name" if isinstance(value, str) else "sort_index"
    return {"ph": "M", "name": f"{what}_{key}", "pid": device, "tid": tid, "args": {key: value}}


def _events(step: Step, profile: Profile | None) -> Iterator[Event]:
    """All of a step: the step itself on each device, actions with their arrows, counters, collectives.

    An action stands before those that need it: where both are at one time, viewers go by the file.
    """
    timeline, arrows, devices = step.timeline, _arrows(step), range(step.timeline.schedule.devices)
    for device in devices:
        name, last = f"ProfilerStep#{step.number}", timeline.makespan
        yield step.slice(name, device, 0, 0, last, cat="user_annotation", cname=WHOLE)
    spans = [span for row in timeline.rows for span in row]
    lanes = [lane for row in timeline.rows for lane in _lanes(row)]
    for entry in timeline.order:
        yield _slice(step, spans[entry], lanes[entry])
        yield from ({**arrow, "tid": lanes[entry]} for arrow in arrows.get(entry, ()))
    yield from _counters(step, profile)
    for device in devices:
        own = [each for each in collectives_of(timeline) if device in each.devices]
        yield from map(_collective, repeat(step), own, repeat(device), _lanes(own))


def _lanes(spans: Iterable[Span | Collective]) -> Iterator[int]:
    """For each of these, in the order of starts, the first lane that is free."""
    free: list[Real] = []
    for span in spans:
        lane = next((lane for lane, end in enumerate(free) if end <= span.start), len(free))
        free[lane : lane + 1] = [span.end]
        yield lane


def _slice(step: Step, span: Span, tid: int) -> Event:
    action, device, start, end = span
    colour = {} if len(action.parts) > 1 else {"cname": NEAREST[action.parts[0].kind]}
    times = {"start": _number(start), "end": _number(end)}
    more = {"cat": "user_annotation", "args": times, **colour}
    return step.slice(f"PP:{action}", device, tid, start, end, **more)


def _collective(step: Step, each: Collective, device: int, lane: int) -> Event:
    of = "" if each.stage is None else f" of stage {each.stage}"
    args = {"bytes": _number(each.bytes), "devices": list(each.devices)}
    more = {"cat": "collective", "cname": COLLECTIVE, "args": args}
    return step.slice(f"{each.what}{of}", device, COLLECTIVES + lane, each.start, each.end, **more)


def _arrows(step: Step) -> dict[int, list[Event]]:
    """For each entry of the program the ends of the arrows that are bound to its slice.

    Viewers bind an end to the slice around it, so it stands a thousandth within: at a slice's very edge the
    next one begins.
    """
    program, found = step.timeline.schedule.program, dict[int, list[Event]]()
    spans = [span for row in step.timeline.rows for span in row]
    made, needed = program.entry[program.needs[program.crosses]], program.owner[program.crosses]
    every = zip(program.ways, made.tolist(), needed.tolist(), _times(step.timeline), strict=False)
    for i, ((action, _, device), sender, owner, times) in enumerate(every):
        same = {"id": (step.number << 32) + i, "cat": "message"}
        for entry, ph, share, more in ((sender, "s", 999, times), (owner, "f", 1, {"bp": "e"})):
            begins, ends = step.ns(spans[entry].start), step.ns(spans[entry].end)
            inside, home = begins + (ends - begins) * share // 1000, spans[entry].device
            event = step.event(ph, f"{action} to device {device}", home, inside, **same, **more)
            found.setdefault(entry, []).append(event)
    return found


def _times(timeline: Timeline) -> Iterable[Event]:
    """For each message what its arrow says of when, if anything."""
    if timeline.sent is None or timeline.arrived is None:
        return repeat({})
    both = zip(timeline.sent.tolist(), timeline.arrived.tolist(), strict=True)
    return ({"args": {"sent": _number(sent), "arrived": _number(arrived)}} for sent, arrived in both)


def _counters(step: Step, profile: Profile | None) -> Iterator[Event]:
    """What each device holds, wherever that changes; of several at one time the last."""
    name, unit = ("held", "bytes") if profile else ("in flight", "microbatches")
    for device, counts in enumerate(_held(step.timeline, profile)):
        for time, count in counts.items():
            yield step.event("C", name, device, step.ns(time), args={unit: count})


def _held(timeline: Timeline, profile: Profile | None) -> Iterator[dict[Real, int]]:
    if profile is None:
        yield from (dict(in_flight(timeline, k)) for k in range(timeline.schedule.devices))
        return
    for device in devices_on_paper(timeline, profile, MeteredMemory):
        if isinstance(device.memory, MeteredMemory):
            trace = device.memory.trace()
            yield dict(zip(trace.times, trace.over_time(), strict=True))
