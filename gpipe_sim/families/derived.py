"""Schedules made from another one: with updates, several steps of it, without pairs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpipe_sim.core.actions import Action, Kind, OverlapFB, U
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.errors import require_few, whole

Rows = Sequence[Iterable[Action | OverlapFB]]


def with_updates(schedule: Schedule) -> Explicit:
    """The same order with each stage, or copy of one, updated at the end of its device's row.

    >>> print(gp.with_updates(gp.OneFOneB(2, 2)))
    device 0: 0F0 0F1 0B0 0B1 0U1
    device 1: 1F0 1B0 1F1 1B1 1U1

    ``train_step`` then changes the weights itself, ``Costs(update=...)`` says what that takes, and ``repeat``
    makes several steps of it. ValueError for a schedule that has updates.
    """
    require_schedule("with_updates", schedule)
    if Kind.U in schedule.program.where:
        raise ValueError(f"{schedule!r} has updates already")
    rows = []
    for row in schedule.actions:
        last: dict[int, int] = {}
        for part in (part for action in row for part in action.parts):
            last[part.stage] = max(part.microbatch, last.get(part.stage, 0))
        rows.append([*row, *(U(stage, m) for stage, m in sorted(last.items()))])
    return Explicit(rows, placement=schedule.placement, microbatches=schedule.microbatches)


def repeat(schedule: Schedule, steps: int) -> Explicit:
    """The same step several times: each device begins the next step as soon as its own row of this one ends.

    >>> once = gp.families.ZBH2(4, 8)  # its steps overlap
    >>> gp.simulate(once).makespan, gp.simulate(gp.repeat(once, 10)).makespan
    (27, 243)

    Microbatches are numbered on: microbatch m of step s, from 0, is s * schedule.microbatches + m. Of a
    schedule without updates it is one large step over all the microbatches, fit for timing only. Each step of
    ``with_updates(schedule)`` begins on a device with the weights that the last one left there: the numbers
    are those of one step after the other, even where steps overlap.
    """
    require_schedule("repeat", schedule)
    steps = whole("repeat", "steps", steps)
    require_few("repeat", steps * schedule.stages * schedule.microbatches, "pairs of stage and microbatch")
    shifts = [step * schedule.microbatches for step in range(steps)]
    rows = [[later(action, by) for by in shifts for action in row] for row in schedule.actions]
    return rearranged(schedule, rows, schedule.placement, steps * schedule.microbatches)


def later(action: Action | OverlapFB, by: int) -> Action | OverlapFB:
    """The same action on a later microbatch."""
    parts = [part._replace(microbatch=part.microbatch + by) for part in action.parts]
    return OverlapFB(*parts) if len(parts) > 1 else parts[0]


@dataclass(frozen=True, repr=False)
class Unpaired(Schedule):
    """Another schedule without pairs, under its name. Made by ``unpaired``."""

    inner: Schedule

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def weights(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.inner.weights

    @property
    def stages_per_device(self) -> int:  # type: ignore[override]
        return self.inner.stages_per_device

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        return self.inner.placement

    def order(self, device: int) -> Iterator[Action]:
        return (part for action in self.inner.actions[device] for part in action.parts)

    def __repr__(self) -> str:
        return f"unpaired({self.inner!r})"


def unpaired(schedule: Schedule) -> Schedule:
    """The same order without pairs: the two halves of each run one after the other, as engines run them."""
    if not schedule.program.paired:
        return schedule
    return Unpaired(schedule.devices, schedule.microbatches, schedule)


def rearranged(schedule: Schedule, rows: Rows, placement: Sequence, microbatches: int) -> Explicit:
    """What became of a schedule's actions; it is trained with the same ``weights`` as the schedule."""
    found = Explicit(rows, placement=placement, microbatches=microbatches)
    object.__setattr__(found, "weights", schedule.weights)
    return found
