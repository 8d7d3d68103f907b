"""Rotary positions: pairs of features of queries and keys are turned by angles that grow with the position.

Pair i of d features turns by position x base^(-2i/d), so a query and a key far apart are turned apart. The
score of the two then depends on how far apart they are alone. There are no weights. Su et al. 2021,
arXiv:2104.09864.
"""

import numpy as np

Array = np.ndarray


def turn(x: Array, base: float, back: bool = False) -> None:
    """Turn x, (batch, heads, sequence, d) with an even d, in place; or turn it back, as a gradient is."""
    sequence, d = x.shape[2:]
    angles = np.arange(sequence)[:, None] * base ** (-np.arange(0, d, 2) / d)
    cos, sin = np.cos(angles).astype(x.dtype), np.sin(-angles if back else angles).astype(x.dtype)
    even, odd = x[..., ::2], x[..., 1::2]
    turned = even * cos - odd * sin
    odd *= cos
    odd += even * sin
    even[:] = turned
