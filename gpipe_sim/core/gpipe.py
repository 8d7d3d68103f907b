"""All forwards, then all backwards."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpipe_sim.core.actions import Action, B, F
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.errors import one_of

DRAINS = ("reversed", "in_order")


@dataclass(frozen=True, repr=False)
class GPipe(Schedule):
    """Every forward, then every backward; in between, a device holds all M microbatches.

    >>> print(gp.GPipe(devices=2, microbatches=3))
    device 0: 0F0 0F1 0F2 0B2 0B1 0B0
    device 1: 1F0 1F1 1F2 1B2 1B1 1B0

    Bubble (K-1)/(K-1+M). Also known as F-then-B, fill-drain, AFAB. The drain is reversed (the last
    microbatch's backward comes first), as in the paper's figure; ``drain="in_order"`` is PyTorch's order.
    Huang et al. 2019, arXiv:1811.06965.
    """

    drain: str = "reversed"

    def __post_init__(self):
        super().__post_init__()
        one_of("GPipe", "drain", self.drain, DRAINS)

    def __repr__(self) -> str:
        drain = "" if self.drain == "reversed" else f", drain={self.drain!r}"
        return f"GPipe(devices={self.devices}, microbatches={self.microbatches}{drain})"

    def order(self, device: int) -> Iterator[Action]:
        microbatches = range(self.microbatches)
        yield from (F(device, m) for m in microbatches)
        drained = microbatches if self.drain == "in_order" else reversed(microbatches)
        yield from (B(device, m) for m in drained)
