"""Run a schedule on real arrays, on simulated devices that share nothing.

Each device has its own partitions and its own memory. Whatever one device makes and another reads is a
message, and a message is a copy. The devices take turns in this process, in the order in which their
actions end on the timeline.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from gpipe_sim.actions import Action, Kind, OverlapFB
from gpipe_sim.costs import Costs
from gpipe_sim.layers import Context, Layer
from gpipe_sim.losses import Loss
from gpipe_sim.memory import (
    BOUNDARY,
    GRADIENTS,
    MESSAGES,
    PARAMETERS,
    SAVED,
    Memory,
    MemoryTrace,
    MeteredMemory,
    trace,
)
from gpipe_sim.optim import Optimizer
from gpipe_sim.partition import Gradients, Partition
from gpipe_sim.schedule import Schedule
from gpipe_sim.simulate import Timeline, simulate

Array = np.ndarray
Batch = tuple[Array, Array]


@dataclass(frozen=True)
class StepResult:
    """What one training step gave.

    ``loss`` is the mean over the batch, ``gradients`` are ``{(layer, name): array}`` with layers numbered
    along the model, ``outputs`` is (batch, classes). ``memory`` has one ``MemoryTrace`` per device, on the
    clock of ``timeline``; both are empty for a step that ran without devices, memory also without meter.
    """

    loss: float
    gradients: Gradients
    outputs: Array
    memory: tuple[MemoryTrace, ...] = ()
    timeline: Timeline | None = None


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
    recomputes: list[bool]  # by slot: stage * microbatches + microbatch


class Device:
    """One simulated device: the partitions of its stages, its memory, and how to reach the others."""

    def __init__(self, job: Job, partitions: dict[int, Partition], memory: Memory, peers: list["Device"]):
        self.job, self.partitions, self.memory, self.peers = job, partitions, memory, peers
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

    def perform(self, action: Action | OverlapFB, end: float) -> None:
        """Do what the action says; it ends at ``end`` on the timeline."""
        self.clock = end
        for part in action.parts:
            self.do[part.kind](part.stage, part.microbatch)
        self.memory.sample(end)

    def forward(self, stage: int, m: int) -> None:
        x = self._receive(Kind.F, stage, m) if stage else self._feed(0, m)
        y, saved = self._run(stage, m, x)
        if stage + 1 < self.job.schedule.stages:
            self._send(Kind.F, stage + 1, m, y)
        else:
            self.outputs[m] = y
        if self.job.recomputes[stage * self.job.schedule.microbatches + m]:
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
        self.memory.keep(SAVED, (Kind.W, stage, m), pending)

    def weight_gradient(self, stage: int, m: int) -> None:
        pending = self.memory.take(SAVED, (Kind.W, stage, m))
        self.partitions[stage].backward_weight(pending, into=self.gradients[stage])
        self._gradients_kept(stage)

    def update(self, stage: int, m: int) -> None:
        self.job.optimizer.step(self.partitions[stage].parameters, self.gradients[stage])

    def _run(self, stage: int, m: int, x: Array) -> tuple[Array, Any]:
        """Forward through a stage; behind the last one comes the loss."""
        y, saved = self.partitions[stage].forward(x, self.job.contexts[m])
        if stage + 1 == self.job.schedule.stages:
            self.losses[m], loss_saved = self.job.loss.forward(y, self._feed(1, m))
            saved.append(loss_saved)
        return y, saved

    def _what_backward_reads(self, stage: int, m: int) -> tuple[Any, Array]:
        """What the forward saved, and the gradient from the loss or from the stage after."""
        saved = self.memory.take(SAVED, (stage, m))
        if stage + 1 == self.job.schedule.stages:
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
        schedule = self.job.schedule
        peer = self.peers[schedule.located[Kind.F][stage * schedule.microbatches + m]]
        peer.memory.keep(MESSAGES, (kind, stage, m), array if peer is self else array.copy())
        if peer is not self:
            peer.memory.sample(self.clock)

    def _receive(self, kind: Kind, stage: int, m: int) -> Array:
        return self.memory.take(MESSAGES, (kind, stage, m))


def train_step(
    partitions: Sequence[Partition],
    schedule: Schedule,
    batch: Batch,
    loss: Loss,
    *,
    costs: Costs | None = None,
    optimizer: Optimizer | None = None,
    meter: bool = True,
    seed: int = 0,
    step: int = 0,
) -> StepResult:
    """Run one step of a schedule: the gradients, and what each device held meanwhile.

    ``batch`` is (inputs (samples, features), targets (samples, ...)), cut into the schedule's microbatches.
    The weights do not change, unless the schedule has U actions, for which it needs an ``optimizer``.
    ``costs`` are those of the timeline, unit costs unless given; ``meter=False`` saves the time that
    counting bytes takes; ``seed`` and ``step`` fix what random layers draw.

    ScheduleError or DeadlockError for a schedule that cannot run; ValueError if partitions, batch and
    schedule do not fit each other. Nothing has changed then.
    """
    costs = costs or Costs()
    timeline = _timeline(schedule, costs)
    _require_fit(partitions, schedule, batch, optimizer)
    job = Job(
        schedule,
        batch,
        pieces(len(batch[0]), schedule.microbatches),
        loss,
        optimizer,
        [Context(True, seed, step, m) for m in range(schedule.microbatches)],
        [device is not None for device in schedule.located[Kind.R]],
    )
    devices: list[Device] = []
    for held in schedule.placement:
        memory = MeteredMemory() if meter else Memory()
        devices.append(Device(job, {stage: partitions[stage] for stage in held}, memory, devices))
    for device, action, end in _turns(schedule, costs):
        devices[device].perform(action, end)
    memory = tuple(trace(device.memory) for device in devices) if meter else ()
    return _collect(devices, job, memory, timeline)


def single_device_step(
    layers: Sequence[Layer],
    batch: Batch,
    loss: Loss,
    *,
    microbatches: int = 1,
    seed: int = 0,
    step: int = 0,
) -> StepResult:
    """The same step on one device, without schedule or messages: what every schedule must equal.

    Microbatches are accumulated in order; with the default of 1 it is plain full-batch backpropagation.
    """
    model, gradients, losses, outputs = Partition(layers), {}, [], []
    for m, piece in enumerate(pieces(len(batch[0]), microbatches)):
        x, targets = batch[0][piece.rows], batch[1][piece.rows]
        y, saved = model.forward(x, Context(True, seed, step, m))
        value, loss_saved = loss.forward(y, targets)
        model.backward(saved, loss.backward(loss_saved, piece.share), into=gradients)
        del saved, loss_saved  # or they would live on through the next forward
        losses.append(piece.share * value)
        outputs.append(y)
    return StepResult(sum(losses), gradients, np.concatenate(outputs))


@lru_cache(maxsize=64)
def _timeline(schedule: Schedule, costs: Costs) -> Timeline:
    return simulate(schedule, costs)


@lru_cache(maxsize=64)
def _turns(schedule: Schedule, costs: Costs) -> tuple[tuple[int, Action | OverlapFB, float], ...]:
    """(device, action, end) in the order of their ends; of equal ends, in an order that can be run."""
    spans = sorted(_timeline(schedule, costs).spans, key=lambda span: span.end)
    return tuple((span.device, span.action, span.end) for span in spans)


def _collect(devices: list[Device], job: Job, memory: tuple, timeline: Timeline) -> StepResult:
    losses = {m: value for device in devices for m, value in device.losses.items()}
    outputs = {m: y for device in devices for m, y in device.outputs.items()}
    gradients: Gradients = {}
    for stage in (stage for device in devices for stage in device.gradients.values()):
        for key, gradient in stage.items():
            gradients[key] = gradients[key] + gradient if key in gradients else gradient
    loss = sum(piece.share * losses[m] for m, piece in enumerate(job.pieces))
    whole = np.concatenate([outputs[m] for m in range(len(job.pieces))])
    return StepResult(loss, dict(sorted(gradients.items())), whole, memory, timeline)


def _require_fit(
    partitions: Sequence[Partition], schedule: Schedule, batch: Batch, optimizer: Optimizer | None
) -> None:
    if len(partitions) != schedule.stages:
        raise ValueError(
            f"{schedule!r} has {schedule.stages} stages, but there are {len(partitions)} partitions; "
            f"split(layers, stages={schedule.stages}) would fit"
        )
    if len(batch) != 2 or len(batch[0]) != len(batch[1]):
        sizes = " and ".join(str(len(part)) for part in batch)
        raise ValueError(f"a batch is (inputs, targets) of equal length (got lengths {sizes})")
    if (updates := _updates(schedule)) and optimizer is None:
        raise ValueError(f"{updates[0]} needs an optimizer: train_step(..., optimizer=...)")
    _require_shared_as_labelled(partitions, schedule)


def _require_shared_as_labelled(partitions: Sequence[Partition], schedule: Schedule) -> None:
    """Partitions that were split onto one device must be on one device of the schedule."""
    home: dict[Hashable, int] = {}
    for device, held in enumerate(schedule.placement):
        for label in (partitions[stage].device for stage in held):
            if label is not None and home.setdefault(label, device) != device:
                raise ValueError(
                    f"partitions that share device {label!r} are on devices {home[label]} and {device} of "
                    f"{schedule!r}; share(schedule, devices) puts them on one"
                )


@lru_cache(maxsize=64)
def _updates(schedule: Schedule) -> tuple[Action, ...]:
    """The schedule's U actions; ValueError if anything reads a stage's weights after they changed."""
    updated: dict[int, Action] = {}
    for part in (part for row in schedule.actions for action in row for part in action.parts):
        if part.stage in updated:
            raise ValueError(
                f"{part} comes after {updated[part.stage]}, which changes the weights that it reads; "
                "a step updates each stage once, last"
            )
        if part.kind is Kind.U:
            updated[part.stage] = part
    return tuple(updated.values())
