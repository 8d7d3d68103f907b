"""One forward, one backward."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpipe_sim.core.actions import Action, B, F
from gpipe_sim.core.schedule import Schedule


@dataclass(frozen=True)
class OneFOneB(Schedule):
    """Warm up, then alternate one forward with one backward.

    >>> print(gp.OneFOneB(devices=2, microbatches=3))
    device 0: 0F0 0F1 0B0 0F2 0B1 0B2
    device 1: 1F0 1B0 1F1 1B1 1F2 1B2

    Bubble (K-1)/(K-1+M), as GPipe; but device k holds at most K-k activations.
    It is PipeDream-Flush: ``PipeDream`` with one update, when all M microbatches are through. Narayanan et
    al. 2021, arXiv:2006.09503. Also known as DAPPLE, Fan et al. 2021, arXiv:2007.01045.
    """

    name = "1F1B"

    def warmup(self, device: int) -> int:
        """How many forwards the device runs before it alternates; ``order`` caps this at M."""
        return self.devices - device - 1

    def order(self, device: int) -> Iterator[Action]:
        warmup = min(self.warmup(device), self.microbatches)
        steady = self.microbatches - warmup
        yield from (F(device, m) for m in range(warmup))
        for m in range(steady):
            yield F(device, warmup + m)
            yield B(device, m)
        yield from (B(device, m) for m in range(steady, self.microbatches))


@dataclass(frozen=True)
class Eager1F1B(OneFOneB):
    """1F1B with twice the warm-up, so that messages travel while a device works on other microbatches.

    If messages take no time, it takes as long as 1F1B and only holds more: at most 2(K-k)-1 microbatches on
    device k. Zhuang et al. 2023, arXiv:2211.05322.
    """

    name = "Eager 1F1B"

    def warmup(self, device: int) -> int:
        return 2 * (self.devices - device - 1)
