"""One process's part of a pipeline on PyTorch's engine.

PyTorch's engine reads an order as text, adds the messages, and runs the row of its rank. Its own classes for
interleaved 1F1B and others do no more than fill it.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from gpipe_sim.export.torch_csv import to_torch_csv
from gpipe_sim.schedule.actions import Kind, OverlapFB
from gpipe_sim.schedule.base import Schedule
from gpipe_sim.schedule.explicit import Explicit
from gpipe_sim.torch_backend.clock import Recorder, Timed
from gpipe_sim.torch_backend.gradients import as_array, gradients_of, grown
from gpipe_sim.torch_backend.inside import Inside
from gpipe_sim.torch_backend.losses import MeanLoss, mean_of
from gpipe_sim.torch_backend.private import runtime, unlogged
from gpipe_sim.torch_backend.stage import Stage

alone = threading.RLock()  #: held while this process has a group of its own


class Part(NamedTuple):
    """What one process got out of a step: loss and outputs if it holds the last stage, and its own spans."""

    loss: float | None
    outputs: np.ndarray | None
    gradients: dict[tuple[int, str], np.ndarray]  # by (stage, parameter name)
    spans: list[Timed]


class Engine:
    """The stages of one process. ``order`` has a row per process and no R: ``recomputed`` says what has."""

    def __init__(
        self,
        modules: dict[int, nn.Module],
        order: Schedule,
        recomputed: dict[int, set[int]],
        loss: MeanLoss,
        homes: dict[int, torch.device],
        group: Any = None,
    ):
        self.modules, self.group, self.loss = modules, group, loss
        self.recorders = {device: Recorder(device) for device in homes.values()}
        self.homes, self.size, self.last = homes, order.microbatches, order.stages - 1
        self.turns = _turns(order)
        names = {m: i for i, m in enumerate(self.turns)}
        self.order = _renamed(order, names)
        self.recomputed = {stage: {names[m] for m in found} for stage, found in recomputed.items()}
        self.runtime, self.fits = None, None

    def step(self, x: Tensor, targets: Tensor) -> Part:
        """Run one step. ``.grad`` grows by its gradients; if the step fails, it is as before."""
        kept = [(p, p.grad) for module in self.modules.values() for p in module.parameters()]
        for parameter, _ in kept:
            parameter.grad = None
        try:
            with _some_group(), unlogged():
                part = self._run(x, targets)
        except BaseException:
            for parameter, gradient in kept:
                parameter.grad = gradient
            self.runtime = None  # it may hold half a step
            raise
        for parameter, gradient in kept:
            parameter.grad = grown(gradient, parameter.grad)
        return part

    def _run(self, x: Tensor, targets: Tensor) -> Part:
        if self.fits != (x.shape, x.dtype):  # what it receives into has one size
            self.runtime, self.fits = None, (x.shape, x.dtype)
        self.runtime = self.runtime or self._made()
        for recorder in self.recorders.values():
            recorder.begin()
        losses: list[Tensor] = []
        last = self.last in self.modules
        inputs = [self._taken(x, 0)] if 0 in self.modules else []
        target = self._taken(targets, self.last) if last else None
        outputs = self.runtime.step(*inputs, target=target, losses=losses)
        return Part(
            sum(loss.item() for loss in losses) if last else None,
            as_array(self._given(outputs)) if last else None,
            gradients_of(self.modules),
            [self._as_named(timed) for recorder in self.recorders.values() for timed in recorder.spans()],
        )

    def _made(self) -> Any:
        stages = [
            Stage(
                Inside(module, stage, last=stage == self.last),
                stage,
                self.last + 1,
                self.group,
                self.recorders[self.homes[stage]],
                self.recomputed.get(stage, set()),
            )
            for stage, module in self.modules.items()
        ]
        return runtime(stages, self.size, self._weighted, to_torch_csv(self.order))

    def _weighted(self, output: Tensor, target: Tensor) -> Tensor:
        """A microbatch's share of the loss. It is weighted here, so the engine need not divide gradients."""
        value = mean_of(self.loss, output, target) / self.size
        self.recorders[self.homes[self.last]].extend()
        return value

    def _taken(self, whole: Tensor, stage: int) -> Tensor:
        """The batch where a stage needs it, its microbatches in the order of the last stage's forwards."""
        return self._in_order(whole.to(self.homes[stage]), self.turns)

    def _given(self, whole: Tensor) -> Tensor:
        return self._in_order(whole, sorted(range(self.size), key=self.turns.__getitem__))

    def _in_order(self, whole: Tensor, turns: list[int]) -> Tensor:
        if turns == list(range(self.size)):
            return whole
        pieces = whole.tensor_split(self.size)
        return torch.cat([pieces[m] for m in turns])

    def _as_named(self, timed: Timed) -> Timed:
        action, start, end = timed
        return action._replace(microbatch=self.turns[action.microbatch]), start, end


def _turns(order: Schedule) -> list[int]:
    """The microbatches in the order of the last stage's forwards.

    The engine finds a microbatch's loss and output by counting, so it is told of them under these names.
    """
    last = order.stages - 1
    parts = (part for row in order.actions for action in row for part in action.parts)
    return [part.microbatch for part in parts if part.kind is Kind.F and part.stage == last]


def _renamed(order: Schedule, names: dict[int, int]) -> Explicit:
    def rename(action):
        if isinstance(action, OverlapFB):
            return OverlapFB(*map(rename, action))
        return action._replace(microbatch=names[action.microbatch])

    return Explicit([[rename(a) for a in row] for row in order.actions], placement=order.placement)


@contextmanager
def _some_group() -> Iterator[None]:
    """The engine wants a process group, even for one process that sends nothing. One thread at a time."""
    with alone:
        if dist.is_initialized():
            yield
            return
        hook = sys.excepthook
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        sys.excepthook = hook  # or every step wraps it once more, to say on which of one ranks it failed
        try:
            yield
        finally:
            dist.destroy_process_group()
