"""Where the processes of a pipeline are: here, unless ``local`` or ``launched`` says otherwise."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from gpipe_sim.plan.colocate import colocate
from gpipe_sim.schedule.actions import Kind
from gpipe_sim.schedule.base import Schedule
from gpipe_sim.schedule.explicit import Explicit
from gpipe_sim.torch_backend.engine import Engine, Part
from gpipe_sim.torch_backend.losses import MeanLoss
from gpipe_sim.torch_backend.places import Names, by_stage, chosen, require_on


class Host(ABC):
    """Runs a step wherever its processes are.

    ``first`` and ``last``: where inputs and targets are needed. ``turns``: whether its devices take turns.
    """

    first: torch.device
    last: torch.device
    turns = False

    @abstractmethod
    def step(self, x: Tensor, targets: Tensor) -> list[Part]:
        """What each process that reports here got out of a step."""


class Here(Host):
    """All in this process, in the order of a dependency-respecting merge of the rows."""

    def __init__(self, modules: Sequence[nn.Module], schedule: Schedule, loss: MeanLoss, names: Names | None):
        of_device = chosen(schedule, names)
        homes = by_stage(schedule, of_device)
        held = dict(enumerate(modules))
        require_on(held, homes)
        merged = colocate(plain(schedule), [0] * schedule.devices)
        self.engine = Engine(held, merged, recomputed(schedule), loss, homes)
        self.first, self.last = homes[0], homes[schedule.stages - 1]
        self.turns = len(set(of_device)) == 1
        self.names = ", ".join(map(str, of_device))

    def step(self, x: Tensor, targets: Tensor) -> list[Part]:
        return [self.engine.step(x, targets)]

    def __repr__(self) -> str:
        return self.names


def plain(schedule: Schedule) -> Schedule:
    """The order without R, which is no action of the engine's."""
    if not recomputed(schedule):
        return schedule
    rows = [[action for action in row if action.parts[0].kind is not Kind.R] for row in schedule.actions]
    return Explicit(rows, placement=schedule.placement, microbatches=schedule.microbatches)


def recomputed(schedule: Schedule) -> dict[int, set[int]]:
    """{stage: microbatches} of what is recomputed."""
    found: dict[int, set[int]] = {}
    for stage, microbatch in np.argwhere(schedule.program.homes(Kind.R) >= 0).tolist():
        found.setdefault(stage, set()).add(microbatch)
    return found
