"""Run a schedule on real arrays, on simulated devices that share nothing.

The devices take turns in this process, in the order in which their actions end on the timeline.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.core.boundary import first
from gpipe_sim.core.cost_model import CostModel
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.device import Batch, Device, Piece, StepInputs, as_batch, cut_batch, sum_copies, sum_tied
from gpipe_sim.core.hooks import Hook
from gpipe_sim.core.layers import Context, Layer
from gpipe_sim.core.losses import Loss
from gpipe_sim.core.memory import Memory, MemoryTrace, MeteredMemory
from gpipe_sim.core.optimizers import Optimizer, require_optimizer
from gpipe_sim.core.partition import Gradients, Partition, require_one_model, require_partitions
from gpipe_sim.core.program import Program
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.core.simulate import Sizes, simulate
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.errors import Real, require, require_flags, whole

Array = np.ndarray


@dataclass(frozen=True, eq=False, repr=False)  # arrays have no single answer to whether they are equal
class StepResult:
    """What one training step gave.

    ``loss`` is the mean over the batch, ``losses`` that of each mini-batch: one, unless the schedule updates
    on the way. ``gradients`` are ``{(layer, name): array}``, with layers numbered along the model: those of
    the last mini-batch. ``outputs`` is (samples, features of the last layer). ``memory`` has one
    ``MemoryTrace`` per device, in bytes, on the clock of ``timeline``; it is empty without a meter.
    ``ring_bytes`` are what each device sent to sum its gradients with those of other copies of its stages.
    ``versions`` has the version of its stage's weights that each action used, if updates are on the way.
    ``single_device_step`` gives no memory, timeline, bytes or versions.
    """

    loss: float
    gradients: Gradients
    outputs: Array
    memory: tuple[MemoryTrace, ...] = ()
    timeline: Timeline | Any = None  # Any, so that nobody has to rule out the None of single_device_step
    ring_bytes: tuple[int, ...] = ()
    losses: tuple[float, ...] = ()
    versions: dict[Action, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        """One line, however large the arrays are."""
        return f"<{type(self).__name__} with loss {self.loss:.4g}>"


PROFILE: Hook[Callable[[Sequence[Partition], Batch, Loss, Optimizer | None], Sizes]] = Hook(
    "profile", "train_step(..., memory_limit=...)"
)


def train_step(
    partitions: Sequence[Partition],
    schedule: Schedule,
    batch: Batch,
    loss: Loss,
    *,
    costs: CostModel | None = None,
    optimizer: Optimizer | None = None,
    weights: str | None = None,
    meter: bool = True,
    memory_limit: "Real | Sequence[Real] | None" = None,
    seed: int = 0,
    step: int = 0,
) -> StepResult:
    """Run one step of a schedule: the gradients, and what each device held meanwhile.

    >>> partitions, data = gp.split(gp.mlp([64, 32, 32, 10]), stages=3), gp.digits()
    >>> step = gp.train_step(partitions, gp.OneFOneB(3, 4), data[:2], loss=gp.cross_entropy)
    >>> f"{step.loss:.4f}", step.gradients[0, "W"].shape  # of layer 0
    ('2.4057', (64, 32))
    >>> step.memory[0]
    <MemoryTrace: at most 953,344 bytes after 0F3 at 10, 1,138,432 while 0B0 runs>

    ``batch`` is (inputs (samples, features), targets (samples, ...)), cut into the schedule's microbatches.
    The weights do not change unless the schedule has U actions; for those it needs an ``optimizer``, whose
    state is counted with what a device holds, also in a step without them. Where U stands on the way, as in
    PipeDream, ``weights`` says which version of them a mini-batch uses: "stashed", "vertical", "double" or
    "latest" (see ``streams.versions``); the schedule's own choice unless given.
    ``costs`` time the actions, unit costs unless given. ``meter=False`` counts no bytes, which is faster.
    ``memory_limit`` is what a device may hold at most, also while an action runs: bytes for all or for each.
    What exists only while a single layer runs is not counted, as in ``step.memory``.
    ``seed`` and ``step`` fix what random layers draw.

    MemoryLimitError if a device would hold more, with what would help; ScheduleError or DeadlockError for a
    schedule that cannot run; ValueError if partitions, batch and schedule do not fit each other; TypeError
    for arguments of another kind. No weight has changed then. DivergedError if updates on the way have driven
    a loss beyond all bounds; it has the losses up to there.
    """
    require_fit(partitions, schedule)
    require_flags("train_step", meter=meter)
    batch = as_batch(batch)
    require_loss(loss)
    if optimizer is not None:
        require_optimizer("train_step", optimizer)
    seed, step = whole("train_step", "seed", seed, low=0), whole("train_step", "step", step, low=0)
    cut_batch(len(batch[0]), schedule.microbatches)  # a batch that is too small is refused before all else
    timeline, make = simulate_once(schedule, costs), kind_of_step(schedule, weights)
    work = make("train_step", schedule, batch, loss, optimizer, weights, seed, step)
    if memory_limit is not None:
        found = PROFILE.filled(partitions, batch, loss, optimizer)
        found.require_within(schedule, memory_limit, costs, weights)
    return work.run(partitions, timeline, meter)


def kind_of_step(schedule: Schedule, weights: str | None = None) -> "type[Step]":
    """``Step``; or a stream's kind of step if the schedule has any U, or if ``weights`` is given."""
    return STREAM.filled if Kind.U in schedule.program.where or weights is not None else Step


class Step:
    """One step of a schedule: what its devices are told, how they run, and what comes of it.

    All arguments are checked first; ``owner`` is the function that error messages name. A stream of steps,
    whose weights change on the way, is a subclass (``STREAM``).
    """

    device: ClassVar[type[Device]] = Device

    def __init__(
        self,
        owner: str,
        schedule: Schedule,
        batch: Batch,
        loss: Loss,
        optimizer: Optimizer | None = None,
        weights: str | None = None,
        seed: int = 0,
        step: int = 0,
    ):
        program = schedule.program
        inputs = StepInputs(
            program.stages,
            batch,
            self.cut(program, len(batch[0])),
            loss,
            optimizer,
            contexts=[Context(True, seed, step, m) for m in range(program.microbatches)],
            homes=program.homes(Kind.F).tolist(),
            recomputed=(program.homes(Kind.R) >= 0).tolist(),
        )
        self.inputs = self.complete(inputs, owner, schedule, weights)

    def complete(self, inputs: StepInputs, owner: str, schedule: Schedule, weights: str | None) -> StepInputs:
        """What every device is told; in a stream it is more."""
        return inputs

    @classmethod
    def cut(cls, program: Program, samples: int) -> list[Piece]:
        """The microbatches, each with its share of what one update averages.

        ValueError for fewer samples than microbatches.
        """
        return cut_batch(samples, program.microbatches)

    def run(self, partitions: Sequence[Partition], timeline: Timeline, meter: bool) -> StepResult:
        """What comes of the step."""
        devices = self.run_devices(partitions, timeline, METER.filled if meter else Memory)
        return self.collect(devices, timeline)

    def run_devices(
        self, partitions: Sequence[Partition], timeline: Timeline, memory: type[Memory]
    ) -> list[Device]:
        """The devices after they have done what the timeline says."""
        devices: list[Device] = []
        placement = timeline.schedule.program.placement
        for held, optimizers in share_out(partitions, placement, self.inputs.optimizer, self.inputs.homes):
            devices.append(self.device(self.inputs, held, optimizers, memory(), devices))
        for span in timeline.spans:  # as they end: all that an action changes happens then
            devices[span.device].perform(span)
        return devices

    def collect(self, devices: Sequence[Device], timeline: Timeline) -> StepResult:
        """What all devices made, as one result."""
        return collect(devices, self.inputs, timeline)


#: A meter that also knows what there is while an action runs, used whenever its chapter is there; without it,
#: ``MeteredMemory`` knows what there is where actions end.
METER: Hook[type[MeteredMemory]] = Hook("meter", "the peak inside an action", MeteredMemory)
#: With it come ``lowering.NEEDS_OF_UPDATES``, what U waits for, and ``problems.WRONG_UPDATES``.
STREAM: Hook[type[Step]] = Hook("stream", "a schedule with updates, such as 0U0,")


def single_device_step(
    layers: Sequence[Layer], batch: Batch, loss: Loss, *, microbatches: int = 1, seed: int = 0, step: int = 0
) -> StepResult:
    """The same step on one device, without schedule or messages: every schedule must give its numbers.

    >>> layers, data = gp.mlp([64, 32, 10]), gp.digits()
    >>> step = gp.train_step(gp.split(layers, stages=2), gp.GPipe(2, 4), data[:2], gp.cross_entropy)
    >>> alone = gp.single_device_step(layers, data[:2], gp.cross_entropy)
    >>> all(np.allclose(step.gradients[key], alone.gradients[key], 0, 1e-12) for key in alone.gradients)
    True

    Gradients of the microbatches are added up in order; with one microbatch, the default, this is plain
    full-batch backpropagation.
    """
    microbatches = whole("single_device_step", "microbatches", microbatches)
    seed, step = (whole("single_device_step", n, v, low=0) for n, v in (("seed", seed), ("step", step)))
    require_loss(loss)
    batch = as_batch(batch)
    model, losses, outputs = Partition(layers), list[float](), list[Array]()
    gradients: Gradients = {}
    require_partitions("single_device_step", [model], runnable=True)
    for m, piece in enumerate(cut_batch(len(batch[0]), microbatches)):
        x, targets = (np.ascontiguousarray(part[piece.rows]) for part in batch)  # as every device gets them
        y, saved = model.forward(x, Context(True, seed, step, m))
        y = first(y)
        value, loss_saved = loss.forward(y, targets)
        model.backward(saved, loss.backward(loss_saved, piece.weight), into=gradients)
        del saved, loss_saved  # or they would take up memory during the next forward
        losses.append(piece.weight * value)
        outputs.append(y)
    sum_tied([SimpleNamespace(partitions={0: model}, gradients={0: gradients}, ring_bytes=0)])
    total = sum(losses)
    return StepResult(total, dict(sorted(gradients.items())), np.concatenate(outputs), losses=(total,))


def simulate_once(schedule: Schedule, costs: CostModel | None) -> Timeline:
    """``simulate(schedule, costs)``; the last timeline is kept, because training asks for it every step."""
    if not (costs is None or type(costs) is Costs):  # another cost model may have changed since
        return simulate(schedule, costs)
    kept = schedule.program.kept
    if simulate_once not in kept or kept[simulate_once][0] != costs:
        kept[simulate_once] = costs, simulate(schedule, costs)
    return kept[simulate_once][1]


Share = tuple[dict[int, Partition], dict[int, Optimizer]]  #: of a device: partitions, optimizers, by stage
#: The shares where several devices hold a stage, as ``share_out`` gives them.
OWN_COPIES: Hook[Callable[..., Iterable[Share]]] = Hook("own_copies", "a stage with several copies")


def share_out(
    partitions: Sequence[Partition],
    placement: Sequence[Sequence[int]],
    optimizer: Optimizer | None,
    homes: Sequence[Sequence[int]] = (),
) -> Iterable[Share]:
    """Per device, the partitions of its stages, and the optimizers of their weights, by stage.

    If several devices hold a stage, the first that runs it, by ``homes``, has the partition itself.
    """
    if sum(map(len, placement)) > len({stage for held in placement for stage in held}):
        return OWN_COPIES.filled(partitions, placement, optimizer, homes)
    return [
        ({stage: partitions[stage] for stage in held}, dict.fromkeys(held, optimizer) if optimizer else {})
        for held in placement
    ]


def collect(devices: Sequence[Device], inputs: StepInputs, timeline: Timeline | None = None) -> StepResult:
    """The losses, outputs and gradients of all devices as one step's."""
    losses = {m: value for device in devices for m, value in device.losses.items()}
    outputs = {m: y for device in devices for m, y in device.outputs.items()}
    gradients: Gradients = {}
    for stage in range(inputs.stages):
        sum_copies(devices, stage)
        gradients |= next((own for device in devices if (own := device.gradients.get(stage))), {})
    sum_tied(devices)
    loss = sum(piece.weight * losses[m] for m, piece in enumerate(inputs.pieces))
    whole = np.concatenate([outputs[m] for m in range(len(inputs.pieces))])
    traces = tuple(each.memory.trace() for each in devices if isinstance(each.memory, MeteredMemory))
    sent = tuple(device.ring_bytes for device in devices)
    return StepResult(loss, dict(sorted(gradients.items())), whole, traces, timeline, sent, (loss,))


def require_loss(loss: Loss) -> None:
    require("a step", loss, Loss, "a loss, such as cross_entropy or mse")


def require_fit(partitions: Sequence[Partition], schedule: Schedule) -> None:
    """TypeError or ValueError unless there is a partition for each stage, in the order of the model."""
    require_schedule("a step", schedule)
    require_partitions("train_step", partitions, schedule.stages, runnable=True)
    if len(partitions) != schedule.stages:
        raise ValueError(
            f"{schedule!r} has {schedule.stages} stages, but there are {len(partitions)} partitions; "
            f"split(layers, stages={schedule.stages}) would fit"
        )
    require_one_model(partitions)
    if any(partition.device is not None for partition in partitions):
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
