"""A recorder for training loops that label nothing, such as Megatron's.

It wraps the two functions that such a loop calls for every action, and writes what it noted as CSV:

    rank,stage,kind,microbatch,start,end,step
    1,5,F,0,1764000000123.2071,1764000000129.4409,0

A file for each rank, in milliseconds since 1970, on the clock of the rank's machine.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from inspect import signature
from os import PathLike
from typing import Any

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.errors import got, whole
from gpipe_sim.traces.notes import Notes, Timed, replaced
from gpipe_sim.traces.whole_files import file_to_write, write_whole

HEADER = "rank,stage,kind,microbatch,start,end,step"
OWN_LOOP = 'note them yourself: with recorder.action("F", stage, microbatch): ...'


class Recorder:
    """Notes when each action of a training loop starts and ends, on one rank: a process of a pipeline.

    Around some steps of Megatron, in every process, with a file for each:

        from megatron.core.pipeline_parallel import schedules

        recorder = gp.traces.Recorder()
        with recorder.wrapped(schedules):
            ...  # whole steps, as before
        recorder.save(f"spans_{recorder.rank}.csv")

    In a loop of one's own ``with recorder.action("F", stage, microbatch): ...`` stands around each forward,
    with "B" around a backward, or "I" and "W" around its halves.

    ``rank`` is the process's place in its pipeline and ``devices`` how many there are. Unless given, Megatron
    is asked, then ``torch.distributed``. A step begins where an action comes again; what has no backward is
    no step but an evaluation, and is left out. Where CUDA is in use an action is timed by CUDA events, on the
    current stream; tying the GPU's clock to the machine's waits for the GPU once, at the beginning. Else it
    is timed by the clock. It is a few microseconds for an action, and on a GPU two events that are kept.
    """

    def __init__(self, rank: int | None = None, devices: int | None = None):
        self._devices = None if devices is None else whole("Recorder", "devices", devices)
        most = None if devices is None else devices - 1
        self._rank = None if rank is None else whole("Recorder", "rank", rank, 0, most)
        self._loop: Any = None
        self._notes: Notes | None = None
        self._chunks: dict[
            int, int
        ] = {}  #: the model chunks by their id, in the order of their first forward
        self._next: dict[int, int] = {}  #: chunk -> its next microbatch, where the loop does not say
        self._made: dict[int, tuple[int, int]] = {}  #: the id of an output -> whose it is

    @property
    def rank(self) -> int:
        """The place of this process in its pipeline; ValueError if nobody knows it."""
        return self._known("rank", self._rank)

    @property
    def devices(self) -> int:
        """How many processes the pipeline has; ValueError if nobody knows it."""
        return self._known("world_size", self._devices)

    def action(self, kind: str, stage: int, microbatch: int) -> AbstractContextManager[None]:
        """Whatever runs inside is this action. ValueError for another kind than F, B, I, W, R or U."""
        return self._noted().action(Kind(kind), stage, microbatch)

    @contextmanager
    def wrapped(
        self, loop: Any, forward: str = "forward_step", backward: str = "backward_step"
    ) -> "Iterator[Recorder]":
        """Note what two functions of a loop do, meanwhile; ``loop`` is the module or object that has them.

        They are called as Megatron calls them: the forward with ``model``, ``num_microbatches`` and, in newer
        releases, ``current_microbatch`` and ``vp_stage``; what it returns, or returns first, comes back as
        the backward's ``output_tensor``. Chunk v of the model on rank k is stage v * devices + k.

        TypeError for a loop without such functions; ValueError where it is wrapped already, where nobody
        knows the rank, and, from within the loop, for an action that cannot be told.
        """
        wrappers: dict[str, Callable] = {}
        for name, wrapper in ((forward, self._forward), (backward, self._backward)):
            if not callable(function := getattr(loop, name, None)):
                raise TypeError(f"Recorder.wrapped needs a loop with a function {name} {got(loop)}")
            wrappers[name] = wrapper(function)
        if self._loop is not None:
            raise ValueError(
                "Recorder.wrapped is at work already: give the second loop a Recorder of its own"
            )
        self._loop = loop
        try:
            self._rank, self._devices = self.rank, self.devices
            self._noted()
            with replaced(loop, **wrappers):
                yield self
        finally:
            self._loop = None

    def save(self, path: str | PathLike) -> None:
        """Write what was noted as CSV, sorted by start.

        ValueError if that is no training step, or the path does not end in ``.csv``; OSError where nothing
        can be written.
        """
        file = file_to_write("Recorder.save", path, (".csv",))
        noted = [] if self._notes is None else self._notes.spans()
        steps = [step for step in _steps(noted) if any(action.kind in "BIW" for action, _, _ in step)]
        if not steps:
            raise ValueError(
                f"Recorder.save has no step with a backward ({len(noted)} actions noted): wrap the loop "
                f"around whole training steps, or {OWN_LOOP}"
            )
        lines = [
            f"{self.rank},{stage},{kind},{microbatch},{self._epoch(start):.4f},{self._epoch(end):.4f},{step}"
            for step, spans in enumerate(steps)
            for (stage, kind, microbatch), start, end in spans
        ]
        write_whole(file, "\n".join([HEADER, *lines, ""]).encode())

    def _noted(self) -> Notes:
        if self._notes is None:
            cuda = getattr(sys.modules.get("torch"), "cuda", None)
            self._notes = Notes(cuda if cuda and cuda.is_initialized() else None)
            self._notes.begin()
            self._since = time.time() - time.perf_counter()
        return self._notes

    def _epoch(self, seconds: float) -> float:
        return (self._since + seconds) * 1000

    def _known(self, what: str, given: int | None) -> int:
        megatron = getattr(self._loop, "parallel_state", None)
        dist = getattr(sys.modules.get("torch"), "distributed", None)
        if given is not None:
            return given
        if megatron and megatron.model_parallel_is_initialized():
            return getattr(megatron, f"get_pipeline_model_parallel_{what}")()
        if dist and dist.is_available() and dist.is_initialized():
            return getattr(dist, f"get_{what}")()
        raise ValueError("Recorder needs to be told its place: Recorder(rank=0, devices=4)")

    def _forward(self, function: Callable) -> Callable:
        names = list(signature(function).parameters)

        @wraps(function)
        def forward(*args, **kwargs) -> Any:
            chunk, microbatch = self._numbers(dict(zip(names, args, strict=False)) | kwargs)
            with self._step_of(Kind.F, chunk, microbatch):
                result = function(*args, **kwargs)
            self._made[_key(result[0] if isinstance(result, tuple) else result)] = chunk, microbatch
            return result

        return forward

    def _backward(self, function: Callable) -> Callable:
        names = list(signature(function).parameters)

        @wraps(function)
        def backward(*args, **kwargs) -> Any:
            given = dict(zip(names, args, strict=False)) | kwargs
            whose = self._made.pop(_key(given.get("output_tensor")), None)
            if whose is None:
                what = "a backward is for an output_tensor that no forward has returned"
                raise ValueError(f"Recorder cannot tell actions of this loop: {what}; {OWN_LOOP}")
            with self._step_of(Kind.B, *whose):
                return function(*args, **kwargs)

        return backward

    def _step_of(self, kind: Kind, chunk: int, microbatch: int) -> AbstractContextManager[None]:
        return self._noted().action(kind, chunk * self.devices + self.rank, microbatch)

    def _numbers(self, given: dict[str, Any]) -> tuple[int, int]:
        """The chunk and the microbatch of a forward: what the loop says, else as it counts."""
        chunk, microbatch = given.get("vp_stage"), given.get("current_microbatch")
        if chunk is None:
            chunk = self._chunks.setdefault(id(given.get("model")), len(self._chunks))
        if microbatch is None:
            if not given.get("num_microbatches"):
                what = "its forward is told neither current_microbatch nor num_microbatches"
                raise ValueError(f"Recorder cannot tell actions of this loop: {what}; {OWN_LOOP}")
            microbatch = self._next.get(chunk, 0)
            self._next[chunk] = (microbatch + 1) % given["num_microbatches"]
        return int(chunk), int(microbatch)


def _key(output: Any) -> int:
    """What an output is known by: the first of several."""
    return id(output[0] if isinstance(output, list) and output else output)


def _steps(noted: list[Timed]) -> Iterator[list[Timed]]:
    """What was noted, cut before every action that comes again."""
    step: dict[Action, Timed] = {}
    for timed in sorted(noted, key=lambda timed: timed[1]):
        if timed[0] in step:
            yield list(step.values())
            step = {}
        step[timed[0]] = timed
    yield list(step.values())
