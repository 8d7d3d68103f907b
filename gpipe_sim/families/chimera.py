"""Two 1F1B pipelines in opposite directions; each runs in the bubbles of the other."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpipe_sim.core.actions import Action, B, F
from gpipe_sim.families.placements import Bidirectional


@dataclass(frozen=True)
class Chimera(Bidirectional):
    """Two copies of the model run in opposite directions; each device holds one stage of each copy.

    Microbatches come in units of K, half of them in each direction. A device has time slots, each for one
    forward or backward, and no two actions of a unit fall into the same slot; the next unit begins 2K slots
    later. Bubble (K-2)/(2M+K-2) for equal forward and backward; with backward = 2 forward and M = K it is
    (K-2)/(3M/2+K-2). A device holds K/2+1 to K activations, and twice the parameters. K must be even. If K
    does not divide M, the last unit is not full, and the bubble is larger.
    Li and Hoefler 2021, arXiv:2107.06925.
    """

    def order(self, device: int) -> Iterator[Action]:
        slots = {}
        for m in range(self.microbatches):
            unit, within = divmod(m, self.devices)
            opposite, i = divmod(within, self.devices // 2)
            stage = self.devices - 1 - device if opposite else device
            start = 2 * (self.devices * unit + i)
            slots[start + stage] = F(stage, m)
            slots[start + 2 * self.devices - 1 - stage] = B(stage, m)
        return (slots[slot] for slot in sorted(slots))
