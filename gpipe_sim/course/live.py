"""Short trainings on old weights that lesson 19 runs itself, with the loss that they end at in words."""

from functools import cache
from math import inf

import numpy as np

from gpipe_sim.core.split import split
from gpipe_sim.course.stale import SAMPLES, layers, losses_of
from gpipe_sim.dataset import digits
from gpipe_sim.families import PipeDream

#: Losses in words: sums differ between processors, and training on old weights amplifies that.
BANDS = {0.7: "under 0.7", 1.2: "0.7 to 1.2", 2: "1.2 to 2", inf: "over 2"}
DIVERGED = "diverged"
LENGTH = 300  #: mini-batches


def learned(devices: int, rate: float, weights: str) -> str:
    """What becomes of ``last_loss``, as the band in which it is, or "diverged"."""
    last = last_loss(devices, rate, weights)
    return DIVERGED if last is None else next(words for most, words in BANDS.items() if last < most)


@cache
def last_loss(devices: int, rate: float, weights: str) -> float | None:
    """Twelve linear layers on so many devices, 300 mini-batches of 16 digits, and an update after each.

    The mean loss of the last 40 mini-batches; None if the training diverged.
    """
    data, rng = digits(), np.random.default_rng(0)
    rows = np.concatenate([rng.permutation(len(data.x)) for _ in range(4)])[: LENGTH * SAMPLES]
    stages = split(layers(6, seed=0), stages=devices)
    losses, diverged = losses_of(stages, _stream(devices), (data.x[rows], data.y[rows]), rate, weights)
    return None if diverged else float(np.mean(losses[-40:]))


@cache
def _stream(devices: int) -> PipeDream:
    return PipeDream(devices, LENGTH)
