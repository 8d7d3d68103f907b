"""Strips below the lanes: microbatches in flight, or bytes by category, read back from the drawing."""

from itertools import pairwise

import numpy as np
import pytest
from cases import every_order, over, overlapped
from drawn import Look, area, bounds, chart_in, chart_of, charts_in, image, words_in
from measured import metered

import gpipe_sim as gp
from gpipe_sim.core.memory import CATEGORIES, SAVED, MemoryTrace
from gpipe_sim.drawing.coarse import Grain
from gpipe_sim.drawing.memory_strips import (
    ALONE_HIGH,
    BELOW,
    BYTES_HIGH,
    COUNTS_HIGH,
    Strips,
    bytes_label,
    stacks,
    strip_marks,
    strips_of,
)
from gpipe_sim.drawing.palette import MEMORY, PALER
from gpipe_sim.export.spans import from_spans

COUNTED = "#c6b3ea"
MOST = 300_000  #: characters in a notebook


def trace(times, **held) -> MemoryTrace:
    return MemoryTrace(tuple(times), {each: tuple(held.get(each, [0] * len(times))) for each in CATEGORIES})


def one_device(trace: MemoryTrace, until: float):
    """A chart of one device that works until then and holds this."""
    timeline = gp.simulate(gp.GPipe(1, 1), gp.Costs(until / 2, until / 2, 0))
    return gp.plots.plot_timeline(timeline, memory=[trace])


def levels(chart, times, floor: float) -> dict[str, list[float]]:
    """Per category and time, how high its part of a stack is, in rows; the stack stands on the floor."""
    found, below = {}, dict.fromkeys(times, floor)
    held = [name for name in MEMORY if name in chart.legend]
    stack = [(look, outlines) for look, outlines in chart.areas if look.colour][-len(held) :]
    for (look, outlines), name in zip(stack, held, strict=True):
        assert look.colour == MEMORY[name].colour
        tops = [crossing(outlines[0], time) for time in times]
        for time, (top, bottom) in zip(times, tops, strict=True):
            assert bottom == pytest.approx(below[time])
            below[time] = top
        found[name] = [bottom - top for top, bottom in tops]
    return found


def crossing(corners, time: float) -> tuple[float, float]:
    """The upper and the lower edge of an outline at a time at which it has no corner."""
    ys = [y for (x, y), (next_x, _) in pairwise([*corners, corners[0]]) if (x < time) != (next_x < time)]
    return min(ys), max(ys)


# In flight


@over([*every_order([(2, 3), (4, 8)]), overlapped(3, 6)])
def test_a_strip_has_the_area_of_the_integral_of_what_is_in_flight(schedule):
    timeline = gp.simulate(schedule, gp.Costs(comm=1))
    chart = chart_of(str(gp.draw(timeline, in_flight=True)))
    strips = chart.outlines(COUNTED)
    most = max(gp.peak_in_flight(schedule))
    assert len(strips) == schedule.devices
    for device, strip in enumerate(strips):
        steps = [*gp.why.in_flight(timeline, device), (timeline.makespan, 0)]
        held = sum(count * (end - start) for (start, count), (end, _) in pairwise(steps))
        a_tenth_of_a_pixel = timeline.makespan * 0.1 / chart.row
        assert area(strip) == pytest.approx(held * COUNTS_HIGH / most, abs=a_tenth_of_a_pixel)
        lane = bounds(chart.lanes[device])
        assert bounds(strip)[3] == pytest.approx(lane[3] + 0.1 + COUNTS_HIGH, abs=0.01), "on its floor"


def test_the_strip_of_a_device_alone_on_its_page_is_large():
    first = gp.course.lesson_06.first_device(gp.simulate(gp.GPipe(4, 8)))
    chart = chart_of(str(gp.draw(first, in_flight=True)))
    [(_, top, _, floor)] = map(bounds, chart.outlines(COUNTED))
    assert floor - top == pytest.approx(ALONE_HIGH, abs=0.01) and chart.peaks == ["8"]


def test_a_peak_is_named_beside_the_middle_of_its_strip_and_of_a_large_one_at_its_height():
    whole = gp.simulate(gp.OneFOneB(4, 8))
    for timeline in (whole, gp.course.lesson_06.first_device(whole)):
        strips = strips_of([timeline])[0]
        shapes, peaks = strip_marks(timeline, Grain(), strips.rows, strips)
        sides = [bounds(outline) for outline in shapes[0].outlines]
        floors = [strips.rows.y(k, 1) + BELOW + strips.high for k in range(len(sides))]
        middles = [floor - strips.high / 2 for floor in floors]
        tops = [top for _, top, _, _ in sides]
        assert [name.y for name in peaks] == pytest.approx(tops if strips.alone else middles)
    first = gp.course.lesson_06.first_device(whole)
    assert not any(strips.alone for strips in strips_of([first, whole]))
    assert strips_of([whole])[0].widest == "4"
    assert strips_of([gp.simulate(gp.remat(gp.GPipe(4, 8), "always"))])[0].widest == "8 + 8"


def test_strips_of_several_timelines_have_one_scale_and_each_its_peak_beside_it():
    """1F1B's first device holds 4 where GPipe's holds 8: half as high."""
    timelines = [gp.simulate(gp.GPipe(4, 8)), gp.simulate(gp.OneFOneB(4, 8))]
    charts = charts_in(str(gp.draw(*timelines, in_flight=True)))
    tops = [[bounds(strip)[3] - bounds(strip)[1] for strip in chart.outlines(COUNTED)] for chart in charts]
    assert tops[0] == pytest.approx([COUNTS_HIGH] * 4, abs=0.01)
    assert tops[1] == pytest.approx([COUNTS_HIGH * peak / 8 for peak in (4, 3, 2, 1)], abs=0.01)
    assert [chart.peaks for chart in charts] == [["8"] * 4, ["4", "3", "2", "1"]]
    memory = metered(timelines[0])
    drawing, peaks = gp.draw(timelines[0], memory=memory), [bytes_label(held.peak()) for held in memory]
    assert chart_of(str(drawing)).peaks == peaks
    beside = [word for word in words_in(str(drawing)) if word.words in peaks]
    assert len(beside) == 4 and all(word.x + 6 * len(word.words) <= drawing.size[0] for word in beside)


def test_what_is_recomputed_is_pale_until_then_and_a_half_stage_counts_half():
    """The gain of recompute: of 8 microbatches a device keeps one whole, and of the others the input."""
    timelines = [gp.simulate(gp.remat(gp.GPipe(4, 8), "always")), gp.simulate(gp.Interleaved1F1B(4, 8))]
    again, halves = charts_in(str(gp.draw(*timelines, in_flight=True)))
    assert again.peaks == ["1 + 7"] * 4 and halves.peaks == ["5.5", "4.5", "3.5", "2.5"]
    starts = {span.action: span.start for span in timelines[0].spans}
    for device, pale in enumerate(again.outlines(PALER)):
        kept = sum(starts[gp.core.R(device, m)] - timelines[0].ends[gp.core.F(device, m)] for m in range(8))
        assert area(pale) == pytest.approx(kept * COUNTS_HIGH / 8, abs=41 * 0.1 / again.row)
    assert "only its input" in again.legend


def test_a_strip_says_what_it_shows_under_the_mouse():
    text = str(gp.draw(gp.simulate(gp.OneFOneB(2, 3)), in_flight=True))
    assert "<title>device 0: at most 2 in flight</title>" in text
    timeline = gp.simulate(gp.GPipe(1, 1))
    assert "<title>device 0: at most 10 kB</title>" in str(gp.draw(timeline, memory=metered(timeline)))


# Memory


def test_bytes_of_a_real_step_are_as_high_as_its_trace_says():
    """Between any two samples, for each category; and one on top of the other, in the palette's order."""
    batch = np.random.default_rng(0).normal(size=(8, 6)), np.arange(8) % 3
    partitions = gp.split(gp.mlp([6, 16, 16, 3]), stages=3)
    how = {"costs": gp.Costs(comm=1), "optimizer": gp.Adam()}
    step = gp.train_step(partitions, gp.ZBH1(3, 4), batch, gp.cross_entropy, **how)
    ax = gp.plots.plot_timeline(step.timeline, memory=step.memory)
    chart, most = chart_in(ax), max(held.peak() for held in step.memory)
    assert chart.peaks == [bytes_label(held.peak()) for held in step.memory]
    shown = [(look, outlines) for look, outlines in chart.areas if len(outlines) == 3]
    for device, held in enumerate(step.memory):
        one = chart._replace(areas=[(look, [outlines[device]]) for look, outlines in shown])
        times = [*dict.fromkeys(held.times), step.timeline.makespan]
        middles = [(a + b) / 2 for a, b in pairwise(times) if b > a]
        floor = bounds(chart.lanes[device])[3] + 0.1 + BYTES_HIGH
        for category, high in levels(one, middles, floor).items():
            assert high == pytest.approx([BYTES_HIGH * held.at(time)[category] / most for time in middles]), (
                category
            )


def test_memory_is_stacked_in_the_order_and_looks_of_the_palette():
    held = {name: [rank + 1, 0] for rank, name in enumerate(CATEGORIES)}
    chart = chart_in(one_device(trace((0, 10), **held), 10))
    patterns = [Look("", 1, look.pattern) for look in MEMORY.values() if look.pattern]
    stack = chart.areas[-len(MEMORY) - len(patterns) :]
    assert [look for look, _ in stack if look.colour] == [Look(look.colour) for look in MEMORY.values()]
    assert [look for look, _ in stack if not look.colour] == patterns
    floors = [bounds(outlines[0])[3] for look, outlines in stack if look.colour]
    assert floors == sorted(floors, reverse=True)
    for name, look in MEMORY.items():
        assert chart.legend[name] == Look(look.colour, 1, look.pattern)
    assert chart.peaks == ["36 B"]


def test_a_category_that_nobody_holds_is_in_no_legend():
    chart = chart_in(one_device(trace((0, 4), **{SAVED: (7, 0)}), 8))
    assert [name for name in chart.legend if name in CATEGORIES] == [SAVED]
    at_the_end = chart_in(one_device(trace((0, 8), **{SAVED: (7, 0), "gradients": (0, 9)}), 8))
    assert [name for name in at_the_end.legend if name in CATEGORIES] == [SAVED], "for no time at all"
    assert at_the_end.peaks == ["9 B"]


@pytest.mark.parametrize(
    ("held", "says"),
    [
        (999, "999 B"),
        (1000, "1 kB"),
        (9_999_999, "10,000 kB"),
        (10_000_000, "10 MB"),
        (2 * 10**9, "2,000 MB"),
        (10**10, "10 GB"),
        (2 * 10**13, "20 TB"),
    ],
)
def test_bytes_are_written_in_the_unit_for_them(held, says):
    assert chart_in(one_device(trace((0, 4), **{SAVED: (held, 0)}), 8)).peaks == [says]


def test_a_device_that_holds_nothing_of_a_category_has_no_path_for_it():
    timeline = gp.simulate(gp.GPipe(2, 1))
    some, nothing = trace((0, 4), **{SAVED: (5, 5)}), trace((0, 4))
    text = str(gp.draw(timeline, memory=[some, nothing]))
    assert chart_of(text).peaks == ["5 B", "0 B"]
    assert text.count("at most") == 1 and 'd=""' not in text


# Long traces


@pytest.fixture
def long():
    """4 devices with 20,000 samples each, the fullest of them at a random place."""
    rng = np.random.default_rng(0)
    timeline = gp.simulate(gp.OneFOneB(4, 8))
    times = np.sort(rng.uniform(0, 33, 20_000))
    times[0] = 0
    samples = rng.integers(0, 1000, (4, len(CATEGORIES), len(times)))
    for each in samples:
        each[0, rng.integers(len(times))] = 10_000
    traces = [trace(times, **dict(zip(CATEGORIES, each.tolist(), strict=True))) for each in samples]
    return timeline, traces


def test_a_thinned_trace_keeps_its_peak(long):
    timeline, traces = long
    drawing = gp.draw(timeline, memory=traces)
    chart = chart_of(str(drawing))
    peaks = [held.peak() for held in traces]
    assert chart.peaks == [bytes_label(peak) for peak in peaks]
    assert len(drawing._repr_html_()) < MOST
    names = {look.colour for look in MEMORY.values()}
    top = [
        min(bounds(outlines[device])[1] for look, outlines in chart.areas if look.colour in names)
        for device in range(4)
    ]
    for device, lane in enumerate(map(bounds, chart.lanes)):
        high = lane[3] + 0.1 + BYTES_HIGH - top[device]
        assert high == pytest.approx(BYTES_HIGH * peaks[device] / max(peaks), abs=0.01)
        assert 20 < len(chart.areas[-2][1][device]) < 2000, "corners, of 20,000 samples"


def test_a_thinned_trace_is_at_least_as_full_as_it_was(long):
    """In every column, it is a moment of that column."""
    timeline, traces = long
    [total] = [
        [crossing(outlines[0], time)[0] for time in np.arange(0.05, 33, 0.1)]
        for look, outlines in chart_in(gp.plots.plot_timeline(timeline, memory=traces)).areas[-2:-1]
    ]
    most, floor = max(held.peak() for held in traces), 0.93 + 0.1 + BYTES_HIGH
    held = [sum(traces[0].at(float(time)).values()) for time in np.arange(0.05, 33, 0.1)]
    shown = [(floor - top) * most / BYTES_HIGH for top in total]
    assert all(a >= b - 1e-6 for a, b in zip(shown, held, strict=True))


def test_of_several_samples_at_time_0_a_thinned_trace_keeps_the_fullest():
    """A step of costs 0 has all of its samples there."""
    timeline = gp.simulate(gp.GPipe(1, 1), gp.Costs(0, 0, 0))
    times = [0] * 5000
    held = [1] * 100 + [77] + [0] * 4899
    chart = chart_in(gp.plots.plot_timeline(timeline, memory=[trace(times, **{SAVED: held})]))
    assert chart.peaks == ["77 B"]


def test_strips_of_a_page_without_boxes_say_the_most_of_each_row():
    schedule = gp.OneFOneB(16, 128)
    timeline = gp.simulate(schedule)
    memory = metered(timeline)
    for options, of_devices in (
        ({"memory": memory}, [held.peak() for held in memory]),
        ({"in_flight": True}, gp.peak_in_flight(schedule)),
    ):
        drawing = gp.draw(timeline, **options)
        chart = chart_of(image(drawing))
        assert chart.peaks == [bytes_label(held) if "memory" in options else str(held) for held in of_devices]
        assert len(drawing._repr_html_()) < MOST


def test_measured_actions_count_when_they_end_whatever_their_order():
    """A strip ran back in time: microbatch 1 ends before 0. A column shows its fullest moment."""
    order = gp.Explicit([["0F0", "0F1", "0B0", "0B1"]])
    times = [(0, 10), (1, 2), (3, 20), (4, 5)]
    spans = [gp.core.Span(action, 0, *time) for action, time in zip(order.actions[0], times, strict=True)]
    timeline = from_spans(order, spans)
    [stack] = stacks(timeline, Grain(), Strips(1))
    assert list(zip(stack.times, stack.held[0], strict=True))[:4] == [(0, 0), (2, 1), (5, 0), (10, 1)]
    [stack] = stacks(timeline, Grain(1), Strips(1))
    assert stack.held[0].tolist()[:12] == [0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1]
