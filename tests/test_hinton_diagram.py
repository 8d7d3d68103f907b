"""``draw_parts``: arrays that add up, read back from the squares."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from drawn import SVG

from gpipe_sim.drawing import draw_parts
from gpipe_sim.drawing.palette import INK, PAPER, REFERENCE

SQUARE = re.compile(r"M([\d.]+) ([\d.]+)h([\d.]+)v\3h-\3z")


@pytest.fixture
def parts():
    return [np.random.default_rng(seed).normal(size=(8, 8)) for seed in range(3)]


def squares(drawing, colour: str) -> list[list[tuple[float, ...]]]:
    """(left, top, side) of the squares of this colour in each path."""
    paths = re.findall(rf'<path d="([^"]*)" fill="{colour}"/>', str(drawing))
    return [[tuple(map(float, each)) for each in SQUARE.findall(path)] for path in paths]


def said(drawing) -> list[str]:
    return [text.text for text in ElementTree.fromstring(str(drawing)).iter(f"{SVG}text") if text.text]


def test_parts_sum_whole_and_their_difference_are_named_and_joined_by_signs(parts):
    words = said(draw_parts(parts, sum(parts)))
    assert [word for word in words if not word.startswith(("up to", "only"))] == [
        *("part 0", "part 1", "+", "part 2", "+", "sum", "=", "whole", "sum \u2212 whole")
    ]


def test_a_square_has_the_area_of_its_number_and_the_sign_is_its_colour(parts):
    drawing = draw_parts(parts, sum(parts))
    grounds = [ground for ground in squares(drawing, REFERENCE) if ground]
    assert len(grounds) == 6
    most = max(abs(panel).max() for panel in (*parts, sum(parts)))
    shown = [*parts, sum(parts), sum(parts)]
    for panel, positive, negative in zip(shown, squares(drawing, INK), squares(drawing, PAPER), strict=True):
        assert len(positive) + len(negative) == 64
        cell = grounds[0][0][2] / 8
        for colour, sign in ((positive, 1), (negative, -1)):
            areas = sorted((side / cell) ** 2 for *_, side in colour)
            assert areas == pytest.approx(sorted(sign * panel[sign * panel > 0] / most), abs=0.03)


def test_what_rounding_leaves_is_not_shown_and_not_written(parts):
    """It differs from processor to processor, and the drawing is compared to the byte."""
    near = sum(parts) * (1 + 1e-15)
    assert str(draw_parts(parts, near)) == str(draw_parts(parts, sum(parts)))
    assert said(draw_parts(parts, near))[-1] == "only rounding"
    assert said(draw_parts(parts, near + 0.3))[-1] == "up to 0.3"
    says = draw_parts(parts, sum(parts)).says
    assert says == "3 arrays, their sum, and the whole; sum minus whole: only rounding"
    nothing = draw_parts([np.zeros((2, 2))], np.zeros((2, 2)))
    assert said(nothing)[1] == "nothing" and said(nothing)[-1] == "only rounding"
    assert squares(nothing, INK) == squares(nothing, PAPER) == []


def test_more_parts_than_a_page_is_wide_for_have_squares_too():
    """From 36 parts on, their sides were negative."""
    drawing = draw_parts([np.ones((2, 2))] * 40, np.full((2, 2), 40))
    assert [len(path) for path in squares(drawing, INK)] == [4] * 42
    assert "--" not in str(drawing)


def test_a_difference_that_is_larger_than_all_else_fits_into_its_cells():
    """Its squares were larger than these."""
    one = np.ones((2, 2))
    *_, differing = squares(draw_parts([one], -one), INK)
    assert [side for *_, side in differing] == [78] * 4
