"""Two 1F1B pipelines in opposite directions, each in the other's bubbles."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpipe_sim.schedule.actions import Action, B, F
from gpipe_sim.schedule.base import Schedule
from gpipe_sim.schedule.placement import bidirectional


@dataclass(frozen=True)
class Chimera(Schedule):
    """Each device holds two stages of two copies of the model, which run in opposite directions.

    A unit of K microbatches, half in each direction, is laid out in slots of one forward or backward so
    that no two fall on the same slot of a device; further units follow 2K slots later. Bubble
    (K-2)/(2M+K-2) for equal forward and backward; with backward = 2 forward and M = K it is
    (K-2)/(3M/2+K-2). Holds K/2+1 to K activations, and twice the parameters. K is even. Where K does not
    divide M the last unit is not full, and its bubble is larger. Li and Hoefler 2021, arXiv:2107.06925.
    """

    def __post_init__(self):
        super().__post_init__()
        if self.devices % 2:
            raise ValueError(
                f"Chimera needs an even number of devices (got {self.devices}); {self.devices + 1} would work"
            )

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        return bidirectional(self.devices)

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
