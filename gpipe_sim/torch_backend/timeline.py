"""A schedule on its way to PyTorch's engine, and the timeline of what the engine did.

``EngineOrder`` is what the engine is told; ``notes_on`` a device say when actions start and end; ``measured``
makes a ``Timeline`` of them.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from gpipe_sim.core.actions import Action, Kind, OverlapFB
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.timeline import Span, Timeline
from gpipe_sim.export.spans import from_spans
from gpipe_sim.export.torch_csv import require_torch
from gpipe_sim.families.derived import unpaired
from gpipe_sim.traces.notes import Notes, Timed, untold

MILLISECONDS = 1000


class EngineOrder:
    """What the engine is told of a schedule, and how to read what it answers.

    ``plain`` is the order without R, which is no action of the engine's; ``recomputed`` is {stage: the
    microbatches that are recomputed}. The engine finds a microbatch's loss and output by counting the last
    stage's forwards, so microbatches go under the number that each has there; ``turns`` lists their own.

    ScheduleError for a schedule that the engine cannot run.
    """

    def __init__(self, schedule: Schedule):
        require_torch(schedule)
        parts = [part for row in schedule.actions for action in row for part in action.parts]
        self.turns = [m for stage, kind, m in parts if kind is Kind.F and stage == schedule.stages - 1]
        self.in_turn = self.turns == sorted(self.turns)
        number = {m: i for i, m in enumerate(self.turns)}
        self.recomputed: dict[int, set[int]] = {}
        for stage, kind, m in parts:
            if kind is Kind.R:
                self.recomputed.setdefault(stage, set()).add(number[m])

        def counted(action: Action | OverlapFB) -> Action | OverlapFB:
            own = [part._replace(microbatch=number[part.microbatch]) for part in action.parts]
            return OverlapFB(*own) if len(own) > 1 else own[0]

        rows = [[counted(a) for a in row if a.parts[0].kind is not Kind.R] for row in schedule.actions]
        self.plain = Explicit(rows, placement=schedule.placement)

    def batch(self, whole: Tensor) -> Tensor:
        """Inputs or targets, their microbatches as the engine counts them."""
        return whole if self.in_turn else _cut_and_joined(whole, self.turns)

    def outputs(self, whole: Tensor) -> Tensor:
        """The engine's outputs, in the order of the batch."""
        return whole if self.in_turn else _cut_and_joined(whole, np.argsort(self.turns).tolist())

    def named(self, action: Action, first: int = 0) -> Action:
        """An action of the engine's, under the microbatch's own number; ``first`` is that of a copy."""
        return action._replace(microbatch=first + self.turns[action.microbatch])


def _cut_and_joined(whole: Tensor, turns: Sequence[int]) -> Tensor:
    pieces = whole.tensor_split(len(turns))
    return torch.cat([pieces[m] for m in turns])


def notes_on(device: torch.device, tell: Callable[[str], object] = untold) -> Notes:
    """What notes actions on a torch device: by the clock, on a GPU by CUDA events."""
    return Notes(torch.cuda if device.type == "cuda" else None, device, tell)


def measured(schedule: Schedule, noted: Sequence[Timed], turns: bool = False) -> Timeline:
    """The timeline of what was noted in seconds, in milliseconds from the first start.

    Waiting is not part of an action. The engine runs the halves of an overlapped pair one after the other, so
    they are two actions here. A recompute runs within a backward: it lasts from that one's start until all
    is restored, and the backward goes on from there.
    """
    times = dict(_unfolded(noted, schedule))
    zero = min(start for start, _ in times.values())
    spans = [
        Span(action, schedule.device_of(action), (start - zero) * MILLISECONDS, (end - zero) * MILLISECONDS)
        for action, (start, end) in times.items()
    ]
    return from_spans(_as_run(unpaired(schedule), spans), spans, took_turns=turns)


def _as_run(schedule: Schedule, spans: Sequence[Span]) -> Schedule:
    """The schedule, or where a recompute ran later than it stands there, the order in which things ran."""
    rows: list[list[Action | OverlapFB]] = [[] for _ in range(schedule.devices)]
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        rows[span.device].append(span.action)
    if list(map(tuple, rows)) == list(schedule.actions):
        return schedule
    return Explicit(rows, placement=schedule.placement, microbatches=schedule.microbatches)


def _unfolded(noted: Sequence[Timed], schedule: Schedule) -> Iterator[tuple[Action, tuple[float, float]]]:
    """Each action with its times, a recompute taken out of the backward that it ran in.

    Stage 0 leaves its whole backward to W, and its recompute with it: R is then an instant before I. So it is
    where nothing was recomputed, because the stage saves nothing.
    """
    restored = {(a.stage, a.microbatch): end for a, _, end in noted if a.kind is Kind.R}
    for action, start, end in noted:
        again = action._replace(kind=Kind.R)
        if action.kind in (Kind.B, Kind.I) and schedule.program.find(again) >= 0:
            until = restored.get((action.stage, action.microbatch), start)
            middle = until if until <= end else start
            yield again, (start, middle)
            yield action, (middle, end)
        elif action.kind is not Kind.R:
            yield action, (start, end)
