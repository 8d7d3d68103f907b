"""What each part of a step is worth to a prediction: leave it out, and say how much further off that is.

The numbers stay as they were fitted, with all parts. Without a part, what is left is scaled to be right
on half of the rows that the fit had: by one factor in all, or by one for each shape of block. The errors are
those of the other half.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from math import inf
from statistics import median

from gpipe_sim.pricing.calibrate import Calibration, Errors
from gpipe_sim.pricing.price import Priced
from gpipe_sim.pricing.rows import Row, on

PARTS = "bubble", "host", "tensor", "head", "gradients", "optimizer", "messages", "rest"
MEMORY = "bytes of memory"  #: what is no product, and products that wait for their operands


def ablation(found: Calibration, fit: Sequence[Row], others: Sequence[Row]) -> dict[str, dict[str, float]]:
    """{what is left out: the mean error with one factor, and with one for each shape}."""
    left = {
        name: tuple([_times(found, row, name) for row in some] for some in (fit, others))
        for name in ("", *PARTS, MEMORY)
    }
    scales: dict[str, Callable[[Row], Hashable]] = {"one factor": lambda _: None, "with shapes": shape_of}
    return {
        name or "nothing": {how: _error(scale, fit, others, *times) for how, scale in scales.items()}
        for name, times in left.items()
    }


def shape_of(row: Row) -> Hashable:
    """That of its blocks."""
    return next(piece.shape for piece in row.layout.pieces if piece.shape)


def _times(found: Calibration, row: Row, without: str) -> float:
    cluster = on(found.cluster, row.devices)
    if without == MEMORY:
        cluster = replace(cluster, accelerator=replace(cluster.accelerator, hbm=inf))
    priced = Priced(row.layout, cluster)
    return priced.time - (priced.parts[without] if without in PARTS else 0.0)


def _error(
    scale: Callable[[Row], Hashable],
    fit: Sequence[Row],
    others: Sequence[Row],
    times: Sequence[float],
    asked: Sequence[float],
) -> float:
    """The mean on the others; a shape that the fit does not have takes the factor of all."""
    found = defaultdict(list)
    for row, time in zip(fit, times, strict=True):
        for key in {scale(row), None}:
            found[key].append((row.time or 0.0) / time)
    factors = {key: median(each) for key, each in found.items()}
    pairs = zip(others, asked, strict=True)
    return Errors.of(
        [factors.get(scale(row), factors[None]) * time / (row.time or 1.0) - 1 for row, time in pairs]
    ).mean
