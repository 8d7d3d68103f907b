"""Charts with matplotlib: what they draw is read back from their axes."""

from fractions import Fraction
from itertools import combinations, pairwise

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from cases import over, overlapped, zero_bubble
from drawn import boxes_in, chart_in, chart_of
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex
from matplotlib.text import Text
from measured import metered

from gpipe_sim import (
    Costs,
    GPipe,
    Interleaved1F1B,
    Naive,
    OneFOneB,
    PipeDream,
    bubble_fraction,
    draw,
    remat,
    simulate,
)
from gpipe_sim.core import Timeline
from gpipe_sim.drawing.palette import INK
from gpipe_sim.drawing.plots import plot_bubble_curves, plot_losses, plot_pushed, plot_timeline
from gpipe_sim.drawing.plots.gantt import Fitting
from gpipe_sim.drawing.plots.style import LABEL_SIZE
from gpipe_sim.families import DualPipe

TIMELINE = simulate(OneFOneB(2, 3))
EXACT = Costs(forward=Fraction(1), input_grad=Fraction(1), weight_grad=Fraction(1))
MEASURED, LOSSES = {2: {1: 0.5, 8: 0.3}}, {"a": [1.0, 0.5], "b": [1.0, 0.5]}
CHARTS = [(plot_timeline, TIMELINE), (plot_pushed, TIMELINE)]
CHARTS += [(plot_bubble_curves, MEASURED), (plot_losses, LOSSES)]


def test_device_0_is_on_top_and_time_runs_from_0_to_the_makespan():
    ax = plot_timeline(simulate(OneFOneB(4, 8)))
    assert (ax.get_xlim(), ax.get_ylim()) == ((0, 33), (4, 0))
    assert [t.get_text() for t in ax.get_yticklabels()] == [f"device {k}" for k in range(4)]
    assert [t.get_text() for t in ax.get_xticklabels()] == [*map(str, range(0, 31, 2)), "33"]


def test_there_is_a_collection_per_kind_and_pattern_however_many_boxes():
    """Those of weight gradients have lines in their lower band; edges are white, and frames are thick."""
    ax = plot_timeline(simulate(zero_bubble(2, 3)))
    drawn = [c for c in ax.collections if isinstance(c, PolyCollection)]
    names = ["waiting", "F  forward", "I  input gradient", "W  weight gradient"]
    assert [(c.get_label(), c.get_hatch()) for c in drawn] == [
        *((name, None) for name in names),
        ("_", "////"),
    ]
    assert {(to_hex(c.get_edgecolor()[0]), c.get_linewidth()[0]) for c in drawn[1:4]} == {("#ffffff", 0.6)}
    framed = plot_timeline(TIMELINE, critical_path=True).collections
    lines = [c for c in framed if isinstance(c, LineCollection)]
    assert [c.get_linestyle()[0][1] is not None for c in lines] == [True, False]
    assert [c.get_linewidth()[0] for c in lines] == [0.8, 1.6]
    assert {to_hex(c.get_color()[0]) for c in lines} == {INK}
    ax = plot_timeline(simulate(OneFOneB(6, 90)))
    assert [len(c.get_paths()) for c in ax.collections] == [6, 6 * 90, 6 * 90]
    assert not any(text.fits() for text in box_labels(ax))


def test_the_legend_stands_below_the_axis_and_reads_as_that_of_a_page_does():
    """From left to right: matplotlib would fill its columns from above."""
    timeline = simulate(remat(Interleaved1F1B(2, 2), "always"))
    ax = plot_timeline(timeline, in_flight=True, messages=True)
    ax.figure.draw_without_rendering()
    boxes = {text.get_text(): text.get_window_extent() for text in ax.get_legend().texts}
    assert 1 < len({round(box.y0) for box in boxes.values()}) < len(boxes), "lines"
    read = sorted(boxes, key=lambda words: (-round(boxes[words].y0), boxes[words].x0))
    assert read == list(chart_of(str(draw(timeline, in_flight=True, messages=True))).legend)
    assert ax.get_legend().get_window_extent().y1 <= ax.xaxis.label.get_window_extent().y0
    still = plot_timeline(simulate(GPipe(2, 3), Costs(0, 0, 0))).get_legend()
    assert still._ncols >= 3, "in one column it left no room for the axes"


def box_labels(ax: Axes) -> list[Fitting]:
    return [text for text in ax.texts if isinstance(text, Fitting) and text.get_text().isdigit()]


@over([OneFOneB(4, 8), overlapped(3, 6), zero_bubble(3, 5), Interleaved1F1B(2, 4), PipeDream(2, 4)])
def test_labels_lie_inside_boxes_of_their_microbatch(schedule):
    """Read at three widths of one figure, as it would be drawn; nothing has to be painted for that."""
    timeline = simulate(schedule, Costs(update=1))
    ax = plot_timeline(timeline, plt.figure(figsize=(24, 3)).add_subplot())
    drawn = boxes_in(ax)
    for width in (24, 9, 7.5):
        ax.figure.set_figwidth(width)
        labels = [text for text in box_labels(ax) if text.fits()]
        assert len(labels) == len(drawn) or (width < 24 and len(labels) > len(drawn) / 2 - 1)
        for label in labels:
            x, y = label.get_position()
            [box] = (b for b in drawn if b.start < x < b.end and b.device + b.top < y < b.device + b.bottom)
            corners = [(box.start, box.device + box.bottom), (box.end, box.device + box.top)]
            (left, bottom), (right, top) = ax.transData.transform(corners)
            extent = label.get_window_extent()
            assert left <= extent.x0 and extent.x1 <= right, f"{label}, {width} inches wide"
            assert bottom <= extent.y0 and extent.y1 <= top, f"{label}, {width} inches wide"
            [span] = (span for span in timeline.rows[box.device] if span.start == box.start)
            assert label.get_text() in {str(part.microbatch) for part in span.action.parts}


def test_a_label_that_does_not_fit_leaves_no_ink():
    ax = plot_timeline(simulate(OneFOneB(2, 8)), plt.figure(figsize=(9, 2)).add_axes([0.1, 0.3, 0.8, 0.4]))
    fitting = [text for text in ax.texts if isinstance(text, Fitting)]
    for width, visible in ((9, True), (1, False)):
        ax.figure.set_size_inches(width, 2)
        with_labels = pixels(ax)
        for text in fitting:
            text.set_visible(False)
        assert (with_labels != pixels(ax)).any() == visible
        for text in fitting:
            text.set_visible(True)


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


def test_measured_bubbles_lie_on_the_curves_of_the_formula_and_rings_mark_where_m_is_4k():
    measured = {k: {m: bubble_fraction(simulate(GPipe(k, m), EXACT)) for m in (1, 3, 8, 16)} for k in (2, 4)}
    ax = plot_bubble_curves(measured)
    rings = [line for line in ax.lines if line.get_markerfacecolor() == "none" and len(line.get_xdata())]
    assert [tuple(*line.get_xydata().tolist()) for line in rings] == [(8, 1 / 9), (16, 3 / 19)]
    assert [text.get_text() for text in ax.texts if "%" in text.get_text()] == ["11.1%", "15.8%"]
    curves, marks = lines_and_marks(ax)
    for (k, by_m), curve, mark in zip(measured.items(), curves, marks, strict=True):
        assert mark == [(m, float(value)) for m, value in by_m.items()]
        assert mark == [(m, pytest.approx((k - 1) / (k - 1 + m))) for m in by_m]
        assert curve == [(m, pytest.approx((k - 1) / (k - 1 + m))) for m, _ in curve]
        assert (curve[0][0], curve[-1][0]) == (1, pytest.approx(16))
    assert ax.get_ylim() == (0, 1) and list(ax.get_xticks()) == [1, 8, 16], "powers of two"
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "8", "16"]
    assert ends(ax) == {(16, 1 / 17): "K = 2", (16, 3 / 19): "K = 4"}


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
    assert list(alone.get_ydata()) == curve and alone.get_linewidth() > 2 and ax.get_xlim() == (0, 101)
    marked = [set(range(*line.get_markevery()[:1], 100, line.get_markevery()[1])) for line in others]
    assert all(len(steps) >= 9 for steps in marked)
    assert all(not a & b for a, b in combinations(marked, 2))
    assert len({(line.get_color(), line.get_marker()) for line in others}) == 3
    assert [text.get_text() for text in ax.get_legend().texts] == ["alone", "a", "b", "c"]


def test_axes_that_are_given_are_used_no_style_changes_and_words_are_9_points_high():
    before = dict(mpl.rcParams)
    for plot, data in CHARTS:
        figure, ax = plt.subplots()
        assert plot(data, ax) is ax and figure.axes == [ax]
        alone = plot(data)
        assert alone is not ax and alone.figure is not figure
        alone.figure.canvas.draw()
        written = [text for text in alone.figure.findobj(Text) if text.get_text()]
        titles = {alone.get_title("left")} - {""}
        sizes = {text.get_fontsize() for text in written if text.get_text() not in titles}
        assert alone.get_xlabel() and len(written) > 5 and sizes == {9}
        assert {text.get_fontsize() for text in written if text.get_text() in titles} <= {9, 10}
    assert dict(mpl.rcParams) == before


def test_rows_are_flatter_where_devices_are_many_and_higher_with_strips_and_pairs():
    sizes = [plot_timeline(simulate(OneFOneB(k, 4))).figure.get_size_inches() for k in (4, 16, 32, 64)]
    assert all(5 <= width <= 9 and height <= 8 for width, height in sizes)
    per_device = [height / k for (_, height), k in zip(sizes, (4, 16, 32, 64), strict=True)]
    assert per_device == sorted(per_device, reverse=True)
    plain, strips = (plot_timeline(simulate(OneFOneB(4, 8)), in_flight=shown) for shown in (False, True))
    pairs = plot_timeline(simulate(overlapped(4, 8)))
    rows = [ax.figure.get_size_inches()[1] - 1.25 for ax in (plain, strips, pairs)]
    assert rows[1:] == pytest.approx([1.9 * rows[0], 1.4 * rows[0]])
    assert (plain.get_ylim(), strips.get_ylim()) == ((4, 0), pytest.approx((4 * 1.9, 0)))


def test_what_stands_beside_the_axes_is_on_the_figure():
    """The largest of the strips' numbers, and the whole legend."""
    timeline = simulate(OneFOneB(4, 8))
    for ax in (
        plot_timeline(timeline, memory=metered(timeline), messages=True, critical_path=True),
        plot_pushed(simulate(DualPipe(4, 8))),
    ):
        ax.figure.draw_without_rendering()
        whole = ax.figure.bbox
        for artist in [ax.get_legend(), *(text for text in ax.texts if not isinstance(text, Fitting))]:
            box = artist.get_window_extent()
            assert whole.x0 <= box.x0 and box.x1 <= whole.x1, artist
            assert whole.y0 <= box.y0 and box.y1 <= whole.y1, artist


@pytest.mark.parametrize("size", [(3.3, 1.4), (3.3, 0.9), (4, 2), (9, 5)], ids=str)
@pytest.mark.parametrize("font", [5, 10, 20])
def test_in_a_figure_of_any_size_no_word_is_cut_off_or_too_small_and_boxes_have_their_numbers(size, font):
    """Without a layout engine: a figure of 3.3 x 1.4 inches had its title and its legend cut off."""
    with plt.rc_context({"font.size": font}):
        figure, ax = plt.subplots(figsize=size)
        plot_timeline(simulate(OneFOneB(4, 8)), ax)
    figure.draw_without_rendering()
    legend, numbers = ax.get_legend(), [text for text in box_labels(ax) if text.fits()]
    words = [*ax.get_xticklabels(), *ax.get_yticklabels(), ax.xaxis.label, ax._left_title, *numbers]
    words += [] if legend is None else [*legend.texts, *(each for each in ax.texts if each not in words)]
    assert (legend is None) == (size == (3.3, 0.9)), "there it has no room"
    assert all(min(6, 0.9 * font) <= text.get_fontsize() <= max(6.5, font) for text in words)
    whole = figure.bbox
    for text in [text for text in words if not isinstance(text, Fitting) or text.fits()]:
        box = text.get_window_extent()
        assert whole.x0 <= box.x0 and box.x1 <= whole.x1, text
        assert whole.y0 <= box.y0 and box.y1 <= whole.y1, text
    assert len(numbers) >= 32  # of the backwards at least


@pytest.mark.parametrize("font", [6, 10, 18])
def test_letters_are_as_large_as_matplotlibs_font_size_says(font):
    """Those of a figure of its own, which is then as high as they need."""
    timeline = simulate(OneFOneB(4, 8))
    with plt.rc_context({"font.size": font}):
        charts = plot_timeline(timeline), plot_pushed(timeline)
        curves = plot_bubble_curves(MEASURED), plot_losses(LOSSES)
    for ax in (*charts, *curves):
        legends = ax.get_legend().texts if ax.get_legend() else []
        texts = [*ax.get_xticklabels(), *legends, *ax.texts, ax.xaxis.label]
        assert {text.get_fontsize() for text in texts} == {0.9 * font}
    for ax in charts:
        ax.figure.draw_without_rendering()
        assert ax._left_title.get_fontsize() == pytest.approx(font)
        legend, whole = ax.get_legend().get_window_extent(), ax.figure.bbox
        assert whole.y0 <= legend.y0 and legend.x1 <= whole.x1
        assert ax.bbox.height * 72 / ax.figure.dpi >= 4 * 1.1 * 0.9 * font


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
