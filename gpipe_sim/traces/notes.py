"""When actions start and end, noted while they run: by the machine's clock, or on a GPU by CUDA events."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpipe_sim.core.actions import Action, Kind

#: An action's start and end, in seconds of this machine's monotonic clock.
Timed = tuple[Action, float, float]


def untold(doing: str) -> object:
    """What notes say to nobody."""


class Notes:
    """The actions of one device. An action on a GPU starts when the GPU gets to it, not when Python asks.

    ``cuda`` is ``torch.cuda`` where the work is on a GPU, and ``device`` says which; None is the current one.
    ``tell`` is told of every action before it starts, and "" after it has ended.
    """

    def __init__(self, cuda: Any = None, device: Any = None, tell: Callable[[str], object] = untold):
        self.cuda, self.device, self.tell = cuda, device, tell
        self.marks: list[list] = []

    def begin(self) -> None:
        """Forget what was noted. On a GPU, also tie its clock to the machine's, which waits for it."""
        self.marks = []
        if self.cuda:
            self.cuda.synchronize(self.device)
            self.origin, self.began = self.mark(), time.perf_counter()

    @contextmanager
    def action(self, kind: Kind, stage: int, microbatch: int) -> Iterator[None]:
        """Whatever runs inside is this action, also if it fails."""
        action = Action(stage, kind, microbatch)
        self.tell(f"{stage}{kind}{microbatch}")
        start = self.mark()
        try:
            yield
        finally:
            self.marks.append([action, start, self.mark()])
            self.tell("")

    def extend(self) -> None:
        """The last action goes on until now: the loss belongs to the forward before it."""
        if self.marks:
            self.marks[-1][2] = self.mark()

    def mark(self) -> Any:
        """Now."""
        if not self.cuda:
            return time.perf_counter()
        event = self.cuda.Event(enable_timing=True)
        event.record(self.cuda.current_stream(self.device))
        return event

    def spans(self) -> list[Timed]:
        """What was noted, in the order of the ends; on a GPU this waits until it is done.

        A GPU says how far apart two events are in 32 bits, so each is measured from the one before.
        """
        if not self.cuda:
            return [(action, start, end) for action, start, end in self.marks]
        self.cuda.synchronize(self.device)
        found, last, at = [], self.origin, self.began
        for action, start, end in self.marks:
            at, last = at + last.elapsed_time(start) / 1000, start
            found.append((action, at, at + start.elapsed_time(end) / 1000))
        return found


@contextmanager
def replaced(thing: Any, **functions: Callable) -> Iterator[None]:
    """Give an object or a module other functions for a while; then it has what it had, where it had it."""
    own = {name: vars(thing)[name] for name in functions if name in vars(thing)}
    try:
        for name, function in functions.items():
            setattr(thing, name, function)
        yield
    finally:
        for name in functions:
            setattr(thing, name, own[name]) if name in own else delattr(thing, name)
