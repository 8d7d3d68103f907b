"""A model cut into stages, each on a device of its own: what is where.

Every layer has a column, so a device's layers stand below their places in the model.
"""

from collections.abc import Iterator, Sequence
from html import escape

from gpipe_sim.core.layers import Layer
from gpipe_sim.core.memory import PARAMETERS
from gpipe_sim.core.partition import Partition
from gpipe_sim.drawing.document import Svg, outline, text, words_wide
from gpipe_sim.drawing.palette import FAINT, INK, LANE, MEMORY, PAPER
from gpipe_sim.errors import listed, require

WIDTH, LEFT, RIGHT = 720, 84, 12  #: pixels of a page, and of its margins
WIDEST, NARROWEST = 90, 8  #: pixels of a column
TOP, HIGH, ROW = 44, 48, 60  #: where the model's row begins, a box's height, and from one row to the next
GAP = 2  #: between a box's sides and what fills it
BELOW = 18  #: between the model and the devices
FULL = MEMORY[PARAMETERS].colour


def draw_stages(partitions: Sequence[Partition]) -> Svg:
    """The layers of the model in a row, and below it each device with the layers of its stage.

    A box is filled as high as its layer has bytes of weights; a layer without weights is empty. TypeError for
    anything but partitions, such as ``split`` gives; ValueError for none.
    """
    such_as = "partitions, such as split(layers, stages=4)"
    partitions = [
        require("draw_stages", each, Partition, such_as)
        for each in listed("draw_stages", such_as, partitions)
    ]
    if not partitions:
        raise ValueError(f"draw_stages needs {such_as} (got none)")
    columns = sum(map(len, partitions))
    wide = min(max((WIDTH - LEFT - RIGHT) / columns, NARROWEST), WIDEST)
    width, devices = LEFT + columns * wide + RIGHT, TOP + HIGH + BELOW
    drawn = list(_drawn(partitions, wide, devices))
    height = devices + len(partitions) * ROW + 24
    held = "; ".join(f"device {k}: {', '.join(map(str, each.layers))}" for k, each in enumerate(partitions))
    return Svg(lambda hover: iter(drawn), (width, height), f"A model in {len(partitions)} stages. {held}")


def _drawn(partitions: list[Partition], wide: float, devices: float) -> Iterator[str]:
    layers = [layer for partition in partitions for layer in partition.layers]
    most = max(map(_bytes, layers)) or 1
    yield text(LEFT - 10, TOP + HIGH / 2 + 4, "model", "end")
    for i, layer in enumerate(layers):
        kind, _, sizes = str(layer).rstrip(")").partition("(")
        yield _fits(LEFT + i * wide, TOP - 22, kind, wide)
        yield _fits(LEFT + i * wide, TOP - 7, sizes, wide)
        yield _box(LEFT + i * wide, TOP, layer, wide, most)
    column = 0
    for k, partition in enumerate(partitions):
        left, y = LEFT + column * wide, devices + k * ROW
        yield text(LEFT - 10, y + HIGH / 2 - 4, f"device {k}", "end")
        yield text(LEFT - 10, y + HIGH / 2 + 13, f"stage {k}", "end", colour=FAINT)
        yield _area(LEFT, y, len(layers) * wide, HIGH, LANE)
        for i, layer in enumerate(partition.layers):
            yield _box(left + i * wide, y, layer, wide, most)
        column += len(partition)
    says = f"A full box is a layer with {most / 1e6:.3g} MB of weights, an empty one has none."
    yield text(LEFT, devices + len(partitions) * ROW + 8, says, "start", colour=FAINT)


def _bytes(layer: Layer) -> int:
    return sum(array.nbytes for array in layer.parameters.values())


def _fits(left: float, y: float, words: str, room: float) -> str:
    """Words in the middle of their room, or none."""
    fits = words and words_wide(words) <= room
    return text(left + room / 2, y, escape(words), "middle") if fits else ""


def _box(left: float, top: float, layer: Layer, wide: float, most: int) -> str:
    high = HIGH * _bytes(layer) / most
    full = _area(left + GAP, top + HIGH - high, wide - 2 * GAP, high, FULL) if high else ""
    edge = f'<path d="{outline(left, top, wide, HIGH)}" fill="none" stroke="{INK}"/>'
    return _area(left, top, wide, HIGH, PAPER) + full + edge


def _area(left: float, top: float, wide: float, high: float, colour: str) -> str:
    return f'<path d="{outline(left, top, wide, high)}" fill="{colour}"/>'
