"""``critical_path=True`` and ``highlight=[...]``: some boxes are framed and all others fade."""

from collections import Counter

import pytest
from cases import over_every_order, overlapped
from drawn import Chart, bounds, chart_of, charts_in

from gpipe_sim import ZBH1, Costs, GPipe, Interleaved1F1B, OneFOneB, draw, simulate
from gpipe_sim.core import F, Span
from gpipe_sim.drawing.options import CRITICAL, HIGHLIGHTED
from gpipe_sim.drawing.palette import FADED, FAINT, KINDS, LANE, ink, tint
from gpipe_sim.families import DualPipe
from gpipe_sim.why import critical_path


def spans(timeline, outlines) -> list[str]:
    """Which actions these boxes are, by their place: those of a pair share it."""
    by_place = {(span.device, float(span.start)): str(span.action) for span in timeline.spans}
    boxes = [bounds(each) for each in outlines]
    return sorted(by_place[int((top + bottom) / 2), round(left, 1)] for left, top, _, bottom in boxes)


def boxes(chart: Chart, opaque: float) -> list:
    looks = [look for look, _ in chart.areas if look.colour not in ("", LANE) and look.opaque == opaque]
    return [each for look, outlines in chart.areas if look in looks for each in outlines]


def check_picked(timeline, chart: Chart, picked: list[str], words: str) -> None:
    """Exactly these are framed and keep their colour; all others are faded."""
    every = [str(span.action) for span in timeline.spans for _ in span.action.parts]
    assert spans(timeline, chart.frames) == sorted(picked)
    assert spans(timeline, boxes(chart, 1)) == sorted(picked)
    assert spans(timeline, boxes(chart, FADED)) == sorted((Counter(every) - Counter(picked)).elements())
    assert chart.legend[words] == "frame"


@over_every_order([(2, 4)])
def test_exactly_the_boxes_of_the_path_are_framed_both_halves_of_a_pair(schedule):
    timeline = simulate(schedule, Costs(comm=1, update=1))
    on_it = [each for each in critical_path(timeline) if isinstance(each, Span)]
    path = [str(span.action) for span in on_it for _ in span.action.parts]
    check_picked(timeline, chart_of(str(draw(timeline, critical_path=True))), path, CRITICAL)


@over_every_order([(2, 4)])
def test_exactly_the_boxes_that_are_listed_are_framed(schedule):
    """Given as actions, as spans or as their spelling; of a pair both halves, whichever is given."""
    timeline = simulate(schedule, Costs(update=1))
    some = timeline.spans[:: max(1, len(timeline.spans) // 5)]
    expected = [str(span.action) for span in some for _ in span.action.parts]
    for given in (
        some,
        [span.action for span in some],
        [str(span.action) for span in some],
        [span.action.parts[-1] for span in some],
    ):
        check_picked(timeline, chart_of(str(draw(timeline, highlight=given))), expected, HIGHLIGHTED)


def test_each_timeline_has_its_own_path():
    timelines = simulate(GPipe(2, 3)), simulate(overlapped(2, 3))
    charts = charts_in(str(draw(*timelines, critical_path=True)))
    assert [len(chart.frames) for chart in charts] == [
        sum(len(span.action.parts) for span in critical_path(timeline)) for timeline in timelines
    ]


def test_an_action_is_highlighted_in_every_timeline_that_has_it():
    """0W0 is in ZB-H1 alone; the other is drawn as ever."""
    timelines = simulate(GPipe(2, 3)), simulate(ZBH1(2, 3))
    for picked, frames, bright in ((["0F0", "0W0"], [1, 2], [1, 2]), (["0W0"], [0, 1], [12, 1])):
        charts = charts_in(str(draw(*timelines, highlight=picked)))
        assert [len(chart.frames) for chart in charts] == frames
        assert [len(boxes(chart, 1)) for chart in charts] == bright


def test_a_faded_box_is_its_colour_on_its_lane_and_has_no_pattern():
    """So it follows the lane where the page is dark."""
    timeline = simulate(ZBH1(2, 3))
    chart = chart_of(str(draw(timeline, highlight=["0W0", F(1, 1)])))
    faded = {look.colour for look, _ in chart.areas if look.opaque == FADED}
    assert faded == {KINDS[kind].colour.lower() for kind in "FIW"}
    [bands] = [outlines for look, outlines in chart.areas if look.pattern]
    assert spans(timeline, bands) == ["0W0"]
    lanes, *_ = chart.areas
    assert lanes[0].colour == LANE and lanes[0].opaque == 1


def test_numbers_of_faded_boxes_are_faint_and_all_others_as_ever():
    timeline = simulate(Interleaved1F1B(2, 4))
    chart = chart_of(str(draw(timeline, highlight=["0F0", "3B1"])))
    numbers = Counter(word.colour for word in chart.words if word.words.isdigit())
    assert numbers.total() == 32 and numbers[FAINT] == 30
    assert numbers[ink(KINDS["F"].colour)] == numbers[ink(tint(KINDS["B"].colour, 0.3))] == 1


@pytest.mark.parametrize("schedule", [OneFOneB(4, 8), DualPipe(4, 8), Interleaved1F1B(4, 8)], ids=repr)
def test_the_only_messages_are_those_of_highlighted_actions(schedule):
    timeline = simulate(schedule, Costs(comm=1))
    picked = [message.action for message in timeline.messages][::7]
    sent = [message for message in timeline.messages if message.action in picked]
    chart = chart_of(str(draw(timeline, messages=True, highlight=picked)))
    found = [(round(x, 1), int(y), round(to_x, 1), int(to_y)) for (x, y), (to_x, to_y) in chart.arrows]
    assert found == [(each.start, each.source, each.end, each.target) for each in sent]
    assert 0 < len(sent) < len(timeline.messages)
    silent = draw(timeline, messages=True, highlight=[timeline.rows[0][-1]])
    assert chart_of(str(silent)).arrows == [] and "message" not in chart_of(str(silent)).legend


def test_where_boxes_are_too_many_the_legend_says_that_no_path_is_drawn():
    """16 x 66 boxes with frames are as long to write as 2,957 boxes, 16 x 67 as 3,002."""
    framed = chart_of(str(draw(simulate(OneFOneB(16, 66)), critical_path=True)))
    assert len(framed.frames) == len(boxes(framed, 1)) == 16 + 66 + 66 + 14
    chart = chart_of(str(draw(simulate(OneFOneB(16, 67)), critical_path=True)))
    assert chart.frames == []
    assert "too fine to draw: any critical path" in chart.legend
    plain = chart_of(str(draw(simulate(OneFOneB(16, 67)))))
    assert len(boxes(plain, 1)) == 2 * 16 * 67


def test_where_boxes_are_too_many_only_what_was_highlighted_is_missing():
    """The note said "any highlighted", and said so of an empty list too."""
    timeline = simulate(OneFOneB(16, 100))
    assert (
        "too fine to draw: any highlighted action" in chart_of(str(draw(timeline, highlight=["0F0"]))).legend
    )
    assert str(draw(timeline, highlight=[])) == str(draw(timeline))
