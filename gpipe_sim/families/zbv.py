"""Zero bubble over a V: the model goes down the devices and comes back."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, repeat

from gpipe_sim.core.actions import Action, F, I, W
from gpipe_sim.families.placements import VShaped


@dataclass(frozen=True)
class ZBV(VShaped):
    """Device k holds stage k on the way down and stage 2K-1-k on the way back.

    >>> print(gp.ZBV(devices=2, microbatches=2))
    device 0, stages 0 3: 0F0 0F1 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 0I1 0W1
    device 1, stages 1 2: 1F0 2F0 1F1 2F1 2I0 2W0 1I0 1W0 2I1 2W1 1I1 1W1
    >>> gp.ZBV(2, 2).placement
    ((0, 3), (1, 2))

    So device 0 has both the first stage and the loss. For T_F = T_B = T_W and M >= 2K-1, no device waits
    between its first and last action. A device holds at most 2K stage-activations, as much as 1F1B holds for
    the same model. The order is PyTorch's ScheduleZBVZeroBubble, action for action.
    Qi, Wan, Huang and Lin 2024, arXiv:2401.10241, section 5.

    For M < 2K-1, the order is generated for 2K-1 microbatches and the extra ones are dropped, as in PyTorch.
    Devices then wait where those would have run: with F = I = W = 1 and M < (3K-1)/2 a step takes 4(K+M) - 2.
    That is 30 at 4 x 4, 46 at 8 x 4 and 62 at 8 x 8. Within the same memory a solver found 27, 39 and 55.
    """

    name = "ZB-V"

    def order(self, device: int) -> Iterator[Action]:
        """For M < 2K-1: generate 2K-1 microbatches and drop the extra ones."""
        return (action for action in self._phases(device) if action.microbatch < self.microbatches)

    def _phases(self, device: int) -> Iterator[Action]:
        down, back = self.placement[device]
        below, total = self.devices - device, max(self.microbatches, 2 * self.devices - 1)
        # Iterators over the microbatches, one for each kind and stage.
        (F0, I0, W0), (F1, I1, W1) = (_next_of(stage) for stage in (down, back))
        for _ in range(2 * below - 1):
            yield next(F0)
        for _ in range(device):
            yield from (next(F1), next(F0))
        for _ in range(below):
            yield from (next(F1), next(I1), next(W1))
        for m in range(total - self.devices):
            if m < total - 2 * below + 1 - device:
                yield next(F0)
            yield from (next(I0), next(W0), next(F1), next(I1), next(W1))
        for _ in range(device):
            yield from (next(I0), next(I1))
        for _ in range(below):
            yield from (next(I0), next(W0))
        yield from (next(W1) for _ in range(device))
        yield from (next(W0) for _ in range(device))


def _next_of(stage: int) -> tuple[Iterator[Action], ...]:
    return tuple(map(kind, repeat(stage), count()) for kind in (F, I, W))
