"""Charts of more actions than a page has room for."""

import re
from collections import Counter, defaultdict
from fractions import Fraction
from itertools import groupby, pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from cases import over, over_every_schedule, overlapped, zero_bubble
from drawn import texts
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from measured import measured

from gpipe_sim import (
    ZBH1,
    ZBV,
    Costs,
    DualPipe,
    Explicit,
    GPipe,
    Interleaved1F1B,
    OneFOneB,
    Span,
    Timeline,
    bubble_fraction,
    busy_time,
    draw,
    in_flight,
    overlay,
    peak_in_flight,
    remat,
    simulate,
    to_svg,
)
from gpipe_sim.drawing.coarse import Grain, grain_of, in_flight_steps, shares
from gpipe_sim.drawing.geometry import LANE_HIGH
from gpipe_sim.drawing.page import Place, row_height
from gpipe_sim.drawing.palette import KINDS as COLOURS
from gpipe_sim.drawing.plots import plot_in_flight, plot_timeline
from gpipe_sim.drawing.svg import at_unit_costs, chart
from gpipe_sim.schedule.program import KINDS

GRAINS = [Grain(1, 1), Grain(2.5, 2), Grain(7, 3), Grain(10**6, 100)]
LARGE = [OneFOneB(32, 512), GPipe(16, 4096), ZBV(32, 128), DualPipe(8, 200), Interleaved1F1B(64, 256)]
MOST = 300_000  #: characters of a drawing
EVERYTHING = {"in_flight": True, "messages": True, "critical_path": True}
OUTLINE = re.compile(r"M(\S+) ([^hv]+)((?:[hv][-\d.]+)+)z")


# The shares


@pytest.mark.parametrize("grain", GRAINS, ids=str)
@over_every_schedule([(1, 1), (2, 3), (4, 8)])
def test_shares_are_the_time_that_spans_take_of_each_cell(schedule, grain):
    """The same, span by span and column by column."""
    timeline = simulate(schedule, Costs(forward=1, input_grad=Fraction(3, 2), weight_grad=1, comm=1))
    edges = grain.edges(timeline).tolist()
    expected = np.zeros((len(KINDS), grain.rows(timeline), len(edges) - 1))
    for span in timeline.spans:
        for column, (a, b) in enumerate(pairwise(edges)):
            inside = max(0, min(b, span.end) - max(a, span.start))
            row = span.device // grain.devices
            devices = min(grain.devices, schedule.devices - row * grain.devices)
            for part in span.action.parts:
                cell = KINDS.index(part.kind), row, column
                expected[cell] += inside / len(span.action.parts) / (b - a) / devices
    assert shares(timeline, grain) == pytest.approx(expected, abs=1e-12)


@over([*LARGE, remat(ZBH1(8, 100), "always"), measured(ZBV(4, 100)).schedule])
def test_the_shares_sum_to_the_busy_time_and_what_they_leave_is_the_bubble(schedule):
    timeline = simulate(schedule, Costs(forward=3, input_grad=4, weight_grad=2, comm=1))
    grain = grain_of(timeline)
    sizes = np.diff(grain.edges(timeline)) * np.full(grain.rows(timeline), grain.devices)[:, None]
    sizes[-1] *= ((schedule.devices - 1) % grain.devices + 1) / grain.devices
    assert grain.column > 0
    assert (shares(timeline, grain) * sizes).sum() == pytest.approx(float(busy_time(timeline)))
    assert 1 - (shares(timeline, grain) * sizes).sum() / sizes.sum() == pytest.approx(
        bubble_fraction(timeline)
    )


def test_measured_times_fill_no_cell_beyond_its_edge():
    assert shares(measured(OneFOneB(4, 100)), Grain(120)).sum(axis=0).max() <= 1 + 1e-12
    both = [Span(action, 0, 0.0, 1.0) for action in Explicit(["0F0 0B0"]).actions[0]]
    at_once = shares(Timeline.from_spans(Explicit(["0F0 0B0"]), both), Grain(0.5))
    assert at_once.sum(axis=0).tolist() == [[1, 1]]
    assert sorted(at_once[:, 0, 0])[-2:] == [0.5, 0.5]


def test_a_steady_state_does_not_flicker():
    """Columns hold whole microbatches: of 1F1B's 15 units, 5 are forward and 10 backward, in every one."""
    timeline = simulate(OneFOneB(32, 512))
    assert grain_of(timeline) == Grain(15, 1)
    steady = shares(timeline, grain_of(timeline))[:, 8, 20:100]
    assert [tuple(each) for each in {*map(tuple, steady.T.round(9).tolist())}] == [
        tuple(round({"F": 1 / 3, "B": 2 / 3}.get(kind, 0.0), 9) for kind in KINDS)
    ]


def test_few_large_microbatches_do_not_make_few_columns():
    """A device of this one works for 120 units on each of its 16 microbatches."""
    timeline = simulate(Interleaved1F1B(8, 16, stages_per_device=40))
    assert 250 < len(grain_of(timeline).edges(timeline)) <= 373


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
    assert ("each column sums" in to_svg(timeline)) == coarse
    assert to_svg(timeline).count("<title>") == (0 if coarse else len(schedule.program.kind))
    assert ("each column sums" in plot_timeline(timeline).get_xlabel()) == coarse


def test_timelines_of_one_page_are_counted_together():
    each = simulate(OneFOneB(10, 100))
    assert not grain_of(each).column
    assert grain_of(each, each).column
    assert str(draw(each, each)).count("each column sums") == 1


# What is drawn


@over([*LARGE, GPipe(1000, 20)])
def test_a_large_chart_is_small(schedule):
    timeline = simulate(schedule)
    for options in ({}, EVERYTHING):
        text = str(draw(timeline, **options))
        assert len(text) < MOST
        assert text.count("<path") < 200
    assert text.count("<title>") == text.count("at most")  # of the strips


@over([OneFOneB(32, 512), remat(ZBH1(16, 300), "always"), Interleaved1F1B(64, 64)])
def test_a_large_measured_chart_and_its_overlay_are_small_too(schedule):
    real = measured(schedule)
    assert len(str(draw(real, **EVERYTHING))) < MOST
    assert len(overlay(simulate(real.schedule, Costs(20, 20, 20)), real).drawing.text) < MOST


@over([*LARGE, remat(zero_bubble(3, 150), "always"), overlapped(4, 400)])
def test_the_painted_area_of_each_colour_is_its_share_of_the_busy_time(schedule):
    """Read back from the drawing, where edges are rounded to tenths of a pixel."""
    timeline = simulate(schedule)
    painted = painted_by_colour(to_svg(timeline).splitlines())
    row = row_height(schedule.devices) * (1.4 if schedule.program.paired else 1) * LANE_HIGH
    whole = 744 * row * schedule.devices
    for colour, time in busy_by_colour(timeline).items():
        share = time / (schedule.devices * float(timeline.makespan))
        assert painted[colour] / whole == pytest.approx(share, abs=0.1 / row)


@over([OneFOneB(32, 512), remat(ZBH1(16, 300), "always"), DualPipe(8, 200)])
def test_matplotlib_paints_the_same_areas(schedule):
    timeline = simulate(schedule)
    painted = Counter()
    lanes, *collections = plot_timeline(timeline).collections
    assert len(lanes.get_paths()) == timeline.schedule.devices
    for collection in collections:
        assert isinstance(collection, PolyCollection)  # no lines between phases
        colour = to_hex(collection.get_facecolor()[0]).upper()
        painted[colour] += sum(shoelace(path.vertices) for path in collection.get_paths())
    assert painted == pytest.approx({c: LANE_HIGH * t for c, t in busy_by_colour(timeline).items()})


def test_areas_stand_on_the_floor_of_their_row_and_stay_in_it():
    timeline = simulate(ZBH1(16, 300))
    for collection in plot_timeline(timeline).collections:
        for path in collection.get_paths():
            device = int(path.vertices[0, 1])
            assert path.vertices[:, 1].min() >= device + (1 - LANE_HIGH) / 2 - 1e-9
            assert path.vertices[:, 1].max() <= device + (1 + LANE_HIGH) / 2 + 1e-9
            assert path.vertices[:, 0].min() >= 0 and path.vertices[:, 0].max() <= timeline.makespan


def test_the_last_column_may_be_too_narrow_to_see():
    """Two of its corners became one, that one was taken for none, and the rest of the path was askew."""
    timeline = simulate(OneFOneB(4, 100))
    grain = Grain((timeline.makespan - 0.001) / 50)
    assert len(grain.edges(timeline)) == 52
    painted = painted_by_colour(chart(timeline, Place(26, 744 / timeline.makespan, 24), grain))
    whole = 744 * 24 * LANE_HIGH * 4
    for colour, time in busy_by_colour(timeline).items():
        assert painted[colour] / whole == pytest.approx(time / (4 * timeline.makespan), abs=0.005)


def test_the_legend_says_what_a_column_is_and_what_is_too_fine():
    words = said(draw(simulate(OneFOneB(32, 512)), **EVERYTHING))
    assert words[-6:] == [
        "F  forward",
        "B  backward",
        "waiting",
        "each column sums 15 time units: as high as the device is busy",
        "microbatches in flight, the most in each column",
        "too fine to draw: any message or critical path",
    ]
    assert "paler: a later stage" not in said(draw(simulate(Interleaved1F1B(64, 64))))


def test_more_messages_than_can_be_seen_are_not_drawn_among_boxes_either():
    drawing = draw(simulate(OneFOneB(8, 100)), messages=True)
    assert said(drawing)[-1] == "too fine to draw: any message"
    assert str(drawing).count("<title>") == 1600


def test_a_row_of_several_devices_has_the_name_of_the_first():
    timeline = simulate(GPipe(1000, 20))
    assert grain_of(timeline).devices == 8
    words = said(draw(timeline))
    assert [word for word in words if word.startswith("device")] == [
        f"device {k}" for k in range(0, 1000, 32)
    ]
    assert words[-1] == "each column sums 96 time units of 8 devices: as high as they are busy"
    assert plot_timeline(timeline).get_ylim() == (125, 0)


@pytest.mark.parametrize("grain", GRAINS[:3], ids=str)
@over([OneFOneB(4, 8), GPipe(3, 5), DualPipe(4, 8), overlapped(3, 6)])
def test_strips_show_the_most_in_each_column(schedule, grain):
    timeline = simulate(schedule, Costs(comm=1))
    edges = grain.edges(timeline).tolist()
    for row, found in enumerate(in_flight_steps(timeline, grain)):
        devices = range(schedule.devices)[row * grain.devices : (row + 1) * grain.devices]
        most = [max(held(timeline, device, a, b) for device in devices) for a, b in pairwise(edges)]
        by_count = groupby(zip(edges[:-1], most, strict=True), key=lambda step: step[1])
        assert found == [next(steps) for _, steps in by_count]


def test_the_peaks_of_a_large_chart_are_those_of_the_schedule():
    schedule = OneFOneB(32, 512)
    timeline, peaks = simulate(schedule), list(map(str, peak_in_flight(schedule)))
    assert [word for word in said(draw(timeline, in_flight=True)) if word.isdigit()][:32] == peaks
    assert [text.get_text() for text in plot_in_flight(timeline).texts] == peaks


def test_peaks_of_low_rows_do_not_overlap():
    words = said(draw(simulate(GPipe(40, 5)), in_flight=True))
    assert words.count("5") == 10


# What is shown unasked


def test_a_schedule_that_takes_long_to_time_is_described():
    schedule = GPipe(2, 10**6)
    shown = str(at_unit_costs(schedule))
    assert "program" not in vars(schedule)  # it has not even been laid out
    assert [t.text for t in texts(ElementTree.fromstring(shown))] == [
        "GPipe(devices=2, microbatches=1000000)",
        "2 stages x 1,000,000 microbatches take a while to time.",
        "gp.draw(gp.simulate(schedule)) does it, and draws them.",
    ]
    assert "each column sums" in str(at_unit_costs(OneFOneB(32, 512)))


# Reading


def busy_by_colour(timeline) -> dict[str, float]:
    busy = defaultdict(float)
    for span in timeline.spans:
        for part in span.action.parts:
            busy[COLOURS[part.kind].colour] += float(span.end - span.start) / len(span.action.parts)
    return busy


def held(timeline, device, a, b) -> int:
    """The most in flight at any time from a to b, b not included."""
    steps = in_flight(timeline, device)
    before = [count for time, count in steps if time < a]
    return max([before[-1] if before else 0, *(count for time, count in steps if a <= time < b)])


def said(drawing) -> list[str]:
    return [t.text for t in texts(ElementTree.fromstring(str(drawing)))]


def painted_by_colour(parts) -> dict[str, float]:
    """Square pixels of each fill."""
    painted = Counter()
    for part in parts:
        if found := re.fullmatch(r'<path d="([^"]*)" fill="(#\w+)"/>', part):
            painted[found[2]] += sum(map(area, OUTLINE.findall(found[1])))
    return painted


def moves(outline):
    return [(step[0], float(step[1:])) for step in re.findall(r"[hv][-\d.]+", outline[2])]


def area(outline) -> float:
    x, y = float(outline[0]), float(outline[1])
    corners = [(x, y)]
    for way, by in moves(outline):
        x, y = (x + by, y) if way == "h" else (x, y + by)
        corners.append((x, y))
    return shoelace(np.array(corners))


def shoelace(corners) -> float:
    (x, y), (u, v) = np.asarray(corners).T, np.roll(corners, -1, axis=0).T
    return abs((x * v - u * y).sum()) / 2
