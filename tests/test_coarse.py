"""Charts of more actions than a page has room for."""

from collections import defaultdict
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from cases import over, over_every_order, overlapped, zero_bubble
from drawn import Chart, area, chart_in, chart_of, image, points
from measured import measured, metered

from gpipe_sim import (
    ZBH1,
    ZBV,
    Costs,
    Explicit,
    GPipe,
    Interleaved1F1B,
    OneFOneB,
    draw,
    overlay,
    remat,
    simulate,
)
from gpipe_sim.core import Span
from gpipe_sim.core.program import KINDS
from gpipe_sim.drawing import to_svg
from gpipe_sim.drawing.coarse import Grain, grain_of, shares
from gpipe_sim.drawing.geometry import LANE_HIGH
from gpipe_sim.drawing.memory_strips import Strips, stacks
from gpipe_sim.drawing.options import Wanted
from gpipe_sim.drawing.paint import Place, outline_all
from gpipe_sim.drawing.palette import KINDS as COLOURS
from gpipe_sim.drawing.panel import panel
from gpipe_sim.drawing.plots import plot_timeline
from gpipe_sim.drawing.svg import at_unit_costs
from gpipe_sim.export.spans import from_spans
from gpipe_sim.families import DualPipe
from gpipe_sim.why import in_flight

GRAINS = [Grain(1), Grain(2.5), Grain(7), Grain(10**6)]
LARGE = [OneFOneB(32, 512), GPipe(300, 20), DualPipe(8, 200), ZBV(16, 64)]
MOST = 300_000  #: characters of a drawing in a notebook
EVERYTHING = {"in_flight": True, "messages": True, "critical_path": True}


# The shares


@pytest.mark.parametrize("grain", GRAINS, ids=str)
@over_every_order([(2, 3), (4, 8)])
def test_shares_are_the_time_that_spans_take_of_each_cell(schedule, grain):
    """The same, span by span and column by column."""
    timeline = simulate(schedule, Costs(forward=1, input_grad=Fraction(3, 2), weight_grad=1, comm=1))
    edges = grain.edges(timeline).tolist()
    expected = np.zeros((len(KINDS), schedule.devices, len(edges) - 1))
    for span in timeline.spans:
        start, end = float(span.start), float(span.end)
        for column, (a, b) in enumerate(pairwise(edges)):
            inside = max(0, min(b, end) - max(a, start))
            for part in span.action.parts:
                cell = KINDS.index(part.kind), span.device, column
                expected[cell] += inside / len(span.action.parts) / (b - a)
    assert shares(timeline, grain) == pytest.approx(expected, abs=1e-12)


def test_measured_times_fill_no_cell_beyond_its_edge():
    assert shares(measured(OneFOneB(4, 100)), Grain(120)).sum(axis=0).max() <= 1 + 1e-12
    both = [Span(action, 0, 0.0, 1.0) for action in Explicit(["0F0 0B0"]).actions[0]]
    at_once = shares(from_spans(Explicit(["0F0 0B0"]), both), Grain(0.5))
    assert at_once.sum(axis=0).tolist() == [[1, 1]]
    assert sorted(at_once[:, 0, 0])[-2:] == [0.5, 0.5]


def test_a_steady_state_does_not_flicker():
    """Columns hold whole microbatches: of 1F1B's 6 units, 2 are forward and 4 backward, in every one."""
    timeline = simulate(OneFOneB(32, 512))
    assert grain_of(timeline) == Grain(6)
    steady = shares(timeline, grain_of(timeline))[:, 8, 50:250]
    assert [tuple(each) for each in {*map(tuple, steady.T.round(9).tolist())}] == [
        tuple(round({"F": 1 / 3, "B": 2 / 3}.get(kind, 0.0), 9) for kind in KINDS)
    ]


def test_a_timeline_in_which_nothing_takes_time_is_an_empty_chart():
    timeline = simulate(GPipe(2, 400), Costs(0, 0, 0))
    assert not shares(timeline, grain_of(timeline)).any()
    assert "400 microbatches" in to_svg(timeline)


# Where boxes end


@pytest.mark.parametrize(
    ("schedule", "coarse"),
    [
        (OneFOneB(1, 186), False),  # 372 in a row: 2 pixels each
        (OneFOneB(1, 187), True),
        (OneFOneB(30, 50), False),  # 3,000 on the page
        (OneFOneB(30, 51), True),
        (DualPipe(2, 92), False),  # a pair is one entry, but two boxes
        (Interleaved1F1B(4, 92), False),
        (Interleaved1F1B(4, 96), True),
    ],
    ids=repr,
)
def test_there_are_boxes_as_long_as_they_have_room(schedule, coarse):
    timeline = simulate(schedule)
    assert (grain_of(timeline).column > 0) == coarse
    svg = to_svg(timeline)
    assert ("each column sums" in svg) == coarse
    assert svg.count("<title>") - 1 == (0 if coarse else len(schedule.program.kind))


@pytest.mark.parametrize(("microbatches", "coarse"), [(186, False), (187, True)])
def test_matplotlib_paints_boxes_as_long_as_a_page_does(microbatches, coarse):
    legend = chart_in(plot_timeline(simulate(OneFOneB(1, microbatches)))).legend
    assert any(words.startswith("each column sums") for words in legend) == coarse


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({}, 150),
        ({"in_flight": True}, 107),
        ({"memory": True}, 107),
        ({"pushed": True}, 106),
        ({"critical_path": True}, 107),
        ({"in_flight": True, "messages": True, "critical_path": True, "pushed": True}, 67),
    ],
    ids=repr,
)
def test_what_is_drawn_besides_takes_room_too(options, most):
    """Of so many boxes of 10 devices; more than 800 messages are not drawn at all, so they take none."""
    for microbatches, coarse in ((most, False), (most + 1, True)):
        timeline = simulate(OneFOneB(10, microbatches))
        asked = options | {"memory": metered(timeline)} if "memory" in options else options
        assert ("each column sums" in str(draw(timeline, **asked))) == coarse


def test_a_page_of_many_rows_has_boxes_but_not_with_strips():
    timeline = simulate(GPipe(130, 2))
    assert len(chart_of(to_svg(timeline)).lanes) == 130
    assert not grain_of(timeline).column and grain_of(timeline, strips=True).column
    assert not grain_of(simulate(GPipe(128, 2)), strips=True).column


def test_timelines_of_one_page_are_counted_together():
    each = simulate(OneFOneB(10, 100))
    assert not grain_of(each).column
    assert grain_of(each, each).column
    assert str(draw(each, each)).count("each column sums") == 1


# What is drawn


@over(LARGE)
def test_a_large_chart_is_small(schedule):
    timeline = simulate(schedule)
    for options in ({}, EVERYTHING, {"in_flight": True, "pushed": True}):
        drawing = draw(timeline, **options)
        shown, text = image(drawing), str(drawing)
        assert len(shown) * 4 / 3 + len(drawing.says) + 60 < MOST
        assert shown.count("<path") < 40
        assert text.count("<title>") == 1 + text.count("at most")  # of the strips


def test_a_large_measured_chart_and_its_overlay_are_small_too():
    real = measured(remat(ZBH1(16, 300), "always"))
    assert len(draw(real, **EVERYTHING)._repr_html_()) < MOST
    assert len(draw(real, memory=metered(real), pushed=True)._repr_html_()) < MOST
    assert len(overlay(simulate(real.schedule, Costs(20, 20, 20)), real)._repr_html_()) < MOST


def drawn_with(timelines, options):
    """A page of these; every action highlighted and some bytes held, if they are asked for."""
    memory = [metered(timeline) for timeline in timelines] if "memory" in options else []
    values = {"highlight": timelines[0].spans, "memory": memory if len(memory) > 1 else [*memory, None][0]}
    return draw(*timelines, **options | {name: values[name] for name in values if name in options})


@pytest.mark.parametrize(
    ("schedule", "most", "options"),
    [
        (OneFOneB(4, 8), 34, {}),
        (OneFOneB(4, 8), 26, {"highlight": ...}),
        (OneFOneB(4, 8), 14, EVERYTHING | {"pushed": True}),
        (GPipe(2, 8), 43, {"messages": True}),
        (GPipe(1, 2), 108, {}),
        (DualPipe(2, 20), 28, {}),  # numbers of two digits
    ],
    ids=repr,
)
def test_a_page_of_as_many_small_timelines_as_have_boxes_is_small(schedule, most, options):
    """With a number in each box. 46 of 64 boxes were 494 kB, which with their axes are more than fit."""
    timeline = simulate(schedule)
    drawing = drawn_with([timeline] * most, options)
    assert "each column sums" not in str(drawing)
    assert len(drawing._repr_html_()) < MOST
    assert "each column sums" in str(drawn_with([timeline] * (most + 1), options))


@pytest.mark.parametrize("options", [{"in_flight": True}, {"memory": ...}], ids=repr)
@over([OneFOneB(30, 50), GPipe(128, 8)])
def test_a_page_of_many_rows_is_small(schedule, options):
    assert len(drawn_with([simulate(schedule)], options)._repr_html_()) < MOST


@over([*LARGE, remat(zero_bubble(3, 150), "always")])
def test_the_painted_area_of_each_colour_is_its_share_of_the_busy_time(schedule):
    """Read back from the drawing, where edges are rounded to tenths of a pixel."""
    timeline = simulate(schedule)
    chart = chart_of(to_svg(timeline))
    for colour, time in busy_by_colour(timeline).items():
        share = time / (schedule.devices * float(timeline.makespan))
        assert painted(chart, colour) == pytest.approx(share, abs=0.12 / chart.row)


def test_the_last_column_may_be_too_narrow_to_see():
    """Two of its corners became one, that one was taken for none, and the rest of the path was askew."""
    timeline = simulate(OneFOneB(4, 100))
    grain = Grain((timeline.makespan - 0.001) / 50)
    assert len(grain.edges(timeline)) == 52
    at = Place(26, 688 / timeline.makespan, 24, 84)
    _, *marks = panel(timeline, grain, at.scale, Wanted()).marks
    for mark, (colour, time) in zip(marks, busy_by_colour(timeline).items(), strict=True):
        assert mark.fill == colour
        drawn = points(outline_all(mark.outlines, at))
        share = sum(map(area, drawn)) / (688 * 24 * LANE_HIGH * 4)
        assert share == pytest.approx(time / (4 * timeline.makespan), abs=0.005)


def test_the_legend_says_what_a_column_is_and_what_is_too_fine():
    assert list(chart_of(str(draw(simulate(OneFOneB(32, 512)), **EVERYTHING))).legend) == [
        "F  forward",
        "B  backward",
        "waiting",
        "microbatches in flight (right: the most)",
        "each column sums 9 time units: as high as the device is busy",
        "too fine to draw: any message or critical path",
    ]
    assert "paler: a later stage" not in chart_of(to_svg(simulate(Interleaved1F1B(32, 64)))).legend


@pytest.mark.parametrize("grain", GRAINS[:3], ids=str)
@over([OneFOneB(4, 8), GPipe(3, 5), DualPipe(4, 8), overlapped(3, 6)])
def test_strips_show_the_most_in_each_column(schedule, grain):
    timeline = simulate(schedule, Costs(comm=1))
    edges = grain.edges(timeline).tolist()
    for device, found in enumerate(stacks(timeline, grain, Strips(1))):
        assert found.times == edges[:-1]
        assert found.held[0].tolist() == [held(timeline, device, a, b) for a, b in pairwise(edges)]
        assert not found.held[1].any(), "nothing is recomputed"


# What is shown unasked


def test_a_schedule_that_takes_long_to_time_is_not_drawn_unasked():
    schedule = GPipe(2, 10**6)
    assert at_unit_costs(schedule) is None
    assert "program" not in vars(schedule)  # it has not even been laid out
    assert "each column sums" in str(at_unit_costs(OneFOneB(32, 512)))


# Reading


def busy_by_colour(timeline) -> dict[str, float]:
    busy = defaultdict(float)
    for span in timeline.spans:
        for part in span.action.parts:
            busy[COLOURS[part.kind].colour] += float(span.end - span.start) / len(span.action.parts)
    return busy


def held(timeline, device, a, b) -> int:
    """The most in flight at any time from a to b."""
    steps = in_flight(timeline, device)
    before = [count for time, count in steps if time <= a]
    return max(before[-1], *(count for time, count in steps if a < time <= b), 0)


def painted(chart: Chart, colour: str) -> float:
    """The share of all lanes that has this colour."""
    return sum(map(area, chart.outlines(colour))) / sum(map(area, chart.lanes))
