"""Measured steps of A100s, predicted: by numbers set by hand, and by numbers fitted to other rows.

The times stand in ``benchmarks/results/measured.json``, which ``python -m benchmarks.measured`` writes: they
are of the half that the fit had not seen.
"""

import json
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures._page import claim, page
from gpipe_sim.core import Kind
from gpipe_sim.core.memory import STATE
from gpipe_sim.drawing.palette import COLLECTIVE, CURVES, FAINT, INK, KINDS, LANE, MEMORY, PAPER
from gpipe_sim.drawing.plots.style import LABEL_SIZE, finish

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results" / "measured.json"
WAYS = {"by hand": "Numbers set by hand", "with shapes": "Fitted to other rows, with shapes"}
#: What most of a step is, beside the work: colour and marker.
LOOKS = {
    "tensor": (COLLECTIVE.colour, "^", "tensor sums"),
    "host": (KINDS[Kind.W].colour, "s", "starting kernels"),
    "head": (KINDS[Kind.R].colour, "D", "head"),
    "bubble": (CURVES[3], "o", "bubble"),
    "gradients": (KINDS[Kind.F].colour, "v", "gradients"),
    "messages": (KINDS[Kind.B].colour, "P", "messages"),
    "optimizer": (MEMORY[STATE].colour, "X", "optimizer"),
    "rest": (INK, "*", "the rest"),
}
TENTH = 0.1


def data() -> dict:
    """{way: {"mean": its mean error, "rows": (seconds measured, error, what dominates) of each row}}."""
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]["one-node"]
    found = {}
    for way in WAYS:
        each = [[row["measured"], round(row[way] / row["measured"] - 1, 5), row["most"]] for row in rows]
        found[way] = {"rows": each, "mean": round(float(np.mean([abs(error) for _, error, _ in each])), 5)}
    return found


def draw(data: dict) -> Figure:
    figure, axes = page(4.4, columns=2, sharey=True)
    for ax, (way, words) in zip(axes, WAYS.items(), strict=True):
        _panel(ax, data[way]["rows"])
        count = len(data[way]["rows"])
        claim(ax, f"{words}: {data[way]['mean']:.1%} off", f"{count} steps on 2 to 8 A100s; band: within 10%")
        ax.set_xlabel("measured, seconds", fontsize=LABEL_SIZE)
    axes[0].set_ylabel("predicted too fast   |   too slow", fontsize=LABEL_SIZE)
    handles, labels = axes[0].get_legend_handles_labels()
    title = "Most time beside the work:"
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(labels), fontsize=LABEL_SIZE, frameon=False,
        title=title, title_fontsize=LABEL_SIZE, handletextpad=0.2, columnspacing=1.2,
    )  # fmt: skip
    return figure


def _panel(ax: Axes, rows: list) -> None:
    ax.axhspan(-TENTH, TENTH, color=LANE, alpha=0.6, lw=0)
    ax.axhline(0, color=FAINT, lw=0.8)
    for name, (colour, marker, words) in LOOKS.items():
        points = [(time, error) for time, error, most in rows if most == name]
        if points:
            style = {
                "color": colour,
                "marker": marker,
                "edgecolors": PAPER,
                "linewidths": 0.4,
                "label": words,
            }
            ax.scatter(*zip(*points, strict=True), s=22, zorder=3, **style)
    ax.set_xscale("log")
    ticks = [0.05, 0.1, 0.2, 0.5, 1, 2]
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.tick_params(labelsize=LABEL_SIZE, colors=INK)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:+.0%}" if value else "0")
    finish(ax)
