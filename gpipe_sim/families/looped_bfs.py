"""GPipe over several thin stages per device."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpipe_sim.core.actions import Action, B, F
from gpipe_sim.core.schedule import Schedule


@dataclass(frozen=True)
class LoopedBFS(Schedule):
    """Breadth first: every microbatch through a device's first stage, then every one through its next.

    Bubble (K-1)/(K-1+VM) for M >= K, as interleaved 1F1B; but after its last forward a device holds all VM
    stage-activations. The drain is reversed, as in GPipe. The order is PyTorch's ScheduleLoopedBFS, action
    for action. Lamy-Poirier 2022, arXiv:2211.05953.
    """

    name = "Looped BFS"

    stages_per_device: int = 2

    def order(self, device: int) -> Iterator[Action]:
        held, microbatches = self.placement[device], range(self.microbatches)
        yield from (F(stage, m) for stage in held for m in microbatches)
        yield from (B(stage, m) for stage in reversed(held) for m in reversed(microbatches))
