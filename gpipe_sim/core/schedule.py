"""A schedule is plain data: the order in which each device performs its actions.

It knows nothing of time, arrays or colour. One table, ``NEEDS``, says which actions must come before which,
and everything that times, runs or checks a schedule reads that table.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from gpipe_sim.core.actions import Action, OverlapFB
from gpipe_sim.core.hooks import Hook, Shown
from gpipe_sim.core.lowering import lower
from gpipe_sim.core.placement import looped, read_placement, say_stages
from gpipe_sim.core.program import Program, write_rows
from gpipe_sim.core.rows import read_action
from gpipe_sim.core.rules import NEEDS
from gpipe_sim.errors import require, require_few, whole

#: Which version of its weights a stage uses, where updates stand on the way: see ``streams/versions.py``.
WEIGHTS: tuple[str, ...] = ("stashed", "vertical", "double", "latest")


@dataclass(frozen=True)
class Schedule(ABC):
    """The order of actions per device. A family of schedules is one class with one method, ``order``.

    To add one, write its class in ``families/`` and name it there in ``SCHEDULES``: every law tests it then.
    ``devices`` and ``microbatches`` are whole numbers of at least 1: ValueError if one is smaller, TypeError
    if it is no whole number.
    """

    devices: int
    microbatches: int
    stages_per_device = 1  #: stages of the model for each device; several copies of a stage count once
    weights = WEIGHTS  #: the ``weights`` that it can be trained with, the first unless others are asked for

    def __new__(cls, *args, **kwargs):
        if "chunks" in kwargs:
            raise TypeError(
                f"{cls.__name__} takes no chunks=: torchgpipe's chunks are microbatches=, "
                "Megatron's model chunks are stages_per_device="
            )
        return super().__new__(cls)

    def __post_init__(self):
        for name in ("devices", "microbatches", "stages_per_device"):
            size = whole(type(self).__name__, name, getattr(self, name))
            if name in vars(self):
                object.__setattr__(self, name, size)
        count = self.devices * self.stages_per_device * self.microbatches
        require_few(type(self).__name__, count, "pairs of stage and microbatch")

    @property
    def name(self) -> str:
        """What its paper calls the family, as charts do: 1F1B for OneFOneB. The class's name, unless set."""
        return type(self).__name__

    @abstractmethod
    def order(self, device: int) -> Iterable[Action | OverlapFB]:
        """The actions of this device, first to last."""

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        """The stages that each device holds. Unless a family says otherwise, device s mod K holds stage s."""
        return looped(self.devices, self.devices * self.stages_per_device)

    @property
    def stages(self) -> int:
        """How many stages the model is cut into."""
        placement = read_placement(type(self).__name__, self.placement, self.devices)
        return 1 + max(stage for held in placement for stage in held)

    @cached_property
    def program(self) -> Program:
        """The order as columns of whole numbers, see ``Program``; made on first use and then kept."""
        return lower(self)

    @property
    def actions(self) -> tuple[tuple[Action | OverlapFB, ...], ...]:
        """One row of actions per device."""
        return self.program.actions

    def device_of(self, action: Action | OverlapFB | str) -> int:
        """The device that performs this action, or this pair as one block; ValueError if none does."""
        part = self.program.find(action := read_action("device_of", action))
        if part < 0:
            raise ValueError(f"{action} is not in {self!r}")
        return int(self.program.device[part])

    def _repr_html_(self) -> str | None:
        """What a notebook shows: the timeline for unit costs. An order that cannot run stays text."""
        chart = CHART.filled(self)
        return chart._repr_html_() if chart else None

    def __getstate__(self) -> dict:
        """What is copied or pickled: everything but the program, which a copy can make again."""
        return {name: value for name, value in vars(self).items() if name != "program"}

    def __str__(self) -> str:
        """One row per device; it names the device's stages too, unless stage s is on device s mod K.

        Of more than 10,000 actions it has only the first of each row, and says how many it leaves out.
        """
        program = self.program
        heads = [f"device {device}" for device in range(self.devices)]
        if program.placement != looped(self.devices, 1 + int(program.stage.max(initial=0))):
            held = map(say_stages, program.placement)
            heads = [f"{head}, {stages}" for head, stages in zip(heads, held, strict=True)]
        return write_rows(program, heads, lambda entry: str(program.entry_of(entry)))


CHART: Hook[Callable[[Schedule], Shown | None]] = Hook("chart_of_schedule", "a chart in a notebook")


def needs(action: Action | OverlapFB | str, schedule: Schedule) -> tuple[Action, ...]:
    """The actions that must have ended, and sent what they made, before this one can start."""
    require_schedule("needs", schedule)
    action, program = read_action("needs", action), schedule.program
    entry = int(program.entry[part]) if (part := program.find(action)) >= 0 else None
    if entry is not None and program.entry_of(entry) == action:
        return tuple(map(program.action_of, program.needs_of(entry)))
    wanted = (
        Action(part.stage + step, kind, part.microbatch)
        for part in action.parts
        for kind, step in NEEDS[part.kind]
    )
    return tuple(need for need in wanted if program.part_of(need) >= 0)


def require_schedule(owner: str, value) -> None:
    """TypeError unless the value is a schedule: its name or its class is not enough."""
    require(owner, value, Schedule, "a schedule, such as GPipe(4, 8)")
