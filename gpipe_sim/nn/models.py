"""Models: plain lists of layers."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from gpipe_sim.errors import floating, got, listed, one_of, whole
from gpipe_sim.nn.layers import GELU, Layer, Linear, ReLU, Tanh

ACTIVATIONS = {"relu": ReLU, "tanh": Tanh, "gelu": GELU}


def mlp(
    sizes: Sequence[int], *, activation: str = "relu", seed: int = 0, dtype: np.dtype = np.float64
) -> list[Layer]:
    """Linear layers with an activation between them; ``sizes`` lists the features, from input to output.

    ``mlp([64, 32, 10])`` is Linear(64, 32), ReLU, Linear(32, 10). Weights are He-initialised from the
    seed. ValueError for fewer than two sizes, a size below 1, an unknown activation or a dtype that is not
    floating.
    """
    sizes = [
        whole("mlp", "every size", size) for size in listed("mlp", "a list of sizes, such as [64, 10]", sizes)
    ]
    if len(sizes) < 2:
        raise ValueError(f"mlp needs at least two sizes, input and output {got(sizes)}")
    one_of("mlp", "activation", activation, ACTIVATIONS)
    floating("mlp", dtype)
    rng = np.random.default_rng(whole("mlp", "seed", seed, low=0))
    layers: list[Layer] = []
    for inputs, outputs in pairwise(sizes):
        layers += [Linear(inputs, outputs, rng=rng, dtype=dtype), ACTIVATIONS[activation]()]
    return layers[:-1]
