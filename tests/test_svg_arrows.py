"""``draw(messages=True)``: an arrow for each message, and nothing of the kind otherwise."""

import re
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


def test_without_being_asked_there_are_no_arrows():
    timeline = gp.simulate(gp.GPipe(devices=3, microbatches=3))
    assert "message" not in str(gp.draw(timeline))
    assert "message" in str(gp.draw(timeline, messages=True))
