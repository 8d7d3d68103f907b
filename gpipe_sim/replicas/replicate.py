"""Data parallelism: several copies of a pipeline, each with a share of the microbatches.

The copies exchange nothing before their last backward. A stage has a copy in each of them, and the gradients
of these are summed when that has ended on all: see ``replicas.all_reduce`` for what it takes. If the
schedule has updates, they wait for that, and each copy is updated with the sum.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import isfinite

from gpipe_sim.core.actions import Action, OverlapFB
from gpipe_sim.core.rows import read_row
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.errors import Real, got, listed, number, one_of, require_few, whole
from gpipe_sim.families.derived import later

ADJACENT = ("stages", "replicas")


@dataclass(frozen=True, repr=False)
class SideBySide(Schedule):
    """Pipelines that train one model together. Made by ``side_by_side``, and by ``replicate``."""

    inners: tuple[Schedule, ...]
    adjacent: str = ADJACENT[0]

    def __post_init__(self):
        """What makes it has looked at the sizes; here each device would count as stages of its own."""

    @property
    def alike(self) -> bool:
        return len(set(self.inners)) == 1

    @property
    def name(self) -> str:
        names = [inner.name for inner in self.inners]
        return f"{len(names)} x {names[0]}" if self.alike else " beside ".join(names)

    @property
    def weights(self) -> tuple[str, ...]:  # type: ignore[override]
        first, *others = (inner.weights for inner in self.inners)
        return tuple(each for each in first if all(each in other for other in others))

    @property
    def stages_per_device(self) -> int:  # type: ignore[override]
        return max(inner.stages_per_device for inner in self.inners)

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        held = [inner.placement for inner in self.inners]
        return tuple(held[replica][own] for replica, own in self.places)

    @cached_property
    def places(self) -> list[tuple[int, int]]:
        """Per device, (replica, the device of its own schedule that this one is)."""
        each = ((replica, own) for replica, inner in enumerate(self.inners) for own in range(inner.devices))
        return sorted(each, key=None if self.adjacent == "stages" else lambda place: place[::-1])

    def order(self, device: int) -> Iterator[Action | OverlapFB]:
        replica, own = self.places[device]
        inner, by = self.inners[replica], sum(each.microbatches for each in self.inners[:replica])
        row = read_row(f"{inner!r}.order({own})", inner.order(own))
        return (later(action, by) for action in row)

    def __repr__(self) -> str:
        if not self.alike:
            return f"side_by_side([{', '.join(map(repr, self.inners))}])"
        adjacent = "" if self.adjacent == ADJACENT[0] else f", adjacent={self.adjacent!r}"
        return f"replicate({self.inners[0]!r}, {len(self.inners)}{adjacent})"


def replicate(schedule: Schedule, replicas: int, *, adjacent: str = "stages") -> Schedule:
    """So many copies of a pipeline, each with a share of the batch: data parallelism.

    >>> print(gp.replicate(gp.OneFOneB(devices=2, microbatches=2), replicas=2))
    device 0, stage 0: 0F0 0F1 0B0 0B1
    device 1, stage 1: 1F0 1B0 1F1 1B1
    device 2, stage 0: 0F2 0F3 0B2 0B3
    device 3, stage 1: 1F2 1B2 1F3 1B3

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
    return _of((schedule,) * replicas, adjacent)


def _of(inners: tuple[Schedule, ...], adjacent: str = ADJACENT[0]) -> SideBySide:
    devices = sum(inner.devices for inner in inners)
    microbatches = sum(inner.microbatches for inner in inners)
    return SideBySide(devices, microbatches, inners, adjacent)


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
    found = _of(inners)
    require_few("side_by_side", min(stages) * found.microbatches, "pairs of stage and microbatch")
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
    for _ in range(samples - sum(counts)):  # less than one for each
        soonest = min(range(len(exact)), key=lambda place: (counts[place] + 1) / exact[place])
        counts[soonest] += 1
    return tuple(counts)
