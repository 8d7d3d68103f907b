"""A model of which only the times of its layers are known, such as measured ones: its pipelines are planned.

Such times know no bytes. So layers are not dealt out or computed again, replicas sum nothing, messages take
what the costs say of them and the links' latency, and no plan is refused for what it holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from gpipe_sim.balance.costs_of_stages import layers_listed
from gpipe_sim.balance.many_cuts import layer_times
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.work import Work
from gpipe_sim.errors import got, require, whole
from gpipe_sim.planning.problem import Columns, Cut, Problem, laid_out, running
from gpipe_sim.planning.space import Way
from gpipe_sim.pricing.cluster import Cluster
from gpipe_sim.pricing.hardware import Accelerator
from gpipe_sim.pricing.layer_times import Sums
from gpipe_sim.pricing.layout import Layout, Piece
from gpipe_sim.pricing.price import Priced

PIECE = Piece(Work(), 0, Sums(), 1)


class Measured(Problem):
    """Layers with these times, of one microbatch; ``microbatches`` are those of a step."""

    def __init__(self, owner: str, costs: Costs, cluster: Cluster, microbatches: Any):
        require(owner, cluster, Cluster, "a cluster, such as Cluster(8, Accelerator(140e12), memory=80e9)")
        if not (count := layers_listed(owner, costs)):
            raise ValueError(f"{owner} needs costs that list one for each layer {got(costs)}")
        if costs.speed != 1 or not isinstance(costs.overhead, int | float):
            raise ValueError(f"{owner} plans for equal devices: give costs with one overhead and no speed")
        such_as = "with layer times for a model, batch to be the microbatches of a step, such as 64"
        require(owner, microbatches, int | np.integer, such_as)
        self.layers, self.costs, self.count = [], costs, count
        self.samples, self.gradient_bytes = whole(owner, "batch", microbatches), 4
        accelerator = Accelerator(cluster.accelerator.flops, costs.overhead)
        self.cluster = replace(cluster, accelerator=accelerator)
        self.times = np.array(layer_times(costs, count), float)
        self._columns = lru_cache(maxsize=1)(self._read)
        self._balanced = lru_cache(maxsize=None)(self._spread)

    @property
    def blocks(self) -> int:
        """All layers, if they are alike."""
        return self.count if len({tuple(each) for each in self.times.T.tolist()}) == 1 else 0

    def refuses(self, tensor: int) -> str | None:
        return None if tensor == 1 else "times are those of whole layers"

    def differing(self, recompute: Sequence[str], tensor: int, microbatch: int) -> list[str]:
        return ["none"]

    def _read(self, tensor: int, microbatch: int, recompute: str, dealt: bool) -> Columns:
        forward, input_grad, weight_grad = map(running, self.times)
        none = np.zeros(self.count + 1)
        each = forward, input_grad, weight_grad, input_grad + weight_grad
        bytes_ = none, none, np.zeros((3, self.count + 1)), none, none, none[1:]
        return Columns(*each, *bytes_, message=0, gathered=float(self.costs.comm))

    def priced(self, way: Way, cut: Cut) -> Priced:
        none: Any = None  # there is no model to read
        layout = Layout(
            (), none, none, laid_out(way.schedule), 1, way.replicas, 1, cut, "none", False, way.zero, 4,
            "microbatch", none, (PIECE,) * self.count, tuple(range(self.count)), 0,
        )  # fmt: skip
        return MeasuredPriced(layout, self.cluster, times=self.times, gathered=self.costs.comm)

    def even_cut(self, way: Way) -> Cut:
        return self._balanced(self.columns(way), way.schedule.stages)


@dataclass(frozen=True, repr=False, eq=False)
class MeasuredPriced(Priced):
    """One configuration of layers whose times are known; ``memory`` is not."""

    times: Any = None
    gathered: Any = 0  #: what a message takes beside its link

    @property
    def memory(self) -> tuple[dict[str, int], ...]:
        return tuple({} for _ in self.layout.schedule.placement)

    def piece_times(self, *_, **__) -> np.ndarray:
        return self.times.T
