"""1F1B over several thin stages per device."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from gpipe_sim.core.actions import Action, B, F
from gpipe_sim.core.schedule import Schedule


@dataclass(frozen=True)
class Interleaved1F1B(Schedule):
    """1F1B in which device k holds the stages k, k+K, k+2K, ... and takes microbatches in groups.

    >>> print(gp.Interleaved1F1B(devices=2, microbatches=2, stages_per_device=2))
    device 0: 0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1
    device 1: 1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1

    Bubble (K-1)/(K-1+VM) when K divides M. The price is (KV-1)/(K-1) times as many messages, a little more
    than V times. A group of microbatches runs through one stage of a device, then through its next;
    backwards visit the stages in reverse. When K divides M this is Megatron-LM's order; for other M it
    follows PyTorch: it makes M // K groups (at least one) of equal size, and refuses an M for which that is
    impossible.
    With V = 1 its warm-up is twice that of 1F1B, and it holds more.
    Narayanan et al. 2021, arXiv:2104.04473.
    """

    name = "Interleaved 1F1B"

    stages_per_device: int = 2

    def __post_init__(self):
        super().__post_init__()
        if not self._cuts_evenly(self.microbatches):
            below = next(m for m in range(self.microbatches, 0, -1) if self._cuts_evenly(m))
            above = next(m for m in count(self.microbatches) if self._cuts_evenly(m))
            raise ValueError(
                f"Interleaved1F1B takes microbatches in max(1, M // K) equal groups, and "
                f"{self.microbatches} do not cut into {self.microbatches // self.devices} "
                f"(devices={self.devices}); microbatches={below} or {above} would work"
            )

    def _cuts_evenly(self, microbatches: int) -> bool:
        return microbatches % max(1, microbatches // self.devices) == 0

    @property
    def group(self) -> int:
        """How many microbatches run through one stage before the device goes on to its next stage."""
        return self.microbatches // max(1, self.microbatches // self.devices)

    def order(self, device: int) -> Iterator[Action]:
        held = self.placement[device]
        forwards = [F(*turn) for turn in self._turns(held)]
        backwards = [B(*turn) for turn in self._turns(held[::-1])]
        warmup = 2 * (self.devices - device - 1) + (self.stages_per_device - 1) * self.group
        warmup = min(warmup, len(forwards))
        yield from forwards[:warmup]
        for pair in zip(forwards[warmup:], backwards, strict=False):
            yield from pair
        yield from backwards[len(backwards) - warmup :]

    def _turns(self, held: tuple[int, ...]) -> Iterator[tuple[int, int]]:
        """(stage, microbatch), group by group, each group through every stage that the device holds."""
        for first in range(0, self.microbatches, self.group):
            for stage in held:
                for m in range(first, first + self.group):
                    yield stage, m
