"""One forward, one backward."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpipe_sim.actions import Action, B, F
from gpipe_sim.schedule import Schedule


@dataclass(frozen=True)
class OneFOneB(Schedule):
    """Warm up, then alternate one forward with one backward.

    Bubble (K-1)/(K-1+M), as GPipe; but device k holds at most K-k activations.
    Also known as PipeDream-Flush and DAPPLE. Narayanan et al. 2021, arXiv:2006.09503.
    """

    def order(self, device: int) -> Iterator[Action]:
        warmup = min(self.devices - device - 1, self.microbatches)
        steady = self.microbatches - warmup
        yield from (F(device, m) for m in range(warmup))
        for m in range(steady):
            yield F(device, warmup + m)
            yield B(device, m)
        yield from (B(device, m) for m in range(steady, self.microbatches))
