"""One batch in more and more pieces: a step becomes shorter, and then longer again.

256 samples on four devices under GPipe; an action on n samples takes as long as n + 8 should. Two parts of a
step depend on M: starting every piece, 3Mu, and waiting for the first to pass the other stages, 3(K-1)S/M.
"""

from math import sqrt

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures._page import claim, page
from gpipe_sim import Costs, GPipe, simulate
from gpipe_sim.drawing.palette import CURVES, FAINT, INK
from gpipe_sim.drawing.plots.style import LABEL_SIZE, finish

DEVICES, SAMPLES, STARTUP = 4, 256, 8
MICROBATCHES = (1, 2, 4, 8, 16, 32, 64, 128)


def data() -> dict:
    """steps[i]: how long a step with microbatches[i] is, as simulated."""
    return {
        "devices": DEVICES,
        "samples": SAMPLES,
        "startup": STARTUP,
        "microbatches": list(MICROBATCHES),
        "steps": [_step(m) for m in MICROBATCHES],
    }


def _step(microbatches: int) -> int:
    each = SAMPLES // microbatches + STARTUP  # F, and each half of B
    return simulate(GPipe(DEVICES, microbatches), Costs(each, each, each)).makespan


def draw(data: dict) -> Figure:
    figure, ax = page(4.6)
    root = sqrt((data["devices"] - 1) * data["samples"] / data["startup"])
    _curves(ax, data, root)
    _marks(ax, data)
    ax.set_xscale("log", base=2)
    ax.set_xticks(data["microbatches"], [str(m) for m in data["microbatches"]])
    ax.minorticks_off()
    ax.set(ylim=(0, 1.1 * max(data["steps"])))
    ax.set_xlabel("pieces M of the same batch", fontsize=LABEL_SIZE)
    ax.set_ylabel("time", fontsize=LABEL_SIZE)
    finish(ax)
    where = f"M = \u221a((K\u22121)S/u) = {root:.1f}"
    sizes = f"K = {data['devices']} devices, S = {data['samples']} samples, start-up u = {data['startup']}"
    rest = 3 * (data["samples"] + (data["devices"] - 1) * data["startup"])
    words = f"A step is shortest near {where}, where starting costs as much as waiting"
    claim(ax, words, f"{sizes}; marks: simulated; the rest of a step, {rest}, is the same for every M")
    return figure


def _curves(ax: Axes, data: dict, root: float) -> None:
    """The two parts that depend on M, the step that they make, and the M at which they are equal."""
    K, S, u, ms = data["devices"], data["samples"], data["startup"], data["microbatches"]
    M = np.geomspace(ms[0], ms[-1], 200)
    starting, waiting = 3 * M * u, 3 * (K - 1) * S / M
    ax.axvline(root, color=FAINT, lw=1, ls=":")
    ax.plot(M, starting + waiting + 3 * (S + (K - 1) * u), color=CURVES[0], lw=1.6, label="step")
    ax.plot(M, starting, "--", color=CURVES[2], lw=1.4, label="starting")
    ax.plot(M, waiting, "-.", color=CURVES[4], lw=1.4, label="waiting")
    _say(ax, "a step: 3(M+K\u22121)(u + S/M)", (ms[6], data["steps"][6]), (-14, 0), "right")
    _say(ax, "starting all pieces: 3Mu", (ms[5], 3 * ms[5] * u), (10, -4), "left")
    _say(ax, "waiting for a piece: 3(K\u22121)S/M", (ms[2], 3 * (K - 1) * S / ms[2]), (-16, -4), "right")


def _marks(ax: Axes, data: dict) -> None:
    """The simulated steps; the best, and what half and twice as many pieces cost."""
    steps = dict(zip(data["microbatches"], data["steps"], strict=True))
    ax.plot(*zip(*steps.items(), strict=True), "o", ms=5, color=CURVES[0], label="simulated")
    best = min(steps, key=steps.get)
    _say(ax, f"M = {best}: {steps[best]:,}", (best, steps[best]), (6, -9), "right")
    for m in (best // 2, 2 * best):
        longer = steps[m] / steps[best] - 1
        _say(ax, f"{longer:.0%} longer", (m, steps[m]), (0, 9), "center")


def _say(ax: Axes, words: str, at: tuple[float, float], off: tuple[float, float], side: str) -> None:
    aside = {"textcoords": "offset points", "ha": side, "va": "top" if off[1] < 0 else "bottom"}
    ax.annotate(words, at, off, color=INK, fontsize=LABEL_SIZE, **aside)
