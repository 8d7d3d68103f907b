"""SVG and matplotlib paint one layout: all that is read back from the one is there in the other."""

from collections.abc import Iterator
from fractions import Fraction

import matplotlib.pyplot as plt
import pytest
from cases import every_order, over, overlapped, zero_bubble
from drawn import Chart, Point, area, bounds, chart_in, chart_of, charts_in, image
from measured import measured, metered

from gpipe_sim import (
    ZBH1,
    Costs,
    DualPipe,
    Explicit,
    GPipe,
    Interleaved1F1B,
    Link,
    OneFOneB,
    draw,
    overlay,
    remat,
    simulate,
)
from gpipe_sim.drawing.plots import plot_pushed, plot_timeline

SEVERAL = [*every_order([(1, 1), (2, 4)]), overlapped(3, 6), zero_bubble(3, 5)]
COARSE = [OneFOneB(8, 300), remat(ZBH1(16, 200), "always"), DualPipe(8, 200), GPipe(300, 6)]
OPTIONS = {
    "plain": {},
    "in flight, with messages": {"in_flight": True, "messages": True},
    "memory, and the critical path": {"memory": metered, "critical_path": True},
    "highlighted, with messages": {"highlight": ["0F0", "0B0"], "messages": True},
    "everything": {"in_flight": True, "messages": True, "critical_path": True},
}


def options_for(timeline, asked: dict) -> dict:
    if "highlight" in asked and not timeline.schedule.contains("0B0"):
        asked = asked | {"highlight": ["0F0", "0I0", "0W0"]}
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

    def boxes(chart: Chart) -> Iterator[list[Point]]:
        """Where matplotlib has four corners, SVG has four too."""
        for (_, some), (_, others) in zip(chart.areas, other.areas, strict=True):
            yield from (each for each, corners in zip(some, others, strict=True) if len(corners) == 4)

    def pixels(chart: Chart) -> dict[str, list[float]]:
        flat = {
            "areas": [edge for each in boxes(chart) for edge in bounds(each)],
            "frames": [edge for each in chart.frames for edge in bounds(each)],
            "dashes": [value for pair in chart.dashes for point in pair for value in point],
            "queues": [value for pair in chart.queues for point in pair for value in point],
            "arrows": [value for pair in chart.arrows for point in pair for value in point],
            "words": [value for word in chart.words for value in word[1:3]],
        }
        return {
            what: [value * (svg.unit, svg.row)[i % 2] for i, value in enumerate(values)]
            for what, values in flat.items()
        }

    expected, found = pixels(svg), pixels(other)
    for what, values in expected.items():
        assert values == pytest.approx(found[what], abs=0.21), what
    assert [word[0] for word in svg.words] == [word[0] for word in other.words]
    assert [word.colour for word in svg.words] == [word.colour for word in other.words]
    for (look, some), (_, others) in zip(svg.areas, other.areas, strict=True):
        slack = 0.2 * sum(right - left + 1 for left, _, right, _ in map(bounds, others)) / svg.row
        assert sum(map(area, some)) == pytest.approx(sum(map(area, others)), abs=slack), look


@pytest.mark.parametrize("asked", OPTIONS.values(), ids=OPTIONS)
@over(SEVERAL)
def test_both_painters_paint_the_same(schedule, asked):
    timeline = simulate(schedule, Costs(comm=1))
    options = options_for(timeline, asked)
    svg = chart_of(str(draw(timeline, **options)))
    ax = plot_timeline(timeline, beside(svg), **options)
    assert_same(svg, ax)
    plt.close(ax.figure)


@pytest.mark.parametrize("asked", ["in flight, with messages", "everything"])
def test_both_painters_paint_the_same_queues(asked):
    timeline = simulate(GPipe(3, 5), links=Link(bandwidth=Fraction(1, 2)))
    svg = chart_of(str(draw(timeline, **OPTIONS[asked])))
    ax = plot_timeline(timeline, beside(svg), **OPTIONS[asked])
    assert len(svg.queues) == 1 and svg.legend["message that waits for its link"] == "dotted"
    assert_same(svg, ax)
    plt.close(ax.figure)


@over(every_order([(4, 8)]))
def test_both_painters_paint_the_same_of_larger_timelines(schedule):
    timeline = simulate(schedule)
    svg = chart_of(str(draw(timeline, in_flight=True)))
    ax = plot_timeline(timeline, beside(svg), in_flight=True)
    assert_same(svg, ax)
    plt.close(ax.figure)


@pytest.mark.parametrize("asked", ["plain", "everything", "memory, and the critical path"])
@over(COARSE)
def test_both_painters_paint_the_same_shares(schedule, asked):
    timeline = simulate(schedule)
    options = options_for(timeline, OPTIONS[asked])
    svg = chart_of(str(draw(timeline, **options)))
    assert_same(svg, plot_timeline(timeline, beside(svg), **options))


@over([*every_order([(1, 1), (2, 3)]), overlapped(3, 6), DualPipe(4, 8), OneFOneB(8, 300)])
def test_both_painters_push_the_same_work_to_the_left(schedule):
    timeline = simulate(schedule, Costs(forward=2, comm=1))
    _, svg = charts_in(str(draw(timeline, pushed=True)))
    ax = plot_pushed(timeline, beside(svg))
    legend = {words: look for words, look in svg.legend.items() if words in chart_in(ax).legend}
    assert_same(svg._replace(legend=legend), ax)  # the page has one legend for both of its panels
    plt.close(ax.figure)


@pytest.mark.parametrize("asked", OPTIONS.values(), ids=OPTIONS)
@over([*SEVERAL, OneFOneB(8, 300), Interleaved1F1B(4, 20)])
def test_a_notebook_shows_what_the_file_shows(schedule, asked):
    timeline = simulate(schedule, Costs(comm=1))
    drawing = draw(timeline, **options_for(timeline, asked))
    assert chart_of(image(drawing)) == chart_of(str(drawing))


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
