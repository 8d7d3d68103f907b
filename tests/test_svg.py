"""Our own SVG: what it draws is read back from its text."""

import os
import re
import subprocess
import sys
from base64 import b64decode
from collections import defaultdict
from fractions import Fraction
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from cases import every_order, over, over_every_order, overlapped, zero_bubble
from drawn import (
    SVG,
    Word,
    area,
    assert_inside,
    bounds,
    bubble,
    chart_of,
    charts_in,
    elements,
    in_svg,
    pixels,
    points,
    words_in,
)
from measured import measured

from gpipe_sim import Costs, Explicit, GPipe, Interleaved1F1B, Naive, OneFOneB, draw, remat, simulate
from gpipe_sim.core import Timeline, idle_time
from gpipe_sim.drawing import to_svg
from gpipe_sim.drawing.document import LARGE
from gpipe_sim.drawing.page import LEFT, LEGEND_LINE, NUMBER, WIDTH
from gpipe_sim.drawing.palette import KINDS
from gpipe_sim.families import DualPipe

DIGIT_WIDE, DIGIT_HIGH = 6.7, 8.7  #: pixels of a digit of Helvetica or Arial at 12 px
SEVERAL = [*every_order([(2, 3)]), OneFOneB(4, 8), overlapped(3, 6), zero_bubble(3, 5)]
EVERYTHING = {"in_flight": True, "messages": True, "critical_path": True}
EDGE = 'stroke="#fff" stroke-width="0.8"'


@over_every_order(((1, 1), (2, 3), (4, 8)))
def test_every_span_is_drawn_once_with_its_hover_title_and_what_is_left_white_is_the_bubble(schedule):
    timeline = simulate(schedule, Costs(forward=1, input_grad=2, weight_grad=1, comm=1))
    drawn = in_svg(to_svg(timeline))
    found = [(box.device, box.start, box.end, box.title) for box in drawn]
    assert sorted(found) == sorted(
        (span.device, span.start, span.end, f"{span.action} {span.start}\N{EN DASH}{span.end}")
        for span in timeline.spans
        for _ in span.action.parts  # a pair is two halves
    )
    if not schedule.program.paired:
        all_time = schedule.devices * timeline.makespan
        assert bubble(drawn) == Fraction(idle_time(timeline), all_time)


def test_of_a_kind_all_boxes_have_numbers_or_none():
    """Numbers that stopped at 9 would look like a mistake."""
    for microbatches, kinds in ((10, "FB"), (16, "B"), (32, "")):
        numbers = [int(number.words) for number in numbers_in(to_svg(simulate(OneFOneB(8, microbatches))))]
        assert sorted(numbers) == sorted(list(range(microbatches)) * 8 * len(kinds))
    assert not numbers_in(to_svg(simulate(OneFOneB(16, 64))))  # too narrow
    assert not numbers_in(to_svg(simulate(OneFOneB(40, 1))))  # too flat


@over([*SEVERAL, *every_order([(8, 16)])])
def test_a_box_has_its_number_in_it_unless_its_kind_has_none_or_it_has_no_room(schedule):
    text = to_svg(simulate(schedule))
    numbers, by_title, by_kind = numbers_in(text), defaultdict(list), defaultdict(list)
    for *box, title in pixels(text):
        by_title[title].append(box)
    for title, boxes in by_title.items():  # two for an overlapped pair: the upper one is its forward
        parts = re.findall(r"\d([FBIWRU])(\d+)", title)
        for (kind, number), (left, top, right, bottom) in zip(parts, sorted(boxes), strict=True):
            inside = [each for each in numbers if left <= each.x <= right and top <= each.y <= bottom]
            half = len(number) * DIGIT_WIDE / 2
            for each in inside:
                assert each.words == number and left <= each.x - half and each.x + half <= right
                assert top <= each.y - DIGIT_HIGH
            has_room = right - left >= (0.58 * len(number) + 0.12) * 12 and bottom - top >= 12
            by_kind[kind].append((bool(inside), has_room))
    for boxes in by_kind.values():
        assert all(has_room for inside, has_room in boxes if inside)
        assert all(inside for inside, has_room in boxes if has_room) or not any(inside for inside, _ in boxes)


def test_a_single_short_box_costs_the_others_no_number():
    schedule = OneFOneB(2, 4)
    slow, quick = Costs(), Costs([1, 0.1], 1, 1)
    assert len(numbers_in(str(draw(simulate(schedule, slow))))) == 16
    assert len(numbers_in(str(draw(simulate(schedule, quick))))) == 12  # of stage 1, forwards take a tenth


@pytest.mark.parametrize("options", [EVERYTHING, {"pushed": True, "in_flight": True}], ids=repr)
@over([*SEVERAL, remat(GPipe(1, 1), "always"), OneFOneB(40, 3)])
def test_nothing_is_drawn_outside_the_sheet_nor_much_white_below_it(schedule, options):
    text = str(draw(simulate(schedule), **options))
    width, height = assert_inside(text)
    assert width <= WIDTH + 40
    assert 0 <= height - max(word.y for word in words_in(text)) <= 18, "at most a line of white"


def test_peaks_stand_on_the_right_of_the_strips():
    text = str(draw(simulate(OneFOneB(4, 8)), in_flight=True))
    assert chart_of(text).peaks == ["4", "3", "2", "1"]
    ends = max(right for _, _, right, _, _ in pixels(text))
    peaks = [word for word in words_in(text) if word.words in "4321" and word.anchor == "start"]
    assert len(peaks) == 4 and all(ends < peak.x <= ends + 10 for peak in peaks)


def test_timelines_under_each_other_share_one_time_axis():
    short, long = simulate(OneFOneB(4, 8)), simulate(Interleaved1F1B(4, 8))
    alone, both = str(draw(short)), str(draw(short, long))
    wide = {title: right - left for left, _, right, _, title in pixels(both)}
    first = "0F0 0\N{EN DASH}1"
    assert wide[first] < {title: right - left for left, _, right, _, title in pixels(alone)}[first]
    assert max(right for _, _, right, _, _ in pixels(both)) - LEFT == pytest.approx(57 * wide[first], abs=4)
    assert [chart.title.split(":")[0] for chart in charts_in(both)] == ["1F1B", "Interleaved 1F1B"]


@pytest.mark.parametrize(("family", "lines"), [(GPipe, 2), (DualPipe, 3)])
def test_a_legend_that_is_wider_than_a_chart_goes_on_below(family, lines):
    """With everything drawn, DualPipe's took 1005 pixels on one line."""
    text = str(draw(simulate(family(4, 8)), in_flight=True))
    said = {word.words: word for word in words_in(text)}
    first = said["F  forward"]
    [last] = [word for words, word in said.items() if words.startswith("microbatches in flight")]
    assert first.y + LEGEND_LINE * (lines - 1) == last.y
    assert all(word.x + 0.5 * 12 * len(word.words) <= WIDTH for word in words_in(text) if word.y >= first.y)


def test_the_legend_names_what_any_timeline_of_the_page_shows():
    """The number of the first one's rows, which are lower than those of pairs, once decided for all."""
    flat, high = simulate(OneFOneB(20, 3)), simulate(overlapped(20, 3))
    assert not numbers_in(str(draw(flat)))
    assert numbers_in(str(draw(flat, high)))
    assert "number: the microbatch" in charts_in(str(draw(flat, high)))[0].legend
    assert "number: the microbatch" not in chart_of(str(draw(flat))).legend


PATTERNED = pytest.mark.parametrize(
    ("schedule", "kind", "pattern"),
    [(zero_bubble(9, 3), "W", "lines"), (remat(GPipe(9, 3), "always"), "R", "dots")],
    ids=["W", "R"],
)


@PATTERNED
def test_only_weight_gradients_have_lines_and_only_recomputing_has_dots(schedule, kind, pattern):
    """In the lower band of the box, below its number, also in rows of 18 pixels."""
    assert "url(#" not in to_svg(simulate(GPipe(2, 2)))
    text = to_svg(simulate(schedule))
    chart = chart_of(text)
    assert re.findall('<pattern id="([a-z]+)"', text) == [pattern]
    [bands] = [list(map(bounds, outlines)) for look, outlines in chart.areas if look.pattern == pattern]
    boxes = list(map(bounds, chart.outlines(KINDS[kind].colour)))
    assert len(bands) == len(boxes) == sum(kind in title for *_, title in pixels(text)) == 27
    for band, (left, top, right, bottom) in zip(bands, boxes, strict=True):
        assert (band[0], band[2], band[3]) == pytest.approx((left, right, bottom))
        assert (band[3] - band[1]) / (bottom - top) == pytest.approx(0.3, abs=0.01)
        [number] = (word for word in chart.words if left < word.x < right and int(word.y) == int(top))
        assert number.y + 4 / chart.row <= band[1], "digits end 4 pixels below their middle"


@PATTERNED
def test_half_of_a_swatch_shows_the_pattern(schedule, kind, pattern):
    found = list(elements(ElementTree.fromstring(to_svg(simulate(schedule)))))
    at = next(i for i, each in enumerate(found) if each.words.startswith(f"{kind}  "))
    square, lines = found[at - 2 : at]
    assert lines.holds["fill"] == f"url(#{pattern})"
    assert [area(*points(each.holds["d"])) for each in (square, lines)] == [12 * 12, 12 * 6]


def test_the_makespan_stands_on_the_axis_in_bold():
    """And no other number as near to it as it is wide."""
    for timelines in ([simulate(GPipe(4, 8))], [simulate(GPipe(2, 2)), simulate(OneFOneB(4, 8))]):
        words = words_in(str(draw(*timelines)))
        bold = [word for word in words if word.bold and word.anchor == "middle"]
        assert [word.words for word in bold] == [str(timeline.makespan) for timeline in timelines]
        for end in bold:
            others = [word for word in words if word.y == end.y and word.anchor == "middle" and word != end]
            assert len(others) >= 2 and max(other.x for other in others) <= end.x - NUMBER


@pytest.mark.parametrize("unit", [1, 20, Fraction(1, 2)], ids=str)
def test_boxes_have_edges_and_phases_lines_by_their_width_not_by_the_unit_of_time(unit):
    """In milliseconds there were none: the unit of time is a pixel then, and the boxes are twenty."""
    phases = "warm-up ends, drain begins"
    wide, narrow = (
        str(draw(simulate(OneFOneB(*size), Costs(unit, unit, unit)))) for size in ((4, 8), (16, 90))
    )
    assert EDGE in wide and chart_of(wide).legend[phases] == "dashed"
    assert EDGE not in narrow and phases not in chart_of(narrow).legend
    some_take_none = (
        simulate(zero_bubble(2, 3), Costs(20, 0, 0)),
        measured(zero_bubble(2, 3), Costs(20, [0.001, 20], 20)),
    )
    assert all(EDGE in str(draw(timeline)) for timeline in some_take_none)


def test_titles_are_escaped():
    text = str(draw(simulate(Naive(2)), titles=['F < B & "so on"']))
    assert chart_of(text).title == 'F < B & "so on"'
    assert (
        ElementTree.fromstring(text).findtext(f"{SVG}title").startswith('Chart: F < B & "so on" (2 devices')
    )


def test_the_same_bytes_in_every_process():
    program = "import gpipe_sim as gp; print(gp.draw(gp.simulate(gp.Interleaved1F1B(2, 4)), in_flight=True))"
    seeded = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONIOENCODING": "utf-8"}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=seeded)
    assert ran.stdout.decode() == f"{draw(simulate(Interleaved1F1B(2, 4)), in_flight=True)}\n"


def test_a_drawing_can_be_shown_saved_and_named(tmp_path):
    drawing = draw(simulate(GPipe(2, 2)), titles=["one step"])
    drawing.save(tmp_path / "chart.svg")
    assert (tmp_path / "chart.svg").read_text(encoding="utf-8") == str(drawing)
    assert repr(drawing) == "<Svg of Chart: one step (2 devices, 2 microbatches; F takes 1, B 2)>"


def test_a_notebook_shows_schedules_and_timelines_as_drawings():
    """As an image, which needs nobody's trust, with words for those who cannot see it; and only once."""
    schedule = OneFOneB(2, 3)
    timeline = simulate(schedule)
    shown = re.fullmatch(
        r'<img alt="(.*)" src="data:image/svg\+xml;base64,(.*)">', draw(timeline)._repr_html_()
    )
    assert shown[1] == ("Chart: 1F1B: 12 long, 25.0% waiting (2 devices, 3 microbatches; F takes 1, B 2)")
    assert chart_of(b64decode(shown[2]).decode()) == chart_of(to_svg(timeline))
    assert schedule._repr_html_() == timeline._repr_html_() == shown[0]
    assert not any(hasattr(one, "_repr_svg_") for one in (schedule, timeline, draw(timeline)))
    assert Explicit.parse("0F0 0B0\n1B0 1F0")._repr_html_() is None  # a deadlock has no times to draw
    assert 'alt="Chart: a &quot;b&quot; &lt;c&gt; (' in draw(timeline, titles=['a "b" <c>'])._repr_html_()


@pytest.mark.parametrize(("devices", "named"), [(4, 4), (64, 16)])
def test_low_rows_are_named_one_in_four(devices, named):
    names = re.findall(r">device (\d+)<", to_svg(simulate(GPipe(devices, 2))))
    assert list(map(int, names)) == list(range(0, devices, devices // named))


def numbers_in(text: str) -> list[Word]:
    """The numbers that stand in boxes, in pixels: they are on no axis."""
    axes = {word.y for word in words_in(text) if word.words == "time"}
    middle = [word for word in words_in(text) if word.anchor == "middle" and word.y not in axes]
    return [word for word in middle if word.words.isdigit()]


@pytest.mark.parametrize("tiny", [1e-3, 1e-9])
def test_a_step_in_seconds_is_as_wide_as_in_milliseconds(tiny):
    """It was a few pixels wide at most, and its times stood on top of each other."""
    timeline = simulate(OneFOneB(2, 3))
    short = Timeline(timeline.schedule, timeline.start * tiny, timeline.end * tiny)
    wide, narrow = (chart_of(str(draw(each))).wide for each in (timeline, short))
    assert narrow == pytest.approx(wide * 1 / 2, rel=0.01)  # the longest action takes 2: here 28 pixels


def test_a_caption_without_a_title_has_room_for_its_letters():
    """Its line was 9 pixels below the edge; in a narrow window its letters are 12 high."""
    timeline = simulate(GPipe(2, 3))
    drawing = draw(timeline, titles=[""])
    [caption] = [
        word for word in words_in(str(drawing)) if word.words == chart_of(str(draw(timeline))).caption
    ]
    assert caption.y >= 0.73 * LARGE


@pytest.mark.parametrize("unit", [1e-9, 5e-4, 1, 3e4, 10**9])
def test_numbers_on_an_axis_do_not_touch_however_long_they_are(unit):
    """Those of 33,000,000,000 stood on top of each other."""
    timeline = simulate(GPipe(4, 8))
    longer = Timeline(timeline.schedule, timeline.start * unit, timeline.end * unit)
    words = words_in(str(draw(longer)))
    [low] = {word.y for word in words if word.words == "time"}
    numbers = sorted((word.x, len(word.words)) for word in words if word.y == low and word.words != "time")
    assert len(numbers) >= 3
    for (x, length), (right, other) in pairwise(numbers):
        assert right - x > (length + other) / 2 * DIGIT_WIDE
