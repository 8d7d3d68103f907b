"""A receive buffer: memory that is written over by the next receive, whoever still reads what was there.

Recv 0F0 into a    a [ 0F0 ]
1F0                a [ 0F0 ] <-- the layer saved its input, which is the buffer itself
Recv 0F1 into a    a [ 0F1 ] <-- and so 1B0 will read microbatch 1
"""

from math import prod

import numpy as np

from gpipe_sim.core.actions import Action
from gpipe_sim.core.boundary import Boundary


class Buffer:
    """Memory for one message at a time; a message that does not fit gets new memory."""

    def __init__(self):
        self.arrays: list[np.ndarray] = []
        self.holds: Action | None = None

    def write(self, message: Boundary, what: Action) -> Boundary:
        """The message as views of this memory, over what was there."""
        self.holds = what
        given = message if isinstance(message, tuple) else (message,)
        if not self._fits(given):
            self.arrays = [np.empty(each.size, each.dtype) for each in given]
        views = [_view(flat, each.shape) for flat, each in zip(self.arrays, given, strict=True)]
        for view, each in zip(views, given, strict=True):
            view[...] = each
        return tuple(views) if isinstance(message, tuple) else views[0]

    def _fits(self, given: tuple[np.ndarray, ...]) -> bool:
        return len(given) == len(self.arrays) and all(
            each.dtype == flat.dtype and each.size <= flat.size
            for each, flat in zip(given, self.arrays, strict=True)
        )


def _view(flat: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return flat[: prod(shape)].reshape(shape)
