"""A schedule is plain data: the order in which each device performs its actions.

It knows nothing of time, arrays or colour. What must come before what is said once, in ``NEEDS``,
and everything that times, runs or checks a schedule reads it from there.
"""

import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from gpipe_sim.actions import Action, Kind, OverlapFB
from gpipe_sim.refuse import got, require_count, require_text

MOST_PAIRS = 1_000_000  #: (stage, microbatch) of an order given row by row, besides 1,000 for each action
#: What an action waits for: (kind, how many stages further along the model), same microbatch.
#: Of these, it waits for the ones that its schedule contains. A backward reads what its forward saved
#: (or R restored) and the gradient from the stage after, which either B or I sends. R reads only a
#: boundary input, which was there when F ran: it does not wait for the gradient.
_BACKWARD = ((Kind.F, 0), (Kind.R, 0), (Kind.B, 1), (Kind.I, 1))
NEEDS: dict[Kind, tuple[tuple[Kind, int], ...]] = {
    Kind.F: ((Kind.F, -1),),
    Kind.R: ((Kind.F, 0),),
    Kind.B: _BACKWARD,
    Kind.I: _BACKWARD,
    Kind.W: ((Kind.I, 0),),
    Kind.U: ((Kind.B, 0), (Kind.W, 0)),
}


def needs(action: Action | OverlapFB, schedule: "Schedule") -> tuple[Action, ...]:
    """The actions that must have ended, and sent what they made, before this one can start."""
    wanted = (
        Action(part.stage + step, kind, part.microbatch)
        for part in action.parts
        for kind, step in NEEDS[part.kind]
    )
    return tuple(filter(schedule.contains, wanted))


@dataclass(frozen=True)
class Schedule(ABC):
    """The order of actions per device. A family of schedules is one class with one method, ``order``.

    ``devices`` and ``microbatches`` are whole numbers of at least 1; anything else is a ValueError
    or TypeError that says so.
    """

    devices: int
    microbatches: int
    stages_per_device: ClassVar[int] = 1

    def __new__(cls, *args, **kwargs):
        if "chunks" in kwargs:
            raise TypeError(
                f"{cls.__name__} takes no chunks=: torchgpipe's chunks are microbatches=, "
                "Megatron's model chunks are stages_per_device="
            )
        return super().__new__(cls)

    def __post_init__(self):
        for name in ("devices", "microbatches", "stages_per_device"):
            require_count(type(self).__name__, name, getattr(self, name))

    @abstractmethod
    def order(self, device: int) -> Iterable[Action | OverlapFB]:
        """What this device does, first to last."""

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        """The stages that each device holds. Unless a family says otherwise, stage s is on s mod K."""
        return looped(self.devices, self.devices * self.stages_per_device)

    @cached_property
    def stages(self) -> int:
        """How many stages the model is cut into."""
        placement = read_placement(type(self).__name__, self.placement, self.devices)
        return 1 + max(stage for held in placement for stage in held)

    @cached_property
    def stacked(self) -> bool:
        """Whether some device holds several stages."""
        return any(len(held) > 1 for held in self.placement)

    @cached_property
    def actions(self) -> tuple[tuple[Action | OverlapFB, ...], ...]:
        """One row of actions per device."""
        name = type(self).__name__
        return tuple(tuple(_read_row(f"{name}.order({k})", self.order(k))) for k in range(self.devices))

    @cached_property
    def located(self) -> dict[Kind, list[int | None]]:
        """Where each action runs: ``located[kind][stage * microbatches + microbatch]`` is a device.

        None where the schedule has no such action. Of an action that stands twice, the first counts.
        Labels out of range are left out, so ``validate`` counts to see whether any were.
        """
        table = {kind: [None] * (self.stages * self.microbatches) for kind in Kind}
        stages, microbatches = self.stages, self.microbatches
        for device, row in enumerate(self.actions):
            for action in row:
                for stage, kind, microbatch in action.parts:
                    if 0 <= stage < stages and 0 <= microbatch < microbatches:
                        slots, slot = table[kind], stage * microbatches + microbatch
                        if slots[slot] is None:
                            slots[slot] = device
        return table

    def contains(self, action: Action) -> bool:
        """Whether some device performs this action."""
        stage, kind, microbatch = action
        if not (0 <= stage < self.stages and 0 <= microbatch < self.microbatches):
            return False
        return self.located[kind][stage * self.microbatches + microbatch] is not None

    def device_of(self, action: Action) -> int:
        """The device that performs this action; ValueError if none does."""
        if not self.contains(action):
            raise ValueError(f"{action} is not in {self!r}")
        return self.located[action.kind][action.stage * self.microbatches + action.microbatch]

    def timeline(self, costs=None):
        """Shorthand for ``simulate(schedule, costs)``."""
        from gpipe_sim.simulate import simulate

        return simulate(self, costs)

    def _repr_svg_(self) -> str | None:
        """What a notebook shows: the timeline for unit costs. An order that cannot run stays text."""
        from gpipe_sim.svg import to_svg
        from gpipe_sim.validate import ScheduleError

        try:
            return to_svg(self.timeline())
        except ScheduleError:
            return None

    def __str__(self) -> str:
        rows = (" ".join(map(str, row)) for row in self.actions)
        return "\n".join(f"device {device}: {row}".rstrip() for device, row in enumerate(rows))


@dataclass(frozen=True, init=False, repr=False)
class Explicit(Schedule):
    """A schedule given row by row: a student's own, or one read from a file.

    ``rows`` holds one row per device, of actions or of their spelling ("0F0 0B0" or ["0F0", "0B0"]).
    ``placement`` is the stages that each device holds, stage s on device s mod K unless given;
    ``microbatches`` is one more than the largest label unless given. ValueError if a label cannot be read.
    """

    rows: tuple[tuple[Action | OverlapFB, ...], ...]
    held: tuple[tuple[int, ...], ...]

    def __init__(
        self,
        rows: Sequence[str | Iterable[str | Action | OverlapFB]],
        *,
        placement: Sequence[Sequence[int]] | None = None,
        microbatches: int | None = None,
    ):
        if isinstance(rows, str) or not isinstance(rows, Iterable):
            raise TypeError(f"Explicit takes one row per device, such as ['0F0 0B0'] {got(rows)}")
        rows = tuple(tuple(_read_row(f"row {i} of Explicit", row)) for i, row in enumerate(rows))
        parts = [part for row in rows for action in row for part in action.parts]
        if not parts:
            raise ValueError("Explicit needs at least one action, such as 0F0")
        if microbatches is None:
            microbatches = 1 + max(part.microbatch for part in parts)
        require_count("Explicit", "microbatches", microbatches)
        if placement is None:
            stages = 1 + max(part.stage for part in parts)
            _require_room(stages, microbatches, len(parts))
            placement = looped(len(rows), stages)
        held = read_placement("Explicit", placement, len(rows))
        _require_gapless(held)
        _require_room(len({stage for stages in held for stage in stages}), microbatches, len(parts))
        values = {"devices": len(rows), "microbatches": microbatches, "rows": rows, "held": held}
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    @classmethod
    def parse(cls, text: str, **options) -> "Explicit":
        """Read one row per line, as ``str(schedule)`` writes it; "device 0:" in front is optional.

        No text says which stages a device holds: give ``placement=schedule.placement`` where stage s is not
        on device s mod K. ValueError for a row that is called another device than it is.
        """
        require_text("Explicit.parse", text)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        rows = [re.fullmatch(r"(?:device (\d+):)?(.*)", line) for line in lines]
        for device, row in enumerate(rows):
            if row[1] and int(row[1]) != device:
                raise ValueError(f"row {device} is called device {row[1]}: rows are devices 0, 1, ...")
        return cls([row[2] for row in rows], **options)

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        return self.held

    def order(self, device: int) -> Iterable[Action | OverlapFB]:
        return self.rows[device]

    def __repr__(self) -> str:
        return f"Explicit(devices={self.devices}, microbatches={self.microbatches})"


def looped(devices: int, stages: int) -> tuple[tuple[int, ...], ...]:
    """Stage s on device s mod K: device 0 holds 0, K, 2K, and so on."""
    require_count("looped", "devices", devices)
    require_count("looped", "stages", stages)
    return tuple(tuple(range(device, stages, devices)) for device in range(devices))


def v_shaped(devices: int) -> tuple[tuple[int, ...], ...]:
    """Two stages per device, down and back: device k holds k and 2K-1-k."""
    require_count("v_shaped", "devices", devices)
    return tuple((device, 2 * devices - 1 - device) for device in range(devices))


def both_ways(devices: int) -> tuple[tuple[int, ...], ...]:
    """Two copies of the model in opposite directions: device k holds k and K-1-k."""
    require_count("both_ways", "devices", devices)
    return tuple((device, devices - 1 - device) for device in range(devices))


def repeat(schedule: Schedule, steps: int) -> Explicit:
    """The same step several times: on each device, one begins as soon as its own part of the last is done.

    Microbatches are numbered on: microbatch m of step s, from 0, is s * schedule.microbatches + m. It is for
    times: no weight changes between the steps, so trained with it would be one step over all of them.
    """
    require_schedule("repeat", schedule)
    require_count("repeat", "steps", steps)
    shifts = [step * schedule.microbatches for step in range(steps)]
    rows = [[_later(action, by) for by in shifts for action in row] for row in schedule.actions]
    return Explicit(rows, placement=schedule.placement, microbatches=steps * schedule.microbatches)


def _later(action: Action | OverlapFB, by: int) -> Action | OverlapFB:
    if isinstance(action, OverlapFB):
        return OverlapFB(*(_later(part, by) for part in action.parts))
    return action._replace(microbatch=action.microbatch + by)


def peak_in_flight(schedule: Schedule) -> tuple[int, ...]:
    """Per device, the most (stage, microbatch) pairs forwarded and not yet freed by B or W."""
    require_schedule("peak_in_flight", schedule)
    return tuple(max(_in_flight(row), default=0) for row in schedule.actions)


def _in_flight(row: Iterable[Action | OverlapFB]) -> Iterator[int]:
    held = 0
    for action in row:
        for part in action.parts:
            held += (part.kind is Kind.F) - (part.kind in (Kind.B, Kind.W))
            yield held


def require_schedule(owner: str, value) -> None:
    """Refuse anything but a schedule, such as its name or its class."""
    if not isinstance(value, Schedule):
        raise TypeError(f"{owner} needs a schedule, such as GPipe(4, 8) {got(value)}")


def _read_row(owner: str, row: str | Iterable) -> Iterator[Action | OverlapFB]:
    """The actions that a row spells or lists."""
    if isinstance(row, Action | OverlapFB) or not isinstance(row, Iterable):
        raise TypeError(f"{owner} needs to list actions, such as [F(0, 0), B(0, 0)] or '0F0 0B0' {got(row)}")
    for cell in row.split() if isinstance(row, str) else row:
        if cell.__class__ is Action and cell.stage.__class__ is cell.microbatch.__class__ is int:
            yield cell if cell.kind.__class__ is Kind else _plain(cell)
        elif isinstance(cell, str):
            yield Action.parse(cell)
        elif isinstance(cell, OverlapFB) and all(isinstance(part, Action) for part in cell):
            yield OverlapFB(*map(_plain, cell))
        elif isinstance(cell, Action):
            yield _plain(cell)
        else:
            raise TypeError(f"{owner} takes actions or their spelling, such as '0F0' {got(cell)}")


def _plain(action: Action) -> Action:
    """The action with whole numbers and a ``Kind``, whatever it was made of."""
    try:
        return Action(operator.index(action.stage), Kind(action.kind), operator.index(action.microbatch))
    except (TypeError, ValueError) as error:
        raise type(error)(f"{action} is not an action: {error}") from None


def _require_room(stages: int, microbatches: int, actions: int) -> None:
    """ValueError for labels so far out that a table of all they make possible would not fit in memory."""
    if stages * microbatches > 1000 * actions + MOST_PAIRS:
        raise ValueError(
            f"{stages} stages and {microbatches} microbatches are far beyond {actions} actions: "
            "is a label wrong?"
        )


def read_placement(
    owner: str, placement: Sequence[Sequence[int]], devices: int
) -> tuple[tuple[int, ...], ...]:
    """The stages that each device holds; TypeError or ValueError for what does not say so."""
    try:
        held = tuple(tuple(map(operator.index, stages)) for stages in placement)
    except TypeError:
        raise TypeError(
            f"{owner} needs placement to list the stages of each device, such as [[0, 3], [1, 2]] "
            f"{got(placement)}"
        ) from None
    if len(held) != devices:
        raise ValueError(f"{owner} needs placement to list {devices} devices (got {len(held)})")
    return held


def _require_gapless(held: tuple[tuple[int, ...], ...]) -> None:
    found = sorted({stage for stages in held for stage in stages})
    if not found or found != list(range(len(found))):
        raise ValueError(f"placement must hold the stages 0, 1, 2, ... without a gap (got {found})")
