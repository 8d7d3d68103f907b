"""What runs of layers compute and hold, from running sums: so that thousands of cuts can be priced.

All bytes are at most those that exist: what is one and the same array for two layers, or for two stages of a
device, counts once or not at all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from gpipe_sim.balance.by_cost import balance_by_cost
from gpipe_sim.balance.cuts import CutSearch
from gpipe_sim.core.bubbles import peak_in_flight
from gpipe_sim.core.device import Batch
from gpipe_sim.core.layers import Layer
from gpipe_sim.core.losses import Loss
from gpipe_sim.core.optimizers import Optimizer
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.split import split
from gpipe_sim.errors import listed, require
from gpipe_sim.memory.profile import LayerProfile, Profile, Size
from gpipe_sim.memory.shape_inference import profile
from gpipe_sim.planning.cluster import quickest
from gpipe_sim.pricing.cluster import Cluster

Column = np.ndarray
Cut = tuple[int, ...]  #: how many layers each stage gets
CUTS = ("early", "late")  #: which stages get one layer more, if not all can have as many


class Stages(NamedTuple):
    """Of each stage, for one microbatch: times, and bytes at the least."""

    forward: Column
    input_grad: Column
    weight_grad: Column
    arrives: Column  #: how long its input is on its way at least
    returns: Column  #: and the gradient of its output
    fixed: Column  #: weights, and what the optimizer keeps
    gradients: Column
    boundary: Column  #: its input
    saved: Column  #: what a forward leaves, without the input
    saves_input: Column  #: whether a forward leaves that too
    pending: Column  #: what I leaves for W


class LayerTable:
    """The layers of a model on the devices of a cluster. ``profile`` has one stage for each layer."""

    def __init__(self, model: Sequence[Layer], profile: Profile, cluster: Cluster):
        self.model, self.profile, self.cluster = tuple(model), profile, cluster
        self.layers = profile.layers
        self.count = len(self.layers)
        #: Running sums: of FLOPs for each sample, and of bytes.
        self.forward = _running(layer.flops for layer in self.layers)
        self.input_grad = _running(layer.input_flops for layer in self.layers)
        self.weight_grad = _running(layer.weight_flops for layer in self.layers)
        self.fixed = _running(sum(layer.parameters.values()) + layer.state for layer in self.layers)
        self.gradients = _running(_sum(layer.gradients.values()).fixed for layer in self.layers)
        self._inputs = [sizes["x"] for sizes in profile.boundaries[:-1]]
        self._passing = profile.passing
        self.stages = lru_cache(maxsize=4096)(self._stages)
        self.cut = lru_cache(maxsize=None)(self._cut)

    def share(self, cut: Cut, replicas: int) -> Profile:
        """The model with this cut, and the batch that one of so many replicas gets."""
        ends = [0, *accumulate(cut)]
        stages = tuple(self.layers[a:b] for a, b in pairwise(ends))
        return replace(self.profile, stages=stages, samples=self.profile.samples // replicas)

    @cached_property
    def _inside(self) -> tuple[Column, Column]:
        """(fixed, for each sample): running sums of what layers save, and the inputs that are kept.

        Those of layer i are all but its own input: that counts if the layer before saves it as its output,
        or this one does; and it is no array of its own if the layer before passes its input on.
        """
        rows = []
        for i, layer in enumerate(self.layers):
            sizes = [array for array in layer.saved if isinstance(array, Size)]
            before = self.layers[i - 1] if i else None
            if before is not None and before.output != "x" and ("y" in before.saved or _saves(layer)):
                sizes.append(self._inputs[i])
            rows.append(_sum(sizes))
        return _both(rows)

    @cached_property
    def _pending(self) -> tuple[Column, Column]:
        return _both(map(_pending, self.layers))

    def _stages(self, cut: Cut, samples: int) -> Stages:
        ends = np.array([0, *accumulate(cut)])
        low, high = ends[:-1], ends[1:]
        speed = float(self.cluster.accelerator.flops)

        def takes(sums: Column) -> Column:
            return (sums[high] - sums[low]) * (samples / speed)

        def holds(sums: tuple[Column, Column], first: Column = low) -> Column:
            return sum((each[high] - each[first]) * n for each, n in zip(sums, (1, samples), strict=True))

        forward, back = self._passing
        links = self.cluster.links
        arrives = [0, *(float(quickest(links, forward[i].of(samples))) for i in low[1:].tolist())]
        returns = [*(float(quickest(links, back[i].of(samples))) for i in low[1:].tolist()), 0]
        # the input of a stage is its boundary, so what its first layer adds is only what that makes itself
        own = np.array([_own(self.layers[i]).of(samples) for i in low.tolist()], float)
        return Stages(
            takes(self.forward),
            takes(self.input_grad),
            takes(self.weight_grad),
            np.array(arrives),
            np.array(returns),
            self.fixed[high] - self.fixed[low],
            self.gradients[high] - self.gradients[low],
            np.array([self._inputs[i].of(samples) for i in low.tolist()], float),
            holds(self._inside, low + 1) + own,
            np.array([_saves(self.layers[i]) for i in low.tolist()]),
            holds(self._pending),
        )

    def _cut(self, stages: int, which: str, recompute: bool) -> Cut:
        """The cut with the fastest slowest stage."""
        times = 1 + recompute
        costs = [times * layer.flops + layer.input_flops + layer.weight_flops for layer in self.layers]
        if which == "early":
            return tuple(balance_by_cost(costs, stages))
        return tuple(balance_by_cost(costs[::-1], stages)[::-1])

    def fitting_cut(self, schedule: Schedule, samples: int, recompute: bool) -> Cut | None:
        """A cut that fits where the fastest may not: early stages of 1F1B hold more microbatches.

        It is for pipelines whose devices have a stage each, or it is None. A stage of certain layers on
        device k takes its weights, their gradients, and what it keeps of each microbatch, of so many
        samples, that the schedule has in flight there. Of the cuts that fit by this count, the one whose
        slowest stage is the fastest is found exactly.
        """
        if any(held != (device,) for device, held in enumerate(schedule.placement)):
            return None
        stages, in_flight = schedule.devices, peak_in_flight(schedule)
        width = self.count - stages + 1
        first = np.arange(self.count)[:, None]
        end = first + np.arange(1, width + 1)

        def between(sums: Column) -> Column:
            return sums[np.minimum(end, self.count)] - sums[first]

        takes = between(self.forward * (1 + recompute) + self.input_grad + self.weight_grad)
        once, per_sample = self._inside
        saved = between(once + samples * per_sample)
        inputs = np.array([size.of(samples) for size in self._inputs], float)[:, None]
        kept, again = (inputs, saved) if recompute else (saved + inputs, 0)
        fixed = between(self.fixed + self.gradients) + again

        @lru_cache(maxsize=2)
        def of_device(held: int) -> Column:
            fits = (fixed + held * kept <= self.cluster.memory) & (end <= self.count)
            return np.where(fits, takes, np.inf)

        search = CutSearch(lambda stage, _: of_device(in_flight[stage]), width, self.count, stages, np.inf)
        return tuple(search.best()) if search.rest()[0][0] < np.inf else None


def table_of(
    owner: str,
    layers: Sequence[Layer],
    cluster: Cluster,
    batch: Batch,
    loss: Loss,
    optimizer: Optimizer | None = None,
) -> LayerTable:
    """The table of a model; TypeError for what is no model, cluster, batch or loss."""
    require(owner, cluster, Cluster, "a cluster, such as Cluster(8, Accelerator(flops=140e12), memory=80e9)")
    if not (layers := listed(owner, "a list of layers, such as mlp([64, 10])", layers)):
        raise ValueError(f"{owner} needs at least one layer (got [])")
    outlined = profile(split(layers, stages=len(layers)), batch, loss, optimizer)
    if not outlined.samples:
        raise ValueError(f"{owner} needs a batch with at least one sample")
    return LayerTable(layers, outlined, cluster)


def _running(values: Iterable[int]) -> Column:
    return np.array([0, *accumulate(values)], float)


def _both(sizes: Iterable[Size]) -> tuple[Column, Column]:
    """Running sums of what is fixed, and of what there is for each sample."""
    fixed, per_sample = zip(*sizes, strict=True)
    return _running(fixed), _running(per_sample)


def _sum(sizes: Iterable[Size]) -> Size:
    return Size(*map(sum, zip(*sizes, (0, 0), strict=True)))


def _saves(layer: LayerProfile) -> bool:
    """Whether it saves its input."""
    return "x" in layer.saved or (layer.output == "x" and "y" in layer.saved)


def _own(layer: LayerProfile) -> Size:
    """What a layer saves that is an array of its own."""
    return _sum(array for array in layer.saved if isinstance(array, Size))


def _pending(layer: LayerProfile) -> Size:
    """What I of a layer leaves for W: arrays of its own, and those among what it saved."""
    kept = (array for i, array in enumerate(layer.saved) if i in layer.pending)
    return _sum(array for array in (*layer.pending, *kept) if isinstance(array, Size))
