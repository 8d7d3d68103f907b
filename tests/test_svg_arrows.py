"""``draw(messages=True)``: an arrow for each message, and nothing of the kind otherwise."""

import re
from fractions import Fraction
from math import dist
from xml.etree import ElementTree

import pytest
from cases import over_every_order
from drawn import SVG, chart_of

import gpipe_sim as gp
from gpipe_sim.drawing import paint


def arrows(timeline):
    """(what it says, line, point) of every drawn arrow."""
    root = ElementTree.fromstring(str(gp.draw(timeline, messages=True)))
    groups = [g for g in root.iter(f"{SVG}g") if len(g) and (g[0].text or "").count(" from device ")]
    return [(g[0].text, g[1].get("d"), g[2].get("d")) for g in groups]


@pytest.mark.parametrize("comm", [0, 1])
@over_every_order([(3, 3)])
def test_every_message_has_its_arrow(schedule, comm):
    timeline = gp.simulate(schedule, gp.Costs(comm=comm))
    said = [
        f"{m.action} from device {m.source} to {m.target}, {m.start}\N{EN DASH}{m.end}"
        for m in timeline.messages
    ]
    assert [text for text, _, _ in arrows(timeline)] == said


@over_every_order([(3, 3), (4, 8)])
def test_an_arrow_leaves_when_the_action_ends_and_points_at_its_arrival(schedule):
    """And it joins the sides of the two lanes that face each other: down from 0.79 of the row, into 0.21."""
    timeline = gp.simulate(schedule, gp.Costs(comm=1))
    chart = chart_of(str(gp.draw(timeline, messages=True)))
    assert len(chart.arrows) == len(timeline.messages)
    for (x, y, to_x, to_y), message in zip((a + b for a, b in chart.arrows), timeline.messages, strict=True):
        assert (x, to_x) == pytest.approx((message.start, message.end), abs=0.3 / chart.unit)
        leaves, enters = (0.75, 0.25) if message.target > message.source else (0.25, 0.75)
        assert (y, to_y) == pytest.approx((message.source + leaves, message.target + enters), abs=0.02)


def test_messages_that_wait_for_a_link_do_so_on_one_line_from_their_actions_to_where_they_leave():
    """GPipe, each message on its link for 2: F0 leaves at 1, F1 at 3, F2 at 5; the last F ends at 5."""
    timeline = gp.simulate(gp.GPipe(2, 5), links=gp.Link(bandwidth=Fraction(1, 2)), message_bytes=1)
    chart = chart_of(str(gp.draw(timeline, messages=True)))
    assert [(round(x), round(to_x), y == to_y) for (x, y), (to_x, to_y) in chart.queues] == [(2, 9, True)]
    forward = [shaft for shaft, (_, tip) in chart.arrows if tip > 1]
    assert [round(x) for x, _ in forward] == [1, 3, 5, 7, 9]
    assert {round(y, 2) for _, y in forward[1:]} == {round(y, 2) for (_, y), _ in chart.queues}
    said = [text for text, _, _ in arrows(timeline)]
    assert "0F4 from device 0 to 1, 9\N{EN DASH}11; it waits for its link from 5 on" in said
    assert "0F0 from device 0 to 1, 1\N{EN DASH}3" in said


def test_on_the_critical_path_are_the_messages_that_kept_a_link_busy_for_others():
    """0F1 to 0F3 are not on it, but what they sent is: 1F4 waits for all of that."""
    timeline = gp.simulate(gp.GPipe(2, 5), links=gp.Link(bandwidth=Fraction(1, 2)), message_bytes=1)
    chart = chart_of(str(gp.draw(timeline, messages=True, critical_path=True)))
    assert len([tip for _, (_, tip) in chart.arrows if tip > 1]) == 5
    assert len(chart.frames) == len(
        [s for s in gp.why.critical_path(timeline) if isinstance(s, gp.core.Span)]
    )


def test_the_head_sits_on_the_end_of_its_line_and_is_as_wide_as_long():
    for _, line, head in arrows(gp.simulate(gp.OneFOneB(4, 4), gp.Costs(comm=1))):
        x, y, neck_x, neck_y = (float(number) for number in re.findall(r"[\d.]+", line))
        tip_x, tip_y, *sides = (float(number) for number in re.findall(r"[\d.]+", head))
        left, right = sides[:2], sides[2:]
        assert [(a + b) / 2 for a, b in zip(left, right, strict=True)] == pytest.approx(
            [neck_x, neck_y], abs=0.11
        )
        assert dist((neck_x, neck_y), (tip_x, tip_y)) == pytest.approx(paint.HEAD, abs=0.2)
        assert dist(left, right) == pytest.approx(paint.HEAD, abs=0.2)
        through_neck = dist((x, y), (neck_x, neck_y)) + dist((neck_x, neck_y), (tip_x, tip_y))
        assert through_neck == pytest.approx(dist((x, y), (tip_x, tip_y)), abs=0.2)


def test_one_device_has_no_messages_and_no_arrow_in_its_legend():
    """It had an empty path, and an entry for what was not there."""
    drawing = str(gp.draw(gp.simulate(gp.GPipe(1, 4)), messages=True))
    assert "message" not in drawing and 'd=""' not in drawing


def test_the_arrows_of_a_large_page_are_left_out():
    """There are 2 (K - 1) M of them: 800 of 9 devices and 50 microbatches, 804 of 4 and 134."""
    few, many = (gp.draw(gp.simulate(gp.OneFOneB(*size)), messages=True) for size in ((9, 50), (4, 134)))
    assert len(chart_of(str(few)).arrows) == 800
    assert chart_of(str(many)).arrows == []
    assert "too fine to draw: any message" in chart_of(str(many)).legend
