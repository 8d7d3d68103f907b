"""Strips for collectives: below the lanes of those who take part, from start to end, in every painter."""

import pytest
from drawn import Look, bounds, chart_in, chart_of, image
from drawn import words_in as words

import gpipe_sim as gp
from gpipe_sim import Link, all_reduce, replicate
from gpipe_sim.drawing import to_svg
from gpipe_sim.drawing.geometry import Rows, long_waits
from gpipe_sim.drawing.marks import Lines, Scale, Style
from gpipe_sim.drawing.options import read_options
from gpipe_sim.drawing.palette import COLLECTIVE
from gpipe_sim.drawing.panel import COLLECTIVE_HIGH, GAP, panel

SLOW = Link(1, 1)
PLAIN = gp.simulate(replicate(gp.OneFOneB(2, 3), 2))
SUMMED = all_reduce(PLAIN, 4, links=SLOW, buckets=2)
CHIMERA = all_reduce(gp.simulate(gp.families.Chimera(4, 8)), 4, links=SLOW, clip=True)
ROUND = gp.replicas.data_parallel_round(
    4, gp.Costs(4, 4, 4), weights=200, inputs=100, outputs=50, links=Link(0, 100)
)
PAINTERS = pytest.mark.parametrize(
    "painted",
    [
        lambda t, **how: chart_of(str(gp.draw(t, **how))),
        lambda t, **how: chart_in(gp.plots.plot_timeline(t, **how)),
    ],
    ids=["svg", "matplotlib"],
)


def expected(timeline: gp.core.Timeline, pitch: float) -> list[tuple[float, ...]]:
    """Where the strips should be: (left, top, right, bottom)."""
    top, high = Rows().y(0, 1) + GAP, COLLECTIVE_HIGH - GAP
    return sorted(
        (float(each.start), device * pitch + top, float(each.end), device * pitch + top + high)
        for each in timeline.collectives
        for device in each.devices
    )


@PAINTERS
@pytest.mark.parametrize("timeline", [SUMMED, CHIMERA, ROUND], ids=repr)
@pytest.mark.parametrize(
    ("options", "pitch"), [({"messages": True}, 1), ({"in_flight": True}, 1.9)], ids=repr
)
def test_each_strip_is_below_its_lane_for_as_long_as_the_collective(timeline, options, pitch, painted):
    chart = painted(timeline, **options)
    strips = sorted(map(bounds, chart.outlines(COLLECTIVE.colour)))
    assert len(strips) == sum(len(each.devices) for each in timeline.collectives)
    for found, wanted in zip(strips, expected(timeline, pitch + COLLECTIVE_HIGH), strict=True):
        assert found == pytest.approx(wanted, abs=0.02)
    assert len(chart.lanes) == timeline.schedule.devices
    assert all(bounds(lane)[2] == pytest.approx(float(timeline.makespan), abs=0.02) for lane in chart.lanes)


@PAINTERS
def test_the_legend_names_the_kinds_that_are_there(painted):
    assert painted(SUMMED).legend["all-reduce"].colour == COLLECTIVE.colour.lower()
    assert {"all-reduce": "", "norm": "lines"}.items() <= {
        words: look.pattern for words, look in painted(CHIMERA).legend.items() if isinstance(look, Look)
    }.items()
    assert {"gather", "reduce", "replicate", "scatter"} <= set(", ".join(painted(ROUND).legend).split(", "))
    assert not {"all-reduce"} & painted(PLAIN).legend.keys()
    assert str(gp.draw(SUMMED, CHIMERA, PLAIN)).count(">all-reduce</text>") == 1, "on a page of three"


def test_a_strip_says_what_it_is_where_there_is_room_and_under_the_mouse():
    said = [word.words for word in words(str(gp.draw(CHIMERA)))]
    assert said.count("stage 1") == 2 and said.count("norm") == 4 + 1
    assert "<title>all-reduce of stage 0 on devices 0 3, 30\u201336</title>" in str(gp.draw(CHIMERA))
    assert "<title>scatter from device 0 to 2, 1\u20132</title>" in str(gp.draw(ROUND))


def test_those_who_sum_together_are_joined():
    """Stage 3 of Chimera is on devices 0 and 3, from the moment at which both have its gradients."""
    grain, [wanted] = read_options("draw", [CHIMERA], False, None, False, False, None, None)
    marks = panel(CHIMERA, grain, Scale(10, 24, 12), wanted).marks
    [joins] = (mark.paths for mark in marks if isinstance(mark, Lines) and mark.style is Style.JOINED)
    pitch, top = 1 + COLLECTIVE_HIGH, Rows().y(0, 1) + GAP
    assert [(23, top), (23, 3 * pitch + top)] in [[(x, pytest.approx(y)) for x, y in path] for path in joins]
    assert len(joins) == sum(len(each.devices) - 1 for each in CHIMERA.collectives)


def test_the_title_counts_what_is_not_hidden_as_waiting():
    assert "2 x 1F1B: 12 long, 25.0% waiting" in to_svg(PLAIN)
    assert "2 x 1F1B: 19 long, 52.6% waiting" in to_svg(SUMMED)


def test_text_marks_the_cells_in_which_a_device_only_takes_part():
    plain = all_reduce(PLAIN, 2, links=SLOW)
    assert str(plain).splitlines() == [
        "time      0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15",
        "device 0 F0 F1  ·  · B0 -- F2 B1 --  · B2 -- == == == ==",
        "device 1  · F0 B0 -- F1 B1 -- F2 B2 -- == == == ==  ·  ·",
        "device 2 F3 F4  ·  · B3 -- F5 B4 --  · B5 -- == == == ==",
        "device 3  · F3 B3 -- F4 B4 -- F5 B5 -- == == == ==  ·  ·",
        "==: all-reduce, where the device computes nothing",
    ]


def test_a_list_of_times_ends_with_the_collectives():
    measured = gp.simulate(replicate(gp.GPipe(1, 1), 2), gp.Costs(0.123456, 0.71, 0.3333))
    text = str(all_reduce(measured, 4, links=SLOW))
    assert text.splitlines()[-1] == "all-reduce of stage 0 on devices 0 1, 1.167\u20137.167"


def test_a_chart_of_many_actions_still_shows_them_and_stays_small():
    timeline = all_reduce(gp.simulate(replicate(gp.OneFOneB(32, 64), 8)), 100, links=SLOW, buckets=4)
    shown = gp.draw(timeline)
    chart = chart_of(str(shown))
    assert len(chart.outlines(COLLECTIVE.colour)) == 4 * 256
    assert len(image(shown)) < 300_000


def test_a_device_in_a_sum_is_not_called_done():
    alone = gp.simulate(gp.replicate(gp.GPipe(1, 2), 2))
    summed = gp.all_reduce(alone, 8, links=gp.Link(1, 1))
    assert {label.words for label in long_waits(summed, Rows())} == {"computes nothing"}
