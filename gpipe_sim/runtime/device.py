"""One simulated device: its partitions, its memory, and nothing of anybody else's.

Whatever one device makes and another reads is a message, and a message is a copy. A device does one action
at a time; who acts when is ``executor``'s business.
"""

from typing import Any, NamedTuple

import numpy as np

from gpipe_sim.errors import require_batch
from gpipe_sim.nn.layers import Context
from gpipe_sim.nn.losses import Loss
from gpipe_sim.nn.optimizers import Optimizer
from gpipe_sim.runtime.memory import BOUNDARY, GRADIENTS, MESSAGES, PARAMETERS, SAVED, Memory
from gpipe_sim.runtime.partition import Gradients, Partition
from gpipe_sim.schedule.actions import Kind
from gpipe_sim.schedule.base import Schedule
from gpipe_sim.simulation.timeline import Span

Array = np.ndarray
Batch = tuple[Array, Array]


def as_batch(batch: Batch) -> Batch:
    """(inputs, targets) as arrays; TypeError or ValueError unless they are two and equally long."""
    require_batch(batch)
    return np.asarray(batch[0]), np.asarray(batch[1])


class Piece(NamedTuple):
    """One microbatch: its rows of the batch, and the share of the batch that they are."""

    rows: slice
    share: float


def pieces(samples: int, microbatches: int) -> list[Piece]:
    """Cut a batch into microbatches whose sizes differ by at most one, the larger ones first.

    ValueError for fewer samples than microbatches.
    """
    if samples < microbatches:
        raise ValueError(
            f"a batch of {samples} samples cannot be cut into {microbatches} microbatches; "
            f"use a batch of at least {microbatches}, or at most {samples} microbatches"
        )
    small, larger = divmod(samples, microbatches)
    ends = np.cumsum([small + (m < larger) for m in range(microbatches)]).tolist()
    starts = [0, *ends[:-1]]
    return [Piece(slice(a, b), (b - a) / samples) for a, b in zip(starts, ends, strict=True)]


class Job(NamedTuple):
    """What every device of a step is told: the batch stays with the host, which hands out copies."""

    schedule: Schedule
    batch: Batch
    pieces: list[Piece]
    loss: Loss
    optimizer: Optimizer | None
    contexts: list[Context]
    homes: list[int]  # which device, by slot: stage * microbatches + microbatch
    recomputes: list[bool]  # by slot

    def slot(self, stage: int, m: int) -> int:
        return stage * len(self.pieces) + m


class Device:
    """One simulated device: the partitions of its stages, its memory, and how to reach the others."""

    def __init__(self, job: Job, partitions: dict[int, Partition], memory: Memory, peers: list["Device"]):
        self.job, self.partitions, self.memory, self.peers = job, partitions, memory, peers
        self.last_stage = job.schedule.stages - 1
        self.clock = 0
        self.losses: dict[int, float] = {}
        self.outputs: dict[int, Array] = {}
        self.gradients: dict[int, Gradients] = {stage: {} for stage in partitions}
        self.counted: set[int] = set()
        self.do = {
            Kind.F: self.forward,
            Kind.R: self.recompute,
            Kind.B: self.backward,
            Kind.I: self.input_gradient,
            Kind.W: self.weight_gradient,
            Kind.U: self.update,
        }
        for stage, partition in partitions.items():
            memory.keep(PARAMETERS, stage, partition.parameters)
        memory.sample(0)

    def perform(self, span: Span) -> None:
        """Do what the span's action says; it ends when the span does."""
        self.clock = span.end
        for part in span.action.parts:
            self.do[part.kind](part.stage, part.microbatch)
        self.memory.sample(span.end, instant=span.start == span.end)

    def forward(self, stage: int, m: int) -> None:
        x = self._receive(Kind.F, stage, m) if stage else self._feed(0, m)
        y, saved = self._run(stage, m, x)
        if stage == self.last_stage:
            self.outputs[m] = y
        else:
            self._send(Kind.F, stage + 1, m, y)
        if self.job.recomputes[self.job.slot(stage, m)]:
            self.memory.keep(BOUNDARY, (stage, m), x)
        else:
            self.memory.keep_saved((stage, m), saved, x)

    def recompute(self, stage: int, m: int) -> None:
        x = self.memory.take(BOUNDARY, (stage, m))
        _, saved = self._run(stage, m, x)
        self.memory.keep_saved((stage, m), saved, x)

    def backward(self, stage: int, m: int) -> None:
        saved, dy = self._what_backward_reads(stage, m)
        dx = self.partitions[stage].backward(saved, dy, into=self.gradients[stage])
        self._gradients_kept(stage)
        self._send_back(stage, m, dx)

    def input_gradient(self, stage: int, m: int) -> None:
        saved, dy = self._what_backward_reads(stage, m)
        dx, pending = self.partitions[stage].backward_input(saved, dy)
        self._send_back(stage, m, dx)
        self.memory.keep_pending((stage, m), pending)

    def weight_gradient(self, stage: int, m: int) -> None:
        pending = self.memory.take(SAVED, (stage, m))
        self.partitions[stage].backward_weight(pending, into=self.gradients[stage])
        self._gradients_kept(stage)

    def update(self, stage: int, m: int) -> None:
        self.job.optimizer.step(self.partitions[stage].parameters, self.gradients[stage])

    def _run(self, stage: int, m: int, x: Array) -> tuple[Array, Any]:
        """Forward through a stage; behind the last one comes the loss."""
        y, saved = self.partitions[stage].forward(x, self.job.contexts[m])
        if stage == self.last_stage:
            self.losses[m], loss_saved = self.job.loss.forward(y, self._feed(1, m))
            saved.append(loss_saved)
        return y, saved

    def _what_backward_reads(self, stage: int, m: int) -> tuple[Any, Array]:
        """What the forward saved, and the gradient from the loss or from the stage after."""
        saved = self.memory.take(SAVED, (stage, m))
        if stage == self.last_stage:
            return saved, self.job.loss.backward(saved.pop(), self.job.pieces[m].share)
        return saved, self._receive(Kind.B, stage, m)

    def _send_back(self, stage: int, m: int, dx: Array) -> None:
        if stage:
            self._send(Kind.B, stage - 1, m, dx)

    def _gradients_kept(self, stage: int) -> None:
        """Count a stage's gradients, once: later microbatches are added in place."""
        if stage not in self.counted:
            self.counted.add(stage)
            self.memory.keep(GRADIENTS, stage, self.gradients[stage])

    def _feed(self, which: int, m: int) -> Array:
        """This microbatch's inputs (0) or targets (1), copied from the host."""
        return self.job.batch[which][self.job.pieces[m].rows].copy()

    def _send(self, kind: Kind, stage: int, m: int, array: Array) -> None:
        """Give an array to the device that runs the stage: a copy, unless that is this device."""
        peer = self.peers[self.job.homes[self.job.slot(stage, m)]]
        peer.memory.keep(MESSAGES, (kind, stage, m), array if peer is self else array.copy())
        if peer is not self:
            peer.memory.sample(self.clock)

    def _receive(self, kind: Kind, stage: int, m: int) -> Array:
        return self.memory.take(MESSAGES, (kind, stage, m))
