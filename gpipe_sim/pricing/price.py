"""What a step of a given configuration takes: a model, a cluster, and how one is laid out on the other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.device import Batch
from gpipe_sim.core.layers import Layer
from gpipe_sim.core.losses import Loss, cross_entropy
from gpipe_sim.core.one_f_one_b import OneFOneB
from gpipe_sim.core.optimizers import Optimizer
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import Timeline, number
from gpipe_sim.errors import require
from gpipe_sim.pricing.cluster import Cluster
from gpipe_sim.pricing.groups import stage_links
from gpipe_sim.pricing.hardware import Accelerator
from gpipe_sim.pricing.held import held
from gpipe_sim.pricing.layer_times import LayerTime, layer_time
from gpipe_sim.pricing.layout import OWNER, Layout, Shape, read_layout
from gpipe_sim.pricing.mixed import homes, of_pipeline
from gpipe_sim.pricing.said import said
from gpipe_sim.pricing.sharing import Sharing

OPTIMIZER = 40  #: bytes that an update of a weight reads and writes, with its copy and two moments
Factors = Mapping[Shape, float]  #: by which a block of this shape takes longer than was computed


def price(
    model: Sequence[Layer],
    cluster: Cluster,
    batch: Batch,
    loss: "Loss | None" = None,
    *,
    tensor: int = 1,
    pipeline: int = 1,
    replicas: "int | None" = None,
    microbatch: int = 1,
    schedule: "type[Schedule] | None" = None,
    stages_per_device: int | None = None,
    cut: Sequence[int] | None = None,
    recompute: str = "none",
    sequence_parallel: bool = False,
    zero: int = 0,
    gradient_bytes: int = 4,
    unshard: str = "microbatch",
    optimizer: "Optimizer | None" = None,
) -> "Priced":
    """What a step takes and holds in one configuration, from the work that each layer states.

    >>> tokens = gp.MetaArray((512, 2048), "i4")
    >>> links = gp.Nodes(8, inside=gp.Link(bandwidth=200e9), between=gp.Link(bandwidth=20e9))
    >>> cluster = gp.Cluster(96, gp.pricing.A100, memory=80e9, links=links)
    >>> gp.price(gp.gpt3_175b(), cluster, (tokens, tokens), tensor=8, pipeline=12, recompute="full")
    <Priced: 98.03 in all, of that bubble 1.989>

    All devices are used: ``tensor`` x ``pipeline`` x ``replicas``, numbered in this order from the inside, as
    in Megatron-LM. ``microbatch`` are the samples of one; ``cut`` the layers of each stage: blocks are dealt
    out evenly unless it is given. ``recompute`` is per block: "selective" makes attention's core again,
    "full" all of it. ``sequence_parallel`` deals out what is no product along the sequence. With ``zero`` 1
    the replicas share out the optimizer's state, with 2 the gradients too, with 3 the weights (FSDP): these
    are gathered for each "microbatch", or once in a "step" (``unshard``). ``gradient_bytes`` are those of one
    gradient; ``optimizer`` says what is kept for a weight: Adam unless given, on a float32 copy of weights
    that take 2 bytes.

    How a layer's time is found says ``Accelerator``; messages take the cluster's links, stage by stage; then
    the gradients of a stage are summed over its replicas in a ring, and its weights are updated.
    ``loss`` is cross_entropy and ``schedule`` OneFOneB unless given. ``gp.calibrate`` fits the
    cluster's numbers to measured steps.

    ValueError for degrees that do not divide heads, layers, devices or the batch; TypeError for what is no
    model, cluster or batch.
    """
    require(OWNER, cluster, Cluster, "a cluster, such as Cluster(8, A100, memory=80e9)")
    loss = cross_entropy if loss is None else loss
    schedule = OneFOneB if schedule is None else schedule
    layout = read_layout(
        model, cluster.devices, batch, loss, tensor=tensor, pipeline=pipeline, replicas=replicas,
        microbatch=microbatch, schedule=schedule, stages_per_device=stages_per_device, cut=cut,
        recompute=recompute, sequence_parallel=sequence_parallel, zero=zero, gradient_bytes=gradient_bytes,
        unshard=unshard, optimizer=optimizer,
    )  # fmt: skip
    priced = Priced(layout, cluster)
    homes(layout.schedule.placement, priced.devices)  # unequal devices are refused here
    return priced


@dataclass(frozen=True, repr=False, eq=False)
class Priced:
    """One configuration on a cluster. ``factors`` multiply what blocks of some shapes take."""

    layout: Layout
    cluster: Cluster
    factors: Factors = field(default_factory=dict)

    @cached_property
    def time(self) -> float:
        """Of a step, in the unit of the accelerator: until the last weights are updated."""
        return self._sharing.before(self.timeline) + self._updated() + self._constants

    @cached_property
    def timeline(self) -> Timeline:
        """One replica, until its last backward ends; a device stands for ``tensor`` of them."""
        return self._simulated(self._costs(shared=True), messages=True)

    @cached_property
    def parts(self) -> dict[str, float]:
        """What the time is made of, each added to those before it; they add up to ``time``.

        - work: products and other bytes of the device that has most of the model's blocks to do.
        - tensor: the sums of tensor parallelism; host: by how much starting kernels makes it longer.
        - head: embedding, head and loss, as far as the device with most to do has more for them.
        - bubble: how long that device waits if messages take no time; messages: by how much these add.
        - gradients: what replicas and tied ends send, as far as it does not hide; optimizer: the updates.
        - rest: what each microbatch and step take beside everything else.
        """
        blocks = self.layout.counts * [not piece.end for piece in self.layout.pieces]
        costs = [
            self._costs(blocks, launched=False, summed=False),
            self._costs(blocks, launched=False),
            self._costs(blocks),
            self._costs(),
            self._costs(shared=True),
        ]
        work, tensor, host, head, shared = map(self._busiest, costs)
        alone = float(self._simulated(self._costs(shared=True), messages=False).makespan)
        sent, summed = float(self.timeline.makespan), self._updated(optimizer=False)
        return {
            "work": work,
            "tensor": tensor - work,
            "host": host - tensor,
            "head": head - host,
            "bubble": alone - shared,
            "messages": sent - alone,
            "gradients": shared - head + summed - sent + self._sharing.before(self.timeline),
            "optimizer": self._updated() - summed,
            "rest": self._constants,
        }

    @cached_property
    def memory(self) -> tuple[dict[str, int], ...]:
        """For each device of a pipeline, the most bytes that it holds of what is there during a step.

        - weights, gradients, optimizer: as far as replicas do not share them out.
        - gathered: weights that are whole for a while.
        - activations: what microbatches in flight keep for their backwards, and messages.
        - running: what exists only while an action runs, such as what is computed again.
        """
        return held(self.layout)

    @property
    def peak(self) -> int:
        """The bytes that the fullest device needs: all of these together."""
        return max(sum(each.values()) for each in self.memory)

    @property
    def fits(self) -> bool:
        """Whether no device holds more than it has room for."""
        pairs = zip(self.memory, self.devices, strict=True)
        return all(sum(each.values()) <= device.memory for each, device in pairs)

    @property
    def unseen(self) -> tuple[Shape, ...]:
        """Shapes of blocks that no factor is known for, where others have one."""
        return tuple(shape for shape in self.layout.shapes if self.factors and shape not in self.factors)

    @property
    def gathered(self) -> float:
        """How long a message is gathered where it arrives."""
        group, links = self.layout.tensor_group, self.cluster.links
        return 0.0 if self.layout.sequence_parallel else group.half(links, self.layout.message)

    @property
    def _sharing(self) -> Sharing:
        return Sharing(self.layout, self.cluster.links)

    @property
    def _constants(self) -> float:
        microbatches = self.layout.schedule.microbatches
        each = {device.accelerator for device in self.devices}
        return max(float(one.step + one.microbatch * microbatches) for one in each)

    @cached_property
    def devices(self) -> list[Cluster]:
        """What each device of the pipeline is: equal, unless the cluster is ``Mixed``."""
        layout = self.layout
        return of_pipeline(self.cluster, layout.schedule.devices, layout.tensor * layout.replicas)

    def _costs(
        self,
        counts: np.ndarray | None = None,
        launched: bool = True,
        summed: bool = True,
        shared: bool = False,
    ) -> Costs:
        """F, I and W of each stage, with what the host does, tensor parallelism sums, and replicas send."""
        counts = self.layout.counts if counts is None else counts
        on = homes(self.layout.schedule.placement, self.devices)
        split = Kind.W in self.layout.schedule.program.where
        known = {each: self.piece_times(each, split, launched, summed, shared) for each in {*on}}
        rows = [row @ known[each] for row, each in zip(counts, on, strict=True)]
        forward, input_grad, weight_grad = np.array(rows).T.tolist()
        overheads = [device.accelerator.overhead for device in self.devices]
        overhead = overheads if len({*overheads}) > 1 else overheads[0]
        return Costs(forward, input_grad, weight_grad, overhead=overhead)

    def piece_times(
        self, accelerator: Accelerator, split: bool, launched=True, summed=True, shared=False
    ) -> np.ndarray:
        """F, I and W of each piece, (pieces, 3); ``split``: whether I and W are actions."""
        if not launched:
            accelerator = replace(accelerator, launch=0, exposed=0)
        ring = partial(self._sum, accelerator) if summed else (lambda _: 0.0)
        each = [self._piece(piece, accelerator, ring, split) for piece in self.layout.pieces]
        if shared:
            pairs = zip(self.layout.pieces, each, strict=True)
            each = [self._sharing.within(piece, times, split) for piece, times in pairs]
        return np.array(each)

    def _piece(self, piece, accelerator, ring: Callable, split: bool) -> tuple[float, float, float]:
        """What F, I and W take of a layer: a full backward starts kernels of both while the device works."""
        linear = accelerator.vocabulary if piece.vocabulary else None if piece.end else accelerator.linear
        rates = float(accelerator.flops), float(linear or accelerator.flops)
        found: LayerTime = layer_time(
            piece.work, piece.weights, piece.sums, accelerator, ring, piece.itemsize, *rates
        )
        factor = self.factors.get(piece.shape, 1.0)
        forward = found.forward.takes(accelerator)
        if split:
            back, weight = found.input_grad.takes(accelerator), found.weight_grad.takes(accelerator)
        else:
            full = found.input_grad + found.weight_grad
            both, done = full.takes(accelerator), full.device + full.sums
            weight = both * found.weight_grad.device / done if done else 0.0
            back = both - weight
        return factor * forward, factor * back, factor * weight

    def _sum(self, accelerator: Accelerator, size: int) -> float:
        group = self.layout.tensor_group
        if group.devices == 1:
            return 0.0
        return group.ring(self.cluster.links, size) + float(accelerator.call)

    def _busiest(self, costs: Costs) -> float:
        """What the device with most to do takes."""
        done = self._simulated(costs, messages=False)
        return max(float(sum(span.end - span.start for span in row)) for row in done.rows)

    def _simulated(self, costs: Costs, messages: bool) -> Timeline:
        layout, links = self.layout, self.cluster.links
        if not messages or layout.schedule.devices == 1:
            return simulate(layout.schedule, costs)
        reached = stage_links(links, layout.schedule.devices, layout.tensor * layout.replicas, self.gathered)
        return simulate(layout.schedule, costs, links=reached, message_bytes=layout.message // layout.tensor)

    @cached_property
    def _summed(self) -> list[float]:
        """For each device, when its gradients are summed: over replicas, with copies and with tied ends."""
        layout, timeline = self.layout, self.timeline
        program = timeline.schedule.program
        backward = program.makes_gradients
        ready = np.zeros(program.stages)
        np.maximum.at(ready, program.stage[backward], timeline.end[program.entry[backward]].astype(float))
        free = [0.0] * program.devices
        for k, on in enumerate(program.placement):
            for stage in sorted(on, key=lambda stage: ready[stage]):
                free[k] = max(free[k], ready[stage]) + self._sharing.after(stage)
        held_by = [[k for k, on in enumerate(program.placement) if s in on] for s in range(program.stages)]
        pairs = [(on, weights) for on, weights in zip(held_by, layout.weights, strict=True) if len(on) == 2]
        pairs += [([held_by[stage][0] for stage in stages], weights) for stages, weights in layout.tied]
        for both, weights in pairs:
            summed = max(free[k] for k in both) + self._sharing.tied(both, weights)
            free[both[0]] = free[both[1]] = summed
        return free

    def _updated(self, optimizer: bool = True) -> float:
        """When the last device has all its weights; without ``optimizer``, if an update took no time."""
        shared = self.layout.replicas if self.layout.zero else 1
        ends = []
        for on, at, device in zip(self.layout.schedule.placement, self._summed, self.devices, strict=True):
            weights = sum(self.layout.weights[stage] for stage in on)
            takes = OPTIMIZER * weights / shared / float(device.accelerator.hbm)
            ends.append(at + self._sharing.updated(on) + optimizer * takes)
        return float(max(ends))

    def __str__(self) -> str:
        return said(self)

    def __repr__(self) -> str:
        return f"<Priced: {number(self.time)} in all, of that bubble {number(self.parts['bubble'])}>"
