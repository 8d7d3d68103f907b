"""What a device computes in each unit of time, and what the FLOPs of a model take it."""

from dataclasses import dataclass, replace

from gpipe_sim.core.costs import Costs
from gpipe_sim.errors import Real, duration, got, require
from gpipe_sim.memory.profile import Profile


@dataclass(frozen=True)
class Accelerator:
    """What a device computes: so many ``flops`` in each unit of time, and an ``overhead`` for each action.

    Say what it reaches with your layers, not what its data sheet promises. ValueError for ``flops`` that are
    not above 0 or an overhead that is negative, TypeError for anything but numbers.
    """

    flops: Real
    overhead: Real = 0

    def __post_init__(self):
        for name in ("flops", "overhead"):
            object.__setattr__(self, name, duration("Accelerator", name, getattr(self, name)))
        if not self.flops:
            raise ValueError(f"Accelerator needs flops > 0, for each unit of time {got(self.flops)}")


def costs_from_flops(profile: Profile, device: Accelerator, microbatches: int = 1) -> Costs:
    """What the FLOPs of a model take a device. For devices that differ see the ``speed`` of ``Costs``.

    F, I and W compute what ``profile.costs(microbatches)`` counts. Messages take no time here: for those give
    ``simulate`` links and the profile.
    """
    require("costs_from_flops", profile, Profile, "a profile, as profile(partitions, batch, loss)")
    require("costs_from_flops", device, Accelerator, "an Accelerator")
    return replace(profile.costs(microbatches), speed=device.flops, overhead=device.overhead)
