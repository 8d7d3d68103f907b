"""What each part of a step is worth: the error of predictions without it, on steps that were measured.

From ``benchmarks/results/measured.json``; see ``benchmarks/ablation.py`` for what is scaled how.
"""

import json

import numpy as np
from matplotlib.figure import Figure

from figures._page import claim, page
from figures.measured import RESULTS
from gpipe_sim.drawing.palette import CURVES, INK, REFERENCE
from gpipe_sim.drawing.plots.style import LABEL_SIZE, finish

NOTHING = "nothing"
WORDS = {
    NOTHING: "nothing left out",
    "tensor": "sums of tensor parallelism",
    "host": "starting kernels",
    "head": "embedding and head",
    "bubble": "the bubble",
    "messages": "messages",
    "gradients": "gradients of replicas",
    "optimizer": "the optimizer",
    "rest": "the rest",
    "memory's bytes": "bytes of memory",
}
WAYS = {"one factor": CURVES[0], "with shapes": REFERENCE}


def data() -> dict:
    """{what is left out: {way: mean error}}."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))["ablation"]
    return {name: {way: round(each[way], 4) for way in WAYS} for name, each in found.items()}


def draw(data: dict) -> Figure:
    figure, ax = page(4.6)
    others = sorted(data.keys() - {NOTHING}, key=lambda name: -data[name]["with shapes"])
    names = [NOTHING, *others]
    places = np.arange(len(names))
    for way, colour, shift, words in zip(
        WAYS, WAYS.values(), (-0.19, 0.19), ("one factor for all", "one for each shape of block"), strict=True
    ):
        errors = [data[name][way] for name in names]
        bars = ax.barh(places + shift, errors, height=0.36, color=colour, label=words)
        ax.bar_label(bars, [f"{error:.1%}" for error in errors], padding=3, fontsize=LABEL_SIZE, color=INK)
    ax.set_yticks(places, [WORDS[name] for name in names], fontsize=LABEL_SIZE)
    ax.invert_yaxis()
    ax.set_xticks([])
    ax.margins(x=0.08)
    finish(ax)
    ax.legend(loc="lower right", fontsize=LABEL_SIZE, frameon=False)
    worst, error = others[0], data[others[0]]["with shapes"]
    words = f"Leave out {WORDS[worst]}, and no factor for each shape makes up for it: {error:.1%} off"
    claim(ax, words, "mean error on measured steps that the fit had not seen, without one part of the step")
    return figure
