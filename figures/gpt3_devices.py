"""GPT-3 on paper, on eight devices under 1F1B: what each holds at its fullest, beside what it has room for.

Each microbatch is one text of 2,048 places. Numbers take 2 bytes, and mixed-precision Adam keeps 12 more for
each weight. Every device has 12 of the 96 blocks; embedding and head come on top where they are.
"""

from itertools import accumulate

from matplotlib.figure import Figure

import gpipe_sim as gp
from figures._page import claim, page
from gpipe_sim.core.memory import GRADIENTS, PARAMETERS, SAVED, STATE, MemoryTrace
from gpipe_sim.drawing.palette import INK, MEMORY, PAPER
from gpipe_sim.drawing.plots.gantt import HATCH
from gpipe_sim.drawing.plots.style import LABEL_SIZE, finish

DEVICES, MICROBATCHES, PLACES, ENDS = 8, 16, 2_048, 2  #: layers before the blocks, and as many behind them
PARTS = {"weights": PARAMETERS, "gradients": GRADIENTS, "optimizer": STATE, "activations": SAVED}
ROOM, GB = 80 * 10**9, 10**9  #: bytes of a large device
BESIDE = {"textcoords": "offset points", "fontsize": LABEL_SIZE, "va": "center", "annotation_clip": False}


def data() -> dict:
    """Of each device the bytes of each of ``PARTS``, when all of them together are at their most.

    What else there is while an action runs counts as activations: they are made of the same arrays.
    """
    return {"parts": list(PARTS), "bytes": list(map(_parts, predicted())), "room": ROOM}


def predicted() -> tuple[MemoryTrace, ...]:
    layers, schedule = gp.gpt3_175b(), gp.OneFOneB(DEVICES, MICROBATCHES)
    balance = [(len(layers) - 2 * ENDS) // DEVICES] * DEVICES
    balance[0] += ENDS
    balance[-1] += ENDS
    texts, adam = gp.MetaArray((MICROBATCHES, PLACES), int), gp.MixedPrecision(gp.Adam())
    stages = gp.split(layers, balance=balance)
    return gp.predict_memory(schedule, gp.profile(stages, (texts, texts), gp.cross_entropy, optimizer=adam))


def _parts(trace: MemoryTrace) -> list[int]:
    """By then each weight has its gradient, on every device."""
    kept = [trace.peak(category) for category in (PARAMETERS, GRADIENTS, STATE)]
    return [*kept, trace.peak_inside.bytes - sum(kept)]


def draw(data: dict) -> Figure:
    figure, ax = page(3.9)
    for k, parts in enumerate(data["bytes"]):
        below = 0
        for category, part in zip(PARTS.values(), parts, strict=True):
            ax.bar(k, part / GB, bottom=below / GB, width=0.84, **_look(category))
            below += part
    for name, low, part in zip(
        PARTS, accumulate(data["bytes"][0], initial=0), data["bytes"][0], strict=False
    ):
        words = name if name == "activations" else f"{name}: {part / GB:.0f} GB"
        ax.annotate(words, (-0.42, (low + part / 2) / GB), (-6, 0), ha="right", **BESIDE)
    ends = -0.5, len(data["bytes"]) - 0.5
    ax.plot(ends, 2 * [data["room"] / GB], color=INK, lw=1.1, ls=(0, (4, 3)), zorder=0)  # between the bars
    for k in (0, len(data["bytes"]) - 1):
        top = sum(data["bytes"][k]) / GB
        ax.annotate(f"{top:.0f} GB", (k, top), (0, 8), ha="center", **BESIDE)
    at = len(data["bytes"]) - 0.5, data["room"] / GB
    ax.annotate(f"room: {data['room'] // GB} GB", at, (6, 0), **BESIDE)
    ax.set(
        xlim=(-0.5, at[0]),
        ylim=(0, 1.08 * sum(data["bytes"][0]) / GB),
        xticks=range(len(data["bytes"])),
        yticks=[],
    )
    ax.set_xlabel("device", fontsize=LABEL_SIZE)
    finish(ax)
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="x", length=0)
    ax.grid(axis="x", visible=False)
    most, *_, last = (f"{sum(parts) / GB:.0f}" for parts in data["bytes"])
    words = f"GPT-3 on eight devices: the first would hold {most} GB, the last {last}"
    claim(ax, words, f"1F1B, {MICROBATCHES} microbatches of one text; each device at its fullest")
    return figure


def _look(category: str) -> dict:
    """As in the lessons' charts: a colour, and a pattern in white."""
    look = MEMORY[category]
    return {"facecolor": look.colour, "edgecolor": PAPER, "linewidth": 0, "hatch": HATCH.get(look.pattern)}
