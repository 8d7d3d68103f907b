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
from drawn import area, bounds, boxes_in, bubble, chart_in, committed
from matplotlib.image import imread, imsave

import gpipe_sim as gp
from figures import _store, _view, bytes_per_flop, shares, versions_in_lanes
from figures.__main__ import DPI, main
from figures._exact import plain
from figures._page import WIDTH
from figures._store import NAMES, differences, file, folder, module, read, to_text
from gpipe_sim.core import Kind
from gpipe_sim.drawing.memory_strips import BYTES_HIGH
from gpipe_sim.drawing.palette import KINDS, PAPER
from gpipe_sim.drawing.plots.style import LABEL_SIZE

GANTT = ["gantt_naive", "gantt_1f1b"]
#: The titles of all figures but the poster of all schedules (test_figure_zoo.py), in their order.
CLAIMS = [
    "Eight devices share each layer: each computes its part, then all wait for a sum",
    "GPT-3's shape on 8 devices under 1F1B: 634 GB on the first, 393 GB on the last",
    "GPT-3: attention's core frees 101 times as many bytes per FLOP as the network",
    "1F1B takes 33, as GPipe does, and its devices hold 10 together, not 32",
    "Without a flush: once warm, each device waits 0; weights are 3, 2, 1 and 0 updates old",
    "With 2 flushes weights are 0 updates old; the same microbatches take 48, not 39, and 38% is waiting",
    "1F1B: 33 long, and device 0 holds 4 microbatches",
    "ZB-H1, W put off: 27 long, and device 0 holds 4 microbatches",
    "ZB-H2, more forwards ahead: 27 long, and device 0 holds 7 microbatches; no holes",
    "Four sums in a block's time: in one machine 1.2 of 21.6 ms ...",
    "... in eight machines 14.1 of 34.5 ms",
    "One batch in nine microbatches, on four devices: 1F1B's warm-up, steady state and drain",
    "Without a pipeline, 3/4 of the device time is waiting",
    "GPT-3 on eight devices: the first would hold 635 GB, the last 393",
    "Leave out the bubble, and no factor for each shape makes up for it: 13.4% off",
    "GPipe on slow links: 16 devices are 6.6 times as fast as one, 32 only 5.2 times; on fast ones 16.3",
    "Numbers set by hand: 7.7% off",
    "Fitted to other rows, with shapes: 1.0% off",
    "Without sums: copies win ...",
    "... bandwidth 8: all alike ...",
    "... bandwidth 1: copies lose",
    "16 features wide: two processes are 0.85 times as fast as one",
    "1,024 features wide: two processes are 1.63 times as fast as one",
    "1F1B: microbatch 4 crosses 6 times; 33 long",
    "Interleaved 1F1B: microbatch 4 crosses 14 times; 28.5 long",
    "One stage each: once down the devices",
    "Looped: twice down the devices, in thinner stages",
    "V: down the devices, and back up",
    "Both ways: two copies, from both ends",
    "19 of 24 plans are beaten by another, 5 are worth a look",
    "20 measured plans: one takes 3.9 times as long as another",
    "GPipe leaves 3/11 of the device time unused",
    "Push every row to the left: the waiting is one block, (K−1)(F+B) long",
    "Layers were moved: the step is 66 ms shorter, its unequal stages cost 64 less",
    "A plan drawn by lot takes 61% longer than the fastest, on average",
    "A digit: its 8 rows are 8 places",
    "Head 0 looks most at place 4",
    "Head 1 looks most at place 3",
    "Over a late hop 1F1B waits again and again ...",
    "... over a narrow one GPipe's messages queue",
    "The slowest stage sets the beat: with 2, 2, 2, 5 layers it is 15, and the step takes 138",
    "... with 3, 3, 3, 2 layers it is 9, and the step takes 93: devices work 71% of the time, not 48%",
    "After as many samples fresh weights are ahead ...",
    "... after as much time those that never wait",
    "No schedule is best at both: of these, V-Min holds the least and ZB-V is the shortest",
    "A step is shortest near M = √((K−1)S/u) = 9.8, where starting costs as much as waiting",
    "Stashed: 10 versions in all",
    "Vertical: 16 versions in all",
    "Double: 8 versions in all",
]
#: Pictures to remember of a lesson, which a later edition of it will show.
TO_COME = {"gantt_naive", "pushed_rows"}


def test_every_figure_has_its_picture_and_its_numbers_and_is_shown_somewhere():
    for kind in ("png", "json"):
        assert sorted(path.stem for path in folder.glob(f"*.{kind}")) == sorted(NAMES)
    root = folder.parent
    pages = [root / "README.md", *(root / "docs").rglob("*.md"), *(root / "notebooks").glob("*.ipynb")]
    shown = {name for page in pages for name in re.findall(r"figures/(\w+)\.png", page.read_text())}
    assert set(NAMES) == shown | TO_COME


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("plans", "shares")])
def test_the_committed_numbers_come_out_again(name):
    """``plans`` searches and ``shares`` trains, longer than all others take: there `make figures` looks."""
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


def test_each_figure_claims_its_numbers_in_its_titles():
    axes = [ax for name in NAMES if name != "zoo" for ax in committed(name).axes]
    assert [ax.get_title("left") for ax in axes] == CLAIMS


@pytest.mark.parametrize("name", GANTT)
def test_a_gantt_chart_claims_the_numbers_of_its_schedule_and_draws_its_spans(name):
    data, [ax] = read(name), committed(name).axes
    chart, drawn = chart_in(ax), boxes_in(ax)
    shown = data["peak_in_flight"] if name == "gantt_naive" else []  # the other has no strips
    assert list(map(int, chart.peaks)) == shown
    assert (ax.get_xlim(), ax.get_xlabel()) == ((0, data["makespan"]), "time")
    assert ax.get_xticklabels()[-1].get_text() == str(data["makespan"])
    spans = sorted([box.device, box.start, box.end] for box in drawn)
    assert spans == sorted(span[:3] for span in data["spans"])
    assert bubble(drawn) == Fraction(*data["bubble"])


def test_the_phases_of_1f1b_are_named_above_its_first_lane():
    """Its warm-up ends where its first backward begins, its drain begins where its last forward ends."""
    [ax] = committed("gantt_1f1b").axes
    named = {text.get_text(): text.get_position()[0] for text in ax.texts if text.get_position()[1] < 0}
    spans = {name: (start, end) for *_, start, end, name in read("gantt_1f1b")["spans"]}
    ends = [0, spans["0B0"][0], spans["0F8"][1], 36]
    middles = {name: named[name] for name in ("warm-up", "steady state", "drain")}
    assert list(middles.values()) == [(a + b) / 2 for a, b in pairwise(ends)]


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


def test_the_filled_waits_are_the_same_work_and_with_zb_h2_no_row_has_a_hole():
    for ax, idle in zip(committed("filled_waits").axes, (9, 3, 3), strict=True):
        rows = [sorted((b.start, b.end) for b in boxes_in(ax) if b.device == k) for k in range(4)]
        assert [sum(end - start for start, end in row) for row in rows] == 4 * [24]
        assert max(row[-1][1] for row in rows) == 24 + idle
    assert all(row[-1][1] - row[0][0] == 24 for row in rows)


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
    assert endless.get_xlim() == flushed.get_xlim() == (0, 48)
    for kind in (Kind.F, Kind.B):
        stream = versions_drawn(endless, KINDS[kind].colour)
        assert stream == [[max(0, m - 3 + device) for m in range(10)] for device in range(4)]
        assert versions_drawn(flushed, KINDS[kind].colour) == [[0] * 5 + [1] * 5] * 4
    for device in range(4):
        row = sorted((box.start, box.end) for box in boxes_in(endless) if box.device == device)
        warm, last = 4 - device, 4 - device + 3 * (6 + device)  # F B U, until no forward is left
        assert all(a[1] == b[0] for a, b in pairwise(row[warm:last])) and len(row) == 30


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
    for ax, weights in zip(committed("versions_in_lanes").axes, versions_in_lanes.RUNS, strict=True):
        run, chart = data[weights], chart_in(ax)
        schedule = versions_in_lanes.RUNS[weights]
        assert run["held"] == list(gp.staleness(schedule, weights).held)
        assert chart.peaks == [f"{count} \u00d7 33 kB" for count in run["held"]]
        traces = versions_in_lanes.traces_of(run)
        assert [trace.peak() for trace in traces] == [count * one for count in run["held"]]
        assert sum(sum(trace.at(30).values()) for trace in traces) == sum(run["held"]) * one, "at once"
        newest, older = (sum(map(area, chart.areas[i][1])) for i in (-3, -2))
        expected = [sum(held_for(each, name, 45) for each in run["memory"]) for name in PARTS]
        assert [newest, older] == pytest.approx([BYTES_HIGH * each / (4 * one) for each in expected])
    [legend] = committed("versions_in_lanes").legends
    assert [words.get_text() for words in legend.get_texts()][-2:] == PARTS


PARTS = ["parameters", "older weights"]


def held_for(trace: dict, name: str, until: float) -> float:
    """Bytes times how long a device holds them."""
    lasts = [end - start for start, end in pairwise([*trace["times"], until])]
    return sum(b * t for b, t in zip(trace["bytes"][name], lasts, strict=True))


def test_one_microbatch_is_framed_on_each_stage_that_it_crosses():
    assert [len(chart_in(ax).frames) for ax in committed("one_microbatch").axes] == [8, 16]


def test_the_dial_ends_at_room_for_4_on_each_and_1f1b_is_off_it():
    data = read("dial")
    points = [(sum(own["peak_in_flight"]), own["makespan"]) for own in data["settings"]]
    ax, *thumbnails = committed("dial").axes + committed("dial").axes[0].child_axes
    line, gpipe, alone = ax.lines
    assert list(map(tuple, line.get_xydata().tolist())) == points
    assert gpipe.get_xydata().tolist() == [[32, 33]] and alone.get_xydata().tolist() == [[10, 33]]
    drawn = [*(data["settings"][room - 1] for room in (1, 2, 3, 4, 8)), data["GPipe"], data["1F1B"]]
    for inset, own in zip(thumbnails, drawn, strict=True):
        assert bubble(boxes_in(inset)) == Fraction(*own["bubble"])
    assert_apart(thumbnails)


def assert_apart(insets):
    places = [inset.get_window_extent() for inset in insets]
    assert not any(a.overlaps(b) for a, b in combinations(places, 2))


def test_every_schedule_stands_at_its_length_and_at_what_it_holds():
    data = read("time_and_memory")
    assert {e["name"]: (e["holds"], e["makespan"]) for e in data["schedules"]} == {
        e["name"]: (e["holds"], e["makespan"]) for column in read("zoo")["columns"] for e in column
    }
    [ax] = committed("time_and_memory").axes
    dots = {tuple(line.get_xydata()[0]) for line in ax.lines if line.get_marker() == "o"}
    assert dots == {(e["holds"], e["makespan"]) for e in data["schedules"] if e["name"] != "Naive"}
    assert {tuple(line.get_xydata()[0]) for line in ax.lines if line.get_markerfacecolor() == PAPER} == {
        (e["holds"], e["makespan"]) for e in data["schedules"] if e["name"] in ("Chimera", "DualPipe")
    }
    assert {"1F1B: 48", "Interleaved 1F1B: 112", "ZB-V: 96"} <= {text.get_text() for text in ax.texts}
    assert len(ax.child_axes) == 13
    assert_apart(ax.child_axes)
    assert "Naive, 96 long, holds 1" in {text.get_text().split("not shown: ")[-1] for text in ax.texts}


def test_a_time_that_json_cannot_hold_is_refused():
    assert [plain(time) for time in (3, Fraction(57, 2), 2.0)] == [3, 28.5, 2]
    with pytest.raises(ValueError, match=r"exact in JSON \(got 1/3\)"):
        plain(Fraction(1, 3))


def test_the_simulated_steps_lie_on_their_formula_and_the_valley_is_where_its_two_parts_cross():
    """Counted by hand: M pieces and 3 more in turn, each 3 times 256/M samples and a start-up of 8."""
    data, [ax] = read("valley"), committed("valley").axes
    steps = {m: 3 * (m + 3) * (256 // m + 8) for m in (1, 2, 4, 8, 16, 32, 64, 128)}
    assert marks(ax, "simulated") == list(zip(data["microbatches"], data["steps"], strict=True))
    assert marks(ax, "simulated") == [*steps.items()]
    lines = {line.get_label(): np.array(line.get_ydata()) for line in ax.lines}
    assert lines["step"] == pytest.approx(lines["starting"] + lines["waiting"] + 840)
    assert np.interp([*steps], np.array(marks(ax, "step"))[:, 0], lines["step"]) == pytest.approx(
        [*steps.values()], rel=1e-3
    )
    lowest, crossing = lines["step"].argmin(), abs(lines["starting"] - lines["waiting"]).argmin()
    assert lowest == crossing
    assert {"M = 8: 1,320", "15% longer", "4% longer"} <= {*said_in(ax)}


def test_over_a_late_hop_gpipe_is_shorter_and_over_a_narrow_one_soon_1f1b():
    data = read("slow_hop")
    left, right = committed("slow_hop").axes
    for ax, lengths in ((left, data["late"]), (right, data["narrow"])):
        assert all(
            marks(ax, name) == list(zip(data["times"], lengths[name], strict=True)) for name in lengths
        )
        assert {f"{name}: {lengths[name][-1]}" for name in lengths} <= {*said_in(ax)}
    assert "from 3 on, 1F1B takes less time" in said_in(right)


def test_the_slowest_stage_works_without_a_break_and_the_others_keep_its_time():
    data, axes = read("slowest_stage"), committed("slowest_stage").axes
    for ax, cut in zip(axes, data["cuts"], strict=True):
        drawn = boxes_in(ax)
        assert bubble(drawn) == Fraction(*cut["bubble"])
        slowest, backward = cut["layers"].index(max(cut["layers"])), KINDS[Kind.B].colour.lower()
        ends = sorted(box.end for box in drawn if (box.device, box.colour) == (slowest, backward))
        assert len(ends) == 8
        steady = ends if slowest == 3 else ends[:5]  # in its drain the first device waits for the others
        assert {b - a for a, b in pairwise(steady)} == {cut["beat"]}
    assert [ax.get_xlim() for ax in axes] == [(0, 138)] * 2


def test_speedups_on_links_are_drawn_as_they_are():
    data, [ax] = read("links_scaling"), committed("links_scaling").axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in ax.lines}
    assert drawn == {
        f"{name}, {message}": [float(Fraction(*p)) for p in row]
        for name, rows in data["speedup"].items()
        for message, row in zip(data["messages"], rows, strict=True)
    }


def test_each_measured_plan_of_each_task_is_a_point_and_the_fastest_of_each_is_at_one():
    data, [ax] = read("regret"), committed("regret").axes
    tasks = [task for part in ("2 devices", "4 devices", "8 devices", "64 to 512") for task in data[part]]
    [line] = ax.lines
    assert list(line.get_ydata()) == [times for task in tasks for times in task]
    assert {min(task) for task in tasks} == {1} and (len(tasks), len(line.get_xdata())) == (72, 752)
    assert (min(map(max, tasks)), max(map(max, tasks))) == pytest.approx((1.1, 15), rel=0.05)


def test_four_sums_of_a_block_stand_across_all_lanes_and_computing_on_each():
    data, axes = read("four_sums"), committed("four_sums").axes
    for ax, where in zip(axes, data["order"], strict=True):
        bars = [bounds(path.vertices.tolist()) for each in ax.collections for path in each.get_paths()]
        for _, kind, start, end in data[where]:
            drawn = [bar for bar in bars if (bar[0], round(bar[2], 3)) == (start, end)]
            assert len(drawn) == (1 if kind == "sum" else 8)
            assert sum(bottom - top for _, top, _, bottom in drawn) == pytest.approx(
                7.8 if kind == "sum" else 6.4
            )
    assert read("block_forward")["forward"] == data["in one machine"][:4]


def test_sixteen_devices_as_five_meshes():
    """Without sums 1 x 16 is the shortest, with long ones 16 x 1, and between the two all are alike."""
    data, axes = read("meshes"), committed("meshes").axes
    for ax, each in zip(axes, data["parts"], strict=True):
        bars = [patch.get_width() for patch in ax.patches if round(patch.get_height(), 2) == 0.56]
        assert bars == [part for parts in each for part in parts]
        assert {str(sum(parts)) for parts in each} <= {*said_in(ax)}
    squares = {each.get_xy() for each in axes[0].patches if round(each.get_height(), 2) != 0.56}
    assert len(squares) == 5 * 16 and {f"{K} x {R}" for K, R in data["meshes"]} <= {*said_in(axes[0])}
    lengths = [[sum(parts) for parts in each] for each in data["parts"]]
    assert lengths == [[237, 234, 228, 216, 192], 5 * [237], [237, 244, 258, 286, 342]]


def test_each_plan_is_drawn_where_it_is():
    """A triangle recomputes; filled are those that no other beats."""
    data, [ax] = read("plans"), committed("plans").axes
    bound, joined, *plans = ax.lines
    assert set(bound.get_ydata()) == {data["bound"]}
    assert [
        (*mark.get_xydata()[0], mark.get_marker(), mark.get_markerfacecolor() != "#fff") for mark in plans
    ] == [
        (each["bytes"] / 1e9, each["time"], "^" if each["recompute"] else "o", each["unbeaten"])
        for each in data["plans"]
    ]
    best = [each for each in data["plans"] if each["unbeaten"]]
    assert joined.get_xydata().tolist() == [[each["bytes"] / 1e9, each["time"]] for each in best]
    assert {f"{each['mesh']} {each['name']}" for each in best} <= {*said_in(ax)}


def test_the_measured_plans_have_no_names():
    data, [ax] = read("plans_unnamed"), committed("plans_unnamed").axes
    [points] = ax.lines
    assert points.get_xydata().tolist() == [[each["bytes"] / 1e9, each["time"]] for each in data["plans"]]
    assert len(data["plans"]) == 20 and not {"1 x 1 x 8", "4 x 1 x 2"} & {*said_in(ax)}


def test_bytes_freed_per_flop_are_drawn_as_they_are():
    data, [ax] = read("bytes_per_flop"), committed("bytes_per_flop").axes
    drawn = {(line.get_marker(), line.get_ydata()[0]): line.get_xdata()[0] for line in ax.lines}
    assert drawn == {
        (marker, row): 1000 * bytes_per_flop.per_flop(data, model, part)
        for model, marker in (("GPT-3", "o"), ("Llama 2 7B", "s"))
        for row, part in enumerate(data["parts"])
    }
    assert {f"{value:.3g}" for value in drawn.values()} <= {*said_in(ax)}


def test_gpt3s_lanes_say_what_its_devices_hold():
    data, [ax] = read("bytes_in_lanes"), committed("bytes_in_lanes").axes
    most = [max(map(sum, zip(*each["bytes"].values(), strict=True))) for each in data["memory"]]
    assert chart_in(ax).peaks == [f"{held / 10**9:,.0f} GB" for held in most]


def test_gpt3s_bars_are_its_bytes():
    data, [ax] = read("gpt3_devices"), committed("gpt3_devices").axes
    every = [part / 10**9 for parts in data["bytes"] for part in parts]
    assert [bar.get_height() for bar in ax.patches] == pytest.approx(every)
    assert all(parts[2] > 3 * data["room"] for parts in data["bytes"])
    assert {"optimizer: 269 GB", "room: 80 GB", "activations", "635 GB", "393 GB"} <= {*said_in(ax)}


def test_staleness_is_drawn_as_it_was_trained():
    """A curve with its band for each method; which is lowest depends on what is on the axis."""
    data, axes = read("staleness_curves"), committed("staleness_curves").axes
    for ax, across, best in zip(axes, ("samples", "times"), ("a flush after each", "PipeDream"), strict=True):
        drawn = {line.get_label(): line for line in ax.lines}
        assert set(drawn) == set(data["curves"]) and len(ax.collections) == len(drawn)
        for method, line in drawn.items():
            x, y = line.get_data()
            there = data["samples"] if across == "samples" else data["times"][method]
            assert list(x) == there[: len(x)] and list(y) == data["curves"][method]["mean"][: len(y)]
            assert len(x) == len(there) or (across == "times" and there[len(x)] > x.max())
            assert max(data["curves"][method]["high"]) < ax.get_ylim()[1]
        assert min(drawn, key=lambda method: drawn[method].get_ydata()[-1]) == best


def test_a_changed_number_is_found_and_named():
    data = read("gantt_1f1b")
    wrong = copy.deepcopy(data)
    wrong["spans"][3][2] += 1
    assert differences(data, wrong) == [
        f"spans[3][2]: {data['spans'][3][2]}, committed {wrong['spans'][3][2]}"
    ]
    assert differences(data, {**data, "makespan": 36.0}) == ["makespan: 36, committed 36.0"]
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


def test_what_is_trained_has_a_tolerance_and_schedules_have_none():
    stated = {name: read(name).get("tolerance") for name in NAMES}
    assert {name: tolerance for name, tolerance in stated.items() if tolerance} == {
        "shares": shares.TOLERANCE,
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
    monkeypatch.setattr(shares, "data", lambda: copy.deepcopy(fresh))
    here, most = copy.deepcopy(fresh := read_from(folder, "shares")), shares.TOLERANCE["shares"]
    here["shares"][0][1][2] += 0.9 * most
    (elsewhere / "shares.json").write_text(to_text(here))
    assert written(elsewhere, "shares") == {"shares.png"}  # there was none
    assert written(elsewhere, "shares") == set()
    here["shares"][0][1][2] += 0.2 * most
    (elsewhere / "shares.json").write_text(to_text(here))
    assert written(elsewhere, "shares") == {"shares.json", "shares.png"}
    assert (elsewhere / "shares.json").read_text() == to_text(fresh)


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
    assert "DIFFERS parts[0][0]: [64, 128, 45, 0], committed 2" in said
    assert "as in figures/gantt_1f1b.json" in said
    assert main(["--check", "valley"]) == 1  # never built
    shifted = read_from(folder, "gantt_1f1b")
    shifted["spans"] = [[device, start + 1, end + 1, name] for device, start, end, name in shifted["spans"]]
    assert {path: path.read_bytes() for path in elsewhere.iterdir()} == before
    (elsewhere / "gantt_1f1b.json").write_text(to_text(shifted))
    capsys.readouterr()
    assert main(["--check", "gantt_1f1b"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert sum("DIFFERS" in line for line in said) == 10 and "  ... and 134 more" in said


def test_an_unknown_figure_is_refused_with_those_there_are(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["gantt_zb"])
    assert stopped.value.code == 2
    assert f"no figure gantt_zb; there are {', '.join(NAMES)}" in " ".join(capsys.readouterr().err.split())


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Figures are read and written here, not in the repository, in few pixels."""
    monkeypatch.setattr(_store, "folder", tmp_path)
    monkeypatch.setattr("figures.__main__.DPI", 40)
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


def said_in(ax) -> list[str]:
    return [text.get_text() for text in ax.texts]


def test_the_page_that_lessons_lead_to_is_what_the_library_makes_now():
    assert _view.PAGE.read_text(encoding="utf-8") == _view.text()
