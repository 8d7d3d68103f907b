"""``draw(messages=True)``: an arrow for each message, and nothing of the kind otherwise."""

import re
from math import dist
from xml.etree import ElementTree

import pytest
from cases import over_every_schedule

import gpipe_sim as gp
from gpipe_sim.drawing import page

SVG = "{http://www.w3.org/2000/svg}"


def arrows(timeline):
    """(what it says, line, point) of every drawn arrow."""
    root = ElementTree.fromstring(str(gp.draw(timeline, messages=True)))
    groups = [g for g in root.iter(f"{SVG}g") if (g[0].text or "").count(" from device ")]
    return [(g[0].text, g[1].get("d"), g[2].get("d")) for g in groups]


@pytest.mark.parametrize("comm", [0, 1])
@over_every_schedule([(3, 3), (4, 8)])
def test_every_message_has_its_arrow(schedule, comm):
    timeline = gp.simulate(schedule, gp.Costs(comm=comm))
    said = [f"{m.action} from device {m.source} to {m.target}, {m.start}–{m.end}" for m in timeline.messages]
    assert [text for text, _, _ in arrows(timeline)] == said


def test_an_arrow_leaves_when_the_action_ends_and_points_at_its_arrival():
    timeline = gp.simulate(gp.Naive(devices=2), gp.Costs(comm=1))
    (_, line, point), (_, back_line, back_point) = arrows(timeline)
    unit, left = page.UNIT, page.LEFT
    starts = [float(re.match(r"M(\S+)", path)[1]) for path in (line, back_line)]
    tips = [float(re.match(r"M(\S+)", path)[1]) for path in (point, back_point)]
    assert starts == [left + 1 * unit, left + 5 * unit]
    assert tips == [left + 2 * unit, left + 6 * unit]


@pytest.mark.parametrize("schedule", [gp.Naive(2), gp.OneFOneB(4, 4), gp.Interleaved1F1B(4, 4)], ids=repr)
def test_an_arrow_joins_the_halves_of_two_rows_that_face_each_other(schedule):
    """Down from the lower half of row 0 to the upper half of row 1, or up, the other way round."""
    timeline = gp.simulate(schedule, gp.Costs(comm=1))
    row = page.row_height(schedule.devices)
    drawn = {
        (m.source, m.target): [(float(re.match(r"M\S+ (\S+?)[CLh]", d)[1]) - 26) / row for d in paths]
        for m, (_, *paths) in zip(timeline.messages, arrows(timeline), strict=True)
    }
    assert {source < target for source, target in drawn} == {True, False}
    for (source, target), (start, end) in drawn.items():
        leaves, comes = (0.75, 0.25) if target > source else (0.25, 0.75)
        assert (start - source, end - target) == pytest.approx((leaves, comes), abs=0.01)


def test_the_head_sits_on_the_end_of_its_line_and_is_as_wide_as_long():
    for _, line, head in arrows(gp.simulate(gp.OneFOneB(4, 4), gp.Costs(comm=1))):
        x, y, neck_x, neck_y = (float(number) for number in re.findall(r"[\d.]+", line))
        tip_x, tip_y, *sides = (float(number) for number in re.findall(r"[\d.]+", head))
        left, right = sides[:2], sides[2:]
        assert [(a + b) / 2 for a, b in zip(left, right, strict=True)] == pytest.approx(
            [neck_x, neck_y], abs=0.11
        )
        assert dist((neck_x, neck_y), (tip_x, tip_y)) == pytest.approx(page.HEAD, abs=0.2)
        assert dist(left, right) == pytest.approx(page.HEAD, abs=0.2)
        through_neck = dist((x, y), (neck_x, neck_y)) + dist((neck_x, neck_y), (tip_x, tip_y))
        assert through_neck == pytest.approx(dist((x, y), (tip_x, tip_y)), abs=0.2)


def test_without_being_asked_there_are_no_arrows():
    timeline = gp.simulate(gp.GPipe(devices=3, microbatches=3))
    assert "message" not in str(gp.draw(timeline))
    assert "message" in str(gp.draw(timeline, messages=True))
