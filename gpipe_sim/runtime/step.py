"""Run a schedule on real arrays, on simulated devices that share nothing.

The devices take turns in this process, in the order in which their actions end on the timeline.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gpipe_sim.errors import ScheduleError, got, require_count, require_seed
from gpipe_sim.nn.layers import Context, Layer
from gpipe_sim.nn.losses import Loss
from gpipe_sim.nn.optimizers import Optimizer, require_optimizer
from gpipe_sim.runtime.device import Batch, Device, Job, as_batch, pieces
from gpipe_sim.runtime.memory import Memory, MemoryTrace, MeteredMemory, trace
from gpipe_sim.runtime.partition import Gradients, Partition
from gpipe_sim.schedule.actions import Action, Kind
from gpipe_sim.schedule.base import Schedule, require_schedule
from gpipe_sim.simulation.costs import Costs
from gpipe_sim.simulation.simulate import simulate
from gpipe_sim.simulation.timeline import Span, Timeline

Array = np.ndarray


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
    timeline, turns, updates = plan(schedule, costs)
    batch = as_batch(batch)
    require_loss(loss)
    require_fit(partitions, schedule)
    if optimizer is not None:
        require_optimizer("train_step", optimizer)
    require_seed("train_step", seed)
    if updates and optimizer is None:
        raise ValueError(f"{updates[0]} needs an optimizer: train_step(..., optimizer=...)")
    job = Job(
        schedule,
        batch,
        pieces(len(batch[0]), schedule.microbatches),
        loss,
        optimizer,
        [Context(True, seed, step, m) for m in range(schedule.microbatches)],
        schedule.located[Kind.F],
        [device is not None for device in schedule.located[Kind.R]],
    )
    devices: list[Device] = []
    for held in _own_copies(partitions, schedule):
        devices.append(Device(job, held, MeteredMemory() if meter else Memory(), devices))
    for span in turns:
        devices[span.device].perform(span)
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
    require_count("single_device_step", "microbatches", microbatches)
    require_seed("single_device_step", seed)
    require_loss(loss)
    batch = as_batch(batch)
    model, gradients, losses, outputs = Partition(layers), {}, [], []
    for m, piece in enumerate(pieces(len(batch[0]), microbatches)):
        x, targets = batch[0][piece.rows], batch[1][piece.rows]
        y, saved = model.forward(x, Context(True, seed, step, m))
        value, loss_saved = loss.forward(y, targets)
        model.backward(saved, loss.backward(loss_saved, piece.share), into=gradients)
        del saved, loss_saved  # or they would live on through the next forward
        losses.append(piece.share * value)
        outputs.append(y)
    return StepResult(sum(losses), dict(sorted(gradients.items())), np.concatenate(outputs))


class Plan(NamedTuple):
    """What depends on schedule and costs alone, and is the same for every step."""

    timeline: Timeline
    turns: tuple[Span, ...]  # in order of their ends
    updates: tuple[Action, ...]


def plan(schedule: Schedule, costs: Costs | None) -> Plan:
    """Made once and kept on the schedule itself, so that no other schedule's, however alike, is ever run."""
    require_schedule("a step", schedule)
    kept_for, kept = vars(schedule).get("_plan", (None, None))
    if kept is None or kept_for is not costs:
        timeline = simulate(schedule, costs)
        turns = tuple(sorted(timeline.spans, key=lambda span: span.end))
        kept = Plan(timeline, turns, _updates(schedule))
        vars(schedule)["_plan"] = costs, kept
    return kept


def _own_copies(partitions: Sequence[Partition], schedule: Schedule) -> Iterator[dict[int, Partition]]:
    """Per device, the partitions of its stages. Of a stage that two devices hold, the second has a copy."""
    given = set()
    for held in schedule.placement:
        yield {stage: deepcopy(partitions[stage]) if stage in given else partitions[stage] for stage in held}
        given |= set(held)


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


def require_loss(loss: Loss) -> None:
    if not isinstance(loss, Loss):
        raise TypeError(f"a step needs a loss, such as cross_entropy or mse (got {loss!r})")


def require_fit(partitions: Sequence[Partition], schedule: Schedule) -> None:
    """TypeError or ValueError unless there is a partition for each stage, in the order of the model."""
    if not isinstance(partitions, Sequence):
        raise TypeError(
            f"train_step takes a list of partitions, as split(layers, stages={schedule.stages}) makes it "
            f"{got(partitions)}"
        )
    if strangers := [each for each in partitions if not isinstance(each, Partition)]:
        raise TypeError(
            f"train_step takes partitions (got {strangers[0]!r}); "
            f"split(layers, stages={schedule.stages}) makes them"
        )
    if len(partitions) != schedule.stages:
        raise ValueError(
            f"{schedule!r} has {schedule.stages} stages, but there are {len(partitions)} partitions; "
            f"split(layers, stages={schedule.stages}) would fit"
        )
    end = 0
    for stage, partition in enumerate(partitions):
        if partition.first_layer != end:
            raise ValueError(
                f"partition {stage} starts at layer {partition.first_layer}, "
                f"but those before it end at {end}; "
                f"split(layers, stages={schedule.stages}) numbers them along the model"
            )
        end += len(partition)
    _require_shared_as_labelled(partitions, schedule)


def _require_shared_as_labelled(partitions: Sequence[Partition], schedule: Schedule) -> None:
    """Partitions that were split onto one device must be on one device of the schedule."""
    home: dict[Hashable, int] = {}
    for device, held in enumerate(schedule.placement):
        for label in (partitions[stage].device for stage in held):
            if label is not None and home.setdefault(label, device) != device:
                raise ValueError(
                    f"partitions that share device {label!r} are on devices {home[label]} and {device} of "
                    f"{schedule!r}; colocate(schedule, devices) puts them on one"
                )


def _updates(schedule: Schedule) -> tuple[Action, ...]:
    """The schedule's U actions; ScheduleError unless each is the last work on its stage."""
    size, last, found = schedule.microbatches, {}, defaultdict(list)
    for device, row in enumerate(schedule.actions):
        for part in (part for action in row for part in action.parts):
            last[device, part.stage] = part
            if part.kind is Kind.U:
                found[part.stage].append(part)
    for stage, updates in found.items():
        homes = set(schedule.located[Kind.F][stage * size : (stage + 1) * size])
        if len(homes) > 1:
            raise ScheduleError(
                f"{updates[0]}: stage {stage} has two copies, whose gradients are summed after the step"
            )
        if len(updates) > 1 or last[homes.pop(), stage] is not updates[0]:
            raise ScheduleError(
                f"{updates[0]} is not the last action of stage {stage} on its device; "
                "a step updates each stage once, last, when its whole gradient is there"
            )
    return tuple(found[stage][0] for stage in sorted(found))
