"""What each part of a step is worth to a prediction: leave it out, and say how much further off that is.

The numbers stay as they were fitted, with all parts. Without a part, what is left is scaled to be right on
half of the rows that the fit had: by one factor in all, or by one for each shape of block. The errors are
those of the other half.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from math import inf
from statistics import median

from gpipe_sim.pricing.calibrate import Calibration, Errors
from gpipe_sim.pricing.rows import Row

NOTHING, MEMORY = (
    "nothing",
    "memory's bytes",
)  #: what is no product, and products that wait for their operands
SCALES: dict[str, Callable[[Row], Hashable]] = {
    "one factor": lambda _: None,
    "with shapes": lambda row: row.layout.shapes[0],
}


def ablation(found: Calibration, fit: Sequence[Row], others: Sequence[Row]) -> dict[str, dict[str, float]]:
    """{what is left out: the mean error with one factor, and with one for each shape}."""
    known, asked = ([_times(found, row) for row in rows] for rows in (fit, others))
    errors = {}
    for name in known[0]:
        before, after = ([each[name] for each in some] for some in (known, asked))
        errors[name] = {how: _error(scale, fit, others, before, after) for how, scale in SCALES.items()}
    return errors


def _times(found: Calibration, row: Row) -> dict[str, float]:
    """What a step takes with nothing left out, and with each part; the work itself stays."""
    priced = row.priced(found.cluster)
    bare = replace(found.cluster, accelerator=replace(found.cluster.accelerator, hbm=inf, card=""))
    parts = {name: priced.time - part for name, part in priced.parts.items() if name != "work"}
    return {NOTHING: priced.time, **parts, MEMORY: row.priced(bare).time}


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
            found[key].append(row.seconds / time)
    factors = {key: median(each) for key, each in found.items()}
    pairs = zip(others, asked, strict=True)
    off = [row.off(factors.get(scale(row), factors[None]) * time) for row, time in pairs]
    return Errors.of(off).mean
