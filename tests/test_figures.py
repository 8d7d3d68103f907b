"""The committed figures: their numbers come out again, and the pictures show these numbers and no others."""

import copy
import json
import os
import re
import struct
from fractions import Fraction
from itertools import combinations, pairwise

import matplotlib.text
import numpy as np
import pytest
from closed_forms import gpipe_speedup
from drawn import area, boxes_in, bubble, chart_in, committed
from matplotlib.image import imread, imsave

import gpipe_sim as gp
from figures import _store, bytes_per_flop, choosing_m, depth_devices, versions_in_lanes, zero_bubble_table
from figures.__main__ import DPI, main
from figures._exact import plain
from figures._gantt import numbers, timeline_of
from figures._page import WIDTH
from figures._store import NAMES, differences, file, folder, module, read, to_text
from gpipe_sim import formulas
from gpipe_sim.core import Kind
from gpipe_sim.drawing.memory_strips import BYTES_HIGH, COUNTS_HIGH
from gpipe_sim.drawing.palette import IN_FLIGHT, KINDS
from gpipe_sim.drawing.plots.style import LABEL_SIZE

LIKE_GPIPE = "1F1B: as long as GPipe"
#: makespan, bubble, peaks in flight, and what the chart claims
GANTT = {
    "gantt_naive": (12, [3, 4], [1, 1, 1, 1], "Without a pipeline, 3/4 of the device time is waiting"),
    "gantt_1f1b": (33, [3, 11], [4, 3, 2, 1], f"{LIKE_GPIPE}, and holds 4 microbatches at most instead of 8"),
}
#: Pictures to remember of a lesson, which a later edition of it will show.
TO_COME = {"gantt_naive", "one_microbatch", "pushed_rows", "three_steps"}


def test_every_figure_has_its_picture_and_its_numbers_and_is_shown_somewhere():
    for kind in ("png", "json"):
        assert sorted(path.stem for path in folder.glob(f"*.{kind}")) == sorted(NAMES)
    pages = [folder.parent / "README.md", *(folder.parent / "notebooks").glob("*.ipynb")]
    shown = {name for page in pages for name in re.findall(r"figures/(\w+)\.png", page.read_text())}
    assert set(NAMES) == shown | TO_COME


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_numbers_come_out_again(name):
    assert differences(module(name).data(), read(name)) == []


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_as_wide_as_a_readme_needs(name):
    header = file(name, "png").read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", header[16:])[0] == WIDTH * DPI == 1350


@pytest.mark.parametrize("name", NAMES)
def test_text_is_large_enough_inside_the_sheet_and_apart(name, drawn_texts):
    figure = committed(name)
    extents = drawn_texts(figure)
    sheet = figure.bbox
    assert len(extents) >= 12
    for text, box in extents:
        assert text.get_fontsize() >= LABEL_SIZE == 9  # at 9 inches for 900 pixels, 12.5 pixels high
        assert sheet.x0 <= box.x0 and box.x1 <= sheet.x1 and sheet.y0 <= box.y0 and box.y1 <= sheet.y1
    left, bottom, right, top = np.array([box.extents for _, box in extents]).T[:, :, None]
    overlap = (left < right.T) & (right > left.T) & (bottom < top.T) & (top > bottom.T)
    pairs = [(extents[i][0].get_text(), extents[j][0].get_text()) for i, j in np.argwhere(overlap) if i < j]
    assert pairs == []


@pytest.mark.parametrize("name", GANTT)
def test_a_gantt_chart_claims_the_numbers_of_its_schedule_and_draws_its_spans(name):
    data, [ax] = read(name), committed(name).axes
    chart, drawn = chart_in(ax), boxes_in(ax)
    peaks = list(map(int, chart.peaks))
    assert (data["makespan"], data["bubble"], data["peak_in_flight"], chart.title) == GANTT[name]
    assert (ax.get_xlim(), ax.get_xlabel(), peaks) == ((0, data["makespan"]), "time", data["peak_in_flight"])
    assert ax.get_xticklabels()[-1].get_text() == str(data["makespan"])
    spans = sorted([box.device, box.start, box.end] for box in drawn)
    assert spans == sorted(span[:3] for span in data["spans"])
    assert bubble(drawn) == Fraction(*data["bubble"])


@pytest.mark.parametrize("name", GANTT)
def test_strips_hold_what_is_in_flight_below_each_lane(name):
    """Area for area, in the unit of the fullest device's peak."""
    data = read(name)
    timeline, most = timeline_of(data), max(data["peak_in_flight"])
    chart = chart_in(committed(name).axes[0])
    strips = chart.outlines(IN_FLIGHT.colour)
    for device, strip in enumerate(strips):
        ends = [*gp.why.in_flight(timeline, device), (timeline.makespan, 0)]
        held = sum(count * (end - start) for (start, count), (end, _) in pairwise(ends))
        assert area(strip) == pytest.approx(COUNTS_HIGH * held / most)
    assert len(strips) == 4


def test_a_picture_is_drawn_from_its_numbers_alone():
    data = read("gantt_naive")
    data["spans"][-1] = [3, 4, 9, "3B0"]
    data |= {"makespan": 99, "bubble": [1, 2]}
    chart = module("gantt_naive").draw(data).axes[0]
    assert (3, 4.0, 9.0) in {(box.device, box.start, box.end) for box in boxes_in(chart)}
    assert chart.get_title("left") == "Without a pipeline, 1/2 of the device time is waiting"


def test_the_pushed_rows_are_the_same_work_and_one_block():
    above, below = committed("pushed_rows").axes
    pushed = boxes_in(below)
    for device in range(4):
        row = sorted((box.start, box.end) for box in pushed if box.device == device)
        assert [row[0][0], row[-1][1]] == [0, 24] and all(a[1] == b[0] for a, b in pairwise(row)), "no gap"
    works = [sum(box.end - box.start for box in drawn) for drawn in (boxes_in(above), pushed)]
    assert works == [96, 96]
    assert chart_in(below).frames and "waiting: 9 of 33" in {word.words for word in chart_in(below).words}
    assert below.get_title("left").endswith("the waiting is one block, (K\u22121)(F+B) long")


def test_three_steps_take_less_than_three_times_one():
    data = read("three_steps")
    assert (data["makespan"], data["alone"], data["steps"]) == (75, 27, 3)
    [ax] = committed("three_steps").axes
    assert ax.get_title("left") == "3 steps of ZB-H2 interlock: 75 long, not 81"
    assert len(chart_in(ax).frames) == 4 * 8 * 3  # of the step in the middle: F, I and W


def versions_drawn(ax, colour: str) -> list[list[int]]:
    """By device, the numbers in its boxes of this colour."""
    rows, words = [[], [], [], []], chart_in(ax).words
    for box in sorted(boxes_in(ax), key=lambda box: box.start):
        if box.colour == colour.lower():
            inside = [w.words for w in words if int(w.y) == box.device and box.start < w.x < box.end]
            rows[box.device] += map(int, inside)
    return rows


def test_without_a_flush_nothing_waits_once_warm_and_device_0_uses_weights_3_updates_old():
    endless, flushed = committed("endless_timeline").axes
    says = "Without a flush: once warm, each device waits 0; weights are 3, 2, 1 and 0 updates old"
    assert endless.get_title("left") == says
    says = (
        "With 2 flushes weights are 0 updates old; the same microbatches take 49, not 44, and 37% is waiting"
    )
    assert flushed.get_title("left") == says
    assert endless.get_xlim() == flushed.get_xlim() == (0, 49)
    for kind in (Kind.F, Kind.B):
        stream = versions_drawn(endless, KINDS[kind].colour)
        assert stream == [[max(0, m - 3 + device) for m in range(10)] for device in range(4)]
        assert versions_drawn(flushed, KINDS[kind].colour) == [[0] * 5 + [1] * 5] * 4
    for device in range(4):
        row = sorted((box.start, box.end) for box in boxes_in(endless) if box.device == device)
        warm, last = 4 - device, 4 - device + 3 * (6 + device)  # F B U, until no forward is left
        assert all(a[1] == b[0] for a, b in pairwise(row[warm:last])) and len(row) == 30
        assert (
            len({end for (_, end), (start, _) in pairwise(row) if end < start})
            == min(1, 3 - device) + 3 - device
        )


def test_a_row_of_the_endless_timeline_that_waits_or_is_flushed_changes_its_claims():
    data = copy.deepcopy(read("endless_timeline"))
    late = next(span for span in data["endless"]["spans"] if span[3] == "0F9")
    late[1] += 0.5
    late[2] = late[1]
    above, _ = module("endless_timeline").claims(data)
    assert above.startswith("Without a flush: once warm, each device waits 0.5; ")
    above, _ = module("endless_timeline").claims(data | {"endless": data["flushed"]})
    assert above.endswith("; weights are 0, 0, 0 and 0 updates old")


def test_stashing_holds_4_3_2_1_versions_and_the_bytes_of_as_many():
    data, one = read("versions_in_lanes"), (64 * 64 + 64) * 8
    held = {"stashed": [4, 3, 2, 1], "vertical": [4] * 4, "double": [2] * 4}
    axes = committed("versions_in_lanes").axes
    titles = [f"{weights.title()}: {sum(counts)} versions in all" for weights, counts in held.items()]
    assert [ax.get_title("left") for ax in axes] == titles
    for ax, (weights, counts) in zip(axes, held.items(), strict=True):
        run, schedule = data[weights], versions_in_lanes.RUNS[weights]
        assert run["held"] == counts == list(gp.staleness(schedule, weights).held)
        chart, together = chart_in(ax), 0
        assert chart.peaks == [f"{count} \u00d7 33 kB" for count in counts]
        for trace in versions_in_lanes.traces_of(run):
            assert set(trace.over_time("parameters")) == {one}
            together += sum(trace.at(30).values()) // one
        assert [trace.peak() for trace in versions_in_lanes.traces_of(run)] == [n * one for n in counts]
        assert together == sum(counts), "all at the same time"
        newest, older = (chart.areas[i][1] for i in (-3, -2))
        drawn = [sum(area(each) for each in outlines) for outlines in (newest, older)]
        expected = [
            sum(
                b * t
                for trace in run["memory"]
                for b, t in zip(trace["bytes"][name], lasts(trace, 45), strict=True)
            )
            for name in ("parameters", "older weights")
        ]
        assert drawn == pytest.approx([BYTES_HIGH * each / (4 * one) for each in expected])
    [legend] = committed("versions_in_lanes").legends
    assert [words.get_text() for words in legend.get_texts()][-2:] == ["parameters", "older weights"]


def lasts(trace: dict, until: float) -> list[float]:
    """How long a device holds what it holds at each of its samples."""
    return [end - start for start, end in pairwise([*trace["times"], until])]


def test_one_microbatch_crosses_more_often_in_thinner_slices():
    data = read("one_microbatch")
    assert [data[name]["crossed"] for name in ("1F1B", "Interleaved 1F1B")] == [6, 14]
    above, below = map(chart_in, committed("one_microbatch").axes)
    assert above.title == "1F1B: microbatch 4 crosses 6 times; 33 long"
    assert below.title == "Interleaved 1F1B: microbatch 4 crosses 14 times; 28.5 long"
    assert (len(above.frames), len(below.frames)) == (8, 16)


def test_the_dial_ends_at_room_for_4_on_each_and_1f1b_is_off_it():
    data = read("dial")
    points = [(sum(own["peak_in_flight"]), own["makespan"]) for own in data["settings"]]
    assert points == [(4, 96), (7, 51), (10, 39), (13, 33), (15, 33), (17, 33), (19, 33), (20, 33)]
    assert data["settings"][0]["spans"] == numbers(gp.Naive(4, 8))["spans"]
    ax, *thumbnails = committed("dial").axes + committed("dial").axes[0].child_axes
    line, gpipe, alone = ax.lines
    assert list(map(tuple, line.get_xydata().tolist())) == points
    assert gpipe.get_xydata().tolist() == [[32, 33]] and alone.get_xydata().tolist() == [[10, 33]]
    drawn = [*(data["settings"][room - 1] for room in (1, 2, 3, 4, 8)), data["GPipe"], data["1F1B"]]
    for inset, own in zip(thumbnails, drawn, strict=True):
        assert bubble(boxes_in(inset)) == Fraction(*own["bubble"])
    places = [inset.get_window_extent() for inset in thumbnails]
    assert not any(a.overlaps(b) for a, b in combinations(places, 2))
    words = "1F1B takes 33, as GPipe does, and its devices hold 10 together, not 32"
    assert ax.get_title("left") == words


def test_every_schedule_stands_at_its_length_and_at_what_it_holds():
    data = read("time_and_memory")
    assert {e["name"]: (e["holds"], e["makespan"]) for e in data["schedules"]} == {
        e["name"]: (e["holds"], e["makespan"]) for column in read("zoo")["columns"] for e in column
    }
    [ax] = committed("time_and_memory").axes
    dots = {tuple(line.get_xydata()[0]) for line in ax.lines if line.get_marker() == "o"}
    points = {(e["holds"], e["makespan"]) for e in data["schedules"] if e["name"] != "Naive"}
    assert dots == points
    assert len(ax.child_axes) == 13
    places = [inset.get_window_extent() for inset in ax.child_axes]
    assert not any(a.overlaps(b) for a, b in combinations(places, 2))
    best = [
        min(data["schedules"][1:], key=lambda entry: entry[what])["name"] for what in ("holds", "makespan")
    ]
    words = f"of these, {best[0]} holds the least and {best[1]} is the shortest"
    assert (best, ax.get_title("left")) == (["V-Min", "ZB-V"], f"No schedule is best at both: {words}")
    assert "Naive, 96 long, holds 1" in {text.get_text().split("not shown: ")[-1] for text in ax.texts}


def test_a_time_that_json_cannot_hold_is_refused():
    assert [plain(time) for time in (3, Fraction(57, 2), 2.0)] == [3, 28.5, 2]
    with pytest.raises(ValueError, match=r"exact in JSON \(got 1/3\)"):
        plain(Fraction(1, 3))


def test_bubbles_equal_the_formula():
    data = read("bubble_curves")
    assert data["devices"] == [2, 4, 8, 16]
    assert (data["microbatches"][0], data["microbatches"][-1]) == (1, 64)
    for k, row in zip(data["devices"], data["bubble"], strict=True):
        assert [Fraction(*pair) for pair in row] == [
            formulas.gpipe_bubble(k, m) for m in data["microbatches"]
        ]


def test_at_four_times_as_many_microbatches_11_to_19_percent_are_left():
    ax = committed("bubble_curves").axes[0]
    said = [text.get_text() for text in ax.texts]
    assert [words for words in said if words.endswith("%")] == ["11.1%", "15.8%", "17.9%", "19.0%"]
    assert ax.get_title("left") == "At the usual M = 4K, GPipe still waits 11% to 19% of the time"
    assert marks(ax, "K = 16")[-1] == (64, 15 / 79)
    assert len(marks(ax, "K = 2")) == 12


def test_with_more_pieces_the_bubble_falls_and_so_does_what_is_learned_in_as_many_epochs():
    data = read("choosing_m")
    ms, k = data["microbatches"], data["devices"]
    assert [Fraction(*pair) for pair in data["bubble"]] == [formulas.gpipe_bubble(k, m) for m in ms]
    assert data["updates"] == [5 * (1438 // (8 * m)) for m in ms] == [220, 110, 55, 25, 10]
    assert all(min(few) > max(many) for few, many in pairwise(data["accuracy"])), "in every training"
    above, below = committed("choosing_m").axes
    assert marks(above, "K = 4") == [(m, 3 / (3 + m)) for m in ms]
    assert above.get_title("left") == "From M = 4 to M = 64 the bubble falls from 43% to 4% ..."
    assert below.get_title("left") == "... and 5 epochs teach less, since they have fewer updates"
    dots = [line for line in below.lines if line.get_marker() == "o"]
    assert [list(line.get_ydata()) for line in dots] == data["accuracy"] + data["with_larger_updates"]
    assert [set(line.get_xdata()) for line in dots] == [{m} for m in ms] * 2
    said = [text.get_text() for text in below.texts if text.get_text().endswith("updates")]
    assert said == [f"{updates} updates" for updates in data["updates"]]


def test_larger_updates_make_up_for_fewer_of_them_but_not_without_end():
    """What the alternative text in lesson 10 says; at M = 4 the learning rate is the same."""
    data = read("choosing_m")
    same, larger = ([sum(found) / 3 for found in data[name]] for name in ("accuracy", "with_larger_updates"))
    assert same[0] == larger[0] and all(a < b for a, b in zip(same[1:], larger[1:], strict=True))
    assert min(larger[:-1]) > 0.9 and max(data["with_larger_updates"][-1]) < min(data["accuracy"][0])
    assert [f"{mean:.0%}" for mean in (same[0], same[-1], larger[-1])] == ["93%", "28%", "75%"]


def test_over_a_late_hop_gpipe_is_shorter_and_over_a_narrow_one_soon_1f1b():
    """GPipe waits for two crossings and a queue of eight each way, 1F1B for four round trips."""
    data = read("slow_hop")
    late, narrow, times = data["late"], data["narrow"], data["times"]
    assert late["GPipe"] == [33 + 2 * c for c in times] and late["1F1B"] == [33 + 8 * c for c in times]
    assert narrow["GPipe"] == [33 + 2 * c + 7 * (max(c - 1, 0) + max(c - 2, 0)) for c in times]
    assert narrow["1F1B"][:4] == late["1F1B"][:4] and narrow["1F1B"][4:] == [67, 77, 87]
    left, right = committed("slow_hop").axes
    for ax, lengths in ((left, late), (right, narrow)):
        assert all(marks(ax, name) == list(zip(times, lengths[name], strict=True)) for name in lengths)
        said = [text.get_text() for text in ax.texts]
        assert {f"{name}: {lengths[name][-1]}" for name in lengths} <= set(said)
    assert "from 3 on, 1F1B takes less time" in [text.get_text() for text in right.texts]
    assert [narrow["GPipe"][c] > narrow["1F1B"][c] for c in times] == [c >= 3 for c in times]


def test_the_slowest_stage_works_without_a_break_and_the_others_keep_its_time():
    data = read("slowest_stage")
    assert [(cut["makespan"], cut["beat"]) for cut in data["cuts"]] == [(138, 15), (93, 9)]
    axes = committed("slowest_stage").axes
    for ax, cut in zip(axes, data["cuts"], strict=True):
        drawn = boxes_in(ax)
        assert bubble(drawn) == Fraction(*cut["bubble"])
        slowest = cut["layers"].index(max(cut["layers"]))
        ends = sorted(
            box.end for box in drawn if box.device == slowest and box.colour == KINDS[Kind.B].colour.lower()
        )
        assert len(ends) == 8
        steady = ends if slowest == 3 else ends[:5]  # in its drain the first device waits for the others
        assert {b - a for a, b in pairwise(steady)} == {cut["beat"]}
    above, below = axes
    words = "The slowest stage sets the beat: with 2, 2, 2, 5 layers it is 15, and the step takes 138"
    assert above.get_title("left") == words
    assert below.get_title("left").endswith("and the step takes 93: devices work 71% of the time, not 48%")
    assert above.get_xlim() == below.get_xlim() == (0, 138)


def test_speedups_on_links_are_drawn_as_they_are():
    """Without messages they are those of the formula; 1F1B is never faster than GPipe here."""
    data = read("links_scaling")
    found = {name: [[Fraction(*p) for p in row] for row in rows] for name, rows in data["speedup"].items()}
    formula = [gpipe_speedup(k, data["microbatches"]) for k in data["devices"]]
    assert found["GPipe"][0] == found["1F1B"][0] == formula
    for gpipe, one in zip(found["GPipe"], found["1F1B"], strict=True):
        assert all(a >= b for a, b in zip(gpipe, one, strict=True))
    [ax] = committed("links_scaling").axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in ax.lines}
    assert drawn == {
        f"{name}, {message}": list(map(float, row))
        for name, rows in found.items()
        for message, row in zip(data["messages"], rows, strict=True)
    }
    words = "16 devices are 6.6 times as fast as one, 32 only 5.2 times; on fast ones 16.3"
    assert ax.get_title("left") == f"GPipe on slow links: {words}"


def test_a_block_over_devices_computes_a_part_and_sums_four_times():
    """24sbh^2 + 4s^2bh FLOPs and twice that, at 140 TFLOP/s; 16sbh (t-1)/t bytes at the speed of the link."""
    data, s, h = read("tensor_speedup"), 2_048, 12_288
    alone = Fraction(3 * (24 * s * h**2 + 4 * s**2 * h), 140 * 10**12)
    for name, speed in {"in one machine": 300 * 10**9, "each in its own": 25 * 10**9}.items():
        for t, times in data[name]:
            waits = Fraction(16 * s * h * (t - 1), t * speed)
            assert Fraction(*times) == alone / (alone / t + waits)
    [ax] = committed("tensor_speedup").axes
    drawn = {line.get_label(): list(zip(*line.get_data(), strict=True)) for line in ax.lines}
    ideal = drawn.pop("as many times as devices")
    assert all(t == times for t, times in ideal) and len(ideal) == 4
    assert drawn == {
        name: [(t, float(Fraction(*times))) for t, times in points] for name, points in data.items()
    }
    words = "8 devices in one machine are 7.6 times as fast as one, in machines of their own only 4.7 times"
    assert ax.get_title("left") == words


def test_sixteen_devices_as_five_meshes():
    """A copy more saves 3 of waiting and costs two rounds of 5; a message of 2 crosses each hop twice."""
    data = read("meshes")
    parts = {
        f"{K} x {R}": [64, 128, 48 - 3 * R, 4 * (K - 1), 10 * (R - 1)]
        for K, R in ((16, 1), (8, 2), (4, 4), (2, 8), (1, 16))
    }
    assert [f"{K} x {R}" for K, R in data["meshes"]] == list(parts)
    assert data["parts"] == list(parts.values())
    assert [sum(each) for each in data["parts"]] == [297, 272, 270, 290, 342]
    [ax] = committed("meshes").axes
    bars = [patch for patch in ax.patches if round(patch.get_height(), 2) == 0.56]
    squares = [patch for patch in ax.patches if patch not in bars]
    assert len(squares) == 5 * 16 and len({(each.get_x(), each.get_y()) for each in squares}) == 5 * 16
    assert [bar.get_width() for bar in bars] == [part for each in parts.values() for part in each if part]
    said = {text.get_text() for text in ax.texts}
    assert {"297", "272", "270", "290", "342", *parts} <= said
    assert ax.get_title("left").endswith("many copies make long sums: 4 x 4 is the shortest, 270")


def test_no_plan_beats_those_that_are_joined():
    data = read("plans")
    assert len(data["plans"]) == 46 and data["bound"] <= min(each["time"] for each in data["plans"])
    for each in data["plans"]:
        beaten = any(
            other["time"] <= each["time"]
            and other["bytes"] <= each["bytes"]
            and (other["time"], other["bytes"]) != (each["time"], each["bytes"])
            for other in data["plans"]
        )
        assert each["unbeaten"] is not beaten, each


def test_each_plan_is_drawn_where_it_is():
    """A triangle recomputes; filled are those that no other beats."""
    data, [ax] = read("plans"), committed("plans").axes
    bound, joined, *marks = ax.lines
    assert set(bound.get_ydata()) == {data["bound"]}
    drawn = [
        (*mark.get_xydata()[0], mark.get_marker(), mark.get_markerfacecolor() != "#fff") for mark in marks
    ]
    assert drawn == [
        (each["bytes"] / 1000, each["time"], "^" if each["recompute"] else "o", each["unbeaten"])
        for each in data["plans"]
    ]
    best = [each for each in data["plans"] if each["unbeaten"]]
    assert joined.get_xydata().tolist() == [[each["bytes"] / 1000, each["time"]] for each in best]
    assert {f"{each['name']}, K = {each['devices']}" for each in best} <= {
        text.get_text() for text in ax.texts
    }
    words = "Of 46 plans no other beats 10: from 217.4 with 69 kB to 369.1 with 10 kB"
    assert ax.get_title("left") == words


def test_bytes_freed_per_flop_are_those_of_the_formulas():
    """GPT-3: h = 12288, a = 96, s = 2048. Korthikanti et al. 2022, arXiv:2205.05198; 4s more for 1/std."""
    data, h, s, a = read("bytes_per_flop"), 12_288, 2_048, 96
    core, attention, whole, network = (data["models"]["GPT-3"][part] for part in data["parts"])
    assert core == [5 * a * s * s, 4 * s * s * h]
    assert attention == [11 * s * h + 5 * a * s * s + 2 * s, s * h * (8 * h + 4 * s)]  # + LayerNorm - input
    assert network == [19 * s * h + 2 * s, s * h * 16 * h]
    assert whole == [32 * s * h + 5 * a * s * s + 4 * s, s * h * (24 * h + 4 * s)]
    rates = Fraction(5 * a, 4 * h), Fraction(19, 16 * h)
    assert [size / flops for size, flops in (core, network)] == pytest.approx([*map(float, rates)], rel=1e-4)


def test_bytes_freed_per_flop_are_drawn_as_they_are():
    data = read("bytes_per_flop")
    [ax] = committed("bytes_per_flop").axes
    drawn = {(line.get_marker(), line.get_ydata()[0]): line.get_xdata()[0] for line in ax.lines}
    assert drawn == {
        (marker, row): 1000 * bytes_per_flop.per_flop(data, model, part)
        for model, marker in (("GPT-3", "o"), ("BERT-large", "s"))
        for row, part in enumerate(data["parts"])
    }
    numbers = {text.get_text() for text in ax.texts}
    assert {f"{value:.3g}" for value in drawn.values()} <= numbers
    words = "GPT-3: attention's core frees 101 times as many bytes per FLOP as the network"
    assert ax.get_title("left") == words


def test_gpt3_leaves_less_on_each_device_than_on_the_one_before():
    """Under 1F1B device k holds 8 - k microbatches, which outweighs embedding and head."""
    data = read("bytes_in_lanes")
    most = [max(map(sum, zip(*each["bytes"].values(), strict=True))) for each in data["memory"]]
    assert most == sorted(most, reverse=True)
    [ax] = committed("bytes_in_lanes").axes
    chart = chart_in(ax)
    assert chart.title == "GPT-3's shape on 8 devices under 1F1B: 634 GB on the first, 393 GB on the last"
    assert chart.peaks == [f"{held / 10**9:,.0f} GB" for held in most]
    weights = sum(each["bytes"]["parameters"][0] for each in data["memory"])
    state = sum(each["bytes"]["optimizer state"][0] for each in data["memory"])
    assert state == 6 * weights and round(weights / 10**9) == 350


def test_the_depth_that_fits_is_linear_with_recompute_and_levels_off_without():
    """The paper's own column grows as ours does: 13 blocks and a little less for each further device."""
    data = read("depth_devices")
    depth = data["depth"]
    recomputed, attention, kept = (depth[name] for name in list(depth_devices.CURVE)[:3])
    assert [b / a for a, b in pairwise(recomputed[1:])] == pytest.approx([2] * 4, rel=0.04)
    growth = [b / a for a, b in pairwise(kept)]
    assert growth == sorted(growth, reverse=True) and growth[-1] < 1.3
    assert all(a > b for a, b in zip(attention, kept, strict=True))
    assert data["printed"] == [[1, 13], [8, 103], [32, 415]]
    printed, *curves = committed("depth_devices").axes[0].get_lines()
    assert [list(point) for point in printed.get_xydata()] == data["printed"]
    for line, expected in zip(curves, (recomputed, attention, kept), strict=True):
        assert line.get_ydata().tolist() == expected


def test_gpt3_on_eight_devices():
    """1F1B holds less from device to device; interleaving 1 + 7/16 times as much on the first."""
    data = read("gpt3_devices")
    held = {name: [sum(parts) for parts in devices] for name, devices in data["bytes"].items()}
    assert held["1F1B"] == sorted(held["1F1B"], reverse=True)
    assert {len(devices) for devices in held.values()} == {8} and min(map(min, held.values())) > 4 * data[
        "room"
    ]
    thick, thin = (data["bytes"][name][0][-1] for name in ("1F1B", "interleaved, V = 2"))
    assert thin / thick == pytest.approx(1 + 7 / 16, rel=1e-3)
    both_ends, *others = held["ZB-V"]
    assert max(others) < 1.001 * min(others)
    assert both_ends - others[0] == pytest.approx(16 * (2 * 51_200 + 2_048) * 12_288, rel=0.03)
    weights, gradients, optimizer, _ = data["bytes"]["1F1B"][3]
    assert (gradients, optimizer) == (weights, 6 * weights), "2, 2 and 12 bytes"


def test_gpt3s_bars_are_its_bytes():
    data, [ax] = read("gpt3_devices"), committed("gpt3_devices").axes
    drawn = [bar.get_height() for bar in ax.patches]
    every = [part / 10**9 for name in data["order"] for parts in data["bytes"][name] for part in parts]
    assert drawn == pytest.approx(every)
    said = "1F1B: 635 GB on device 0 and 393 on the last; ZB-V: 21 GB more where both ends are"
    assert ax.get_title("left") == said
    assert {"635", "393", "755", "514", "648", "627"} <= {text.get_text() for text in ax.texts}


def test_a_transformer_is_drawn_as_it_was_trained():
    data, axes = read("transformer_digits"), committed("transformer_digits").axes
    for ax, curves in zip(axes, (data["loss"], data["accuracy"]), strict=True):
        drawn = {line.get_label(): list(line.get_ydata()) for line in ax.lines if len(line.get_ydata()) > 2}
        assert drawn == curves and {len(curve) for curve in curves.values()} == {40}
    left, right = (ax.get_title("left") for ax in axes)
    assert left == "In each of 880 steps both losses agree to 1e-13 ..." and 1e-14 <= data["apart"] < 1e-13
    assert right == "... and both read 96.9% of new digits"
    assert min(found[-1] for found in data["accuracy"].values()) > data["goal"] == 0.95


def test_staleness_is_drawn_as_it_was_trained():
    """A curve with its band for each method that goes through, a cross for each training that does not."""
    data, axes = read("staleness_curves"), committed("staleness_curves").axes
    for ax, name, across in zip(
        axes, ("common", "common", "own", "own"), 2 * ("samples", "times"), strict=True
    ):
        curves = data["curves"][name]
        drawn = {line.get_label(): line for line in ax.lines if line.get_marker() == "None"}
        assert set(drawn) == {method for method in curves if not curves[method]["diverged"]}
        for method, line in drawn.items():
            x, y = line.get_data()
            there = data["samples"] if across == "samples" else data["times"][method]
            assert list(x) == there[: len(x)] and list(y) == curves[method]["mean"][: len(y)]
            assert len(x) == len(there) or (across == "times" and there[len(x)] > x.max())
            assert max(curves[method]["high"]) < ax.get_ylim()[1]
        assert len(ax.collections) == len(drawn)
    [crosses] = [line for line in axes[0].lines if line.get_marker() == "x"]
    assert list(crosses.get_xdata()) == data["curves"]["common"]["no stashing"]["diverged"]
    titles = [ax.get_title("left") for ax in axes]
    assert (
        titles[0] == "At a rate of 0.05, 7 of 8 diverge without stashing ..."
        and len(crosses.get_xdata()) == 7
    )
    for ax, name, best in zip(axes, (0, 1, 2, 3), ("flush", "PipeDream") * 2, strict=True):
        lowest = min(
            (line for line in ax.lines if line.get_marker() == "None"), key=lambda line: line.get_ydata()[-1]
        )
        assert best in lowest.get_label(), name


def test_the_zero_bubble_table_comes_out_to_every_printed_digit():
    data = read("zero_bubble_table")
    assert data["settings"][0] == ["1.5B", 8, 24] and len(data["settings"]) == 6
    for name in ("1F1B", "ZB-H1", "ZB-H2"):
        assert data["simulated"][name] == data["published"][name]
    assert data["simulated"]["interleaved"] == [0.1090, 0.0847, 0.0461, 0.1136, 0.0878, 0.0459]
    assert data["k_messages_fewer"] == data["published"]["interleaved"]


def test_the_zero_bubble_table_draws_a_ring_and_a_dot_for_each_rate():
    data = read("zero_bubble_table")
    [ax] = committed("zero_bubble_table").axes
    for kind, hollow in (("published", True), ("simulated", False)):
        found = [
            float(line.get_xdata()[0])
            for line in ax.lines
            if len(line.get_xdata()) and (line.get_markerfacecolor() == "none") == hollow
        ]
        assert found == [rate for name in zero_bubble_table.FAMILIES for rate in data[kind][name]]
    words = "18 of 24 bubble rates of the zero-bubble paper come out to the last printed digit"
    assert ax.get_title("left") == words
    assert "0.14 to 0.35 percentage points more" in ax.texts[0].get_text()
    assert max(
        a - b for a, b in zip(data["simulated"]["interleaved"], data["published"]["interleaved"], strict=True)
    ) == pytest.approx(0.0035)


def test_a_changed_number_is_found_and_named():
    data = read("gantt_1f1b")
    wrong = copy.deepcopy(data)
    wrong["spans"][3][2] += 1
    assert differences(data, wrong) == [
        f"spans[3][2]: {data['spans'][3][2]}, committed {wrong['spans'][3][2]}"
    ]
    assert differences(data, {**data, "makespan": 33.0}) == ["makespan: 33, committed 33.0"]
    assert differences({**data, "new": 1}, data) == ["new: only in the fresh numbers"]
    assert differences({}, {"old": 1}) == ["old: only in the committed numbers"]
    assert differences({"a": [1]}, {"a": [1, 2]}) == ["a: [1], committed [1, 2]"]
    assert differences(data, None)


def test_only_what_states_a_tolerance_may_differ_and_only_so_far():
    fresh = {"losses": {"a": [1.0, 2.0]}, "other": 1.0, "tolerance": {"losses": 0.25}}
    near, far = copy.deepcopy(fresh), copy.deepcopy(fresh)
    near["losses"]["a"][1], far["losses"]["a"][1] = 2.2, 2.3
    assert differences(fresh, near) == []
    assert differences({"inner": fresh}, {"inner": near}) == []
    assert differences(fresh, far) == ["losses.a[1]: 2.0, committed 2.3, tolerance 0.25"]
    assert differences(fresh, {**fresh, "other": 1.1}) == ["other: 1.0, committed 1.1"]
    assert differences(fresh, {**fresh, "tolerance": {"losses": 9.0}})
    assert differences({"n": float("1e-30"), "tolerance": {"n": 1.0}}, {"n": None, "tolerance": {"n": 1.0}})


def test_accuracies_have_a_tolerance_and_schedules_none():
    stated = {name: read(name).get("tolerance") for name in NAMES}
    assert {name: tolerance for name, tolerance in stated.items() if tolerance} == {
        "choosing_m": choosing_m.TOLERANCE
    }


def test_json_has_a_line_for_each_list_of_plain_values():
    text = to_text({"b": [[1, 2], ["[y]"]], "a": {"c": 0.5, "d": []}})
    assert text == '{\n "a": {\n  "c": 0.5,\n  "d": []\n },\n "b": [\n  [1, 2],\n  [\n   "[y]"\n  ]\n ]\n}\n'
    for name in NAMES:
        assert file(name, "json").read_text() == to_text(json.loads(file(name, "json").read_text()))
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_text([float("nan")])


def test_building_writes_the_committed_numbers_and_a_picture(elsewhere, capsys):
    assert main(["meshes", "gantt_1f1b"]) == 0
    for name in ("meshes", "gantt_1f1b"):
        assert (elsewhere / f"{name}.json").read_bytes() == (folder / f"{name}.json").read_bytes()
        assert (elsewhere / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    assert len(list(elsewhere.iterdir())) == 4
    assert capsys.readouterr().out.splitlines()[::2] == ["meshes", "gantt_1f1b"]
    assert written(elsewhere, "gantt_1f1b") == set()
    assert "nothing new" in capsys.readouterr().out


def test_last_digits_of_another_processor_are_not_written(elsewhere, monkeypatch):
    monkeypatch.setattr(choosing_m, "data", lambda: copy.deepcopy(fresh))
    here, most = copy.deepcopy(fresh := read_from(folder, "choosing_m")), choosing_m.TOLERANCE["accuracy"]
    here["accuracy"][0][1] += 0.9 * most
    (elsewhere / "choosing_m.json").write_text(to_text(here))
    assert written(elsewhere, "choosing_m") == {"choosing_m.png"}  # there was none
    assert written(elsewhere, "choosing_m") == set()
    here["accuracy"][0][1] += 0.2 * most
    (elsewhere / "choosing_m.json").write_text(to_text(here))
    assert written(elsewhere, "choosing_m") == {"choosing_m.json", "choosing_m.png"}
    assert (elsewhere / "choosing_m.json").read_text() == to_text(fresh)


def test_the_last_digit_of_a_schedule_is_written(elsewhere):
    main(["gantt_1f1b"])
    off = read_from(elsewhere, "gantt_1f1b")
    off["spans"][0][2] += 1e-15
    (elsewhere / "gantt_1f1b.json").write_text(to_text(off))
    assert written(elsewhere, "gantt_1f1b") == {"gantt_1f1b.json"}  # nobody sees it in the image


def test_an_image_is_drawn_again_if_the_code_that_draws_it_changed(elsewhere, monkeypatch):
    main(["gantt_naive"])
    monkeypatch.setitem(KINDS, Kind.F, KINDS[Kind.F]._replace(colour="#0072B4"))
    assert written(elsewhere, "gantt_naive") == set()  # two levels of blue
    monkeypatch.setitem(KINDS, Kind.F, KINDS[Kind.F]._replace(colour="#0072B5"))
    assert written(elsewhere, "gantt_naive") == {"gantt_naive.png"}
    monkeypatch.setattr("figures._page.WIDTH", 8)
    assert written(elsewhere, "gantt_naive") == {"gantt_naive.png"}


def test_an_image_that_another_machine_compressed_is_the_same_image(elsewhere):
    main(["gantt_naive"])
    path = elsewhere / "gantt_naive.png"
    before = path.read_bytes()
    imsave(path, imread(path), dpi=DPI)
    assert path.read_bytes() != before
    assert written(elsewhere, "gantt_naive") == set()


def written(place, name) -> set[str]:
    """The files that building a figure writes, new ones too."""
    past = {path: os.utime(path, ns=(0, 0)) for path in place.iterdir()}
    assert main([name]) == 0
    return {path.name for path in place.iterdir() if path not in past or path.stat().st_mtime_ns}


def test_a_check_says_what_differs_and_writes_nothing(elsewhere, capsys):
    wrong = read_from(folder, "meshes")
    wrong["parts"][0][0] = 2
    (elsewhere / "meshes.json").write_text(to_text(wrong))
    (elsewhere / "gantt_1f1b.json").write_bytes((folder / "gantt_1f1b.json").read_bytes())
    before = {path: path.read_bytes() for path in elsewhere.iterdir()}
    assert main(["--check", "gantt_1f1b"]) == 0
    assert "as in figures/gantt_1f1b.json" in capsys.readouterr().out
    assert main(["--check", "meshes", "gantt_1f1b"]) == 1
    said = capsys.readouterr().out
    assert "DIFFERS parts[0][0]: 64, committed 2" in said
    assert "as in figures/gantt_1f1b.json" in said
    assert main(["--check", "bubble_curves"]) == 1  # never built
    shifted = read_from(folder, "gantt_1f1b")
    shifted["spans"] = [[device, start + 1, end + 1, name] for device, start, end, name in shifted["spans"]]
    assert {path: path.read_bytes() for path in elsewhere.iterdir()} == before
    (elsewhere / "gantt_1f1b.json").write_text(to_text(shifted))
    capsys.readouterr()
    assert main(["--check", "gantt_1f1b"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert sum("DIFFERS" in line for line in said) == 10 and "  ... and 118 more" in said


def test_an_unknown_figure_is_refused_with_those_there_are(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["gantt_zb"])
    assert stopped.value.code == 2
    assert f"no figure gantt_zb; there are {', '.join(NAMES)}" in " ".join(capsys.readouterr().err.split())


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Figures are read and written here, not in the repository."""
    monkeypatch.setattr(_store, "folder", tmp_path)
    return tmp_path


@pytest.fixture
def drawn_texts(monkeypatch):
    """Draw a figure; the texts that left ink, each with its extent in pixels."""

    def draw(figure):
        seen, paint = {}, matplotlib.text.Text.draw

        def record(text, renderer):
            if text.get_visible() and text.get_text().strip():
                seen[id(text)] = text
            paint(text, renderer)

        with monkeypatch.context() as patch:
            patch.setattr(matplotlib.text.Text, "draw", record)
            figure.draw_without_rendering()
        return [(text, text.get_window_extent()) for text in seen.values()]

    return draw


def read_from(place, name):
    return json.loads((place / f"{name}.json").read_text())


def marks(ax, label):
    """The points of the row of marks with this name."""
    [line] = [line for line in ax.lines if line.get_label() == label]
    return list(map(tuple, line.get_xydata().tolist()))
