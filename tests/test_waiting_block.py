"""``draw(pushed=True)``: the same work without the waits in it, and all that is waiting as one block."""

from collections import Counter
from functools import cache

import pytest
from cases import every_order, over, overlapped, zero_bubble
from drawn import Chart, area, bounds, chart_in, charts_in
from measured import measured

from gpipe_sim import ZBH1, Costs, Explicit, GPipe, Naive, OneFOneB, bubble_fraction, draw, simulate
from gpipe_sim.core import Span, Timeline, busy_time, idle_time
from gpipe_sim.drawing.geometry import LANE_HIGH
from gpipe_sim.drawing.palette import KINDS, LANE, tint
from gpipe_sim.drawing.plots import plot_pushed, plot_timeline
from gpipe_sim.export.spans import from_spans
from gpipe_sim.families import DualPipe

SEVERAL = [*every_order([(2, 3)]), OneFOneB(4, 8), overlapped(3, 6), zero_bubble(3, 5)]
TITLE = "The same work, pushed left: the waiting is one block"


def painted(chart: Chart) -> dict[str, float]:
    """The area of each colour of work, tints of later stages added to their kind's."""
    found = Counter()
    for kind, look in KINDS.items():
        if kind == "I":  # it looks as B
            continue
        tints = {tint(look.colour, 0.6 * i / n) for n in range(1, 5) for i in range(n)}
        found[look.colour] += sum(map(area, chart.outlines(*tints)))
    return found


def block(chart: Chart) -> list:
    """The outline of what is left, which is framed."""
    [outline] = chart.outlines(LANE)[len(chart.names) :]
    assert chart.frames == [outline]
    return outline


def width(outline, y: float) -> float:
    """How wide an outline is at a height at which it has no corner."""
    edges = [
        x for (x, a), (_, b) in zip(outline, [*outline[1:], outline[0]], strict=True) if (a < y) != (b < y)
    ]
    return max(edges) - min(edges)


@cache
def pushed_left(schedule) -> tuple[Timeline, Chart]:
    """Its timeline with messages, and that without its waits: drawn once for every test that reads it."""
    timeline = simulate(schedule, Costs(forward=2, comm=1))
    return timeline, chart_in(plot_pushed(timeline))


@over([*SEVERAL, DualPipe(4, 8)])
def test_the_work_is_the_same_in_every_colour(schedule):
    timeline, below = pushed_left(schedule)
    above = chart_in(plot_timeline(timeline))
    assert painted(below) == pytest.approx(painted(above))
    work = sum(painted(below).values()) / LANE_HIGH
    assert work == pytest.approx(float(busy_time(timeline)))


@over(SEVERAL)
def test_the_framed_block_is_the_bubble(schedule):
    """Along the middle of every lane it is as wide as that device waits, so all of them are the idle time."""
    timeline, chart = pushed_left(schedule)
    if not idle_time(timeline):
        assert chart.frames == [] and chart.words == []
        return
    outline, until = block(chart), timeline.makespan
    waits = [until - sum(span.end - span.start for span in row) for row in timeline.rows]
    assert [width(outline, device + 0.5) for device in range(schedule.devices)] == pytest.approx(waits)
    assert sum(waits) == pytest.approx(idle_time(timeline))
    assert max(x for x, _ in outline) == until
    if len(set(waits)) == 1:
        _, top, _, bottom = bounds(outline)
        whole = until * (bottom - top)
        assert area(outline) / whole == pytest.approx(float(bubble_fraction(timeline)))


@over(SEVERAL)
def test_the_work_of_a_device_starts_at_0_and_has_no_gap(schedule):
    timeline, chart = pushed_left(schedule)
    for device, row in enumerate(timeline.rows):
        boxes = sorted(
            {
                (left, right)
                for look, outlines in chart.areas
                if look.colour not in ("", LANE)
                for left, top, right, _ in map(bounds, outlines)
                if int(top) == device
            }
        )
        starts, ends = zip(*boxes, strict=True)
        assert starts == (0, *ends[:-1])
        assert ends[-1] == sum(span.end - span.start for span in row)


def test_gpipe_waits_9_of_33_on_every_device():
    above, chart = charts_in(str(draw(simulate(GPipe(4, 8)), pushed=True)))
    assert (chart.title, chart.caption) == (TITLE, "")
    assert (chart.unit, chart.row) == (above.unit, above.row), "on the scale of the chart above"
    assert [word.words for word in chart.words] == ["waiting: 9 of 33"]
    timelines = simulate(ZBH1(4, 8)), simulate(Naive(2))
    text = str(draw(*timelines, pushed=True))
    _, narrow, _, last = charts_in(text)
    assert [word.words for word in narrow.words] == ["3 of 27"], "there is no room for more"
    assert last.title == TITLE
    assert text.count("<title>") == str(draw(*timelines)).count("<title>"), "its boxes say nothing of when"
    assert [round(edge, 2) for edge in bounds(block(chart))] == [24, 0.07, 33, 3.93]


def test_where_devices_wait_unequally_it_says_the_share_of_all_time():
    """Device 0 works for 30 of 45, device 1 for 15; of 90 they wait for 15 + 30, in a block with a step."""
    timeline = simulate(GPipe(2, 1), Costs([10, 5], [20, 10], 0))
    _, chart = charts_in(str(draw(timeline, pushed=True)))
    assert [word.words for word in chart.words] == ["waiting: 50.0%"]
    assert [round(width(block(chart), y)) for y in (0.5, 1.5)] == [15, 30]
    assert chart.words[0].x == pytest.approx(37.5, abs=0.1), "where every device waits"


def test_the_words_stand_in_the_block_and_only_where_they_fit():
    for timeline in (simulate(Naive(4, 2)), simulate(GPipe(8, 2)), measured(GPipe(4, 4))):
        _, chart = charts_in(str(draw(timeline, pushed=True)))
        [word] = chart.words
        assert width(block(chart), word.y + 0.01) * chart.unit >= 0.5 * 12 * len(word.words)
        assert bounds(block(chart))[0] < word.x < timeline.makespan
    _, narrow = charts_in(str(draw(simulate(OneFOneB(2, 40)), pushed=True)))
    assert (narrow.words, len(narrow.frames)) == ([], 1)


def test_measured_spans_that_overlap_still_do_and_stay_on_the_page():
    """Their lengths were added up: the work reached 29, and more than nothing was waiting."""
    order = Explicit([["0F0", "0F1", "0B0", "0B1"], ["1F0", "1F1", "1B0", "1B1"]])
    times = [(0, 10), (1, 2), (12, 18), (13, 14)]
    spans = [
        Span(action, device, *time)
        for device, row in enumerate(order.actions)
        for action, time in zip(row, times, strict=True)
    ]
    _, below = charts_in(str(draw(from_spans(order, spans), pushed=True)))
    assert max(bounds(box)[2] for box in below.outlines(KINDS["B"].colour)) == pytest.approx(16, abs=0.01)
    assert width(block(below), 0.5) == pytest.approx(2, abs=0.01)
