"""Colours and patterns stand in one place, can be told apart by every eye and read on what they stand on."""

import re
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from drawn import Look, chart_in, chart_of
from measured import metered

import figures
import gpipe_sim
from gpipe_sim import Costs, Explicit, GPipe, draw, simulate, with_updates
from gpipe_sim.core import Kind
from gpipe_sim.core.memory import CATEGORIES
from gpipe_sim.drawing import palette, to_svg
from gpipe_sim.drawing.palette import (
    COLLECTIVE,
    DARK,
    DOTS,
    FADED,
    FAINT,
    GREYS,
    INK,
    KINDS,
    LANE,
    LATER,
    LINES,
    MEMORY,
    PALER,
    PAPER,
    grey,
    ink,
    tint,
)
from gpipe_sim.drawing.plots import plot_timeline

WITH_AN_UPDATE = Explicit(["0F0 0B0 0U0"])
BY_DAY, BY_NIGHT = {}, DARK  #: what becomes of a colour
VERSIONS = pytest.mark.parametrize("version", [BY_DAY, BY_NIGHT], ids=["light", "dark"])
#: How pale the stages of a device with up to 8 of them are.
SHADES = sorted({LATER * i / n for n in range(1, 9) for i in range(n)})
Rgb = np.ndarray  #: linear light: red, green, blue from 0 to 1

#: What a reader with deuteranopia sees, in linear light: Machado, Oliveira and Fernandes 2009, "A
#: physiologically-based model for simulation of color vision deficiency", severity 1.0.
DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
)
#: From linear light to CIE XYZ, relative to the white of sRGB (IEC 61966-2-1).
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = np.array([0.95047, 1, 1.08883])


def light(colour: str) -> Rgb:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    channels = np.array([int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def as_seen(colour: str) -> Rgb:
    """By an eye without green cones."""
    return np.clip(DEUTERANOPIA @ light(colour), 0, 1)


def contrast(a: Rgb, b: Rgb) -> float:
    """The contrast ratio of WCAG 2.1: from 1, the same, to 21, black on white."""
    low, high = sorted(float(XYZ[1] @ colour) for colour in (a, b))
    return (high + 0.05) / (low + 0.05)


def distance(a: Rgb, b: Rgb) -> float:
    """In CIE Lab, where 2 can just be seen."""
    return float(np.linalg.norm(_lab(a) - _lab(b)))


def _lab(colour: Rgb) -> np.ndarray:
    ratio = XYZ @ colour / WHITE
    x, y, z = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def mixed(colour: str, opaque: float, ground: str) -> str:
    """What is seen of a colour on a ground that shows through, as browsers mix it."""
    both = [[int(each[i : i + 2], 16) for i in (1, 3, 5)] for each in (colour, ground)]
    return "#" + "".join(f"{round(opaque * a + (1 - opaque) * b):02x}" for a, b in zip(*both, strict=True))


def every_look() -> dict[str, Look]:
    """All that fills areas or is one, each by its meaning; of kinds that look the same, one."""
    looks = {str(kind): look for kind, look in KINDS.items() if kind != Kind.I} | MEMORY
    plain = {"lane": LANE, "paper": PAPER, "ink": INK, "together": COLLECTIVE.colour}
    return {name: Look(look.colour, 1, look.pattern) for name, look in looks.items()} | {
        name: Look(colour) for name, colour in plain.items()
    }


# Told apart


def test_the_measures_are_those_of_their_sources():
    assert contrast(light("#000000"), light("#fff")) == pytest.approx(21)
    assert contrast(light("#777777"), light("#ffffff")) == pytest.approx(4.48, abs=0.01)  # WebAIM's example
    assert _lab(light("#ff0000")) == pytest.approx([53.24, 80.09, 67.20], abs=0.05)
    assert DEUTERANOPIA.sum(axis=1) == pytest.approx([1, 1, 1], abs=2e-6)  # grey stays grey
    assert distance(as_seen("#d73027"), as_seen("#1a9850")) < distance(light("#d73027"), light("#1a9850")) / 2


def test_actions_differ_in_grey_by_a_pattern_or_by_luminance():
    looks = list(dict.fromkeys(KINDS.values()))
    assert len(looks) == 5, "an input gradient looks as a backward"
    for a, b in combinations(looks, 2):
        assert a.pattern != b.pattern or contrast(light(a.colour), light(b.colour)) >= 1.5, (a, b)


@VERSIONS
def test_no_two_meanings_look_alike_to_any_eye(version):
    """To readers with all cones and without green ones; waiting and paper both say that nothing happens."""
    for (one, a), (other, b) in combinations(every_look().items(), 2):
        quiet = {one, other} == {"lane", "paper"}
        for eye in (light, as_seen):
            seen = [eye(version.get(look.colour, look.colour)) for look in (a, b)]
            apart = contrast(*seen) >= (1.2 if quiet else 1.5) or distance(*seen) >= 20
            assert a.pattern != b.pattern or apart, (one, other, eye.__name__)


def test_categories_that_touch_in_a_stack_differ_in_grey():
    for a, b in pairwise(MEMORY.values()):
        assert a.pattern != b.pattern or contrast(light(a.colour), light(b.colour)) >= 1.4, (a, b)


def test_no_colour_has_two_meanings():
    """Nor is any tint of a later stage another thing's colour. In flight are activations: the same violet."""
    actions = {tint(look.colour, shade) for look in KINDS.values() for shade in SHADES}
    memory = {look.colour for look in MEMORY.values()}
    grounds_and_words = {PAPER, INK, FAINT, LANE, palette.GRID}
    assert len(grounds_and_words) == 5
    assert not actions & memory and not (actions | memory) & grounds_and_words
    assert COLLECTIVE.colour.lower() not in actions | memory | grounds_and_words
    assert len({look.colour for look in KINDS.values()}) == 5 and len(set(MEMORY.values())) == 8
    assert MEMORY["saved activations"] == palette.IN_FLIGHT
    assert palette.CURVES[0] == INK, "curves are ink"


# Without colours


@pytest.mark.parametrize("kind", list(Kind))
def test_every_tint_of_a_kind_has_a_grey_of_that_kind_in_the_same_order(kind):
    """From a device's first stage on, however many there are; the numbers on them can be read."""
    for stages in range(1, 65):
        tints = [tint(KINDS[kind].colour, LATER * i / stages) for i in range(stages)]
        levels = [int(grey(each)[1:3], 16) for each in tints]
        first, palest = (int(each[1:3], 16) for each in GREYS[KINDS[kind].colour])
        assert levels[0] == first and levels == sorted(levels)
        expected = [first + (palest - first) * i / stages for i in range(stages)]
        assert levels == pytest.approx(expected, abs=1)
        for each in map(grey, tints):
            assert each == "#" + 3 * each[1:3]
            assert contrast(light(each), light(ink(each))) >= 4.5


def test_kinds_differ_without_colours_by_a_pattern_or_by_luminance_at_every_stage():
    greys = {kind: [grey(tint(look.colour, shade)) for shade in SHADES] for kind, look in KINDS.items()}
    for (a, one), (b, other) in combinations(KINDS.items(), 2):
        if one.pattern == other.pattern and {a, b} != {Kind.B, Kind.I}:
            assert min(contrast(light(x), light(y)) for x in greys[a] for y in greys[b]) >= 1.5, (a, b)
    lane = light(grey(LANE))
    assert all(contrast(light(each), lane) >= 1.2 for levels in greys.values() for each in levels)


def test_all_else_becomes_the_grey_that_is_as_light():
    for colour in (*(look.colour for look in MEMORY.values()), COLLECTIVE.colour, PALER):
        found = grey(colour)
        assert found == "#" + 3 * found[1:3]
        assert contrast(light(found), light(colour)) <= 1.02, colour


# Read


@VERSIONS
@pytest.mark.parametrize("kind", list(Kind))
def test_numbers_on_every_tint_can_be_read(kind, version):
    """At the level AA of WCAG 2.1; where the page is dark, too."""
    for fill in (tint(KINDS[kind].colour, shade) for shade in SHADES):
        box, number = (version.get(each, each) for each in (fill, ink(fill)))
        assert contrast(light(box), light(number)) >= 4.5


def test_on_a_dark_page_every_fill_is_seen_on_its_ground():
    for looks, ground in (
        (KINDS, LANE),
        ({"together": COLLECTIVE}, PAPER),
        (MEMORY | {"inputs": Look(PALER)}, PAPER),
    ):
        for name, look in looks.items():
            assert contrast(light(DARK.get(look.colour, look.colour)), light(DARK[ground])) >= 3, name


@VERSIONS
def test_words_on_paper_and_on_lanes_can_be_read(version):
    """The axis and captions are faint, all other words are ink."""
    for colour, ground in ((INK, PAPER), (FAINT, PAPER), (INK, LANE), (FAINT, LANE)):
        pair = [light(version.get(each, each)) for each in (colour, ground)]
        assert contrast(*pair) >= 4.5, (colour, ground)


@VERSIONS
@pytest.mark.parametrize("kind", list(Kind))
def test_numbers_on_faded_boxes_can_be_read(kind, version):
    lane, number = (version.get(each, each) for each in (LANE, FAINT))
    for shade in SHADES:
        seen = mixed(tint(KINDS[kind].colour, shade), FADED, lane)
        assert contrast(light(seen), light(number)) >= 4.5, shade


# One place


def test_every_kind_and_every_category_has_a_colour():
    assert list(KINDS) == list(Kind)
    assert sorted(MEMORY) == sorted(CATEGORIES)


def test_no_colour_is_written_anywhere_else():
    drawing = [*Path(gpipe_sim.__file__).parent.rglob("*.py"), *Path(figures.__file__).parent.glob("*.py")]
    words = re.compile(r"""["'=]#[0-9a-fA-F]{3,8}\b|["'](?:white|black|gr[ae]y|red|blue|green|orange)["']""")
    found = {path.name: words.findall(path.read_text()) for path in drawing}
    assert found.pop("palette.py")
    assert {name: colours for name, colours in found.items() if colours} == {}


def test_only_kinds_that_look_the_same_share_a_line_of_the_legend(monkeypatch):
    split = simulate(Explicit(["0F0 0F1 0B0 0I1 0W1"]))
    assert "B  backward, I  input gradient" in chart_of(to_svg(split)).legend
    monkeypatch.setitem(KINDS, Kind.I, KINDS[Kind.B]._replace(pattern=LINES))
    assert {"B  backward", "I  input gradient"} <= chart_of(to_svg(split)).legend.keys()


def test_a_kind_and_memory_are_drawn_as_their_lines_say(monkeypatch):
    pink, green = palette.Look("#ff00cc", DOTS, 0.5), palette.Look("#00ccff")
    monkeypatch.setitem(KINDS, Kind.U, pink)
    monkeypatch.setitem(MEMORY, "messages", green)
    timeline = simulate(with_updates(GPipe(2, 2)), Costs(update=1))
    for chart in (
        chart_of(str(draw(timeline, memory=metered(timeline)))),
        chart_in(plot_timeline(timeline, memory=metered(timeline))),
    ):
        assert chart.areas[-1][0] == chart.legend["messages"] == Look("#00ccff")
        assert chart.legend["U  weight update"] == Look("#ff00cc", 1, DOTS)
        assert len(chart.outlines("#ff00cc")) == 2
        assert next(look for look, _ in chart.areas if look.pattern) == Look("", 1, DOTS)
