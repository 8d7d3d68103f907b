"""The Transformer of lesson 16 reads a digit as eight rows of eight pixels. Training it takes a minute.

So that was done once, on one device and on four simulated ones, and what came out is stored.
``python -m benchmarks.transformer`` does it again.
"""

import json
from functools import cache, partial
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from gpipe_sim.core.layers import Layer, Linear
from gpipe_sim.core.losses import cross_entropy
from gpipe_sim.core.split import split
from gpipe_sim.core.training import History, train, train_single_device
from gpipe_sim.dataset import Data, digits
from gpipe_sim.families import GPipe
from gpipe_sim.transformers.blocks import TransformerBlock
from gpipe_sim.transformers.optimizers import AdamW
from gpipe_sim.transformers.transformer import LayerNorm, Positions, SequenceMean

FILE = files("gpipe_sim") / "data" / "transformer.json"
PLACES, PIXELS, FEATURES, HEADS, BLOCKS, CLASSES = 8, 8, 32, 4, 4, 10
BALANCE = (3, 1, 1, 4)  #: layers on each of four devices: one block on each
EPOCHS, BATCH, MICROBATCHES, LEARNING_RATE, WEIGHT_DECAY = 40, 64, 8, 2e-3, 0.1
ALONE, PIPELINE = "one device", "GPipe, four devices"


class Trained(NamedTuple):
    """Of every step the loss, and the accuracy on held-out digits after every epoch."""

    losses: list[float]
    accuracies: list[float]


def rows_of_eight() -> Data:
    """The digits, each as (8 places, 8 features)."""
    x, y, x_held_out, y_held_out = digits()
    shape = -1, PLACES, PIXELS
    return Data(x.reshape(shape), y, x_held_out.reshape(shape), y_held_out)


def reader() -> list[Layer]:
    """Nine layers, four of them Transformer blocks; they look at all eight rows at once."""
    rng = np.random.default_rng(0)
    return [
        Linear(PIXELS, FEATURES, rng=rng),
        Positions(PLACES, FEATURES, rng=rng),
        *(TransformerBlock(FEATURES, HEADS, rng=rng) for _ in range(BLOCKS)),
        LayerNorm(FEATURES),
        SequenceMean(),
        Linear(FEATURES, CLASSES, rng=rng),
    ]


def training(name: str, epochs: int = EPOCHS) -> History:
    """Train ``ALONE`` or as a ``PIPELINE``, from the same weights in the same order of digits."""
    optimizer, data = AdamW(LEARNING_RATE, weight_decay=WEIGHT_DECAY), rows_of_eight()
    alone = partial(train_single_device, reader(), data, microbatches=MICROBATCHES)
    stages, schedule = split(reader(), balance=BALANCE), GPipe(len(BALANCE), MICROBATCHES)
    run = alone if name == ALONE else partial(train, stages, schedule, data)
    return run(loss=cross_entropy, optimizer=optimizer, epochs=epochs, batch_size=BATCH, report=None)


@cache
def stored() -> dict[str, Trained]:
    """The two trainings that were stored, by name."""
    return {name: Trained(**found) for name, found in json.loads(FILE.read_text()).items()}
