"""What replicas send each other for the weights that they share: gradients always, with ZeRO also weights.

    zero   gradients of a stage                          weights of a stage
    0      summed in a ring after its last backward
    1      scattered after its last backward             gathered after the update
    2      scattered in every backward                   gathered after the update
    3      scattered in every backward                   gathered in every action, or once in a step

A ring takes twice as long as a scatter (reduce-scatter) or a gather (all-gather) of as many bytes. What is
sent in an action hides behind what the device computes in it, layer by layer: the next layer's weights come,
and the last one's gradients go, meanwhile. So a layer takes the longer of the two; only the first gather of a
step and its last scatter have nothing to hide behind. Rajbhandari et al. 2020, arXiv:1910.02054; Zhao et al.
2023, arXiv:2304.11277.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpipe_sim.core.timeline import Timeline
from gpipe_sim.links.links import Link, Nodes, link_between
from gpipe_sim.pricing.groups import Group, stage_links
from gpipe_sim.pricing.layout import Layout, Piece

Times = tuple[float, float, float]


@dataclass(frozen=True)
class Sharing:
    """The replicas of a layout on these links; all its methods return times."""

    layout: Layout
    links: Link | Nodes

    def within(self, piece: Piece, times: Times, split: bool) -> Times:
        """F, I and W of a layer with what is sent meanwhile; ``split``: whether I and W are actions."""
        layout, (forward, input_grad, weight_grad) = self.layout, times
        gather = self._gather(piece.weights * piece.itemsize) if layout.unshard == "microbatch" else 0.0
        scatter = self._half(piece.weights * layout.gradient_bytes) if layout.zero >= 2 else 0.0
        if split:
            return max(forward, gather), max(input_grad, gather), max(weight_grad, scatter)
        both = max(input_grad + weight_grad, gather + scatter)
        return max(forward, gather), both - weight_grad, weight_grad

    def before(self, timeline: Timeline) -> float:
        """By how much a step starts later, since a device's first forward waits for weights."""
        found = [0.0]
        if self.layout.zero < 3:
            return 0.0
        for spans in timeline.rows:
            if spans:
                sizes = self._sizes(spans[0].action.parts[0].stage)
                once = self.layout.unshard == "step"
                found.append(self._gather(sum(sizes) if once else max(sizes)) - float(spans[0].start))
        return max(found)

    def after(self, stage: int) -> float:
        """From the end of a stage's last backward until its gradients are summed."""
        layout = self.layout
        if layout.zero >= 2:
            pieces = zip(layout.counts[stage], layout.pieces, strict=True)
            return self._half(max(piece.weights for count, piece in pieces if count) * layout.gradient_bytes)
        whole = layout.weights[stage] * layout.gradient_bytes
        return self._half(whole) * (1 if layout.zero else 2)

    def updated(self, stages: Sequence[int]) -> float:
        """How long a device then gathers the weights that others updated."""
        return (
            self._half(sum(sum(self._sizes(stage)) for stage in stages))
            if self.layout.zero in (1, 2)
            else 0.0
        )

    def tied(self, both: Sequence[int], weights: int) -> float:
        """How long the devices at both ends of a tied weight sum its gradient, or their share of it."""
        if both[0] == both[1]:
            return 0.0
        layout = self.layout
        links = stage_links(self.links, layout.schedule.devices, layout.tensor * layout.replicas)
        size = weights * layout.gradient_bytes / (layout.replicas if layout.zero else 1)
        return Group(2, 1).ring(link_between(links, both[0], both[1]), size)

    def _sizes(self, stage: int) -> list[int]:
        """The bytes of the weights of each of its layers."""
        pieces = zip(self.layout.counts[stage], self.layout.pieces, strict=True)
        return [piece.weights * piece.itemsize for count, piece in pieces for _ in range(count)]

    def _gather(self, size: int) -> float:
        return self._half(size) if self.layout.zero == 3 else 0.0

    def _half(self, size: int) -> float:
        return self.layout.replica_group.ring(self.links, size) / 2
