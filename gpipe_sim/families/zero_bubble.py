"""1F1B with the backward split: weight gradients, which no other device waits for, fill the bubble.

The papers write B for the input gradient, our I. T_F, T_B and T_W are the times of our F, I and W.
Qi, Wan, Huang and Lin 2024, arXiv:2401.10241.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gpipe_sim.core.actions import Action, F, I, W
from gpipe_sim.core.schedule import Schedule


@dataclass(frozen=True)
class ZBH1(Schedule):
    """ZB-H1: 1F1B's warm-up, and W, for which no other device waits, is put off to fill idle time.

    >>> print(gp.ZBH1(devices=2, microbatches=3))
    device 0: 0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2
    device 1: 1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2

    Device k, from 0, puts W off by k microbatches: it holds at most K-k of them from F until I and another k
    from I until W, together no more than 1F1B's first device. Bubble time (K-1)(T_F + T_B - T_W) if T_W is
    the shortest; a third of 1F1B's if all three are equal. It is the hand-made form of the papers' ZB1P.
    PyTorch's ScheduleInterleavedZeroBubble with one stage per device is the same order.
    """

    name = "ZB-H1"

    def warmup(self, device: int) -> int:
        """How many forwards the device runs before it alternates; ``order`` caps this at M."""
        return self.devices - device - 1

    def delay(self, device: int) -> int:
        """By how many microbatches a weight gradient comes later than its input gradient."""
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
    """ZB-H2: twice the warm-up and twice the delay of ZB-H1.

    >>> [gp.simulate(family(4, 8)).makespan for family in (gp.OneFOneB, gp.ZBH1, gp.families.ZBH2)]
    [33, 27, 27]
    >>> gp.peak_in_flight(gp.families.ZBH2(4, 8))
    (7, 7, 7, 7)

    Bubble time (K-1)(T_F + T_B - 2 T_W) if T_W is the shortest and M >= 2K-1. If all three are equal, no
    device waits between its first and last action: only the two corners of the chart stay idle.
    Device k, from 0, holds at most 2(K-k)-1 microbatches from F until I and another 2k from I until W.
    """

    name = "ZB-H2"

    def warmup(self, device: int) -> int:
        return 2 * (self.devices - device - 1)

    def delay(self, device: int) -> int:
        return 2 * device
