"""A step of a stream: its devices update the weights on the way, and use older versions of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.core.device import Device, Piece, StepInputs, cut_batch, sum_copies
from gpipe_sim.core.losses import require_finite, without_warnings
from gpipe_sim.core.memory import STATE
from gpipe_sim.core.meta_array import MetaArray
from gpipe_sim.core.partition import Gradients, Partition
from gpipe_sim.core.program import Program
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.step import Step, StepResult
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.streams.stored_weights import Versions
from gpipe_sim.streams.updates import updates_of
from gpipe_sim.streams.versions import Lives, lives, read_weights


@dataclass
class StreamInputs(StepInputs):
    """What a device of a stream is told besides: when the versions of its weights live.

    ``lives`` is None if there is one update only, after everything else.
    """

    mini_batches: tuple[tuple[int, ...], ...]
    lives: Lives | None


class StreamDevice(Device):
    """A device that also updates its weights, and hands each action the version that it uses."""

    does = Device.does | {Kind.U: "update"}
    inputs: StreamInputs

    @cached_property
    def versions(self) -> Versions:
        return Versions(self.partitions, self.memory, self.inputs.lives)

    @cached_property
    def applied(self) -> set[int]:
        """The stages whose gradients the last update has used up."""
        return set()

    def update(self, action: Action) -> None:
        stage = action.stage
        sum_copies(self.peers, stage)
        self.versions.replaced_by(action)
        optimizer, parameters = self.optimizers[stage], self.partitions[stage].parameters
        optimizer.step(parameters, self.gradients[stage])
        self.applied.add(stage)
        self.memory.take(STATE, stage)
        self.memory.keep(STATE, stage, optimizer.prepare(parameters))  # it may have new arrays

    def weights_for(self, action: Action) -> Partition:
        return self.versions.for_action(action)

    def gradients_so_far(self, stage: int) -> Gradients:
        """Zero again once an update has used up what was there."""
        gradients = self.gradients[stage]
        if stage in self.applied:
            self.applied.remove(stage)
            self.summed.discard(stage)
            for array in gradients.values():
                if not isinstance(array, MetaArray):
                    array.fill(0)
        return gradients

    def ended(self, action: Action) -> None:
        self.versions.ended(action)


class Stream(Step):
    """A step whose schedule has updates: one after all microbatches, or one after each mini-batch of them."""

    device = StreamDevice
    inputs: StreamInputs

    def complete(
        self, inputs: StepInputs, owner: str, schedule: Schedule, weights: str | None
    ) -> StreamInputs:
        """ValueError without an optimizer, or for weights that the schedule cannot have."""
        program = schedule.program
        updates = program.where.get(Kind.U)
        if updates is not None and inputs.optimizer is None:
            first = program.action_of(updates[updates >= 0][0])
            raise ValueError(f"{first} needs an optimizer: train_step(..., optimizer=...)")
        chosen, mini_batches = read_weights(owner, schedule, weights), updates_of(program).members
        life = lives(program, chosen) if len(mini_batches) > 1 else None
        return StreamInputs(**vars(inputs), mini_batches=mini_batches, lives=life)

    @classmethod
    def cut(cls, program: Program, samples: int) -> list[Piece]:
        """Each microbatch with its share of its own mini-batch.

        Where updates are on the way, the sizes alternate, so that mini-batches too differ by at most one
        sample. ValueError for fewer samples than microbatches.
        """
        mini_batches, count = updates_of(program).members, program.microbatches
        found = cut_batch(samples, count)
        if len(mini_batches) == 1:
            return found
        ends = [samples * m // count for m in range(count + 1)]
        for members in mini_batches:
            together = sum(ends[m + 1] - ends[m] for m in members)
            for m in members:
                found[m] = Piece(slice(ends[m], ends[m + 1]), (ends[m + 1] - ends[m]) / together)
        return found

    def run(self, partitions: Sequence[Partition], timeline: Timeline, meter: bool) -> StepResult:
        """As of any step. DivergedError, with the losses up to there, if they grow beyond all bounds.

        ValueError for a tied head: a stage may be updated before the gradients of its other end are there.
        """
        for head in (layer for partition in partitions for layer in partition.layers if layer.tied):
            raise ValueError(
                f"{head!r} shares its weights with the embedding, whose gradients come last, so updates have "
                "to wait for them; take a schedule without updates, and train(...) makes them after each step"
            )
        if self.inputs.lives is None:
            return super().run(partitions, timeline, meter)
        with without_warnings():
            result = super().run(partitions, timeline, meter)
        require_finite(result.losses)
        return result

    def collect(self, devices: Sequence[Device], timeline: Timeline) -> StepResult:
        """With the loss of each mini-batch, and the version of the weights that each action used."""
        result = super().collect(devices, timeline)
        losses = {m: value for device in devices for m, value in device.losses.items()}
        cut, mini_batches = self.inputs.pieces, self.inputs.mini_batches
        means = tuple(sum(cut[m].weight * losses[m] for m in members) for members in mini_batches)
        samples = [sum(cut[m].samples for m in members) for members in mini_batches]
        shares = [each / sum(samples) for each in samples]
        mean = sum(each * share for each, share in zip(means, shares, strict=True))
        own = [device for device in devices if isinstance(device, StreamDevice)]
        used = {action: version for device in own for action, version in device.versions.used.items()}
        return replace(result, loss=mean, losses=means, versions=used)
