"""How much faster a block is on more devices that each have a part of it: the sums do not get faster.

A block of GPT-3 for one text, forward and backward, in 2-byte numbers. A device computes 140 TFLOP/s, as
those of Narayanan et al. 2021 did (arXiv:2104.04473, table 1). It sends 300 GB/s to others in its machine of
eight (NVLink of an A100), and 25 GB/s to another machine (InfiniBand, 200 Gbit/s). Latency is left out, and
nothing is computed while the devices sum.
"""

from fractions import Fraction

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import gpipe_sim as gp
from figures._exact import pair
from figures._page import claim, page
from gpipe_sim.drawing.palette import CURVES, INK, MARKERS, REFERENCE
from gpipe_sim.drawing.plots.style import LABEL_SIZE, finish

PLACES, FEATURES, HEADS = 2_048, 12_288, 96
FLOPS = 140 * 10**12  #: a second, of one device
IDEAL = "as many times as devices"
IN_ONE, BETWEEN = "in one machine", "each in its own"
SPEEDS = {IN_ONE: 300 * 10**9, BETWEEN: 25 * 10**9}  #: bytes a second that a device sends
DEVICES = {IN_ONE: (1, 2, 4, 8), BETWEEN: (1, 2, 4, 8)}


def data() -> dict:
    """Of each kind of link: [devices, [numerator, denominator]], how many times as fast as one device."""
    return {name: [[t, pair(_speedup(t, name))] for t in DEVICES[name]] for name in SPEEDS}


def _speedup(devices: int, link: str) -> Fraction:
    return _seconds(1, SPEEDS[link]) / _seconds(devices, SPEEDS[link])


def _seconds(devices: int, speed: int) -> Fraction:
    """Of a forward and a backward: what each device computes, and then what it sends."""
    block = gp.transformers.TransformerBlock(FEATURES, HEADS, rng=None, dtype=np.float16)
    flops = 3 * block.flops(gp.MetaArray((1, PLACES, FEATURES), np.float16))
    sent = gp.formulas.tensor_parallel_bytes(PLACES, 1, FEATURES, devices)
    return Fraction(flops, FLOPS * devices) + sent / speed


def draw(data: dict) -> Figure:
    figure, ax = page(3.9)
    whole = DEVICES[IN_ONE]
    ax.plot(whole, whole, color=REFERENCE, lw=5, solid_capstyle="round", label=IDEAL)
    _name(ax, IDEAL, (whole[-1], whole[-1]), up=10)
    for i, name in enumerate(SPEEDS):
        devices = [t for t, _ in data[name]]
        times = [float(Fraction(*found)) for _, found in data[name]]
        ax.plot(devices, times, color=CURVES[2 * i], marker=MARKERS[i], ms=5, lw=1.4, label=name)
        _name(ax, f"{name}: {times[-1]:.1f}", (devices[-1], times[-1]))
    _style(ax)
    note = "a block of GPT-3 for one text; 300 GB/s in a machine of eight, 25 GB/s between machines"
    claim(ax, _words(data), note)
    return figure


def _name(ax: Axes, words: str, at: tuple[float, float], up: int = 0) -> None:
    how = {"textcoords": "offset points", "fontsize": LABEL_SIZE, "va": "center", "annotation_clip": False}
    ax.annotate(words, at, (10, up), color=INK, **how)


def _style(ax: Axes) -> None:
    ax.set_xscale("log", base=2)
    ax.set_xticks(DEVICES[BETWEEN], list(map(str, DEVICES[BETWEEN])))
    ax.minorticks_off()
    ax.set(ylim=(0, 9.2))
    ax.set_xlabel("devices that share every block", fontsize=LABEL_SIZE)
    ax.set_ylabel("times as fast as one", fontsize=LABEL_SIZE)
    finish(ax)


def _words(data: dict) -> str:
    (eight, inside), (_, across) = data[IN_ONE][-1], data[BETWEEN][-1]
    first, then = (float(Fraction(*times)) for times in (inside, across))
    return (
        f"{eight} devices in one machine are {first:.1f} times as fast as one, "
        f"in machines of their own only {then:.1f} times"
    )
