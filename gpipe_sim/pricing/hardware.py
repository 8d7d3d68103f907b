"""What a device computes in each unit of time, and what holds it up."""

import warnings
from dataclasses import dataclass
from fractions import Fraction
from math import inf

from gpipe_sim.core.timeline import rounded
from gpipe_sim.errors import Real, duration, got, number, one_of, require, require_in

#: Beyond these no machine is: FLOPs that a device could compute while it starts an action, or while a message
#: crosses; and FLOPs in a unit of time, be it a nanosecond.
MOST_LOST, LEAST = 10**14, 1000
#: FLOP/s of dense 2-byte products, bytes/s of memory, and FLOP/s of the fastest dense products, as NVIDIA's
#: data sheets promise.
SHEET = {"A100": (312e12, 2.039e12, 312e12), "H100": (989e12, 3.35e12, 1979e12)}
OTHERS = "linear", "vocabulary"  #: rates that are ``flops`` unless they are given
TIMES, RATES = ("overhead", "launch", "call", "microbatch", "step"), ("flops", "hbm", "linear", "vocabulary")


@rounded
@dataclass(frozen=True)
class Accelerator:
    """What a device computes: so many ``flops`` in each unit of time, and an ``overhead`` for each action.

    >>> gpu, tokens = gp.Accelerator(flops=137e12, overhead=1e-5), gp.MetaArray((8, 512), "i8")
    >>> profile = gp.profile(gp.split(gp.bert_large(), stages=4), (tokens, tokens), gp.cross_entropy)
    >>> costs = gp.planning.costs_from_flops(profile, gpu, microbatches=8)
    >>> f"{gp.simulate(gp.OneFOneB(4, 8), costs).makespan:.4f} s"
    '0.0239 s'

    Say what its products reach, not what its data sheet promises, and never what a whole step reached: that
    has all waiting in it. ``price`` and ``plan`` also ask what holds a layer up besides its products:

    - ``hbm``: bytes that its memory moves in a unit of time.
    - ``launch``: how long the host takes to start one kernel. The device works meanwhile, but for
      ``exposed``, a share of the shorter of the two.
    - ``call``: what a sum over tensor-parallel devices takes beside its bytes.
    - ``linear``: ``flops`` in products with the weights of blocks, if they are others: in FP8, say.
    - ``vocabulary``: ``flops`` in the product with a vocabulary that is not cut, if they are others.
    - ``microbatch``, ``step``: what each takes beside everything else.
    - ``card``: its name, if its data sheet is known here: no rate may be above that.

    ValueError for ``flops`` that are not above 0 or anything negative, TypeError for anything but numbers. A
    warning where an overhead can hardly be in the unit of the rate, and of fewer than 1,000 ``flops``: no
    device computes so little even in a nanosecond, so they may be given in tera.
    """

    flops: Real
    overhead: Real = 0
    hbm: Real = inf
    launch: Real = 0
    exposed: Real = 0
    call: Real = 0
    linear: Real | None = None
    vocabulary: Real | None = None
    microbatch: Real = 0
    step: Real = 0
    card: str = ""

    def __post_init__(self):
        for name in TIMES:
            object.__setattr__(self, name, duration("Accelerator", name, getattr(self, name)))
        object.__setattr__(self, "flops", duration("Accelerator", "flops", self.flops))
        for name in RATES:
            if (rate := getattr(self, name)) is not None or name not in OTHERS:
                rate = number("Accelerator", name, rate)
                if not (rate > 0 and (name == "hbm" or rate < inf)):
                    raise ValueError(f"Accelerator needs {name} > 0, for each unit of time {got(rate)}")
                object.__setattr__(self, name, rate)
        require_in("Accelerator", "exposed", self.exposed, 0, 1)
        self._require_below_its_data_sheet()
        if self.flops < LEAST:
            few = f"{brief(self.flops)} flops in a unit of time, fewer than any in a nanosecond"
            warnings.warn(f"Accelerator has {few}: of seconds, 312 TFLOP/s are flops=312e12", stacklevel=3)
        for name, what in (("overhead", "an overhead"), ("launch", "a launch"), ("call", "a call")):
            warn_if_lost("Accelerator", what, getattr(self, name), self.flops)

    def _require_below_its_data_sheet(self) -> None:
        if require("Accelerator", self.card, str, "card to be a name, such as 'A100'"):
            one_of("Accelerator", "card", self.card, SHEET)
            for name, most in zip(("flops", "hbm", "linear"), SHEET[self.card], strict=True):
                if (getattr(self, name) or 0) > most:
                    raise ValueError(
                        f"Accelerator needs {name} <= {most:g}, which the data sheet of an {self.card} "
                        f"promises for a second {got(getattr(self, name))}"
                    )


def warn_if_lost(owner: str, what: str, time: Real, flops: Real) -> None:
    """Warn if so much could be computed in that time that it must be in another unit than the rate."""
    if Fraction(time) * Fraction(flops) > MOST_LOST:
        says = f"{owner} has {what} of {brief(time)} units of time, each of {brief(flops)} FLOPs"
        warnings.warn(f"{says}: of seconds, a microsecond is 1e-6", stacklevel=4)


def brief(value: Real) -> str:
    """In six digits, also of a number that no float holds."""
    return f"{float(min(value, 1e300)):g}"


#: An A100 of 80 GB in Megatron-LM or DeepSpeed, in seconds. By hand, from published steps of 2021 and 2022,
#: and not fitted to any.
A100 = Accelerator(
    260e12,
    hbm=1.6e12,
    launch=5.5e-5,
    exposed=0.15,
    call=1.5e-4,
    vocabulary=80e12,
    microbatch=1e-3,
    step=4e-3,
    card="A100",
)

#: An H100 of 80 GB in NVIDIA's NeMo and Megatron-Bridge with FP8, in seconds, by hand: what products with the
#: weights of blocks reach is in FP8, all others are in bfloat16. A half and two thirds of the data sheet.
H100 = Accelerator(
    650e12,
    hbm=2.7e12,
    linear=1000e12,
    launch=8e-6,
    exposed=0.15,
    call=2e-5,
    microbatch=1e-3,
    step=4e-3,
    card="H100",
)
