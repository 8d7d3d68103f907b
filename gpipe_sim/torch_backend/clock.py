"""The clock that notes when the actions of one device start and end."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gpipe_sim.schedule.actions import Action, Kind

#: An action's start and end, in seconds of this machine's monotonic clock.
Timed = tuple[Action, float, float]


class Recorder:
    """Notes when actions start and end on one torch device: by the clock, on a GPU by CUDA events.

    An action on a GPU starts when the GPU gets to it, not when Python asks for it.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self.marks: list[list] = []

    def begin(self) -> None:
        """Forget what was noted. On a GPU, also tie its clock to the machine's."""
        self.marks = []
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            self.origin, self.began = self.mark(), time.perf_counter()

    @contextmanager
    def action(self, kind: Kind, stage: int, microbatch: int) -> Iterator[None]:
        noted = [Action(stage, kind, microbatch), self.mark(), None]
        try:
            yield
        finally:
            noted[2] = self.mark()
            self.marks.append(noted)

    def extend(self) -> None:
        """The last action goes on until now: the loss belongs to the forward before it."""
        if self.marks:
            self.marks[-1][2] = self.mark()

    def mark(self) -> Any:
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def spans(self) -> list[Timed]:
        """What was noted, in the order of the ends; on a GPU this waits until it is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return [(action, self._seconds(start), self._seconds(end)) for action, start, end in self.marks]

    def _seconds(self, mark: Any) -> float:
        if self.device.type != "cuda":
            return mark
        return self.began + self.origin.elapsed_time(mark) / 1000
