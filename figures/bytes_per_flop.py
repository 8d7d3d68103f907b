"""How many bytes each part of a Transformer block frees for a FLOP of its forward that is computed again.

One part alone is recomputed, for one sample, of a block of GPT-3 and one of Llama 2 7B in 2-byte numbers. The
core of attention counts with both of its products, as the network does; our layer, which keeps what the
second one makes, runs only the first again. The Llama's attention keeps its tables here, as GPT-3's does:
flash attention has nothing left to free.
"""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

import gpipe_sim as gp
from figures._page import claim, page
from gpipe_sim.core import Layer
from gpipe_sim.drawing.palette import CURVES, INK, MARKERS
from gpipe_sim.drawing.plots.style import LABEL_SIZE, finish
from gpipe_sim.transformers import LlamaBlock, Residual, TransformerBlock, unpacked

#: A block of each, and the places of a sequence.
MODELS = {
    "GPT-3": (TransformerBlock(12_288, 96, dropout=0.1, rng=None, dtype="float16"), 2_048),
    "Llama 2 7B": (LlamaBlock(4_096, 32, 11_008, flash=False, rng=None, dtype="bfloat16"), 4_096),
}
PARTS = ("attention's core", "all of attention", "whole block", "network")  #: that are recomputed
PER = 1_000  #: FLOPs


def data() -> dict:
    """Of each model: {part: [bytes freed, FLOPs]}."""
    return {"parts": list(PARTS), "models": {name: _model(*of) for name, of in MODELS.items()}}


def _model(block: Layer, places: int) -> dict:
    norm = next(iter(block.parameters.values()))  # a number for each feature
    x = gp.MetaArray((1, places, len(norm)), norm.dtype)

    def freed(layers: list[Layer], kind: type[Layer]) -> list[list[int]]:
        """[bytes, FLOPs] of each way to recompute a layer of this kind alone."""
        profile = gp.profile(gp.split(layers, stages=1), (x, x), gp.mse)
        found = (each for each in gp.memory.freed(profile) if isinstance(layers[each.layer], kind))
        return [[each.bytes, each.flops] for each in found]

    (core, _), attention, network = freed(unpacked([block]), Residual)
    _, whole = freed([block], type(block))
    products = block.work(x).flops - block.work(x).weight_flops  # those without weights
    return dict(zip(PARTS, ([core, products], attention, whole, network), strict=True))


def per_flop(data: dict, model: str, part: str) -> float:
    size, flops = data["models"][model][part]
    return size / flops


def draw(data: dict) -> Figure:
    figure, ax = page(3.3)
    for model, colour, marker in zip(MODELS, CURVES[::2], MARKERS, strict=False):
        for row, part in enumerate(data["parts"]):
            _mark(ax, PER * per_flop(data, model, part), row, model, colour, marker)
    _style(ax, data)
    core, network = (per_flop(data, "GPT-3", part) for part in (PARTS[0], PARTS[-1]))
    words = f"GPT-3: attention's core frees {core / network:.0f} times as many bytes per FLOP as the network"
    how = "each part recomputed alone, with all of its matrix products; both keep their tables of s x s"
    claim(ax, words, how)
    return figure


def _mark(ax: Axes, value: float, row: int, model: str, colour: str, marker: str) -> None:
    """A mark with its number below it, and in the first row its model above it."""
    ax.plot(value, row, marker, color=colour, ms=7)
    near = {"textcoords": "offset points", "fontsize": LABEL_SIZE, "color": INK, "ha": "center"}
    ax.annotate(f"{value:.3g}", (value, row), (0, -16), **near)
    if row == 0:
        ax.annotate(model, (value, row), (0, 8), **near)


def _style(ax: Axes, data: dict) -> None:
    ax.set_xscale("log")
    ax.set_xlim(0.06, 16)
    ax.set_ylim(len(data["parts"]) - 0.4, -0.6)
    ax.set_yticks(range(len(data["parts"])), data["parts"])
    ax.set_xticks([0.1, 1, 10], ["0.1", "1", "10"])
    ax.minorticks_off()
    ax.set_xlabel(f"bytes freed for {PER:,} FLOPs computed again", fontsize=LABEL_SIZE)
    finish(ax)
