"""A small real data set that ships with the package: 1,797 handwritten digits, 8 x 8 pixels each.

The test part of "Optical Recognition of Handwritten Digits", E. Alpaydin and C. Kaynak, 1998, UCI
Machine Learning Repository, doi:10.24432/C50P49, CC BY 4.0.
"""

from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from gpipe_sim.errors import floating, got, require_in, whole


class Data(NamedTuple):
    """Training and held-out samples; x is (samples, features), y is (samples,)."""

    x: np.ndarray
    y: np.ndarray
    x_held_out: np.ndarray
    y_held_out: np.ndarray


def digits(*, held_out: float = 0.2, seed: int = 0, dtype: "DTypeLike" = "float64") -> Data:
    """Digits as 64 features from 0 to 1, shuffled by the seed; the share ``held_out`` of them is held out.

    >>> data = gp.digits()
    >>> data.x.shape, data.y.shape, data.x_held_out.shape
    ((1438, 64), (1438,), (359, 64))

    The file is sorted by writer. Without the shuffle, the held-out digits would come from writers that
    training never saw, and accuracy would be lower. ValueError unless 0 < held_out < 1 leaves some digits on
    both sides, or for a dtype that is not floating.
    """
    require_in("digits", "held_out", held_out, 0, 1)
    dtype = floating("digits", dtype)
    images, labels = digit_images()
    order = np.random.default_rng(whole("digits", "seed", seed, low=0)).permutation(len(labels))
    x = (images.reshape(len(images), -1)[order] / 16).astype(dtype)
    y = labels[order].astype(np.int64)
    kept = len(y) - round(held_out * len(y))
    if kept in (0, len(y)):
        raise ValueError(f"digits needs a held_out that leaves some on both sides {got(held_out)}")
    return Data(x[:kept], y[:kept], x[kept:], y[kept:])


def digit_images() -> tuple[np.ndarray, np.ndarray]:
    """The file as it is: images (1797, 8, 8) with values 0 to 16, labels (1797,), sorted by writer."""
    with (files("gpipe_sim") / "data" / "digits.npz").open("rb") as file:
        stored = np.load(file)
        return stored["images"], stored["labels"]
