"""``draw_stages``: which layers are on which device, read back from the boxes."""

import re
from xml.etree import ElementTree

import pytest
from drawn import SVG

import gpipe_sim as gp
from gpipe_sim.core.memory import PARAMETERS
from gpipe_sim.drawing import draw_stages
from gpipe_sim.drawing.palette import INK, LANE, MEMORY
from gpipe_sim.drawing.stages import HIGH, TOP

AREA = re.compile(r'<path d="M(\S+) (\S+)h(\S+)v(\S+)h-\S+z" fill="([^"]*)"(?: stroke="([^"]*)")?/>')
FULL = MEMORY[PARAMETERS].colour


@pytest.fixture
def layers():
    return gp.mlp([64, 512, 512, 512, 512, 10])


def areas(drawing, colour: str) -> list[tuple[float, ...]]:
    """(left, top, width, height) of what is filled, or outlined, in this colour."""
    found = AREA.findall(str(drawing))
    return [tuple(map(float, each[:4])) for each in found if colour in each[4:]]


def said(drawing) -> list[str]:
    return [text.text for text in ElementTree.fromstring(str(drawing)).iter(f"{SVG}text")]


def test_each_layer_stands_in_the_model_and_once_on_the_device_of_its_stage(layers):
    drawing = draw_stages(gp.split(layers, balance=[3, 2, 3, 1]))
    rows: dict[float, list[float]] = {}
    for left, top, *_ in areas(drawing, INK):
        rows.setdefault(top, []).append(left)
    model, *devices = (rows[top] for top in sorted(rows))
    assert [len(row) for row in devices] == [3, 2, 3, 1]
    assert [left for row in devices for left in row] == model == sorted(model)
    assert sorted({top for _, top, *_ in areas(drawing, LANE)}) == sorted(rows)[1:]


def test_a_box_is_as_full_as_its_layer_has_bytes(layers):
    drawing = draw_stages(gp.split(layers, stages=4))
    sizes = [sum(array.nbytes for array in layer.parameters.values()) for layer in layers if layer.parameters]
    in_the_model = [high for _, top, _, high in areas(drawing, FULL) if top < TOP + HIGH]
    assert in_the_model == pytest.approx([HIGH * size / max(sizes) for size in sizes], abs=0.06)


def test_it_names_layers_stages_and_devices_and_says_them_in_words(layers):
    drawing = draw_stages(gp.split(layers, stages=2))
    words = said(drawing)
    assert [word for word in words if word.startswith(("stage", "device", "model"))] == [
        *("model", "device 0", "stage 0", "device 1", "stage 1")
    ]
    assert words.count("Linear") == 5 and words.count("ReLU") == 4 and "64, 512" in words
    assert "A full box is a layer with 2.1 MB of weights, an empty one has none." in words
    assert drawing.says.startswith("A model in 2 stages. device 0: Linear(64, 512), ReLU(), ")


def test_names_that_have_no_room_are_left_out_and_a_long_model_widens_the_page():
    drawing = draw_stages(gp.split(gp.mlp([4] * 80), stages=8))
    assert "Linear" not in said(drawing) and "stage 7" in said(drawing)
    assert drawing.size[0] > 1000 and "-" not in "".join(str(each) for each in areas(drawing, INK))


def test_a_model_without_weights_is_drawn_empty():
    drawing = draw_stages(gp.split([gp.core.ReLU(), gp.core.Tanh()], stages=2))
    assert not areas(drawing, FULL) and len(areas(drawing, INK)) == 4
