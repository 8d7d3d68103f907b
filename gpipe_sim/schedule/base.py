"""A schedule is plain data: the order in which each device performs its actions.

It knows nothing of time, arrays or colour. What must come before what is said once, in ``NEEDS``,
and everything that times, runs or checks a schedule reads it from there.
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from gpipe_sim.errors import got, require_count
from gpipe_sim.schedule.actions import Action, Kind, OverlapFB
from gpipe_sim.schedule.placement import looped, read_placement
from gpipe_sim.schedule.rules import NEEDS

MOST_PAIRS = 1_000_000  #: (stage, microbatch) of an order given row by row, besides 1,000 for each action


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
        return tuple(tuple(read_row(f"{name}.order({k})", self.order(k))) for k in range(self.devices))

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
        from gpipe_sim.simulation.simulate import simulate

        return simulate(self, costs)

    def _repr_svg_(self) -> str | None:
        """What a notebook shows: the timeline for unit costs. An order that cannot run stays text."""
        from gpipe_sim.drawing.svg import to_svg
        from gpipe_sim.errors import ScheduleError

        try:
            return to_svg(self.timeline())
        except ScheduleError:
            return None

    def __str__(self) -> str:
        rows = (" ".join(map(str, row)) for row in self.actions)
        return "\n".join(f"device {device}: {row}".rstrip() for device, row in enumerate(rows))


def needs(action: Action | OverlapFB, schedule: Schedule) -> tuple[Action, ...]:
    """The actions that must have ended, and sent what they made, before this one can start."""
    wanted = (
        Action(part.stage + step, kind, part.microbatch)
        for part in action.parts
        for kind, step in NEEDS[part.kind]
    )
    return tuple(filter(schedule.contains, wanted))


def require_schedule(owner: str, value) -> None:
    """Refuse anything but a schedule, such as its name or its class."""
    if not isinstance(value, Schedule):
        raise TypeError(f"{owner} needs a schedule, such as GPipe(4, 8) {got(value)}")


def read_row(owner: str, row: str | Iterable) -> Iterator[Action | OverlapFB]:
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
