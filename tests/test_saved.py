"""What is shown where: a notebook gets a lean image, a file has words under the mouse and a dark version."""

import re
from xml.etree import ElementTree

import pytest
from cases import every_schedule, over, overlapped
from drawn import SVG, image
from measured import measured, metered

import gpipe_sim as gp
from gpipe_sim.drawing.palette import DARK, FAINT, GRID, INK, LANE, PAPER

TIMELINE = gp.simulate(gp.ZBH1(3, 4), gp.Costs(comm=1))
KNOT = gp.Explicit.parse("0F0 0B0 0F1 0B1\n1F1 1B1 1F0 1B0")
DRAWINGS = {
    "plain": gp.draw(TIMELINE),
    "everything": gp.draw(TIMELINE, in_flight=True, messages=True, critical_path=True, pushed=True),
    "memory": gp.draw(TIMELINE, memory=metered(TIMELINE), highlight=["0F0"]),
    "coarse": gp.draw(gp.simulate(gp.OneFOneB(32, 512)), in_flight=True),
    "overlay": gp.overlay(gp.simulate(gp.ZBH1(2, 3), gp.Costs(20, 20, 20)), measured(gp.ZBH1(2, 3))).drawing,
    "deadlock": gp.draw_deadlock(KNOT),
}
EACH = pytest.mark.parametrize("drawing", DRAWINGS.values(), ids=DRAWINGS)


@EACH
def test_an_image_has_no_words_under_the_mouse_and_no_style(drawing):
    shown = image(drawing)
    for tag in ("title", "style", "desc"):
        assert f"<{tag}" not in shown
    assert len(shown) < len(str(drawing))


@EACH
def test_both_are_well_formed_and_as_large_as_they_say(drawing):
    for text in (image(drawing), str(drawing)):
        root = ElementTree.fromstring(text)
        assert root.tag == f"{SVG}svg" and root.get("role") == "img"
        assert (float(root.get("width")), float(root.get("height"))) == pytest.approx(drawing.size, abs=0.05)
        ids = re.findall(r' id="([\w-]+)"', text)
        assert len(ids) == len(set(ids))
        assert set(re.findall(r"url\(#([\w-]+)\)", text)) == set(ids), "what is defined is used, and no other"


@EACH
def test_the_dark_version_covers_every_light_colour_that_occurs(drawing):
    """Of paper, words, lines and lanes: each as a fill and as a stroke, if it occurs as such."""
    text = str(drawing)
    rules = dict(re.findall(r"\[(\w+=\"#\w+\")\]\{(\w+:#\w+)\}", re.search("<style>(.*)</style>", text)[1]))
    used = set(re.findall(r'(fill|stroke)="(#\w+)"', text.split("</style>")[1]))
    assert {("fill", PAPER), ("fill", INK)} <= used
    for what, colour in used:
        if colour in (PAPER, INK, FAINT, LANE, GRID):
            assert rules[f'{what}="{colour}"'] == f"{what}:{DARK[colour]}"
        else:
            assert f'{what}="{colour}"' not in rules, "boxes, bytes and their numbers stay as they are"
    assert re.search(r"<style>@media\(prefers-color-scheme:dark\)\{.*\}</style>", text)


@over([*every_schedule([(2, 3), (4, 8)]), overlapped(3, 6)])
def test_a_file_says_in_words_what_each_device_does(schedule):
    """For a reader who cannot see the boxes."""
    root = ElementTree.fromstring(gp.to_svg(gp.simulate(schedule)))
    assert root.find(f"{SVG}desc").text == str(schedule)
    rows = root.find(f"{SVG}desc").text.splitlines()
    assert len(rows) == schedule.devices
    for row, actions in zip(rows, schedule.actions, strict=True):
        assert row.split(": ")[1].split(" ") == list(map(str, actions))
    title = root.find(f"{SVG}title").text
    assert title.startswith("Chart: ") and f"{schedule.devices} device" in title
    assert root[0].tag == f"{SVG}title", "the first of its children names a drawing"


def test_a_file_of_several_timelines_describes_them_all():
    schedules = gp.GPipe(2, 3), gp.OneFOneB(2, 3)
    text = str(gp.draw(*map(gp.simulate, schedules), titles=["one <", "other"]))
    root = ElementTree.fromstring(text)
    assert root.find(f"{SVG}desc").text == "\n\n".join(map(str, schedules))
    size = "2 devices, 3 microbatches; F takes 1, B 2"
    assert root.find(f"{SVG}title").text == f"Chart: one < ({size}); other ({size})"


def test_a_chart_without_boxes_lists_no_actions():
    assert "<desc" not in str(DRAWINGS["coarse"])


def test_a_deadlock_is_described_by_its_order():
    root = ElementTree.fromstring(str(DRAWINGS["deadlock"]))
    assert root.find(f"{SVG}title").text == "An order written out, 2 devices, 2 microbatches: deadlocked"
    assert root.find(f"{SVG}desc").text == str(KNOT)
