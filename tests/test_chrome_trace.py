"""A timeline as trace events: what stands in the file, and that a viewer binds it as it is meant.

How viewers bind is written out below, as the importers of chrome://tracing and Perfetto do it: a slice nests
in the one around it on its thread, an end of an arrow belongs to the innermost slice around it. The files
were also opened by chrome://tracing's own importer, which gave no warning.
"""

import gzip
import json
from colorsys import rgb_to_hsv
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from cases import every_order, over, overlapped
from measured import measured

import gpipe_sim as gp
from gpipe_sim import Costs
from gpipe_sim.core import Action, F, Span, Timeline
from gpipe_sim.core.timeline import Message
from gpipe_sim.drawing.palette import COLLECTIVE, KINDS
from gpipe_sim.export.spans import from_spans
from gpipe_sim.links.collective import Collective
from gpipe_sim.traces import chrome
from gpipe_sim.why import in_flight

SMALL = gp.Explicit(["0F0 0B0", "1F0 1B0"])
#: Of the colours that Chrome has names for, from catapult's tracing/base/color_scheme.html (BSD licence).
RESERVED = {
    "rail_response": (67, 135, 253),
    "rail_idle": (238, 142, 0),
    "rail_load": (13, 168, 97),
    "thread_state_uninterruptible": (182, 125, 143),
    "heap_dump_stack_frame": (128, 128, 128),
    "heap_dump_child_node_arrow": (204, 102, 0),
}


def written(folder: Path, timelines, **options) -> dict:
    gp.to_chrome_trace(timelines, folder / "trace.json", **options)
    return json.loads((folder / "trace.json").read_text(encoding="ascii"))


def events(trace: dict, ph: str) -> list[dict]:
    return [event for event in trace["traceEvents"] if event["ph"] == ph]


def of_steps(trace: dict) -> list[tuple[dict, list[dict]]]:
    """Each step's first mark, and its labels: as a reader finds them, who knows nothing but the file."""
    marks = [each for each in events(trace, "X") if each["name"].startswith("ProfilerStep#")]
    labels = [each for each in events(trace, "X") if each["name"].startswith("PP:")]
    found = []
    for number in sorted({int(mark["name"].removeprefix("ProfilerStep#")) for mark in marks}):
        own = {mark["pid"]: mark for mark in marks if mark["name"] == f"ProfilerStep#{number}"}
        inside = [each for each in labels if within(each, own[each["pid"]])]
        found.append((own[0], inside))
    assert sum(len(inside) for _, inside in found) == len(labels)
    return found


def within(inner: dict, outer: dict) -> bool:
    return ns(outer) <= ns(inner) and ns(inner) + ns(inner, "dur") <= ns(outer) + ns(outer, "dur")


def ns(event: dict, what: str = "ts") -> int:
    """A viewer's time: whole nanoseconds."""
    return round(event[what] * 1000)


def read_back(trace: dict, schedule) -> list[Timeline]:
    steps = []
    for _, labels in of_steps(trace):
        spans = [
            Span(Action.parse(each["name"][3:]), each["pid"], each["args"]["start"], each["args"]["end"])
            for each in labels
        ]
        steps.append(from_spans(schedule, spans))
    return steps


def messages_of(trace: dict) -> list[Message]:
    """The arrows that say when they were sent, from device to device."""
    ends = {each["id"]: each for each in events(trace, "f")}
    return sorted(
        (
            Message(
                Action.parse(each["name"].split()[0]),
                each["pid"],
                ends[each["id"]]["pid"],
                each["args"]["sent"],
                each["args"]["arrived"],
            )
            for each in events(trace, "s")
            if "args" in each
        ),
        key=lambda message: (message.end, message),
    )


def test_a_small_trace_as_it_is_written(tmp_path):
    trace = written(tmp_path, gp.simulate(gp.Explicit(["0F0 0B0"]), Costs(0.5, 1, 1)))
    told = {"schedule": "Explicit(devices=1, microbatches=1)", "began": 0, "notes": []}
    label = {"pid": 0, "tid": 0, "cat": "user_annotation"}
    assert trace == {
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 0,
        "distributedInfo": {"world_size": 1},
        "gpipe_sim": {"steps": [told]},
        "traceEvents": [
            {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "device 0"}},
            {"ph": "M", "name": "process_sort_index", "pid": 0, "tid": 0, "args": {"sort_index": 0}},
            {"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {"name": "actions"}},
            {"ph": "M", "name": "thread_sort_index", "pid": 0, "tid": 0, "args": {"sort_index": 0}},
            {
                "ph": "X",
                "name": "ProfilerStep#0",
                "ts": 0,
                "dur": 2500,
                "cname": "cq_build_abandoned",
                **label,
            },
            {
                **{"ph": "X", "name": "PP:0F0", "ts": 0, "dur": 500, "cname": "rail_response", **label},
                "args": {"start": 0.0, "end": 0.5},
            },
            {
                **{"ph": "X", "name": "PP:0B0", "ts": 500, "dur": 2000, "cname": "rail_idle", **label},
                "args": {"start": 0.5, "end": 2.5},
            },
            {"ph": "C", "name": "in flight", "pid": 0, "ts": 0, "args": {"microbatches": 0}},
            {"ph": "C", "name": "in flight", "pid": 0, "ts": 500, "args": {"microbatches": 1}},
            {"ph": "C", "name": "in flight", "pid": 0, "ts": 2500, "args": {"microbatches": 0}},
        ],
    }


@over([*every_order([(1, 3), (2, 4), (4, 8)]), overlapped(3, 6)])
def test_spans_and_messages_come_back_to_the_last_bit(schedule, tmp_path):
    """Of simulated and of measured timelines, two steps of each in one file."""
    for timeline in (gp.simulate(schedule, Costs(0.1, 1 / 3, 1e-7, comm=0.7)), measured(schedule)):
        trace = written(tmp_path, [timeline, timeline])
        again = read_back(trace, timeline.schedule)
        assert [each.spans for each in again] == [timeline.spans] * 2
        sent = sorted(timeline.messages, key=lambda message: (message.end, message))
        assert messages_of(trace) == sorted(sent * 2, key=lambda message: (message.end, message))


@over([*every_order([(1, 3), (4, 8)]), overlapped(3, 6)])
def test_a_viewer_binds_every_arrow_to_the_action_that_sent_it_and_the_one_that_needs_it(schedule, tmp_path):
    """Also where actions touch, and steps follow each other."""
    timeline = gp.simulate(schedule, Costs(1, 1, 1))
    trace = written(tmp_path, [timeline, timeline])
    ends = {each["id"]: each for each in events(trace, "f")}
    assert len(ends) == len(events(trace, "s")) == 2 * int(schedule.program.crosses.sum())
    assert all(each["bp"] == "e" for each in ends.values())
    program, found = schedule.program, []
    for start in events(trace, "s"):
        end = ends[start["id"]]
        assert (start["name"], start["cat"]) == (end["name"], end["cat"])
        found.append((around(trace, start), start["pid"], around(trace, end), end["pid"]))
    owners = (program.entry_of(entry) for entry in program.owner[program.crosses].tolist())
    made = (program.entry_of(entry) for entry in program.entry[program.needs[program.crosses]].tolist())
    both = zip(made, program.ways, owners, strict=True)
    wanted = [(f"PP:{sender}", source, f"PP:{owner}", to) for sender, (_, source, to), owner in both]
    assert sorted(found) == sorted(wanted * 2)


def test_what_takes_no_time_is_sent_before_it_comes_as_a_viewer_reads(tmp_path):
    """A forward of no time at all comes to all devices at once: arrows begin before they end in the file."""
    trace = written(tmp_path, gp.simulate(gp.families.Chimera(4, 4), Costs(0, 1, 1)))
    ends = [each for each in trace["traceEvents"] if each["ph"] in "sf"]
    ends.sort(key=ns)  # which keeps the order of the file where times are equal
    for number in {each["id"] for each in ends}:
        assert [each["ph"] for each in ends if each["id"] == number] == ["s", "f"]


def around(trace: dict, event: dict) -> str:
    """The innermost slice around an end of an arrow on its thread; none begins or ends just there."""
    slices = [
        each for each in events(trace, "X") if (each["pid"], each["tid"]) == (event["pid"], event["tid"])
    ]
    inside = [each for each in slices if ns(each) < ns(event) < ns(each) + ns(each, "dur")]
    return min(inside, key=lambda each: each["dur"])["name"]


@over([*every_order([(2, 4), (4, 8)]), overlapped(3, 6)])
def test_slices_of_a_thread_nest_in_whole_nanoseconds(schedule, tmp_path):
    """Perfetto spills what overlaps; a third and 0.1 are no whole number of nanoseconds."""
    for timeline in (gp.simulate(schedule, Costs(1 / 3, 0.1, Fraction(1, 7), comm=0.7)), measured(schedule)):
        trace = written(tmp_path, [timeline] * 3)
        for mark, labels in of_steps(trace):
            for device in range(schedule.devices):
                own = [each for each in labels if each["pid"] == device]
                assert {each["tid"] for each in own} == {0}
                assert all(ns(a) + ns(a, "dur") <= ns(b) for a, b in pairwise(own))
                assert all(within(each, {**mark, "pid": device}) for each in own)


def test_spans_that_overlap_are_on_a_thread_of_their_own(tmp_path):
    order = gp.Explicit(["0F0 0F1 0F2"])
    spans = [Span(F(0, m), 0, start, end) for m, (start, end) in enumerate(((0, 5), (3, 7), (5, 6)))]
    trace = written(tmp_path, from_spans(order, spans))
    labels = [each for each in events(trace, "X") if each["name"].startswith("PP:")]
    assert {each["name"]: each["tid"] for each in labels} == {"PP:0F0": 0, "PP:0F1": 1, "PP:0F2": 0}
    names = [each["args"]["name"] for each in events(trace, "M") if each["name"] == "thread_name"]
    assert names == ["actions", "actions, at the same time"]


def test_steps_stand_as_far_apart_as_they_began_and_simulated_ones_follow_each_other(tmp_path):
    def began(at: float) -> Timeline:
        spans = [Span(action, device, at, at + 2) for device in range(2) for action in SMALL.actions[device]]
        return from_spans(SMALL, spans)

    trace = written(tmp_path, [began(1764e9 + 0.5), began(1764e9 + 10.5)])
    assert [mark["ts"] for mark, _ in of_steps(trace)] == [0, 10_000]
    assert trace["baseTimeNanoseconds"] == 1764 * 10**15 + 500_000
    assert [step["began"] for step in trace["gpipe_sim"]["steps"]] == [1764e9 + 0.5, 1764e9 + 10.5]
    three = written(tmp_path, [gp.simulate(SMALL)] * 3)
    assert [mark["ts"] for mark, _ in of_steps(three)] == [0, 6001, 12002]


@over([gp.OneFOneB(4, 8), gp.ZBV(3, 6), gp.Interleaved1F1B(2, 4, 2), overlapped(3, 6)])
def test_the_counter_has_what_is_in_flight_at_every_moment(schedule, tmp_path):
    timeline = gp.simulate(schedule)
    trace = written(tmp_path, timeline)
    for device in range(schedule.devices):
        counts = in_flight(timeline, device)
        shown = [each for each in events(trace, "C") if each["pid"] == device]
        for time in sorted({span.start + Fraction(k, 2) for span in timeline.spans for k in range(3)}):
            held = [count for at, count in counts if at <= time][-1]
            assert [each for each in shown if each["ts"] <= time * 1000][-1]["args"] == {"microbatches": held}


@pytest.mark.parametrize("family", [gp.OneFOneB, gp.ZBH1, gp.GPipe])
def test_with_a_profile_the_counter_has_the_bytes_that_the_library_meters(family, tmp_path):
    schedule, data = family(2, 4), gp.digits()
    partitions, batch = gp.split(gp.mlp([64, 32, 32, 10]), stages=2), (data.x[:32], data.y[:32])
    profile = gp.profile(partitions, batch, gp.cross_entropy)
    step = gp.train_step(partitions, schedule, batch, gp.cross_entropy)
    trace = written(tmp_path, step.timeline, profile=profile)
    for device, metered in enumerate(step.memory):
        shown = [each for each in events(trace, "C") if each["pid"] == device]
        assert {each["name"] for each in shown} == {"held"}
        for twice in range(2 * step.timeline.makespan + 1):
            now = [each for each in shown if each["ts"] <= twice * 500][-1]["args"]["bytes"]
            assert now == sum(metered.at(twice / 2).values())
    assert max(each["args"]["bytes"] for each in events(trace, "C")) == max(t.peak() for t in step.memory)


def test_a_collective_is_on_each_of_its_devices(tmp_path):
    timeline = gp.all_reduce(gp.simulate(gp.replicate(gp.OneFOneB(2, 2), 2)), 4, links=gp.Link(1, 2))
    trace = written(tmp_path, timeline)
    shown = [each for each in events(trace, "X") if each["cat"] == "collective"]
    wanted = {(device, each.start) for each in timeline.collectives for device in each.devices}
    assert {(each["pid"], each["ts"] / 1000) for each in shown} == wanted and len(shown) == len(wanted)
    assert all(each["tid"] >= chrome.COLLECTIVES and each["args"]["bytes"] == 4 for each in shown)
    assert {each["name"] for each in shown} == {"all-reduce of stage 0", "all-reduce of stage 1"}


def test_devices_are_processes_in_their_order(tmp_path):
    trace = written(tmp_path, gp.simulate(gp.OneFOneB(12, 2)))
    told = {(each["name"], each["pid"]): each["args"] for each in events(trace, "M")}
    for device in range(12):
        assert told["process_name", device] == {"name": f"device {device}"}
        assert told["process_sort_index", device] == {"sort_index": device}


def test_colours_are_near_ours():
    """Within 20 degrees of hue, and grey for grey."""
    wanted = {look.colour: chrome.NEAREST[kind] for kind, look in KINDS.items()}
    for colour, name in (wanted | {COLLECTIVE.colour: chrome.COLLECTIVE}).items():
        (ours, rich, _), (its, its_rich, _) = (
            rgb_to_hsv(*(channel / 255 for channel in rgb))
            for rgb in ([int(colour[i : i + 2], 16) for i in (1, 3, 5)], RESERVED[name])
        )
        assert abs(ours - its) < 20 / 360 and (rich == 0) == (its_rich == 0), name
    assert chrome.NEAREST.keys() == KINDS.keys()


def test_a_name_that_ends_in_gz_is_packed_and_the_same_every_time(tmp_path):
    timeline = gp.simulate(SMALL)
    for name in ("a.json.gz", "b.json.gz", "c.json"):
        gp.to_chrome_trace(timeline, str(tmp_path / name))
    packed = (tmp_path / "a.json.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "c.json").read_bytes()
    assert packed == (tmp_path / "b.json.gz").read_bytes()


@pytest.mark.parametrize("name", ['"</script>\n\\', "\ud800\u2028é", "\0", "PP:9F9", "ProfilerStep#7"])
def test_hostile_names_stay_names(name, tmp_path):
    """What is written is ASCII, and reads back; the labels are those of the actions."""

    class Named(gp.GPipe):
        def __repr__(self):
            return name

    order = Named(2, 1)
    plain = gp.simulate(order)
    collective = Collective(name, None, (0, 1), 6, 7, 8)
    odd = Timeline(order, plain.start, plain.end, collectives=(collective,), notes=(name,))
    trace = written(tmp_path, odd)
    assert trace["gpipe_sim"]["steps"] == [{"schedule": name, "began": 0, "notes": [name]}]
    marked = [each["name"] for each in events(trace, "X") if each["cat"] == "user_annotation"]
    assert sorted(marked) == sorted(
        ["ProfilerStep#0"] * 2 + [f"PP:{a}" for row in order.actions for a in row]
    )
    assert [each["name"] for each in events(trace, "X") if each["cat"] == "collective"] == [name] * 2


def test_fractions_become_the_nearest_doubles_and_whole_numbers_stay_whole(tmp_path):
    for forward, end in ((Fraction(1, 3), 1 / 3), (3, 3), (3.0, 3.0)):
        _, labels = of_steps(written(tmp_path, gp.simulate(SMALL, Costs(forward, 1, 1))))[0]
        assert labels[0]["args"]["end"] == end and type(labels[0]["args"]["end"]) is type(end)


# What is refused, and what then stands in the folder


def refused(folder: Path, timelines, name: str = "t.json", **options) -> tuple[type, str]:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises((TypeError, ValueError, OSError)) as error:
        gp.to_chrome_trace(timelines, folder / name, **options)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    return error.type, str(error.value)


def test_only_timelines_of_one_pipeline_are_written(tmp_path):
    timeline, other = gp.simulate(SMALL), gp.simulate(gp.GPipe(3, 2))
    for wrong in (SMALL, None, "t", 5, [timeline, SMALL], [None]):
        kind, says = refused(tmp_path, wrong)
        assert kind is TypeError and says.startswith("to_chrome_trace needs a timeline")
    data = gp.digits()
    step = gp.train_step(
        gp.split(gp.mlp([64, 8, 10]), stages=2), SMALL, (data.x[:4], data.y[:4]), gp.cross_entropy
    )
    assert "such as its .timeline" in refused(tmp_path, step)[1]
    assert refused(tmp_path, []) == (ValueError, "to_chrome_trace needs steps of one pipeline (got no step)")
    says = "to_chrome_trace needs steps of one pipeline (got steps on 2 and 3 devices)"
    assert refused(tmp_path, [timeline, other]) == (ValueError, says)


def test_a_profile_has_to_be_of_this_pipeline(tmp_path):
    profile = gp.profile(
        gp.split(gp.mlp([64, 32, 32, 10]), stages=3), (gp.digits().x[:8], gp.digits().y[:8]), gp.cross_entropy
    )
    kind, says = refused(tmp_path, gp.simulate(SMALL), profile=profile)
    assert kind is ValueError and "3" in says and "2" in says
    kind, says = refused(tmp_path, gp.simulate(SMALL), profile=4)
    assert (
        kind is TypeError
        and says == "to_chrome_trace needs profile= of a model, such as gp.profile(...) (got 4)"
    )


def test_infinite_times_are_refused(tmp_path):
    for end in (float("inf"), float("nan"), 10**400):
        plain = gp.simulate(SMALL)
        column = plain.end.astype(object)
        column[-1] = end
        kind, says = refused(tmp_path, Timeline(SMALL, plain.start, column))
        assert kind is ValueError and says.startswith("to_chrome_trace cannot write these times as numbers")


def test_where_nothing_can_be_written_there_is_nothing(tmp_path):
    timeline = gp.simulate(SMALL)
    (tmp_path / "a.json").mkdir()
    (tmp_path / "old.json").write_text("as before")
    kind, says = refused(tmp_path, timeline, "no/t.json")
    folder = tmp_path / "no"
    assert (kind, says) == (
        FileNotFoundError,
        f"to_chrome_trace cannot write {folder / 't.json'}: there is no folder {folder}",
    )
    assert refused(tmp_path, timeline, "a.json")[0] is IsADirectoryError
    for name in ("t.txt", "t", "t.gz", "t\0.json"):
        kind, says = refused(tmp_path, timeline, name)
        assert kind is ValueError and "a path that ends in .json or .json.gz" in says
    assert refused(tmp_path, SMALL, "old.json")[0] is TypeError


def test_a_disk_that_fills_leaves_what_was_there(tmp_path, monkeypatch):
    (tmp_path / "t.json").write_text("as before")

    def full(path, data):
        with path.open("wb") as file:
            file.write(data[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert refused(tmp_path, gp.simulate(SMALL))[1] == "[Errno 28] No space left on device"
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]
