"""Charts with matplotlib: what they draw is read back from their axes."""

from fractions import Fraction
from itertools import combinations, pairwise

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from cases import every_order, over, over_every_order, overlapped, splits, zero_bubble
from drawn import bubble, chart_in, chart_of, in_axes
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex
from matplotlib.text import Text
from measured import metered

from gpipe_sim import (
    Costs,
    DualPipe,
    Explicit,
    GPipe,
    Interleaved1F1B,
    Naive,
    OneFOneB,
    Timeline,
    bubble_fraction,
    draw,
    remat,
    simulate,
    utilization,
)
from gpipe_sim.drawing.geometry import LANE_HIGH, phase_lines
from gpipe_sim.drawing.plots import (
    plot_bubble_curves,
    plot_efficiency,
    plot_losses,
    plot_pushed,
    plot_timeline,
)
from gpipe_sim.drawing.plots.gantt import Fitting
from gpipe_sim.drawing.plots.style import LABEL_SIZE

UP_TO_12 = (1, 2, 3, 5, 8, 12)
SEVERAL = [*every_order(((1, 1), (2, 3), (4, 8))), overlapped(3, 6), zero_bubble(3, 5)]
TIMELINE = simulate(OneFOneB(2, 3))
EXACT = Costs(forward=Fraction(1), input_grad=Fraction(1), weight_grad=Fraction(1))


@pytest.fixture(scope="module")
def drawn():
    """The boxes of a chart. All on one small axes without room for labels, because making them takes time."""
    figure, ax = plt.subplots(figsize=(1, 1))

    def draw(timeline):
        for artist in [*ax.collections, *ax.texts]:
            artist.remove()
        return in_axes(plot_timeline(timeline, ax))

    yield draw
    plt.close(figure)


@pytest.fixture(scope="module")
def white_share(drawn):
    return lambda schedule: bubble(drawn(simulate(schedule)))


@pytest.mark.parametrize("family", [GPipe, OneFOneB])
def test_the_white_part_of_the_drawing_is_the_bubble(family, white_share):
    for k in UP_TO_12:
        for m in UP_TO_12:
            assert white_share(family(k, m)) == Fraction(k - 1, k - 1 + m)


def test_the_white_part_of_an_interleaved_drawing_is_the_bubble(white_share):
    sizes = [(k, m) for k in UP_TO_12 for m in range(k, 13, k)]
    for k, m in sizes:
        assert white_share(Interleaved1F1B(k, m)) == Fraction(k - 1, k - 1 + 2 * m)
    assert len(sizes) == 26


@over_every_order(((1, 1), (3, 2), (4, 8)))
def test_every_span_is_drawn_once(schedule, drawn):
    timeline = simulate(schedule, Costs(forward=1.5, comm=0.25))
    found = sorted((box.device, box.start, box.end) for box in drawn(timeline))
    assert found == sorted(
        (span.device, span.start, span.end) for span in timeline.spans for _ in span.action.parts
    )


def test_device_0_is_on_top_and_time_runs_from_0_to_the_makespan():
    ax = plot_timeline(simulate(OneFOneB(4, 8)))
    assert (ax.get_xlim(), ax.get_ylim()) == ((0, 33), (4, 0))
    assert [t.get_text() for t in ax.get_yticklabels()] == [f"device {k}" for k in range(4)]
    assert [t.get_text() for t in ax.get_xticklabels()] == [*map(str, range(0, 31, 2)), "33"]


def test_an_overlapped_pair_is_drawn_as_two_halves_of_one_row():
    drawn = in_axes(plot_timeline(simulate(Explicit.parse("0F0 (0F1;0B0)OVERLAP_F_B 0B1"))))
    upper, lower = sorted((box for box in drawn if box.start == 1), key=lambda box: box.top)
    assert (upper.end, lower.end) == (4, 4)
    assert [box.bottom - box.top for box in (upper, lower)] == [pytest.approx(LANE_HIGH / 2)] * 2
    assert upper.bottom == pytest.approx(lower.top)
    assert upper.colour != lower.colour


def test_one_collection_per_kind_named_by_what_it_means():
    """And one for the lines of weight gradients, in the lower band of their boxes."""
    ax = plot_timeline(simulate(zero_bubble(2, 3)))
    drawn = [c for c in ax.collections if isinstance(c, PolyCollection)]
    names = ["waiting", "F  forward", "I  input gradient", "W  weight gradient", "_"]
    assert [c.get_label() for c in drawn] == names
    assert [len(c.get_paths()) for c in drawn] == [2, 6, 6, 6, 6]
    assert [c.get_hatch() for c in drawn] == [None, None, None, None, "////"]


@over(SEVERAL)
def test_every_device_has_a_lane_on_which_its_boxes_stand(schedule):
    """From 0 to the makespan, as high as a box: so what shows of it is the bubble, exactly."""
    timeline = simulate(schedule)
    ax = plot_timeline(timeline)
    lanes = in_axes(ax, lanes=True)
    assert [lane.device for lane in lanes] == list(range(schedule.devices))
    assert {(lane.start, lane.end, lane.colour) for lane in lanes} == {(0, timeline.makespan, "#e9e7e2")}
    for box in in_axes(ax):
        lane = lanes[box.device]
        assert lane.top - 1e-9 <= box.top < box.bottom <= lane.bottom + 1e-9
    plt.close(ax.figure)


def test_where_nothing_takes_time_the_legend_has_its_columns_as_ever():
    """They stood in one, which left no room for the axes."""
    columns = [
        plot_timeline(simulate(GPipe(2, 3), costs)).get_legend()._ncols for costs in (None, Costs(0, 0, 0))
    ]
    assert columns[1] >= 3


def test_the_legend_shows_full_colours_and_stands_outside_the_axes():
    ax = plot_timeline(simulate(remat(Interleaved1F1B(2, 2), "always")))
    ax.figure.canvas.draw()
    words = [text.get_text() for text in ax.get_legend().texts]
    kinds = ["F  forward", "B  backward", "R  recompute"]
    others = ["paler: a later stage", "first backward, last forward", "number: the microbatch"]
    assert sorted(words) == sorted([*kinds, "waiting", *others])
    legend = chart_in(ax).legend
    assert [legend[kind].colour for kind in [*kinds, "waiting"]] == [
        "#0072b2",
        "#e69f00",
        "#cc79a7",
        "#e9e7e2",
    ]
    assert legend["paler: a later stage"].colour in {box.colour for box in in_axes(ax)}
    assert ax.get_legend().get_window_extent().y1 <= ax.xaxis.label.get_window_extent().y0, "below the axis"


def box_labels(ax: Axes) -> list[Fitting]:
    return [text for text in ax.texts if isinstance(text, Fitting) and text.get_text().isdigit()]


def test_long_waits_say_how_long_they_are_where_there_is_room():
    ax = plot_timeline(simulate(GPipe(4, 8)), plt.figure(figsize=(12, 2)).add_subplot())
    waits = {
        (text.get_position(), text.get_text())
        for text in ax.texts
        if isinstance(text, Fitting) and "waits" in text.get_text()
    }
    assert waits == {
        ((12.5, 0.5), "waits 9"),
        ((12.0, 1.5), "waits 6"),
        ((11.5, 2.5), "waits 3"),
        ((31.0, 2.5), "done, waits 4"),
        ((1.5, 3.5), "waits 3"),
        ((30.0, 3.5), "done, waits 6"),
    }
    ax.figure.set_figwidth(1)
    assert not any(text.fits() for text in ax.texts if isinstance(text, Fitting))


@over(SEVERAL)
def test_labels_lie_inside_boxes_of_their_microbatch(schedule):
    """Read at three widths of one figure, as it would be drawn; nothing has to be painted for that."""
    timeline = simulate(schedule, Costs(update=1))
    ax = plot_timeline(timeline, plt.figure(figsize=(24, 3)).add_subplot())
    drawn = in_axes(ax)
    for width in (24, 9, 7.5):
        ax.figure.set_figwidth(width)
        labels = [text for text in box_labels(ax) if text.fits()]
        too_narrow = width < 9 and splits(schedule)  # 51 boxes in a row of 7 inches: none as wide as a digit
        assert too_narrow or len(labels) > len(drawn) / 2 - 1, f"{width} inches wide"
        assert len(labels) == len(drawn) or width < 24  # inches, room for every number
        for label in labels:
            extent, x, y = label.get_window_extent(), *label.get_position()
            [box] = (
                box
                for box in drawn
                if box.start < x < box.end and box.device + box.top < y < box.device + box.bottom
            )
            corners = [(box.start, box.device + box.bottom), (box.end, box.device + box.top)]
            (left, bottom), (right, top) = ax.transData.transform(corners)
            assert left <= extent.x0 and extent.x1 <= right, f"{label}, {width} inches wide"
            assert bottom <= extent.y0 and extent.y1 <= top, f"{label}, {width} inches wide"
            [span] = (span for span in timeline.rows[box.device] if span.start == box.start)
            assert label.get_text() in {str(part.microbatch) for part in span.action.parts}
    plt.close(ax.figure)


@over([Naive(4, 8), OneFOneB(2, 24), DualPipe(4, 8)])
def test_a_chart_made_narrow_has_the_labels_of_one_that_became_narrow(schedule):
    """Of what could never have room no label is made: 96 units of Naive on 7 inches just have it."""
    timeline = simulate(schedule)
    became = plot_timeline(timeline, plt.figure(figsize=(24, 3)).add_subplot())
    for width in (5, 7, 9, 12):
        became.figure.set_figwidth(width)
        made = plot_timeline(timeline, plt.figure(figsize=(width, 3)).add_subplot())
        shown, expected = (
            [(text.get_position(), text.get_text()) for text in box_labels(ax) if text.fits()]
            for ax in (made, became)
        )
        assert shown == expected, f"{width} inches wide"
        assert shown or width < 12


def test_labels_are_drawn_where_they_fit_when_the_chart_changes_size():
    ax = plot_timeline(simulate(OneFOneB(2, 24)), plt.figure(figsize=(30, 2)).add_subplot())
    shown = {}
    for size in ((30, 2), (12, 2), (6, 2), (3, 2), (30, 0.3)):
        ax.figure.set_size_inches(size)
        ax.figure.canvas.draw()
        shown[size] = sum(text.fits() for text in box_labels(ax))
    assert shown[30, 2] == 2 * 48, "forwards and backwards"
    assert shown[12, 2] == 2 * 24, "backwards, and no forward, as those from 10 on have no room"
    assert shown[6, 2] == shown[3, 2] == 0
    assert shown[30, 0.3] == 0  # wide, but too flat


def test_a_label_that_does_not_fit_leaves_no_ink():
    ax = plot_timeline(simulate(OneFOneB(2, 8)), plt.figure(figsize=(9, 2)).add_subplot())
    fitting = [text for text in ax.texts if isinstance(text, Fitting)]
    for width, visible in ((9, True), (1, False)):
        ax.figure.set_size_inches(width, 2)
        with_labels = pixels(ax)
        for text in fitting:
            text.set_visible(False)
        assert (with_labels != pixels(ax)).any() == visible
        for text in fitting:
            text.set_visible(True)


def test_the_legend_reads_from_left_to_right_as_that_of_a_page_does():
    """matplotlib would fill its columns from above."""
    timeline = simulate(remat(Interleaved1F1B(2, 2), "always"))
    ax = plot_timeline(timeline, in_flight=True, messages=True)
    ax.figure.canvas.draw()
    boxes = {text.get_text(): text.get_window_extent() for text in ax.get_legend().texts}
    assert 1 < len({round(box.y0) for box in boxes.values()}) < len(boxes), "lines"
    read = sorted(boxes, key=lambda words: (-round(boxes[words].y0), boxes[words].x0))
    assert read == list(chart_of(str(draw(timeline, in_flight=True, messages=True))).legend)


def test_frames_are_thicker_than_the_lines_between_phases():
    ax = plot_timeline(TIMELINE, critical_path=True)
    lines = [c for c in ax.collections if isinstance(c, LineCollection)]
    dashed = [c.get_linestyle()[0][1] is not None for c in lines]
    assert dashed == [True, False]
    assert [c.get_linewidth()[0] for c in lines] == [0.8, 1.6]
    assert {to_hex(c.get_color()[0]) for c in lines} == {"#222222"}


def test_thousands_of_boxes_make_few_collections():
    ax = plot_timeline(simulate(OneFOneB(16, 90)))
    assert len(in_axes(ax)) == 2 * 16 * 90
    assert len(ax.collections) == 3
    assert not any(text.fits() for text in box_labels(ax))


def test_dashed_lines_part_the_phases_of_each_device():
    timeline = simulate(OneFOneB(3, 5))
    ax = plot_timeline(timeline)
    [lines] = [c for c in ax.collections if isinstance(c, LineCollection)]
    found = [(start[0], start[1], end[0], end[1]) for start, end in lines.get_segments()]
    assert found == [(time, device, time, device + 1) for time, device in phase_lines(timeline)]


def test_the_title_is_a_claim_unless_given_and_stands_above_the_caption():
    ax = plot_timeline(simulate(Naive(2)))
    assert ax.get_title("left") == "Naive: 6 long, 50.0% waiting"
    assert chart_in(ax).caption == "2 devices, 1 microbatch; F takes 1, B 2"
    ax.figure.canvas.draw()
    [caption] = (text for text in ax.texts if text.get_text() == chart_in(ax).caption)
    title, below = ax._left_title.get_window_extent(), caption.get_window_extent()
    assert title.y0 >= below.y1 and below.y0 >= ax.get_window_extent().y1
    own = plot_timeline(simulate(Naive(2)), title="down and back")
    assert own.get_title("left") == "down and back"
    assert chart_in(own).caption == chart_in(ax).caption


def test_measured_bubbles_lie_on_the_curves_of_the_formula():
    measured = {k: {m: bubble_fraction(simulate(GPipe(k, m), EXACT)) for m in (1, 3, 8, 16)} for k in (2, 4)}
    ax = plot_bubble_curves(measured)
    curves, marks = lines_and_marks(ax)
    assert [len(mark) for mark in marks] == [4, 4]
    for (k, by_m), curve, mark in zip(measured.items(), curves, marks, strict=True):
        assert mark == [(m, float(value)) for m, value in by_m.items()]
        assert mark == [(m, pytest.approx((k - 1) / (k - 1 + m))) for m in by_m]
        assert curve == [(m, pytest.approx((k - 1) / (k - 1 + m))) for m, _ in curve]
        assert (curve[0][0], curve[-1][0]) == (1, pytest.approx(16))
    assert ax.get_ylim() == (0, 1)
    assert ends(ax) == {(16, 1 / 17): "K = 2", (16, 3 / 19): "K = 4"}


def test_rings_mark_where_m_is_4k_and_say_the_bubble():
    measured = {k: {m: bubble_fraction(simulate(GPipe(k, m))) for m in (1, 8, 16)} for k in (2, 4, 8)}
    ax = plot_bubble_curves(measured)
    rings = [line for line in ax.lines if line.get_markerfacecolor() == "none" and len(line.get_xdata())]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in rings] == [(8, 1 / 9), (16, 3 / 19)]
    assert [text.get_text() for text in ax.texts if "%" in text.get_text()] == ["11.1%", "15.8%"]


def test_devices_at_work_lie_on_the_curves_of_the_formula_below_those_that_never_wait():
    measured = {m: {k: utilization(simulate(GPipe(k, m), EXACT)) for k in (1, 2, 6)} for m in (4, 32)}
    ax = plot_efficiency(measured)
    (never_waits, *curves), marks = lines_and_marks(ax)
    assert never_waits == [(0, 0), (6, 6)]
    for (m, by_k), curve, mark in zip(measured.items(), curves, marks, strict=True):
        assert mark == [(k, pytest.approx(k * m / (k - 1 + m))) for k in by_k]
        assert curve == [(k, pytest.approx(k * m / (k - 1 + m))) for k, _ in curve]
        assert all(y <= x + 1e-9 for x, y in curve)
    assert list(ends(ax).values()) == ["M = 4", "M = 32", "nobody waits"]


def test_names_of_curves_that_end_together_stand_apart():
    """1.5% to 6% of a chart that is 4.2 inches high: their points are less than a line apart."""
    measured = {k: {m: bubble_fraction(simulate(GPipe(k, m))) for m in (1, 64)} for k in (2, 3, 4, 5)}
    ax = plot_bubble_curves(measured)
    ax.figure.draw_without_rendering()
    heights = sorted(text.get_window_extent().y0 for text in ax.texts if "K = " in text.get_text())
    assert len(heights) == 4
    assert all(b - a >= LABEL_SIZE * ax.figure.dpi / 72 for a, b in pairwise(heights))


def test_losses_that_coincide_are_all_seen():
    curve = [1 / step for step in range(1, 101)]
    ax = plot_losses({"alone": curve, "a": curve, "b": curve, "c": curve})
    alone, *others = ax.lines
    assert list(alone.get_ydata()) == curve and alone.get_linewidth() > 2
    marked = [set(range(*line.get_markevery()[:1], 100, line.get_markevery()[1])) for line in others]
    assert all(len(steps) >= 9 for steps in marked)
    assert all(not a & b for a, b in combinations(marked, 2))
    assert len({(line.get_color(), line.get_marker()) for line in others}) == 3
    assert [text.get_text() for text in ax.get_legend().texts] == ["alone", "a", "b", "c"]


def test_the_first_and_the_last_step_stand_inside_the_axes():
    ax = plot_losses({"a": [1.0, 0.5, 0.25], "b": [1.0, 0.5, 0.25]})
    assert (ax.get_xlim(), list(ax.lines[-1].get_xdata())) == ((0, 4), [1, 2, 3])


def test_all_that_is_written_on_charts_is_9_points_high_and_their_titles_10():
    measured = {2: {1: 0.5, 8: 0.3}}
    losses = {"a": [1.0, 0.5], "b": [1.0, 0.5]}
    for ax in (
        plot_timeline(TIMELINE, in_flight=True),
        plot_pushed(TIMELINE),
        plot_bubble_curves(measured),
        plot_efficiency(measured),
        plot_losses(losses),
    ):
        ax.figure.canvas.draw()
        written = [text for text in ax.figure.findobj(Text) if text.get_text()]
        assert ax.get_xlabel(), ax.get_title()
        titles = {ax.get_title("left")} - {""}
        assert len(written) > 5 and {
            text.get_fontsize() for text in written if text.get_text() not in titles
        } == {9}
        assert {text.get_fontsize() for text in written if text.get_text() in titles} <= {9, 10}


def test_white_edges_part_the_boxes():
    """Of the same colour, one right after the other: 0F0 and 0F1."""
    ax = plot_timeline(TIMELINE)
    boxes = [c for c in ax.collections if isinstance(c, PolyCollection) and c.get_label() != "waiting"]
    assert {to_hex(edge) for box in boxes for edge in box.get_edgecolors()} == {"#ffffff"}
    assert {tuple(box.get_linewidths()) for box in boxes} == {(0.6,)}


def test_the_ticks_of_a_logarithmic_axis_are_the_powers_of_two_measured():
    ax = plot_bubble_curves({2: {m: 1 / (1 + m) for m in (1, 3, 4, 6, 16)}})
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "4", "16"]
    assert list(ax.get_xticks()) == [1, 4, 16]


def test_axes_that_are_given_are_used_and_no_style_changes():
    before = dict(mpl.rcParams)
    timeline = simulate(GPipe(2, 2))
    losses = {"a": [1.0, 0.5], "b": [1.0, 0.5]}
    for plot, data in (
        (plot_timeline, timeline),
        (plot_pushed, timeline),
        (plot_bubble_curves, {2: {1: 0.5, 2: 0.3}}),
        (plot_efficiency, {4: {1: 1, 2: 0.8}}),
        (plot_losses, losses),
    ):
        figure, ax = plt.subplots()
        assert plot(data, ax) is ax
        assert figure.axes == [ax]
        alone = plot(data)
        assert alone is not ax and alone.figure is not figure
    assert dict(mpl.rcParams) == before


def test_rows_get_flatter_where_devices_are_many_but_never_leave_the_page():
    sizes = [plot_timeline(simulate(OneFOneB(k, 4))).figure.get_size_inches() for k in (4, 16, 32, 64)]
    assert all(5 <= width <= 9 and height <= 8 for width, height in sizes)
    per_device = [height / k for (_, height), k in zip(sizes, (4, 16, 32, 64), strict=True)]
    assert per_device == sorted(per_device, reverse=True)


def test_strips_make_a_figure_higher_and_leave_its_lanes_as_high_as_they_were():
    timeline = simulate(OneFOneB(4, 8))
    plain, strips = plot_timeline(timeline), plot_timeline(timeline, in_flight=True)
    rows = [ax.figure.get_size_inches()[1] - 1.25 for ax in (plain, strips)]
    assert rows[1] == pytest.approx(1.84 * rows[0])
    assert (plain.get_ylim(), strips.get_ylim()) == ((4, 0), (4 * 1.84, 0))


def test_what_stands_beside_the_axes_is_on_the_figure():
    """The largest of the strips' numbers, and the whole legend."""
    timeline = simulate(OneFOneB(4, 8))
    for ax in (
        plot_timeline(timeline, memory=metered(timeline), messages=True, critical_path=True),
        plot_pushed(simulate(DualPipe(4, 8))),
    ):
        ax.figure.canvas.draw()
        whole = ax.figure.bbox
        for artist in [ax.get_legend(), *(text for text in ax.texts if not isinstance(text, Fitting))]:
            box = artist.get_window_extent()
            assert whole.x0 <= box.x0 and box.x1 <= whole.x1, artist
            assert whole.y0 <= box.y0 and box.y1 <= whole.y1, artist


def test_rows_with_pairs_are_higher_so_that_a_number_fits_into_half_a_row():
    plain, pairs = (
        plot_timeline(simulate(schedule)).figure for schedule in (OneFOneB(4, 8), overlapped(4, 8))
    )
    rows = [figure.get_size_inches()[1] - 1.25 for figure in (plain, pairs)]
    assert rows[1] == pytest.approx(1.4 * rows[0])


def pixels(ax):
    ax.figure.canvas.draw()
    return np.array(ax.figure.canvas.buffer_rgba())


def lines_and_marks(ax):
    """[(x, y), ...] of each curve, and of each row of marks; rings left out."""
    drawn = [line for line in ax.lines if line.get_markerfacecolor() != "none"]
    curves = [line for line in drawn if line.get_marker() == "None"]
    marks = [line for line in drawn if line.get_linestyle() == "None"]
    assert len(curves) + len(marks) == len(drawn)
    return [[list(map(tuple, line.get_xydata().tolist())) for line in some] for some in (curves, marks)]


def ends(ax) -> dict:
    """The words beside the last points of curves, by these points."""
    return {text.xy: text.get_text() for text in ax.texts if "%" not in text.get_text()}


@pytest.mark.parametrize("unit", [1e-9, 3.2e-4, 1, 3e4, 10**9])
def test_numbers_on_an_axis_do_not_touch_however_long_they_are(unit):
    timeline = simulate(GPipe(4, 8))
    longer = Timeline(timeline.schedule, timeline.start * unit, timeline.end * unit)
    figure = plot_timeline(longer).figure
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
    assert len(boxes) >= 3 and all(left.x1 < right.x0 for left, right in pairwise(boxes))
