"""What a device computes in each unit of time, and what the FLOPs of a model take it."""

import warnings
from dataclasses import dataclass, replace
from fractions import Fraction

from gpipe_sim.core.costs import Costs
from gpipe_sim.core.timeline import rounded
from gpipe_sim.errors import Real, duration, got, require
from gpipe_sim.memory.profile import Profile

#: Beyond these no machine is: FLOPs that a device could compute while it starts an action, or while a message
#: crosses; and FLOPs in a unit of time, be it a nanosecond.
MOST_LOST, LEAST = 10**14, 1000


@rounded
@dataclass(frozen=True)
class Accelerator:
    """What a device computes: so many ``flops`` in each unit of time, and an ``overhead`` for each action.

    >>> gpu, tokens = gp.Accelerator(flops=137e12, overhead=1e-5), gp.MetaArray((8, 512), "i8")
    >>> profile = gp.profile(gp.split(gp.bert_large(), stages=4), (tokens, tokens), gp.cross_entropy)
    >>> costs = gp.planning.costs_from_flops(profile, gpu, microbatches=8)
    >>> f"{gp.simulate(gp.OneFOneB(4, 8), costs).makespan:.4f} s"
    '0.0239 s'

    Say what it reaches with your layers, not what its data sheet promises. ValueError for ``flops`` that are
    not above 0 or an overhead that is negative, TypeError for anything but numbers. A warning where the two
    can hardly be in one unit of time, and of fewer than 1,000 ``flops``: no device computes so little even in
    a nanosecond, so they may be given in tera.
    """

    flops: Real
    overhead: Real = 0

    def __post_init__(self):
        for name in ("flops", "overhead"):
            object.__setattr__(self, name, duration("Accelerator", name, getattr(self, name)))
        if not self.flops:
            raise ValueError(f"Accelerator needs flops > 0, for each unit of time {got(self.flops)}")
        if self.flops < LEAST:
            few = f"{brief(self.flops)} flops in a unit of time, fewer than any in a nanosecond"
            warnings.warn(f"Accelerator has {few}: of seconds, 312 TFLOP/s are flops=312e12", stacklevel=3)
        warn_if_lost("Accelerator", "an overhead", self.overhead, self.flops)


def warn_if_lost(owner: str, what: str, time: Real, flops: Real) -> None:
    """Warn if so much could be computed in that time that it must be in another unit than the rate."""
    if Fraction(time) * Fraction(flops) > MOST_LOST:
        says = f"{owner} has {what} of {brief(time)} units of time, each of {brief(flops)} FLOPs"
        warnings.warn(f"{says}: of seconds, a microsecond is 1e-6", stacklevel=4)


def brief(value: Real) -> str:
    """In six digits, also of a number that no float holds."""
    return f"{float(min(value, 1e300)):g}"


def costs_from_flops(profile: Profile, device: Accelerator, microbatches: int = 1) -> Costs:
    """What the FLOPs of a model take a device. For devices that differ see the ``speed`` of ``Costs``.

    F, I and W compute what ``profile.costs(microbatches)`` counts. Messages take no time here: for those give
    ``simulate`` links and the profile.
    """
    require("costs_from_flops", profile, Profile, "a profile, as profile(partitions, batch, loss)")
    require("costs_from_flops", device, Accelerator, "an Accelerator")
    return replace(profile.costs(microbatches), speed=device.flops, overhead=device.overhead)
