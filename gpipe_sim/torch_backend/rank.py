"""One process's part of a pipeline on PyTorch's engine.

The engine reads an order as text, adds the messages, and runs the row of its rank. PyTorch's own classes for
interleaved 1F1B and others do no more than fill it.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.export.torch_csv import to_torch_csv
from gpipe_sim.torch_backend.ambient import ambient
from gpipe_sim.torch_backend.canary import require_right
from gpipe_sim.torch_backend.counterparts import MeanLoss, mean_of
from gpipe_sim.torch_backend.group import some_group
from gpipe_sim.torch_backend.modules import require_called
from gpipe_sim.torch_backend.private import UnsupportedTorch, runtime, unlogged, with_messages
from gpipe_sim.torch_backend.stage import StageAdapter, StageModule
from gpipe_sim.torch_backend.tensors import Named, parameters_of, shape_of
from gpipe_sim.torch_backend.timeline import notes_on
from gpipe_sim.traces.notes import Timed, untold


def program(schedule: Schedule) -> list[list[str]]:
    """What PyTorch's engine does for a schedule: the row of each rank, with its sends and receives.

    It runs them one after the other. ``1RECV_F0`` asks for what ``1F0`` needs, without waiting for it, and
    ``1SEND_F0`` sends what it gave; of a backward they are called ``RECV_B`` and ``SEND_B``. UNSHARD, RESHARD
    and REDUCE_GRAD are for weights that are spread over devices. ScheduleError for a schedule that the engine
    cannot run.
    """
    text = to_torch_csv(schedule)
    return with_messages(text, schedule.devices, schedule.stages, schedule.microbatches)


class RankResult(NamedTuple):
    """What one process got out of a step: loss and outputs if it holds the last stage, and its own spans.

    ``first``: the place in the whole batch of what it calls microbatch 0. ``node``: the machine whose clock
    it reads. ``met``: from when to when on it the process met those of its pipeline, and those of copies of
    its stages.
    """

    loss: float | None
    outputs: Tensor | None
    gradients: dict[Named, Tensor]
    spans: list[Timed]
    first: int = 0
    node: str = ""
    met: Sequence[Sequence[tuple[float, float]]] = ()


class Task(NamedTuple):
    """What every process of a pipeline is told.

    ``order`` contains no R; ``recomputed`` maps a stage to the microbatches to checkpoint. ``microbatches``
    are those of the whole batch, of which a copy of the pipeline has a share. ``measured``: whether to say
    when.
    """

    order: Schedule
    recomputed: dict[int, set[int]]
    microbatches: int
    measured: bool = True


class Rank:
    """The stages of one process on the engine: ``modules``, on the torch devices ``homes``.

    ``tell`` is told what is being done. A step changes buffers as a forward does, and nothing else.
    """

    def __init__(
        self,
        modules: dict[int, nn.Module],
        task: Task,
        loss: MeanLoss,
        homes: dict[int, torch.device],
        group: Any = None,
        tell: Callable[[str], object] = untold,
    ):
        self.modules, self.task, self.loss, self.homes, self.group = modules, task, loss, homes, group
        self.recorders = {device: notes_on(device, tell) for device in homes.values()}
        self.last = task.order.stages - 1
        self.runtime: Any = None
        self.fits: Any = None

    def step(self, x: Tensor | None, targets: Tensor | None) -> RankResult:
        """Run one step. ``.grad`` is as it was before, also if the step fails."""
        kept = {parameter: parameter.grad for _, parameter in parameters_of(self.modules)}
        for parameter in kept:
            parameter.grad = None
        try:
            with some_group(), unlogged():
                loss, outputs, spans = self._run(x, targets)
            gradients = {key: p.grad for key, p in parameters_of(self.modules) if p.grad is not None}
        except BaseException:
            self.runtime = None  # it may hold half a step
            raise
        finally:
            for _, parameter in parameters_of(self.modules):  # a forward may have made some
                parameter.grad = kept.get(parameter)
        return RankResult(loss, outputs, gradients, spans if self.task.measured else [])

    def _run(self, x: Any, targets: Any) -> tuple[float | None, Tensor | None, list[Timed]]:
        fits = shape_of(x), ambient()  # what it receives into has one size, and one type of number
        if self.runtime is None:
            require_right(self)
        require_called(self.modules, self.task.order)
        if self.runtime is None or self.fits != fits:
            self.runtime, self.fits = self._made(), fits
        for recorder in self.recorders.values():
            recorder.begin()
        losses: list[Tensor] = []
        last = self.last in self.modules
        inputs = [x.to(self.homes[0])] if 0 in self.modules else []
        target = targets.to(self.homes[self.last]) if last else None
        outputs = self.runtime.step(*inputs, target=target, losses=losses)
        spans = [timed for recorder in self.recorders.values() for timed in recorder.spans()]
        self._require_all_done(spans)
        if not last:
            return None, None, spans
        return torch.stack(losses).sum().item(), outputs.detach(), spans

    def _made(self) -> Any:
        stages = [self._stage(stage, module) for stage, module in self.modules.items()]
        self.ends = stages[-1].submod
        order = self.task.order
        return runtime(stages, order.microbatches, self._weighted, to_torch_csv(order))

    def _stage(self, stage: int, module: nn.Module) -> StageAdapter:
        recorder = self.recorders[self.homes[stage]]
        recomputed = self.task.recomputed.get(stage, set())
        inside = StageModule(module, stage, last=stage == self.last)
        return StageAdapter(inside, self.last + 1, self.group, recorder, recomputed)

    def _weighted(self, output: Tensor, target: Tensor) -> Tensor:
        """A microbatch's share of the loss. It is weighted here, so the engine need not divide gradients."""
        if self.ends.sent != id(output):
            raise UnsupportedTorch("takes the loss of something else than what the last stage gives")
        try:
            value = mean_of(self.loss, output, target) / self.task.microbatches
        except Exception as error:
            error.add_note(f"in the loss, after the forward of stage {self.last}")
            raise
        self.recorders[self.homes[self.last]].extend()
        return value

    def _require_all_done(self, spans: list[Timed]) -> None:
        """UnsupportedTorch unless the engine ran this process's actions, in turn, through the adapters."""
        ran = [action for action, _, _ in spans if action.kind is not Kind.R]
        parts = [part for row in self.task.order.actions for action in row for part in action.parts]
        for device in self.recorders:
            held = {stage for stage, home in self.homes.items() if home == device}
            if [a for a in ran if a.stage in held] != [a for a in parts if a.stage in held]:
                raise UnsupportedTorch(f"ran other actions than it was told ({len(ran)} noted)")
