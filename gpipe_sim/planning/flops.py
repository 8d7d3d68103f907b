"""What the FLOPs of a model take a device."""

from dataclasses import replace

from gpipe_sim.core.costs import Costs
from gpipe_sim.errors import require
from gpipe_sim.memory.profile import Profile
from gpipe_sim.pricing.hardware import Accelerator


def costs_from_flops(profile: Profile, device: Accelerator, microbatches: int = 1) -> Costs:
    """What the FLOPs of a model take a device. For devices that differ see the ``speed`` of ``Costs``.

    F, I and W compute what ``profile.costs(microbatches)`` counts. Messages take no time here: for those give
    ``simulate`` links and the profile.
    """
    require("costs_from_flops", profile, Profile, "a profile, as profile(partitions, batch, loss)")
    require("costs_from_flops", device, Accelerator, "an Accelerator")
    return replace(profile.costs(microbatches), speed=device.flops, overhead=device.overhead)
