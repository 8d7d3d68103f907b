"""What a device computes in each unit of time, and what the FLOPs of a model take it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real

from gpipe_sim.core.costs import Costs
from gpipe_sim.errors import duration, got, require
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


def costs_from_flops(
    profile: Profile, device: Accelerator | Sequence[Accelerator], microbatches: int = 1
) -> Costs:
    """What the FLOPs of a model take a device, or devices that differ: one for each of a schedule's.

    F, I and W compute what ``profile.costs(microbatches)`` counts. Messages take no time here: for those give
    ``simulate`` links and the profile.
    """
    if not hasattr(profile, "costs"):
        raise TypeError(
            f"costs_from_flops needs a profile, as profile(partitions, batch, loss) {got(profile)}"
        )
    several = isinstance(device, Sequence)
    for each in device if several and device else [device]:
        require("costs_from_flops", each, Accelerator, "an Accelerator, or a list of them")
    speed = [each.flops for each in device] if several else device.flops
    overhead = [each.overhead for each in device] if several else device.overhead
    return replace(profile.costs(microbatches), speed=speed, overhead=overhead)
