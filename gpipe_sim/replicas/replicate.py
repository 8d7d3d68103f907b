"""Data parallelism: several copies of a pipeline, each with a share of the microbatches.

The copies exchange nothing before their last backward. A stage has a copy in each of them, and the gradients
of these are summed when that has ended on all: see ``replicas.all_reduce`` for what it takes. If the
schedule has updates, they wait for that, and each copy is updated with the sum.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heapify, heapreplace
from itertools import accumulate
from math import isfinite
from numbers import Real

from gpipe_sim.core.actions import Action, OverlapFB
from gpipe_sim.core.rows import read_row
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.errors import got, listed, number, one_of, require_few, whole
from gpipe_sim.families.derived import later

ADJACENT = ("stages", "replicas")


@dataclass(frozen=True, repr=False)
class Replicated(Schedule):
    """Copies of another schedule side by side. Made by ``replicate``."""

    inner: Schedule
    replicas: int
    adjacent: str

    def __post_init__(self):
        """``replicate`` has looked at the sizes; here each device would count as stages of its own."""

    @property
    def name(self) -> str:
        return f"{self.replicas} x {self.inner.name}"

    @property
    def weights(self) -> tuple[str, ...]:
        return self.inner.weights

    @property
    def stages_per_device(self) -> int:
        return self.inner.stages_per_device

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        inner = self.inner.placement
        return tuple(inner[self.place(device)[1]] for device in range(self.devices))

    def place(self, device: int) -> tuple[int, int]:
        """(replica, the device of ``inner`` that it copies)."""
        if self.adjacent == "stages":
            return divmod(device, self.inner.devices)
        return device % self.replicas, device // self.replicas

    def order(self, device: int) -> Iterator[Action | OverlapFB]:
        replica, copied = self.place(device)
        return _shifted(self.inner, copied, replica * self.inner.microbatches)

    def __repr__(self) -> str:
        adjacent = "" if self.adjacent == ADJACENT[0] else f", adjacent={self.adjacent!r}"
        return f"replicate({self.inner!r}, {self.replicas}{adjacent})"


def replicate(schedule: Schedule, replicas: int, *, adjacent: str = "stages") -> Schedule:
    """So many copies of a pipeline, each with a share of the batch: data parallelism.

    It has ``replicas`` times the devices and the microbatches. Replica r runs the microbatches from r * M on,
    where M is the schedule's; each device of it holds a copy of its stages. ``train_step`` sums the gradients
    of the copies, so that they are those of one device.

    ``adjacent`` says how the devices are numbered, which matters on links that differ (``Nodes``): with
    "stages" replica r has the devices from r * K on, so that the stages of a pipeline are neighbours; with
    "replicas" the copies of a stage are, device k * replicas + r is device k of replica r. ValueError for
    less than 1 replica, TypeError for anything but a schedule and a whole number.
    """
    require_schedule("replicate", schedule)
    replicas = whole("replicate", "replicas", replicas)
    one_of("replicate", "adjacent", adjacent, ADJACENT)
    count = replicas * schedule.stages * schedule.microbatches
    require_few("replicate", count, "pairs of stage and microbatch")
    return Replicated(
        schedule.devices * replicas, schedule.microbatches * replicas, schedule, replicas, adjacent
    )


@dataclass(frozen=True, repr=False)
class SideBySide(Schedule):
    """Replicas that differ. Made by ``side_by_side``."""

    inners: tuple[Schedule, ...]

    def __post_init__(self):
        """``side_by_side`` has looked at the sizes."""

    @property
    def name(self) -> str:
        return " beside ".join(inner.name for inner in self.inners)

    @property
    def weights(self) -> tuple[str, ...]:
        first, *others = (inner.weights for inner in self.inners)
        return tuple(each for each in first if all(each in other for other in others))

    @property
    def stages_per_device(self) -> int:
        return max(inner.stages_per_device for inner in self.inners)

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        return tuple(held for inner in self.inners for held in inner.placement)

    def place(self, device: int) -> tuple[int, int]:
        """(replica, its own number of the device)."""
        ends = list(accumulate(inner.devices for inner in self.inners))
        replica = next(i for i, end in enumerate(ends) if device < end)
        return replica, device - ends[replica] + self.inners[replica].devices

    def order(self, device: int) -> Iterator[Action | OverlapFB]:
        replica, own = self.place(device)
        return _shifted(self.inners[replica], own, sum(each.microbatches for each in self.inners[:replica]))

    def __repr__(self) -> str:
        return f"side_by_side([{', '.join(map(repr, self.inners))}])"


def _shifted(schedule: Schedule, device: int, by: int) -> Iterator[Action | OverlapFB]:
    """A device's row on later microbatches."""
    row = read_row(f"{schedule!r}.order({device})", schedule.order(device))
    return (later(action, by) for action in row)


def side_by_side(schedules: Sequence[Schedule]) -> Schedule:
    """Replicas that differ, each a schedule of its own: unequal devices get unequal shares of the batch.

    Devices and microbatches are numbered on from one to the next. Microbatches are equally large all over, so
    a replica with twice as many has twice the samples: ``shares`` says how many each should have. ValueError
    for no schedule, or if they cut the model into different numbers of stages or cannot all be trained with
    the same ``weights``; TypeError for what is none.
    """
    such_as = "schedules, such as [GPipe(2, 4), GPipe(2, 2)]"
    inners = tuple(listed("side_by_side", such_as, schedules))
    for each in inners:
        require_schedule("side_by_side", each)
    if not inners:
        raise ValueError(f"side_by_side needs {such_as} {got(schedules)}")
    if len(stages := {inner.stages for inner in inners}) > 1:
        raise ValueError(f"side_by_side needs the same stages in all {got(sorted(stages))}")
    devices, microbatches = (
        sum(getattr(inner, name) for inner in inners) for name in ("devices", "microbatches")
    )
    require_few("side_by_side", min(stages) * microbatches, "pairs of stage and microbatch")
    found = SideBySide(devices, microbatches, inners)
    if not found.weights:
        modes = " and ".join(f"weights={' or '.join(map(repr, inner.weights))}" for inner in inners)
        raise ValueError(f"side_by_side needs replicas that can train with the same weights= (got {modes})")
    return found


def shares(samples: int, speeds: Sequence[Real]) -> tuple[int, ...]:
    """How many of the samples each device or replica should get, so that the slowest is done soonest.

    One of speed s takes n / s for n samples, and the largest of these is as small as it can be: exactly, not
    by rounding. Where two are alike, the first gets more. It is D'Hondt's way to give out seats. ``samples``
    may as well be microbatches. ValueError for speeds that are not above 0, TypeError for what are none.
    """
    samples = whole("shares", "samples", samples, low=0)
    speeds = [number("shares", "each speed", s) for s in listed("shares", "speeds, such as [2, 1]", speeds)]
    if not speeds:
        raise ValueError("shares needs at least one speed, such as [2, 1]")
    for speed in speeds:
        if not (speed > 0 and isfinite(speed)):
            raise ValueError(f"shares needs every speed to be finite and > 0 {got(speed)}")
    exact = [Fraction(speed) for speed in speeds]
    counts = [int(samples * speed / sum(exact)) for speed in exact]  # nobody gets less than that
    queue = [
        ((count + 1) / speed, place) for place, (count, speed) in enumerate(zip(counts, exact, strict=True))
    ]
    heapify(queue)
    for _ in range(samples - sum(counts)):
        place = queue[0][1]
        counts[place] += 1
        heapreplace(queue, ((counts[place] + 1) / exact[place], place))
    return tuple(counts)
