"""1F1B with the backward split: weight gradients, which nobody waits for, fill the bubble.

The papers' B is our I, the input gradient; F, I and W there take T_F, T_B and T_W.
Qi, Wan, Huang and Lin 2024, arXiv:2401.10241.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gpipe_sim.schedule.actions import Action, F, I, W
from gpipe_sim.schedule.base import Schedule


@dataclass(frozen=True)
class ZBH1(Schedule):
    """1F1B's warm-up; each device puts its weight gradients off by as many microbatches as it is far down.

    Bubble time (K-1)(T_F + T_B - T_W) while T_W is the shortest, a third of 1F1B's when all are equal.
    Device k, from 0, holds at most K-k microbatches from F until I and another k from I until W, so no more
    than 1F1B's first device.
    Also known as ZB1P's hand-made form. PyTorch's ScheduleInterleavedZeroBubble with one stage per
    device is the same order.
    """

    def warmup(self, device: int) -> int:
        """Forwards before the first input gradient."""
        return self.devices - device - 1

    def delay(self, device: int) -> int:
        """How many microbatches a weight gradient stands behind its input gradient."""
        return device

    def order(self, device: int) -> Iterator[Action]:
        warmup = min(self.warmup(device), self.microbatches)
        delay = min(self.delay(device), self.microbatches)
        yield from (F(device, m) for m in range(warmup))
        for m in range(self.microbatches):
            if warmup + m < self.microbatches:
                yield F(device, warmup + m)
            yield I(device, m)
            if m >= delay:
                yield W(device, m - delay)
        yield from (W(device, m) for m in range(self.microbatches - delay, self.microbatches))


@dataclass(frozen=True)
class ZBH2(ZBH1):
    """Twice the warm-up and twice the delay of ZB-H1: no device pauses between its first and last action.

    Bubble time (K-1)(T_F + T_B - 2 T_W) while T_W is the shortest and M >= 2K-1: for equal times only the
    two corners of the chart stay white.
    Device k, from 0, holds at most 2(K-k)-1 microbatches until I and another 2k until W.
    """

    def warmup(self, device: int) -> int:
        return 2 * (self.devices - device - 1)

    def delay(self, device: int) -> int:
        return 2 * device
