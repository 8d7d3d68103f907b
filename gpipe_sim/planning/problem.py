"""What is planned: a model on a cluster, and what each of its layers takes and holds.

A way to lay a model out has columns, with a number for each layer: what its forward and backward take a
device, its weights, and bytes. They are read off one configuration of ``price`` in which every layer is a
stage, so what a plan is bounded by and what it is priced with are the same.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from gpipe_sim.balance.by_cost import balance_by_cost
from gpipe_sim.core.device import Batch
from gpipe_sim.core.layers import Layer
from gpipe_sim.core.losses import Loss, cross_entropy
from gpipe_sim.core.meta_array import MetaArray
from gpipe_sim.core.one_f_one_b import OneFOneB
from gpipe_sim.core.optimizers import Optimizer
from gpipe_sim.errors import Real, listed, require, require_batch
from gpipe_sim.links.links import Link, Nodes
from gpipe_sim.memory.profile import Size
from gpipe_sim.planning.space import OWNER, SEVERAL, Way, divisors
from gpipe_sim.pricing.cluster import Cluster
from gpipe_sim.pricing.groups import Group, stage_links
from gpipe_sim.pricing.held import STATIC, Outlined, outlined_on, static_bytes
from gpipe_sim.pricing.layout import Layout, read_cut, read_layout, row_of_blocks, weights_of
from gpipe_sim.pricing.mixed import homes, of_pipeline
from gpipe_sim.pricing.price import OPTIMIZER, Priced
from gpipe_sim.pricing.tensor_parts import tensor_parts

Column = np.ndarray
Cut = tuple[int, ...]  #: how many layers each stage gets


#: The schedule, whose program is not kept for longer than the last few.
laid_out = lru_cache(maxsize=256)(copy)


@dataclass(frozen=True, eq=False)
class Columns:
    """Of each layer: what F, I, W and a full backward take; its weights; and bytes at the least.

    All are running sums, (layers + 1,), but ``entry``, (layers,): what a layer keeps of a microbatch if it is
    the first of its stage, its input included. ``kept`` is what it keeps behind others.
    """

    forward: Column
    input_grad: Column
    weight_grad: Column
    backward: Column
    weights: Column
    sizes: Column  #: bytes of weights
    static: Column  #: (3, layers + 1): bytes of weights, gradients, state
    kept: Column
    pending: Column
    entry: Column
    message: int
    gathered: float  #: how long a message is gathered where it arrives

    @cached_property
    def whole(self) -> Column:
        """What F and a full backward take; no order takes less."""
        return self.forward + self.backward

    def alike(self, other: "Columns") -> bool:
        """Whether a full backward takes as long, and as much is kept."""
        return bool((self.backward == other.backward).all() and (self.kept == other.kept).all())

    @cached_property
    def apart(self) -> Column:
        """What F, I and W take."""
        return self.forward + self.input_grad + self.weight_grad


class Problem:
    """A model to be planned for a cluster."""

    def __init__(
        self,
        owner: str,
        model: Sequence[Layer],
        cluster: Cluster,
        batch: Batch,
        loss: Loss | None,
        optimizer: Optimizer | None,
        gradient_bytes: int = 4,
    ):
        require(owner, cluster, Cluster, "a cluster, such as Cluster(8, Accelerator(140e12), memory=80e9)")
        self.layers = listed(owner, "a list of layers, such as mlp([64, 10])", model)
        if not self.layers:
            raise ValueError(f"{owner} needs at least one layer (got [])")
        for layer in self.layers:
            require(owner, layer, Layer, "a model to be a list of layers, such as mlp([64, 10])")
        require_batch(batch)
        if not len(batch[0]):
            raise ValueError(f"{owner} needs a batch with at least one sample")
        self.cluster, self.batch, self.optimizer = cluster, batch, optimizer
        self.loss = cross_entropy if loss is None else loss
        self.gradient_bytes = gradient_bytes
        self.count, self.samples = len(self.layers), len(batch[0])
        self._layout = lru_cache(maxsize=None)(self._lay_out)
        self._columns = lru_cache(maxsize=None)(self._read)
        self._balanced = lru_cache(maxsize=None)(self._spread)
        self._columns(1, 1, "none", False)  # what is no model, batch or loss is refused

    def on(self, cluster: Cluster) -> "Problem":
        """The same model on another cluster."""
        return Problem(
            OWNER, self.layers, cluster, self.batch, self.loss, self.optimizer, self.gradient_bytes
        )

    @cached_property
    def blocks(self) -> int:
        """How many equal layers stand in a row, if most layers do; else 0."""
        _, count, row = row_of_blocks(self.layers)
        return count if len(row) == count else 0

    def several(self, pipeline: int) -> list[int]:
        """The stages per device that are tried where nobody says how many."""
        if not self.blocks:
            return [each for each in SEVERAL if each * pipeline <= self.count]
        return [] if self.blocks % pipeline else divisors(self.blocks // pipeline)[1:]

    def refuses(self, tensor: int) -> str | None:
        """Why its layers cannot be dealt out to so many devices."""
        if tensor == 1:
            return None
        try:
            parts = tensor_parts(self.layers, tensor)
        except ValueError as error:
            return str(error)
        if sum(weights_of(part.layer) for part in parts) == sum(map(weights_of, self.layers)):
            return "it has no layers that can be dealt out"
        return None

    def unequal(self, way: Way) -> str | None:
        """Why a cluster of unequal devices cannot be used so: those that share a stage have to be equal."""
        try:
            homes(way.schedule.placement, of_pipeline(self.cluster, way.pipeline, way.tensor * way.replicas))
        except ValueError as error:
            return str(error)
        return None

    def differing(self, recompute: Sequence[str], tensor: int, microbatch: int) -> list[str]:
        """Without what is as "none": "selective" where no layer has an attention to make again, say."""
        plain = self._columns(tensor, microbatch, "none", False)
        return [
            each
            for each in recompute
            if each == "none"
            or "none" not in recompute
            or not plain.alike(self._columns(tensor, microbatch, each, False))
        ]

    def zeros(self, wanted: Sequence[int], replicas: int) -> list[int]:
        """Without 0 where 1 is as fast: it gathers updated weights in place of half of a gradients' ring."""
        if replicas == 1:
            return [min(wanted)]
        columns = self._columns(1, 1, "none", False)
        more = columns.sizes[-1] > self.gradient_bytes * columns.weights[-1]
        return [each for each in wanted if each or more or 1 not in wanted]

    def columns(self, way: Way) -> Columns:
        return self._columns(way.tensor, way.microbatch, way.recompute, way.sequence_parallel)

    def _lay_out(self, tensor: int, microbatch: int, recompute: str, dealt: bool) -> Layout:
        """Every layer a stage, and one microbatch."""
        batch: Any = tuple(MetaArray((microbatch, *each.shape[1:]), each.dtype) for each in self.batch)
        n = self.count
        return read_layout(
            self.layers, tensor * n, batch, self.loss, tensor=tensor, pipeline=n, microbatch=microbatch,
            schedule=OneFOneB, cut=[1] * n, recompute=recompute, sequence_parallel=dealt,
            gradient_bytes=self.gradient_bytes, optimizer=self.optimizer,
        )  # fmt: skip

    def _read(self, tensor: int, microbatch: int, recompute: str, dealt: bool) -> Columns:
        layout = self._layout(tensor, microbatch, recompute, dealt)
        # Sums take the links that groups of ``tensor`` devices have on this cluster, whatever the pipeline.
        alone = replace(layout, schedule=OneFOneB(1, 1), replicas=self.cluster.devices // tensor)
        priced, accelerator = Priced(alone, self.cluster), self.cluster.accelerator
        full, apart = (layout.counts @ priced.piece_times(accelerator, split) for split in (False, True))
        share = tensor if dealt else 1
        kept, pending, entry = _kept(outlined_on(layout, tensor // share), microbatch)
        return Columns(
            running(full[:, 0]),
            running(apart[:, 1]),
            running(apart[:, 2]),
            running(full[:, 1] + full[:, 2]),
            running(layout.weights),
            running(layout.counts @ [piece.weights * piece.itemsize for piece in layout.pieces]),
            np.array([running(column) for column in zip(*static_bytes(layout), strict=True)]),
            kept / share,
            pending / share,
            entry / share,
            layout.message // tensor,
            priced.gathered,
        )

    def priced(self, way: Way, cut: Cut) -> Priced:
        """What ``price`` says of this way with this cut, without reading each layer again."""
        of_layers = self._layout(way.tensor, way.microbatch, way.recompute, way.sequence_parallel)
        layout = replace(
            of_layers,
            batch=self.batch,
            schedule=laid_out(way.schedule),
            replicas=way.replicas,
            cut=cut,
            zero=way.zero,
        )
        return Priced(layout, self.cluster)

    def even_cut(self, way: Way) -> Cut:
        """Blocks dealt out evenly; where that cannot be, so that the slowest stage is as fast as can be."""
        stages = way.schedule.stages
        if self.blocks and not self.blocks % stages:
            return read_cut(self.layers, stages, None)
        return self._balanced(self.columns(way), stages)

    def _spread(self, columns: Columns, stages: int) -> Cut:
        return tuple(balance_by_cost(np.diff(columns.whole).tolist(), stages))

    def least_held(self, way: Way, copies: int) -> float:
        """Bytes of the fullest device: when the first loss is there, all layers keep something of it."""
        columns = self.columns(way)
        kept = columns.kept[-1] - (columns.kept[1:] - columns.kept[:-1] - columns.entry).clip(0).sum()
        return float((self.static(way)[-1] * copies + max(0, kept)) / way.pipeline)

    def static(self, way: Way) -> Column:
        """Running sums of the bytes that are there all the time."""
        columns = self.columns(way)
        shares = [way.replicas if way.zero >= least else 1 for least in STATIC.values()]
        return (columns.static / np.array(shares)[:, None]).sum(axis=0)

    def ring(self, way: Way) -> tuple[float, float]:
        """How long a sum over replicas takes: of nothing, and for each byte more."""
        ring, many = Group(way.replicas, way.tensor).ring, 10**9
        nothing = ring(self.cluster.links, 0)
        return nothing, (ring(self.cluster.links, many) - nothing) / many

    def update(self, way: Way) -> float:
        """How long the update of a weight takes."""
        return OPTIMIZER / (way.replicas if way.zero else 1) / float(self.cluster.accelerator.hbm)

    def constants(self, microbatches: int) -> float:
        """What a step takes beside everything else."""
        accelerator = self.cluster.accelerator
        return float(accelerator.step + accelerator.microbatch * microbatches)

    def links(self, way: Way) -> Link | Nodes:
        """Between the devices of a pipeline."""
        gathered = self.columns(way).gathered
        return stage_links(self.cluster.links, way.pipeline, way.tensor * way.replicas, gathered)


def running(values: Iterable[Real]) -> Column:
    return np.array([0, *accumulate(map(float, values))])


def _kept(found: Outlined, microbatch: int) -> tuple[Column, Column, Column]:
    """What layers keep of a microbatch inside a stage and what I leaves for W, running sums; and the inputs.

    An input of a stage counts if its first layer keeps it. Inside, it counts if the layer before keeps it as
    its output, or this one does, and it is no array that came in before. All are at most what exists.
    """
    layers = found.of_each(found.profile.layers)
    entering = found.of_each([sizes["x"] for sizes in found.profile.boundaries[:-1]])
    kept, pending, entry = [], [], []
    for i, (layer, x) in enumerate(zip(layers, entering, strict=True)):
        own = _bytes(layer.saved, microbatch)
        saves = "x" in layer.saved or (layer.output == "x" and "y" in layer.saved)
        before = layers[i - 1] if i else None
        shared = before is not None and before.output != "x" and ("y" in before.saved or saves)
        kept.append(own + shared * x.of(microbatch))
        entry.append(own + saves * x.of(microbatch))
        left = (array for i, array in enumerate(layer.saved) if i in layer.pending)
        pending.append(_bytes((*layer.pending, *left), microbatch))
    return running(kept), running(pending), np.array(entry, float)


def _bytes(arrays: Iterable[Any], microbatch: int) -> int:
    return sum(array.of(microbatch) for array in arrays if isinstance(array, Size))
