"""Colours and patterns stand in one place, and whoever draws takes them from there."""

import re
from pathlib import Path

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Patch

import figures
import gpipe_sim
from gpipe_sim import Explicit, Kind, simulate, to_svg
from gpipe_sim.drawing.palette import KINDS, MEMORY, Look, hatched
from gpipe_sim.drawing.plots import plot_memory, plot_timeline
from gpipe_sim.runtime.memory import CATEGORIES, MemoryTrace

WITH_AN_UPDATE = Explicit(["0F0 0B0 0U0"])


def test_every_kind_and_every_category_has_a_colour():
    assert list(KINDS) == list(Kind)
    assert sorted(MEMORY) == sorted(CATEGORIES)
    assert len(set(MEMORY.values())) == len(CATEGORIES)


def test_no_colour_is_written_anywhere_else():
    drawing = [*Path(gpipe_sim.__file__).parent.rglob("*.py"), *Path(figures.__file__).parent.glob("*.py")]
    words = re.compile(r"""["'=]#[0-9a-fA-F]{3,8}\b|["'](?:white|black|gr[ae]y|red|blue|green|orange)["']""")
    found = {path.name: words.findall(path.read_text()) for path in drawing}
    assert found.pop("palette.py")
    assert {name: colours for name, colours in found.items() if colours} == {}


@pytest.fixture
def pink_updates(monkeypatch):
    """As if the palette's line for updates read so."""
    monkeypatch.setitem(KINDS, Kind.U, Look("#ff00cc", hatched=True))


def test_svg_draws_a_kind_as_its_line_says(pink_updates):
    drawn = to_svg(simulate(WITH_AN_UPDATE))
    assert drawn.count('fill="#ff00cc"') == 2  # the boxes, and the legend
    assert drawn.count("url(#weight-gradient)") == 2
    assert "<pattern" in drawn


def test_matplotlib_draws_a_kind_as_its_line_says(pink_updates):
    ax = plot_timeline(simulate(WITH_AN_UPDATE))
    boxes = next(drawn for drawn in ax.collections if drawn.get_label() == "U  weight update")
    entry = next(patch for patch in ax.get_legend().get_patches() if patch.get_label() == "U  weight update")
    assert [to_hex(colour) for colour in boxes.get_facecolors()] == ["#ff00cc"]
    assert isinstance(entry, Patch) and to_hex(entry.get_facecolor()) == "#ff00cc"
    assert boxes.get_hatch() == entry.get_hatch() == "//"


def test_only_kinds_that_look_the_same_share_a_line_of_the_legend(monkeypatch):
    split = simulate(Explicit(["0F0 0F1 0B0 0I1 0W1"]))
    assert "B  backward, I  input gradient<" in to_svg(split)
    monkeypatch.setitem(KINDS, Kind.I, KINDS[Kind.B]._replace(hatched=True))
    assert ">B  backward<" in to_svg(split) and ">I  input gradient<" in to_svg(split)


def test_memory_is_stacked_in_the_order_and_colours_of_the_palette(monkeypatch):
    monkeypatch.setitem(MEMORY, "messages", "#00ccff")
    ax = plot_memory(MemoryTrace((0, 1), dict.fromkeys(CATEGORIES, (8, 8))))
    assert [drawn.get_label() for drawn in ax.collections] == list(MEMORY)
    assert to_hex(ax.collections[-1].get_facecolor()[0]) == "#00ccff"


def test_what_is_of_no_kind_is_not_hatched():
    assert [kind for kind in (None, *Kind) if hatched(kind)] == [Kind.W]
