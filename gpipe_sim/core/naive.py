"""Model parallelism without a pipeline."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpipe_sim.core.actions import Action, B, F
from gpipe_sim.core.schedule import Schedule


@dataclass(frozen=True)
class Naive(Schedule):
    """One microbatch at a time goes down the model and back: one device works, the others wait.

    >>> print(gp.Naive(devices=2, microbatches=2))
    device 0: 0F0 0B0 0F1 0B1
    device 1: 1F0 1B0 1F1 1B1

    Bubble (K-1)/K, however many microbatches there are.
    """

    microbatches: int = 1

    def order(self, device: int) -> Iterator[Action]:
        for m in range(self.microbatches):
            yield F(device, m)
            yield B(device, m)
