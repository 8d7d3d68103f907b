"""How deep a Transformer fits: against the number of devices, with and without recompute.

The model of GPipe's table 1: 2,048 features, 32 heads, 1,024 places, 32,000 tokens, in 4-byte numbers, with
RMSProp. A batch of 32 sequences in 32 microbatches, on devices of 16 GiB. Huang et al. 2019,
arXiv:1811.06965.
"""

from matplotlib.figure import Figure

import gpipe_sim as gp
from figures._page import claim, page
from gpipe_sim.drawing.palette import CURVES, INK, MARKERS, REFERENCE
from gpipe_sim.drawing.plots.style import LABEL_SIZE, finish
from gpipe_sim.memory.profile import Profile

DEVICES = (1, 2, 4, 8, 16, 32)
MICROBATCHES, PLACES, LIMIT, BLOCK = 32, 1_024, 16 * 2**30, 2  #: the number of the layer that is repeated
#: What each curve is: a schedule, whether stages recompute, and what a block itself recomputes.
CURVE = {
    "GPipe, recomputing every stage": (gp.GPipe, "always", "nothing"),
    "1F1B, recomputing attention only": (gp.OneFOneB, "never", "attention"),
    "1F1B": (gp.OneFOneB, "never", "nothing"),
}


def data() -> dict:
    """depth[curve][i]: blocks on devices[i] devices; and the paper's, for 15.2 GiB and less in use."""
    profiles = {what: _profile(what) for what in ("nothing", "attention")}
    depth = {
        name: [_depth(gp.remat(family(k, MICROBATCHES), mode), profiles[what]) for k in DEVICES]
        for name, (family, mode, what) in CURVE.items()
    }
    printed = [
        [column.devices, column.blocks]
        for column in gp.papers.published.GPIPE_DEPTHS
        if column.name != "Naive-1" and column.devices in DEVICES
    ]
    return {"devices": list(DEVICES), "depth": depth, "printed": printed}


def _profile(what: str) -> Profile:
    layers = gp.gpt(1, 2_048, 32, tokens=32_000, sequence=PLACES, dropout=0.1)
    layers[BLOCK] = gp.memory.checkpointed([layers[BLOCK]], [what])[0]
    text = gp.MetaArray((MICROBATCHES, PLACES), int)
    return gp.profile(gp.split(layers, stages=1), (text, text), gp.cross_entropy, gp.transformers.RMSProp())


def _depth(schedule: gp.core.Schedule, profile: Profile) -> int:
    return gp.deepest_model(schedule, profile, BLOCK, LIMIT).depth


def draw(data: dict) -> Figure:
    figure, ax = page(4.4)
    devices, depth = data["devices"], data["depth"]
    first, last = data["printed"][0], data["printed"][-1]
    ax.plot(*zip(*data["printed"], strict=True), color=REFERENCE, lw=5, solid_capstyle="round")
    beside = {"textcoords": "offset points", "fontsize": LABEL_SIZE, "va": "center", "annotation_clip": False}
    ax.annotate(f"printed in GPipe's table 1: {first[1]} to {last[1]}", last, (10, -9), color=INK, **beside)
    for i, name in enumerate(CURVE):
        points = list(zip(devices, depth[name], strict=True))
        ax.plot(*zip(*points, strict=True), color=CURVES[i], marker=MARKERS[i], ms=5, lw=1.4)
        ax.annotate(f"{name}: {points[-1][1]}", points[-1], (10, 3 * (i == 0)), color=CURVES[i], **beside)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.set_xticks(devices, map(str, devices))
    ax.set_xlim(0.9, 150)
    ax.set_xlabel("devices", loc="left")
    ticks = [2**i for i in range(3, 11, 2)]
    ax.set_yticks(ticks, map(str, ticks))
    ax.set_ylim(ticks[0], 700)
    ax.set_ylabel("Transformer blocks that fit")
    finish(ax)
    _claim(ax, data)
    return figure


def _claim(ax, data: dict) -> None:
    early, late = (data["devices"].index(k) for k in (8, 32))
    recomputed, _, kept = (data["depth"][name] for name in CURVE)
    more, less = (depth[late] / depth[early] for depth in (recomputed, kept))
    words = (
        f"From 8 to 32 devices a model may be {more:.1f} times as deep; without recompute {less:.1f} times"
    )
    claim(ax, words, "16 GiB each, 32 microbatches of one sequence, 4-byte numbers with RMSProp")
