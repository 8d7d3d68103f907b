"""A schedule as PyTorch's engine wants it: without R, and with microbatches numbered as it counts them."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from gpipe_sim.export.torch_csv import require_torch
from gpipe_sim.schedule.actions import Action, Kind, OverlapFB
from gpipe_sim.schedule.base import Schedule
from gpipe_sim.schedule.explicit import Explicit


class EngineOrder:
    """What the engine is told of a schedule, and how to read what it answers.

    ``plain`` is the order without R, which is no action of the engine's; ``recomputed`` is {stage: the
    microbatches that are recomputed}. The engine finds a microbatch's loss and output by counting the last
    stage's forwards, so microbatches go under the number that each has there; ``turns`` lists their own.

    ScheduleError for a schedule that the engine cannot run.
    """

    def __init__(self, schedule: Schedule):
        require_torch(schedule)
        last = schedule.stages - 1
        self.turns = [a.microbatch for a in _parts(schedule) if a.kind is Kind.F and a.stage == last]
        self.in_turn = self.turns == sorted(self.turns)
        counted = schedule if self.in_turn else self._counted(schedule)
        self.recomputed: dict[int, set[int]] = {}
        for stage, microbatch in np.argwhere(counted.program.homes(Kind.R) >= 0).tolist():
            self.recomputed.setdefault(stage, set()).add(microbatch)
        self.plain = _without_r(counted) if self.recomputed else counted

    def batch(self, whole: Tensor) -> Tensor:
        """Inputs or targets, their microbatches as the engine counts them."""
        return whole if self.in_turn else _cut_and_joined(whole, self.turns)

    def outputs(self, whole: Tensor) -> Tensor:
        """The engine's outputs, in the order of the batch."""
        return whole if self.in_turn else _cut_and_joined(whole, np.argsort(self.turns).tolist())

    def named(self, action: Action) -> Action:
        """An action of the engine's, under the microbatch's own number."""
        return action if self.in_turn else action._replace(microbatch=self.turns[action.microbatch])

    def _counted(self, schedule: Schedule) -> Explicit:
        number = {m: i for i, m in enumerate(self.turns)}

        def rename(action):
            if isinstance(action, OverlapFB):
                return OverlapFB(*map(rename, action))
            return action._replace(microbatch=number[action.microbatch])

        rows = [[rename(action) for action in row] for row in schedule.actions]
        return Explicit(rows, placement=schedule.placement)


def _parts(schedule: Schedule) -> Iterator[Action]:
    return (part for row in schedule.actions for action in row for part in action.parts)


def _without_r(schedule: Schedule) -> Explicit:
    rows = [[action for action in row if action.parts[0].kind is not Kind.R] for row in schedule.actions]
    return Explicit(rows, placement=schedule.placement, microbatches=schedule.microbatches)


def _cut_and_joined(whole: Tensor, turns: Sequence[int]) -> Tensor:
    pieces = whole.tensor_split(len(turns))
    return torch.cat([pieces[m] for m in turns])
