"""One simulated device: its own partitions and its own memory; it shares no array with another device.

Whatever one device makes and another reads is a message, and a message is a copy. A device runs one action
at a time; ``train_step`` says when.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.core.boundary import Boundary, copy_boundary, first
from gpipe_sim.core.hooks import Hook
from gpipe_sim.core.layers import Context
from gpipe_sim.core.losses import Loss
from gpipe_sim.core.memory import GRADIENTS, MESSAGES, PARAMETERS, STATE, Memory
from gpipe_sim.core.optimizers import Optimizer
from gpipe_sim.core.partition import Gradients, Partition
from gpipe_sim.core.rules import BOUNDARY, PENDING, SAVED, holds
from gpipe_sim.core.timeline import Span
from gpipe_sim.errors import Real, numbers, require_batch

Array = np.ndarray
Batch = tuple[Array, Array]
Made = dict[str, Any]  #: what an action made, by the categories of ``HOLDS``


def as_batch(batch: Batch) -> Batch:
    """(inputs, targets) as arrays; TypeError or ValueError unless there are two of equal length."""
    require_batch(batch)
    return numbers("a batch", "inputs", batch[0]), numbers("a batch", "targets", batch[1])


class Piece(NamedTuple):
    """One microbatch: its rows of the batch, and what share of the samples of one update it has."""

    rows: slice
    weight: float

    @property
    def samples(self) -> int:
        return self.rows.stop - self.rows.start


def cut_batch(samples: int, microbatches: int) -> list[Piece]:
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


@dataclass
class StepInputs:
    """What every device of a step is told. The batch stays with the host, which hands out copies of rows."""

    stages: int
    batch: Batch
    pieces: list[Piece]
    loss: Loss
    optimizer: Optimizer | None
    contexts: list[Context]
    homes: list[list[int]]  # by stage and microbatch, the device that runs it
    recomputed: list[list[bool]]  # by stage and microbatch, whether R runs its forward again


#: For each kind, and whether R runs its forward again: which categories it frees, and makes (``HOLDS``).
FREES_AND_MAKES = {
    (kind, recomputed): tuple(
        [category for category, by in holds(kind, recomputed).items() if by == sign] for sign in (-1, +1)
    )
    for kind in Kind
    for recomputed in (False, True)
}


class Device:
    """One simulated device: the partitions of its stages, its memory, and how to reach the others."""

    #: Which of its methods runs an action of this kind.
    does: ClassVar[dict[Kind, str]] = {
        Kind.F: "forward",
        Kind.R: "recompute",
        Kind.B: "backward",
        Kind.I: "input_gradient",
        Kind.W: "weight_gradient",
    }

    def __init__(
        self,
        inputs: StepInputs,
        partitions: dict[int, Partition],
        optimizers: dict[int, Optimizer],  # by stage
        memory: Memory,
        peers: list["Device"],
    ):
        self.inputs, self.partitions, self.memory, self.peers = inputs, partitions, memory, peers
        self.optimizers = optimizers
        self.last_stage = inputs.stages - 1
        self.now: Real = 0
        self.losses: dict[int, float] = {}
        self.outputs: dict[int, Array] = {}
        self.gradients: dict[int, Gradients] = {stage: {} for stage in partitions}
        self.counted: set[int] = set()
        self.summed: set[int] = set()  # the stages whose gradients are those of all copies
        self.ring_bytes = 0  # sent to sum gradients with those of other copies
        self.handlers = {kind: getattr(self, name) for kind, name in self.does.items()}
        for stage, partition in partitions.items():
            memory.keep(PARAMETERS, stage, partition.parameters)
        for stage, optimizer in optimizers.items():
            memory.keep(STATE, stage, optimizer.prepare(partitions[stage].parameters))
        memory.sample(0)

    def perform(self, span: Span) -> None:
        """Run the span's action: take from memory what it frees, run it, keep what it makes.

        ``HOLDS`` says what these are. Memory is sampled only at the end of the span, so what an action frees
        counts until then. A message is not in ``HOLDS``: its action takes it when it reads it (``_receive``).
        """
        self.now, memory = span.end, self.memory
        for part in span.action.parts:
            stage, kind, m = part
            memory.begin(span)
            key = stage, m
            frees, makes = FREES_AND_MAKES[kind, self.inputs.recomputed[stage][m]]
            freed = [memory.take(category, key) for category in frees]
            with memory.watching():
                made = self.handlers[kind](part, *freed)
            for category in makes:
                memory.keep(category, key, made[category])
            self.ended(part)
        memory.sample(span.end, instant=span.start == span.end)

    def forward(self, action: Action) -> Made:
        stage, _, m = action
        x = self._receive(Kind.F, stage, m) if stage else self._feed(0, m)
        self.memory.look(x)  # stage 0's input was copied from the batch just now, and nobody counted it yet
        y, saved = self._run(action, x, keep=not self.inputs.recomputed[stage][m])
        if stage == self.last_stage:
            self.outputs[m] = first(y)
        else:
            self._send(Kind.F, stage + 1, m, y)
        return {BOUNDARY: x, SAVED: saved}

    def recompute(self, action: Action, x: Boundary) -> Made:
        """Run the forward again. It sends nothing, and the loss stays that of F."""
        return {SAVED: self._run(action, x)[1]}

    def backward(self, action: Action, saved: list) -> None:
        stage, _, m = action
        dy, into = self._gradient_of_output(stage, m, saved), self.gradients_so_far(stage)
        dx = self.weights_for(action).backward(saved, dy, into=into, look=self.memory.look)
        self._keep_gradients(stage)
        self._send_back(stage, m, dx)

    def input_gradient(self, action: Action, saved: list) -> Made:
        stage, _, m = action
        dy = self._gradient_of_output(stage, m, saved)
        dx, pending = self.weights_for(action).backward_input(saved, dy, look=self.memory.look)
        self._send_back(stage, m, dx)
        return {PENDING: pending}

    def weight_gradient(self, action: Action, pending: list) -> None:
        into = self.gradients_so_far(action.stage)
        self.weights_for(action).backward_weight(pending, into=into, look=self.memory.look)
        self._keep_gradients(action.stage)

    def weights_for(self, action: Action) -> Partition:
        """The stage's layers, with the weights that this action reads. In a stream they depend on when."""
        return self.partitions[action.stage]

    def gradients_so_far(self, stage: int) -> Gradients:
        """What a stage's gradients are added to."""
        return self.gradients[stage]

    def ended(self, action: Action) -> None:
        """Called when an action has ended."""

    def _run(self, action: Action, x: Boundary, keep: bool = True) -> tuple[Boundary, list]:
        """The forward of a stage: (output, saved); the last stage also computes the loss."""
        stage, _, m = action
        self.memory.came_in((stage, m), x)
        partition, context = self.weights_for(action), self.inputs.contexts[m]
        y, saved = partition.forward(x, context, self.memory.look, keep)
        if stage == self.last_stage:
            value, loss_saved = self.inputs.loss.forward(first(y), self._feed(1, m))
            self.losses.setdefault(m, value)  # that of F: R may run on newer weights
            saved.append(loss_saved)
            self.memory.look(loss_saved)
        return y, saved

    def _gradient_of_output(self, stage: int, m: int, saved: list) -> Array:
        """From the loss at the last stage, which reads what it saved; elsewhere from the next stage."""
        if stage == self.last_stage:
            dy = self.inputs.loss.backward(saved.pop(), self.inputs.pieces[m].weight)
            self.memory.look(None, dy)
            return dy
        return first(self._receive(Kind.B, stage, m))

    def _send_back(self, stage: int, m: int, dx: Array) -> None:
        if stage:
            self._send(Kind.B, stage - 1, m, dx)

    def _keep_gradients(self, stage: int) -> None:
        """Count a stage's gradients, once: those of later microbatches are added to the same arrays."""
        if stage not in self.counted:
            self.counted.add(stage)
            self.memory.keep(GRADIENTS, stage, self.gradients[stage])

    def _feed(self, which: int, m: int) -> Array:
        """This microbatch's inputs (0) or targets (1), copied from the host."""
        return self.inputs.batch[which][self.inputs.pieces[m].rows].copy()

    def _send(self, way: Kind, to_stage: int, m: int, message: Boundary) -> None:
        """Give arrays to the device that runs the stage: copies, unless that is this device.

        ``way`` is F for an output and B for a gradient, I's too. The arrays are there at once, and their
        bytes count from now on; how long they are on their way only the clock knows.
        """
        peer = self.peers[self.inputs.homes[to_stage][m]]
        peer.memory.keep(MESSAGES, (way, to_stage, m), message if peer is self else copy_boundary(message))
        if peer is not self:
            peer.memory.sample(self.now)

    def _receive(self, kind: Kind, stage: int, m: int) -> Boundary:
        return self.memory.take(MESSAGES, (kind, stage, m))


SUM_COPIES: Hook[Callable[[Sequence[Device], int], None]] = Hook("sum_copies", "a stage with several copies")


def sum_copies(devices: Sequence[Device], stage: int) -> None:
    """Give each device that holds a copy of a stage the sum of its gradients over all copies, in place."""
    held = [device for device in devices if device.gradients.get(stage)]
    if len(held) > 1:
        SUM_COPIES.filled(held, stage)


TIED: Hook[Callable[[Sequence[Any]], None]] = Hook("tied", "a tied head")


def sum_tied(devices: Sequence[Any]) -> None:
    """Give both ends of a tied weight the sum of their gradients, in place, on whichever devices they are."""
    if any(layer.tied for device in devices for each in device.partitions.values() for layer in each.layers):
        TIED.filled(devices)
