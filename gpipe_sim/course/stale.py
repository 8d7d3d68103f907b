"""Training on the digits with a flush and without one, at several depths: lesson 19 shows the losses.

All methods get the same microbatches of 16 digits in the same order, since a device is as busy with each.
They differ in when they update, and in which weights they read. The trainings take a quarter of an hour, so
that was done once and what came out is stored; ``python -m benchmarks.staleness`` does it again.
"""

import json
from collections.abc import Sequence
from functools import cache, partial
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from gpipe_sim.core.actions import U
from gpipe_sim.core.device import Batch
from gpipe_sim.core.layers import mlp
from gpipe_sim.core.losses import cross_entropy
from gpipe_sim.core.optimizers import SGD
from gpipe_sim.core.partition import Partition
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.split import split
from gpipe_sim.core.step import train_step
from gpipe_sim.dataset import digits
from gpipe_sim.errors import DivergedError
from gpipe_sim.families import OneFOneB, PipeDream, PipeDream2BW
from gpipe_sim.families.derived import repeat, with_updates

FILE = files("gpipe_sim") / "data" / "staleness.json"
DEPTHS, WIDTH, SAMPLES, MICROBATCHES, BLOCK = (2, 4, 6, 8), 64, 16, 720, 24
RATES = (0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
COMMON, HIGH, OWN = 0.05, 0.1, "own"  #: the rates of all methods alike, and each at the best of ``RATES``
SEEDS, TUNING_SEEDS = tuple(range(8)), (100, 101, 102)

EACH, FLUSHED = "a flush after each", "GPipe, 1F1B"
STASHED, VERTICAL, DOUBLE, LATEST = "PipeDream", "vertical sync", "PipeDream-2BW", "no stashing"
#: The ``weights=`` of those without a flush.
WEIGHTS = {STASHED: "stashed", VERTICAL: "vertical", DOUBLE: "double", LATEST: "latest"}
METHODS = (EACH, FLUSHED, *WEIGHTS)
AT_ONCE = (FLUSHED, DOUBLE)  #: update after K microbatches; the others after each


class Trained(NamedTuple):
    """At which rate; per seed the mean loss of each block of 24 microbatches, and where it diverged.

    ``diverged``: after how many updates, or None. ``losses`` end there.
    """

    rate: float
    losses: list[list[float]]
    diverged: list[int | None]

    @property
    def final(self) -> list[float]:
        """Per seed, the mean over the last 4 blocks; infinity where it diverged."""
        return [
            float("inf") if end else float(np.mean(curve[-4:]))
            for curve, end in zip(self.losses, self.diverged, strict=True)
        ]


def every(method: str, devices: int) -> int:
    """After how many microbatches a method updates."""
    return devices if method in AT_ONCE else 1


def order(method: str, devices: int, microbatches: int = MICROBATCHES) -> Schedule:
    """The rows that a method runs on so many devices; GPipe's flushed steps take as long as 1F1B's."""
    if method in WEIGHTS:
        return (PipeDream2BW if method == DOUBLE else PipeDream)(devices, microbatches)
    size = every(method, devices)
    return repeat(with_updates(OneFOneB(devices, size)), microbatches // size)


def train_stale(
    method: str, devices: int, rate: float, seed: int, microbatches: int = MICROBATCHES
) -> tuple[Sequence[float], int | None]:
    """(the loss of each update, after how many it diverged or None), two Linear layers on each device.

    With a flush, one device computes the same, so that is what is run; a test compares.
    """
    rows = order(method, devices, microbatches)
    if method not in WEIGHTS:
        rows = PipeDream(1, microbatches, every(method, devices))
    partitions = split(layers(devices, seed), stages=rows.devices)
    return losses_of(partitions, rows, stream(microbatches, seed), rate, WEIGHTS.get(method))


def losses_of(
    partitions: Sequence[Partition], rows: Schedule, batch: Batch, rate: float, weights: str | None
) -> tuple[Sequence[float], int | None]:
    """(the loss of each update, after how many it diverged or None) of a stream trained with SGD."""
    run = partial(train_step, optimizer=SGD(rate), weights=weights, meter=False)
    try:
        return run(partitions, rows, batch, cross_entropy).losses, None
    except DivergedError as error:
        return error.losses, len(error.losses)


def layers(devices: int, seed: int) -> list:
    """Two Linear layers for each device, with ReLU between them."""
    return mlp([64] + [WIDTH] * (2 * devices - 1) + [10], seed=seed)


def stream(microbatches: int, seed: int) -> Batch:
    """The digits of so many microbatches, shuffled anew for each epoch."""
    (x, y, *_), rng = digits(), np.random.default_rng(seed)
    whole = len(x) // SAMPLES * SAMPLES
    epochs = -(-microbatches * SAMPLES // whole)
    rows = np.concatenate([rng.permutation(len(x))[:whole] for _ in range(epochs)])
    rows = rows[: microbatches * SAMPLES]
    return x[rows], y[rows]


def blocks(losses: Sequence[float], method: str, devices: int) -> list[float]:
    """The mean loss of each full block of 24 microbatches."""
    size = BLOCK // every(method, devices)
    return [float(np.mean(losses[i : i + size])) for i in range(0, len(losses) - size + 1, size)]


@cache
def times(method: str, devices: int) -> list:
    """When each block is through and its updates are in on every device, with F = 1 and B = 2."""
    ends = simulate(order(method, devices)).ends
    return [max(ends[U(stage, m)] for stage in range(devices)) for m in range(BLOCK - 1, MICROBATCHES, BLOCK)]


@cache
def stored() -> dict[tuple[int, str, float | str], Trained]:
    """The trainings that were stored, by depth, method, and rate: ``COMMON``, ``HIGH`` or ``OWN``."""
    found = json.loads(FILE.read_text())["trained"]
    return {
        (devices, method, rate): Trained(**found[str(devices)][method][str(rate)])
        for devices in DEPTHS
        for method in METHODS
        for rate in (COMMON, HIGH, OWN)
    }


def ahead_by(time: float, devices: int) -> dict[str, float | None]:
    """By method, at its own rate, the mean loss of the last block through by then; None if none is."""
    found: dict[str, float | None] = {}
    for method in METHODS:
        through = sum(at <= time for at in times(method, devices))
        curves = stored()[devices, method, OWN].losses
        found[method] = float(np.mean([curve[through - 1] for curve in curves])) if through else None
    return found
