"""``draw(messages=True)``: an arrow for each message, and nothing of the kind otherwise."""

import re
from math import dist
from xml.etree import ElementTree

import pytest
from cases import over_every_schedule
from drawn import SVG, chart_of

import gpipe_sim as gp
from gpipe_sim.drawing import paint


def arrows(timeline):
    """(what it says, line, point) of every drawn arrow."""
    root = ElementTree.fromstring(str(gp.draw(timeline, messages=True)))
    groups = [g for g in root.iter(f"{SVG}g") if len(g) and (g[0].text or "").count(" from device ")]
    return [(g[0].text, g[1].get("d"), g[2].get("d")) for g in groups]


@pytest.mark.parametrize("comm", [0, 1])
@over_every_schedule([(3, 3), (4, 8)])
def test_every_message_has_its_arrow(schedule, comm):
    timeline = gp.simulate(schedule, gp.Costs(comm=comm))
    said = [
        f"{m.action} from device {m.source} to {m.target}, {m.start}\N{EN DASH}{m.end}"
        for m in timeline.messages
    ]
    assert [text for text, _, _ in arrows(timeline)] == said


@over_every_schedule([(3, 3), (4, 8)])
def test_an_arrow_leaves_when_the_action_ends_and_points_at_its_arrival(schedule):
    """And it joins the sides of the two lanes that face each other: down from 0.79 of the row, into 0.21."""
    timeline = gp.simulate(schedule, gp.Costs(comm=1))
    chart = chart_of(str(gp.draw(timeline, messages=True)))
    assert len(chart.arrows) == len(timeline.messages)
    for (x, y, to_x, to_y), message in zip((a + b for a, b in chart.arrows), timeline.messages, strict=True):
        assert (x, to_x) == pytest.approx((message.start, message.end), abs=0.3 / chart.unit)
        leaves, enters = (0.75, 0.25) if message.target > message.source else (0.25, 0.75)
        assert (y, to_y) == pytest.approx((message.source + leaves, message.target + enters), abs=0.02)


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


def test_without_being_asked_there_are_no_arrows():
    timeline = gp.simulate(gp.GPipe(devices=3, microbatches=3))
    assert "message" not in str(gp.draw(timeline))
    assert chart_of(str(gp.draw(timeline, messages=True))).legend["message"] == "arrow"


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
