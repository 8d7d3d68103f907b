"""What is shown where: a notebook gets a lean image, a file has words under the mouse and a dark version."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from cases import every_order, over, overlapped
from drawn import SVG, extent, image, words_in
from measured import measured, metered

import gpipe_sim as gp
from gpipe_sim.drawing.document import LARGE, SHOWN
from gpipe_sim.drawing.palette import DARK, INK, PAPER

TIMELINE = gp.simulate(gp.ZBH1(3, 4), gp.Costs(comm=1))
KNOT = gp.Explicit.parse("0F0 0B0 0F1 0B1\n1F1 1B1 1F0 1B0")
DRAWINGS = {
    "plain": gp.draw(TIMELINE),
    "everything": gp.draw(TIMELINE, in_flight=True, messages=True, critical_path=True, pushed=True),
    "memory": gp.draw(TIMELINE, memory=metered(TIMELINE), highlight=["0F0"]),
    "coarse": gp.draw(gp.simulate(gp.OneFOneB(32, 512)), in_flight=True),
    "overlay": gp.overlay(gp.simulate(gp.ZBH1(2, 3), gp.Costs(20, 20, 20)), measured(gp.ZBH1(2, 3))).drawing,
    "deadlock": gp.drawing.draw_deadlock(KNOT),
}
EACH = pytest.mark.parametrize("drawing", DRAWINGS.values(), ids=DRAWINGS)


@EACH
def test_an_image_has_no_words_under_the_mouse_and_knows_no_theme(drawing):
    shown = image(drawing)
    for tag in ("<title", "<desc", "prefers-color-scheme"):
        assert tag not in shown
    assert len(shown) < len(str(drawing))


@EACH
def test_both_are_well_formed_and_as_large_as_they_say(drawing):
    for text, shown in ((image(drawing), SHOWN), (str(drawing), 1)):
        root = ElementTree.fromstring(text)
        assert root.tag == f"{SVG}svg" and root.get("role") == "img"
        assert (float(root.get("width")), float(root.get("height"))) == pytest.approx(
            [shown * side for side in drawing.size], abs=0.06
        )
        ids = re.findall(r' id="([\w-]+)"', text)
        assert len(ids) == len(set(ids))
        assert set(re.findall(r"url\(#([\w-]+)\)", text)) == set(ids), "what is defined is used, and no other"


@EACH
def test_the_dark_version_covers_every_light_colour_that_occurs(drawing):
    """Of paper, words, lines and lanes: each as a fill and as a stroke, if it occurs as such."""
    text = str(drawing)
    rules = dict(re.findall(r"\[(\w+=\"#\w+\")\]\{(\w+:#\w+)\}", re.search("<style>(.*?)</style>", text)[1]))
    used = set(re.findall(r'(fill|stroke)="(#\w+)"', text.split("</style>")[-1]))
    assert {("fill", PAPER), ("fill", INK)} <= used
    for what, colour in used:
        if colour in DARK:
            assert rules[f'{what}="{colour}"'] == f"{what}:{DARK[colour]}"
        else:
            assert f'{what}="{colour}"' not in rules, "boxes and their numbers stay as they are"
    assert re.search(r"<style>@media\(prefers-color-scheme:dark\)\{.*\}</style>", text)


@over([*every_order([(2, 3), (4, 8)]), overlapped(3, 6)])
def test_a_file_says_in_words_what_each_device_does(schedule):
    """For a reader who cannot see the boxes."""
    root = ElementTree.fromstring(gp.drawing.to_svg(gp.simulate(schedule)))
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


@EACH
def test_in_a_narrow_window_words_are_larger_and_still_apart_and_on_the_page(drawing):
    """At 364 pixels, what a window of 500 leaves: without that, a page of 850 has letters of 5 pixels."""
    wide, narrow = words_in(str(drawing)), words_in(str(drawing), narrow=True)
    assert [word.words for word in wide] == [word.words for word in narrow]
    assert all(a.size <= b.size for a, b in zip(wide, narrow, strict=True))
    [most] = map(float, set(re.findall(r"@media\(max-width:([\d.]+)px\)", str(drawing))))
    assert most == pytest.approx(0.68 * drawing.size[0], abs=0.05)
    for words in (wide, narrow):
        lines: dict[float, list[tuple[float, float]]] = {}
        for word in words:
            left, right = extent(word)
            assert left >= 0 and right <= drawing.size[0], word.words
            lines.setdefault(word.y, []).append((left, right))
        for line in lines.values():
            assert all(a[1] <= b[0] + 0.5 for a, b in pairwise(sorted(line)))


def test_nearly_all_words_of_a_usual_chart_grow():
    drawing = str(gp.draw(gp.simulate(gp.OneFOneB(4, 8)), in_flight=True))
    small = [word.words for word in words_in(drawing, narrow=True) if word.size < LARGE]
    assert small == ["done, waits 4", "waits 3"], "as large as the others they would not fit"
