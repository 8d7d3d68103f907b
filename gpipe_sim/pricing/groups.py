"""Which devices sum together on a cluster, and how fast: tensor parallelism innermost, pipelines outermost.

    node 0                            node 1
    [ 0 1 | 2 3 ]  [ 4 5 | 6 7 ]      ...          tensor 2: pairs; replicas 2: 0 and 2, 1 and 3;
      replica 0  1     0    1                      a stage is four devices, the next stage the next four

Megatron-LM numbers its devices so. Groups that leave their nodes share what these send out.
"""

from math import inf
from typing import NamedTuple

from gpipe_sim.errors import Real
from gpipe_sim.links.links import Link, Nodes
from gpipe_sim.pricing.cluster import OneRail, Placed


class Group(NamedTuple):
    """So many devices that sum arrays, each of them ``stride`` after the one before; so many such blocks."""

    devices: int
    stride: int
    blocks: int = 1

    def ring(self, links: Link | Nodes, size: Real) -> float:
        """How long a ring all-reduce of so many bytes takes: a reduce-scatter, and a gather."""
        return 2 * self.half(links, size)

    def half(self, links: Link | Nodes, size: Real) -> float:
        """How long one of the two takes: each device sends all but its own share."""
        if self.devices == 1:
            return 0.0
        link = self.link(links)
        return float((self.devices - 1) * (link.latency + size / self.devices / link.bandwidth))

    def link(self, links: Link | Nodes) -> Link:
        """The slowest link of the ring, with the share of it that the group has."""
        if isinstance(links, Link):
            return links
        inside, between, node = links.inside, links.between, links.devices_per_node
        if not self.leaves(node):
            return inside
        rings = min(self.stride, node)  # that leave a node side by side
        alone = isinstance(links, OneRail) and rings > 1
        many = 1 if alone or between.bandwidth == inf else node / rings
        return Link(max(inside.latency, between.latency), min(inside.bandwidth, many * between.bandwidth))

    def leaves(self, node: int) -> bool:
        """Whether some of the groups are on more than one node of so many devices."""
        block = self.devices * self.stride
        return block * self.blocks > node and node % block > 0


def stage_links(links: Link | Nodes, stages: int, stride: int, more: Real = 0) -> Link | Nodes:
    """The links between the devices of one pipeline, where each message takes so much longer."""

    def longer(link: Link) -> Link:
        return Link(link.latency + more, link.bandwidth)

    if isinstance(links, Link):
        return longer(links)
    nodes = tuple(device * stride // links.devices_per_node for device in range(stages))
    return Placed(1, longer(links.inside), longer(links.between), nodes)
