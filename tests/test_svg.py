"""Our own SVG: what it draws is read back from its text."""

import os
import re
import subprocess
import sys
from base64 import b64decode
from fractions import Fraction
from xml.etree import ElementTree

import pytest
from cases import every_schedule, over, over_every_schedule, overlapped, zero_bubble
from drawn import SVG, bubble, in_svg, texts
from measured import measured

from gpipe_sim import (
    Costs,
    DualPipe,
    Explicit,
    GPipe,
    Interleaved1F1B,
    Naive,
    OneFOneB,
    draw,
    in_flight,
    peak_in_flight,
    remat,
    simulate,
    to_svg,
)
from gpipe_sim.drawing.geometry import LANE_HIGH
from gpipe_sim.drawing.page import WIDTH

DIGIT_WIDE, DIGIT_HIGH = 6.2, 8  #: pixels of a digit of Helvetica or Arial at 11 px
SEVERAL = [*every_schedule(((1, 1), (2, 3), (4, 8))), overlapped(3, 6), zero_bubble(3, 5)]
UP_TO_12 = (1, 2, 3, 5, 8, 12)


@pytest.mark.parametrize("family", [GPipe, OneFOneB])
def test_the_white_part_of_the_drawing_is_the_bubble(family):
    for k in UP_TO_12:
        for m in UP_TO_12:
            assert bubble(in_svg(to_svg(simulate(family(k, m))))) == Fraction(k - 1, k - 1 + m)


def test_the_white_part_of_an_interleaved_drawing_is_the_bubble():
    sizes = [(k, m, v) for k in UP_TO_12 for m in range(k, 13, k) for v in (2, 3)]
    for k, m, v in sizes:
        assert bubble(in_svg(to_svg(simulate(Interleaved1F1B(k, m, v))))) == Fraction(k - 1, k - 1 + v * m)
    assert len(sizes) == 52


@over_every_schedule(((1, 1), (2, 3), (3, 2), (4, 8)))
def test_every_span_is_drawn_once_with_its_hover_title(schedule):
    timeline = simulate(schedule, Costs(forward=1, input_grad=2, weight_grad=1, comm=1))
    found = [(box.device, box.start, box.end, box.title) for box in in_svg(to_svg(timeline))]
    assert sorted(found) == sorted(
        (span.device, span.start, span.end, f"{span.action} {span.start}\N{EN DASH}{span.end}")
        for span in timeline.spans
        for _ in span.action.parts  # a pair is two halves
    )


def test_an_overlapped_pair_is_drawn_as_two_halves_of_one_row():
    timeline = simulate(Explicit.parse("0F0 0F1 0B0 0B1\n1F0 (1F1;1B0)OVERLAP_F_B 1B1"))
    upper, lower = sorted(
        (box for box in in_svg(to_svg(timeline)) if "OVERLAP" in box.title), key=lambda b: b.top
    )
    assert (upper.device, upper.start, upper.end) == (lower.device, lower.start, lower.end) == (1, 2, 5)
    assert upper.colour != lower.colour
    whole = [box for box in in_svg(to_svg(timeline)) if "OVERLAP" not in box.title]
    for box in (upper, lower):
        assert box.bottom - box.top == pytest.approx(LANE_HIGH / 2, abs=0.01)
    assert upper.bottom == pytest.approx(lower.top, abs=0.01)
    assert all(box.bottom - box.top == pytest.approx(LANE_HIGH, abs=0.01) for box in whole)


@over(SEVERAL)
def test_labels_lie_inside_boxes_of_their_microbatch(schedule):
    root = ElementTree.fromstring(to_svg(simulate(schedule)))
    boxes, labels = list(pixels(root)), [t for group in labelled(root) for t in group]
    assert len(labels) == sum(right - left >= 9.4 for left, _, right, _, _ in boxes)  # room for a digit
    for label in labels:
        x, y, half = float(label.get("x")), float(label.get("y")), len(label.text) * DIGIT_WIDE / 2
        [title] = [
            said
            for left, top, right, bottom, said in boxes
            if left <= x - half and x + half <= right and top <= y - DIGIT_HIGH and y <= bottom
        ]
        assert re.search(rf"\d[FBIWRU]{label.text}\b", title)


def test_a_box_without_room_has_no_label():
    """Of a kind all have one or none: numbers that stopped at 9 would look like a mistake."""
    for microbatches, kinds in ((10, "FB"), (20, "B"), (32, "")):
        root = ElementTree.fromstring(to_svg(simulate(OneFOneB(8, microbatches))))
        numbers = [int(t.text) for group in labelled(root) for t in group]
        assert sorted(numbers) == sorted(list(range(microbatches)) * 8 * len(kinds))
    assert not list(labelled(ElementTree.fromstring(to_svg(simulate(OneFOneB(16, 64))))))  # too narrow
    assert not list(labelled(ElementTree.fromstring(to_svg(simulate(OneFOneB(40, 1))))))  # too flat


@pytest.mark.parametrize(
    "options", [{}, {"in_flight": True, "messages": True, "critical_path": True}], ids=["plain", "all"]
)
@over([*SEVERAL, remat(GPipe(1, 1), "always"), OneFOneB(40, 3)])
def test_nothing_is_drawn_outside_the_sheet(schedule, options):
    root = ElementTree.fromstring(str(draw(simulate(schedule), **options)))
    width, height = float(root.get("width")), float(root.get("height"))
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    assert width <= WIDTH + 40
    for text in texts(root):
        size = float(text.get("font-size", 11))
        x, wide = float(text.get("x")), 0.5 * size * len(text.text)
        left = x - {"start": 0, "middle": wide / 2, "end": wide, None: wide / 2}[text.get("text-anchor")]
        assert left >= 0 and left + wide <= width
        assert size <= float(text.get("y")) <= height
    for left, top, right, bottom, _ in pixels(root):
        assert left >= 0 and right <= width and top >= 0 and bottom <= height


@pytest.mark.parametrize("options", [{}, {"in_flight": True, "messages": True, "critical_path": True}])
@over(SEVERAL)
def test_below_the_last_line_of_the_legend_is_no_more_than_a_line_of_white(schedule, options):
    root = ElementTree.fromstring(str(draw(simulate(schedule), **options)))
    lowest = max(float(text.get("y")) for text in texts(root))
    assert 0 <= float(root.get("height")) - lowest <= 15


def test_strips_rise_and_fall_with_what_is_in_flight():
    timelines = [simulate(GPipe(4, 8)), simulate(OneFOneB(4, 8))]
    strips = [
        path
        for path in ElementTree.fromstring(str(draw(*timelines, in_flight=True))).iter(f"{SVG}path")
        if "in flight" in (path.findtext(f"{SVG}title") or "")
    ]
    peaks = [peak for timeline in timelines for peak in peak_in_flight(timeline.schedule)]
    said = [f"device {i % 4}: at most {peak} in flight" for i, peak in enumerate(peaks)]
    assert [strip.findtext(f"{SVG}title") for strip in strips] == said
    steps = [in_flight(timeline, device) for timeline in timelines for device in range(4)]
    for strip, expected in zip(strips, steps, strict=True):
        floor = float(re.match(r"M\S+ (\d+(\.\d)?)H", strip.get("d"))[1])
        *levels, last = (floor - float(y) for y in re.findall(r"V([\d.]+)", strip.get("d")))
        assert [level / 2.5 for level in levels] == [count for _, count in expected]  # 20 pixels are 8
        assert last == 0


def test_peaks_stand_on_the_right_of_the_strips():
    root = ElementTree.fromstring(str(draw(simulate(OneFOneB(4, 8)), in_flight=True)))
    peaks = [t for t in texts(root) if t.get("text-anchor") == "start"][1:5]
    assert [peak.text for peak in peaks] == ["4", "3", "2", "1"]
    ends = max(right for _, _, right, _, _ in pixels(root))
    assert all(ends < float(peak.get("x")) <= ends + 10 for peak in peaks)


def test_timelines_under_each_other_share_one_time_axis():
    short, long = simulate(OneFOneB(4, 8)), simulate(Interleaved1F1B(4, 8))
    alone = ElementTree.fromstring(str(draw(short)))
    root = ElementTree.fromstring(str(draw(short, long)))
    width = {title: right - left for left, _, right, _, title in pixels(root)}
    assert (
        width["0F0 0\N{EN DASH}1"] < {t: r - left for left, _, r, _, t in pixels(alone)}["0F0 0\N{EN DASH}1"]
    )
    assert max(right for _, _, right, _, _ in pixels(root)) - 66 == pytest.approx(
        57 * width["0F0 0\N{EN DASH}1"], abs=4
    )


@pytest.mark.parametrize(("family", "lines"), [(GPipe, 1), (DualPipe, 2)])
def test_a_legend_that_is_wider_than_a_chart_goes_on_below(family, lines):
    """With everything drawn, DualPipe's took 1005 pixels on one line."""
    root = ElementTree.fromstring(str(draw(simulate(family(4, 8)), in_flight=True, messages=True)))
    words = ["F  forward", "microbatches in flight", "message"]
    heights = [float(t.get("y")) for word in words for t in texts(root) if t.text == word]
    assert len(heights) == 3
    assert heights[0] + 18 * (lines - 1) == heights[1] == heights[2] < float(root.get("height"))


def test_only_weight_gradients_are_hatched():
    assert "url(#" not in to_svg(simulate(GPipe(2, 2)))
    root = ElementTree.fromstring(to_svg(simulate(zero_bubble(2, 3))))
    [pattern] = root.iter(f"{SVG}pattern")
    on_boxes, in_legend = [
        p for p in root.iter(f"{SVG}path") if p.get("fill") == f"url(#{pattern.get('id')})"
    ]
    assert on_boxes.get("d").count("M") == sum("W" in title for *_, title in pixels(root)) == 6
    assert in_legend.get("d").count("M") == 1


def test_dashed_lines_part_the_phases():
    dashed = ElementTree.fromstring(to_svg(simulate(GPipe(2, 2)))).iterfind(f"{SVG}path[@stroke-dasharray]")
    lines, in_the_legend = (path.get("d") for path in dashed)
    assert in_the_legend.count("M") == 1
    assert lines == "M122 26v24M206 26v24M150 50v24"  # 28 pixels per unit of time, from 66 on


@pytest.mark.parametrize("unit", [1, 20, Fraction(1, 2)], ids=str)
def test_boxes_have_edges_by_their_width_not_by_the_unit_of_time(unit):
    """In milliseconds there were none: the unit of time is a pixel then, and the boxes are twenty."""
    costs = Costs(unit, unit, unit)
    assert 'stroke="#fff"' in str(draw(simulate(OneFOneB(4, 8), costs)))
    assert 'stroke="#fff"' not in str(draw(simulate(OneFOneB(16, 90), costs)))


def test_actions_that_take_no_time_do_not_cost_the_others_their_edges():
    assert 'stroke="#fff"' in str(draw(simulate(zero_bubble(2, 3), Costs(20, 0, 0))))
    nearly = measured(zero_bubble(2, 3), Costs(20, [0.001, 20], 20))
    assert 'stroke="#fff"' in str(draw(nearly))


@pytest.mark.parametrize("costs", [Costs(), Costs(20, 20, 20)], ids=["units", "milliseconds"])
def test_the_legend_explains_the_lines_of_phases_where_they_are_drawn(costs):
    assert "first B, last F" in str(draw(simulate(OneFOneB(4, 8), costs)))
    assert "first B, last F" not in str(draw(simulate(OneFOneB(16, 90), costs)))


def test_titles_are_escaped():
    drawing = str(draw(simulate(Naive(2)), titles=['F < B & "so on"']))
    root = ElementTree.fromstring(drawing)
    assert 'F < B & "so on"' in {t.text for t in texts(root)}
    assert root.get("aria-label") == 'F < B & "so on"'


def test_the_title_names_schedule_makespan_and_bubble():
    assert "GPipe, 2 devices, 2 microbatches: makespan 9, bubble 33.3%" in {
        t.text for t in texts(ElementTree.fromstring(to_svg(simulate(GPipe(2, 2)))))
    }


def test_the_same_bytes_in_every_process():
    program = "import gpipe_sim as gp; print(gp.draw(gp.simulate(gp.Interleaved1F1B(2, 4)), in_flight=True))"
    drawings = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
        ).stdout
        for seed in ("1", "2")
    }
    [drawing] = drawings
    assert drawing.decode() == f"{draw(simulate(Interleaved1F1B(2, 4)), in_flight=True)}\n"


def test_a_drawing_can_be_shown_saved_and_named(tmp_path):
    drawing = draw(simulate(GPipe(2, 2)), titles=["one step"])
    drawing.save(tmp_path / "chart.svg")
    assert (tmp_path / "chart.svg").read_text(encoding="utf-8") == str(drawing)
    assert repr(drawing) == "<Svg of one step>"


def test_a_notebook_shows_schedules_and_timelines_as_drawings():
    """As an image, which needs nobody's trust, with words for those who cannot see it; and only once."""
    schedule = OneFOneB(2, 3)
    timeline = simulate(schedule)
    shown = re.fullmatch(
        r'<img alt="(.*)" src="data:image/svg\+xml;base64,(.*)">', draw(timeline)._repr_html_()
    )
    assert shown[1] == "1F1B, 2 devices, 3 microbatches: makespan 12, bubble 25.0%"
    assert b64decode(shown[2]).decode() == to_svg(timeline)
    assert schedule._repr_html_() == timeline._repr_html_() == shown[0]
    assert not any(hasattr(one, "_repr_svg_") for one in (schedule, timeline, draw(timeline)))
    assert Explicit.parse("0F0 0B0\n1B0 1F0")._repr_html_() is None  # a deadlock has no times to draw
    assert 'alt="a &quot;b&quot; &lt;c&gt;"' in draw(timeline, titles=['a "b" <c>'])._repr_html_()


def test_nothing_to_draw_is_refused():
    with pytest.raises(ValueError, match="at least one timeline"):
        draw()


def test_a_title_for_each_timeline():
    with pytest.raises(ValueError, match="a title for each of 2 timelines"):
        draw(simulate(Naive(2)), simulate(GPipe(2, 2)), titles=["one"])


@pytest.mark.parametrize(("devices", "named"), [(4, 4), (64, 16)])
def test_low_rows_are_named_one_in_four(devices, named):
    names = re.findall(r">device (\d+)<", to_svg(simulate(GPipe(devices, 2))))
    assert list(map(int, names)) == list(range(0, devices, devices // named))


def pixels(root):
    """(left, top, right, bottom, title) of each box."""
    for path in root.iter(f"{SVG}path"):
        found = re.fullmatch(r"M(\S+) (\S+)h(\S+)v(\S+)h-\S+z", path.get("d"))
        if found and (title := path.findtext(f"{SVG}title")):
            x, y, wide, high = map(float, found.groups())
            yield x, y, x + wide, y + high, title


def labelled(root):
    """The groups of numbers that stand in boxes."""
    return root.iterfind(f"{SVG}g[@pointer-events='none']")
