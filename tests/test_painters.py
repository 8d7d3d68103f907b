"""SVG and matplotlib paint one layout: all that is read back from the one is there in the other.

So what other files read back from one painter alone holds for both.
"""

from fractions import Fraction

import matplotlib.pyplot as plt
import pytest
from cases import every_order, over, overlapped, zero_bubble
from drawn import Chart, area, bounds, chart_in, chart_of, charts_in, image
from measured import measured, metered

from gpipe_sim import ZBH1, Costs, Explicit, GPipe, Link, OneFOneB, draw, overlay, simulate
from gpipe_sim.drawing.plots import plot_pushed, plot_timeline
from gpipe_sim.families import DualPipe

SEVERAL = [*every_order([(2, 4)]), overlapped(3, 6), zero_bubble(3, 5), GPipe(1, 1)]
COARSE = [OneFOneB(4, 190), ZBH1(4, 130), DualPipe(8, 120), GPipe(160, 10)]
EVERYTHING = {"in_flight": True, "messages": True, "critical_path": True}
OPTIONS = {
    "memory, and the critical path": {"memory": metered, "critical_path": True},
    "highlighted, with messages": {"highlight": ["0F0"], "messages": True, "in_flight": True},
}
ASKED = pytest.mark.parametrize("asked", OPTIONS.values(), ids=OPTIONS)


def options_for(timeline, asked: dict) -> dict:
    return asked | {"memory": metered(timeline)} if "memory" in asked else asked


def beside(chart: Chart):
    """Axes of the proportions of a chart, in which as many of its letters fit."""
    figure = plt.figure(figsize=(0.84 * chart.wide / 72, 0.75 * chart.high / 72))
    return figure.add_axes([0, 0, 1, 1])


def assert_same(svg: Chart, ax) -> None:
    """To a fifth of a pixel, as far as tenths of pixels say; of strips and shares, their area."""
    other = chart_in(ax)
    assert svg[:4] == other[:4], "title, caption, names, peaks"
    assert svg.legend == other.legend
    assert [look for look, _ in svg.areas] == [look for look, _ in other.areas]

    def pixels(chart: Chart) -> dict[str, list[float]]:
        """Of areas, those with four corners in matplotlib: they have four in SVG too."""
        pairs = zip(chart.areas, other.areas, strict=True)
        both = [pair for (_, some), (_, others) in pairs for pair in zip(some, others, strict=True)]
        flat = {
            "areas": [edge for each, corners in both if len(corners) == 4 for edge in bounds(each)],
            "frames": [edge for each in chart.frames for edge in bounds(each)],
            "words": [value for word in chart.words for value in word[1:3]],
        }
        for what in ("dashes", "queues", "arrows"):
            flat[what] = [value for line in getattr(chart, what) for point in line for value in point]
        return {
            what: [value * (svg.unit, svg.row)[i % 2] for i, value in enumerate(values)]
            for what, values in flat.items()
        }

    expected, found = pixels(svg), pixels(other)
    for what, values in expected.items():
        assert values == pytest.approx(found[what], abs=0.21), what
    assert [(word[0], word.colour) for word in svg.words] == [(word[0], word.colour) for word in other.words]
    for (look, some), (_, others) in zip(svg.areas, other.areas, strict=True):
        slack = 0.2 * sum(right - left + 1 for left, _, right, _ in map(bounds, others)) / svg.row
        assert sum(map(area, some)) == pytest.approx(sum(map(area, others)), abs=slack), look


def assert_both_same(timeline, **options) -> Chart:
    """Both painters paint the same, and a notebook shows what the file does."""
    drawing = draw(timeline, **options)
    svg = chart_of(str(drawing))
    ax = plot_timeline(timeline, beside(svg), **options)
    assert_same(svg, ax)
    plt.close(ax.figure)
    assert chart_of(image(drawing)) == svg
    return svg


@ASKED
@over(SEVERAL)
def test_both_painters_paint_the_same(schedule, asked):
    timeline = simulate(schedule, Costs(comm=1, update=1))
    assert_both_same(timeline, **options_for(timeline, asked))


def test_both_painters_paint_the_same_queues():
    timeline = simulate(GPipe(3, 5), links=Link(bandwidth=Fraction(1, 2)), message_bytes=1)
    svg = assert_both_same(timeline, **EVERYTHING)
    assert len(svg.queues) == 1 and svg.legend["message that waits for its link"] == "dotted"


@pytest.mark.parametrize("asked", [EVERYTHING, OPTIONS["memory, and the critical path"]], ids=repr)
@over(COARSE)
def test_both_painters_paint_the_same_shares(schedule, asked):
    timeline = simulate(schedule)
    svg = assert_both_same(timeline, **options_for(timeline, asked))
    assert any(words.startswith("each column sums") for words in svg.legend)


@over([*every_order([(2, 3)]), overlapped(3, 6)])
def test_both_painters_push_the_same_work_to_the_left(schedule):
    timeline = simulate(schedule, Costs(forward=2, comm=1))
    _, svg = charts_in(str(draw(timeline, pushed=True)))
    ax = plot_pushed(timeline, beside(svg))
    legend = {words: look for words, look in svg.legend.items() if words in chart_in(ax).legend}
    assert_same(svg._replace(legend=legend), ax)  # the page has one legend for both of its panels
    plt.close(ax.figure)


def test_a_notebook_shows_what_the_files_of_other_drawings_show():
    pairs = draw(simulate(GPipe(4, 8)), simulate(DualPipe(4, 8)), pushed=True, in_flight=True)
    assert charts_in(image(pairs)) == charts_in(str(pairs))
    both = overlay(simulate(ZBH1(2, 3), Costs(20, 20, 20)), measured(ZBH1(2, 3))).drawing
    assert charts_in(image(both)) == charts_in(str(both))


def test_the_reader_sees_a_difference():
    """Of the two charts of these laws: if it read nothing, they would hold as well."""
    timeline, other = simulate(GPipe(2, 3)), simulate(OneFOneB(2, 3))
    svg = chart_of(str(draw(timeline, titles=["one"])))
    assert_same(svg, plot_timeline(timeline, beside(svg), "one"))
    for wrong in (
        plot_timeline(timeline, beside(svg)),
        plot_timeline(other, beside(svg), "one"),
        plot_timeline(timeline, beside(svg), "one", critical_path=True),
        plot_timeline(timeline, beside(svg), "one", messages=True),
        plot_timeline(timeline, beside(svg), "one", in_flight=True),
    ):
        with pytest.raises(AssertionError):
            assert_same(svg, wrong)
    empty = chart_of(str(draw(simulate(Explicit(["0F0 0B0"])))))
    assert (len(empty.lanes), len(empty.outlines("#0072b2")), len(empty.words)) == (1, 1, 2)
