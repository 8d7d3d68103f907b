"""What a device holds while an action runs, beside what it holds when one ends.

While an action runs, there is more than at its ends, and that peak is ``MemoryTrace.inside``. What the action
frees, it frees when it ends. The meter looks between two layers, and counts on top what the layers before
have left (what they saved, what W still needs, gradients that are new) and the one array that passes on to
the next layer. A layer that is made of layers says what there is between these (``inside_layers``). Not
counted is what exists only while a single layer runs: NumPy's temporaries, and the gradient of a later
microbatch until it is added. The first backward of a stage of two layers:

    there at the start   [======= all that is held, and the message with dy: freed at the end =======]
    gradients, new                      [ of layer 1                   ][ of layers 1 and 0          ]
    passes on                           [ gradient of layer 1's input  ][ of layer 0's input: sent   ]
                               layer 1  ^ looks                layer 0  ^ looks
"""

from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gpipe_sim.core.memory import Inside, MemoryTrace, MeteredMemory, roots_by_id
from gpipe_sim.core.timeline import Span
from gpipe_sim.transformers.inside_layers import listening


class InsideMeter(MeteredMemory):
    """A meter that also looks between the layers of each action.

    ``spans`` are the actions that ran, and ``most`` the most bytes while each of them did.
    """

    def __init__(self):
        super().__init__()
        self.spans: list[Span] = []
        self.most: list[int] = []
        self._there = 0  # bytes: held when the action started, or left by its layers since
        self._seen: dict[int, np.ndarray] = {}  # by id: what its layers have left, what it frees when it ends

    def begin(self, span: Span) -> None:
        self._there, self._seen = sum(self._bytes), {}
        self.spans.append(span)
        self.most.append(self._there)

    def watching(self) -> AbstractContextManager:
        return listening(partial(self.look, None))

    def let_go(self, root: np.ndarray) -> None:
        self._seen[id(root)] = root

    def look(self, stays: Any, passes: Any = None) -> None:
        held, seen = self._roots, self._seen
        if stays is not None:
            for root_id, root in roots_by_id(stays).items():
                if root_id not in held and root_id not in seen:
                    seen[root_id] = root
                    self._there += root.nbytes
        there = self._there
        for root_id, root in roots_by_id(passes).items():
            if root_id not in held and root_id not in seen:
                there += root.nbytes
        if there > self.most[-1]:
            self.most[-1] = there

    def sample(self, time: Any, instant: bool = False) -> None:
        self._seen = {}  # an action has ended: what it freed may go
        super().sample(time, instant)

    def trace(self) -> MemoryTrace:
        pairs = zip(self.spans, self.most, strict=True)
        return replace(
            super().trace(), inside=tuple(Inside(span.action, most, *span[2:]) for span, most in pairs)
        )
