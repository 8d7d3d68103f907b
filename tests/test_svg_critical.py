"""``draw(critical_path=True)``: the boxes of the critical path are framed, read back from the drawing."""

import re
from xml.etree import ElementTree

from cases import over_every_schedule, overlapped
from drawn import OUTLINE, SVG

from gpipe_sim import Costs, GPipe, OneFOneB, critical_path, draw, simulate


def frames(*timelines) -> tuple[list[str], list[str]]:
    """The framed outlines of each chart, and of the legend."""
    root = ElementTree.fromstring(str(draw(*timelines, critical_path=True)))
    paths = [path.get("d") for path in root.iterfind(f"{SVG}path[@stroke-width='2']")]
    *charts, legend = (re.findall(r"M[^z]*z", path) for path in paths)
    return charts, legend


def titles(timeline) -> dict[str, str]:
    """The outline of each box, and what hovering over it says."""
    root = ElementTree.fromstring(str(draw(timeline, critical_path=True)))
    found = ((path.get("d"), path.findtext(f"{SVG}title")) for path in root.iter(f"{SVG}path"))
    return {outline: title for outline, title in found if title and OUTLINE.fullmatch(outline)}


def framed(timeline) -> list[str]:
    says = titles(timeline)
    [chart], legend = frames(timeline)
    assert len(legend) == 1
    return [says[outline].split()[0] for outline in chart]


def test_the_critical_path_of_1f1b_is_framed():
    assert framed(simulate(OneFOneB(2, 3))) == ["0F0", "1F0", "1B0", "1F1", "1B1", "1F2", "1B2", "0B2"]


@over_every_schedule([(2, 4), (4, 8)])
def test_exactly_the_boxes_of_the_path_are_framed_both_halves_of_a_pair(schedule):
    timeline = simulate(schedule, Costs(comm=1))
    expected = [str(span.action) for span in critical_path(timeline) for _ in span.action.parts]
    assert sorted(framed(timeline)) == sorted(expected)


def test_each_timeline_has_its_own_path():
    charts, _ = frames(simulate(GPipe(2, 3)), simulate(overlapped(2, 3)))
    assert [len(chart) for chart in charts] == [
        sum(len(span.action.parts) for span in critical_path(simulate(schedule)))
        for schedule in (GPipe(2, 3), overlapped(2, 3))
    ]


def test_without_being_asked_nothing_is_framed():
    timeline = simulate(OneFOneB(2, 3))
    assert "critical path" not in str(draw(timeline))
    assert 'stroke-width="2"' not in str(draw(timeline))
    assert str(draw(timeline, critical_path=True)).count(">critical path</text>") == 1
