"""A cluster: equal devices, what each computes and holds, and the links between any two."""

import warnings
from dataclasses import dataclass
from fractions import Fraction
from math import inf

from gpipe_sim.errors import Real, got, number, require, whole
from gpipe_sim.links.links import Link, Nodes
from gpipe_sim.pricing.hardware import Accelerator, brief, warn_if_lost

MOST_DEVICES = 65_536
#: FLOPs for each byte of a link: below and above, one of the two is in another unit.
LEAST_RATE, MOST_RATE = Fraction(1, 10**6), 10**10
REAL = 10**12  #: FLOPs: no smaller card is in a node of several
AT_ONCE = Link()  #: messages take no time


@dataclass(frozen=True)
class Cluster:
    """Equal devices: how many, what each computes and holds, and the links between any two.

    >>> gpu, links = gp.Accelerator(flops=137e12, overhead=1e-5), gp.Link(latency=5e-6, bandwidth=25e9)
    >>> gp.Cluster(8, gpu, memory=80e9, links=links).memory
    80000000000.0

    ``memory`` is in bytes, for each device; ``accelerator`` and ``links`` are in one unit of time. Links are
    one ``Link`` for every pair, or ``Nodes``; messages take no time unless they are given. ValueError for a
    cluster of nothing, or devices that hold nothing; TypeError for what is no number, accelerator or link. A
    warning where these can hardly be in one unit of time.
    """

    devices: int
    accelerator: Accelerator
    memory: Real
    links: Link | Nodes = AT_ONCE

    def __post_init__(self):
        object.__setattr__(self, "devices", whole("Cluster", "devices", self.devices, 1, MOST_DEVICES))
        require("Cluster", self.accelerator, Accelerator, "an accelerator, such as Accelerator(flops=140e12)")
        require("Cluster", self.links, Link | Nodes, "links to be a Link or Nodes")
        memory = number("Cluster", "memory", self.memory)
        if not memory > 0:
            raise ValueError(f"Cluster needs memory > 0, in bytes for each device {got(self.memory)}")
        object.__setattr__(self, "memory", memory)
        flops = self.accelerator.flops
        links = self.links
        if flops >= REAL and isinstance(links, Nodes) and links.between.bandwidth > links.inside.bandwidth:
            says = "Cluster has more bandwidth between nodes than inside: is it in bits,"
            warnings.warn(
                f'{says} or that of a whole node? Nodes(..., per="node") shares it out', stacklevel=3
            )
        for link in (links,) if isinstance(links, Link) else (links.inside, links.between):
            warn_if_lost("Cluster", "a latency", link.latency, flops)
            rate = 0 if link.bandwidth == inf else Fraction(flops) / Fraction(link.bandwidth)
            if rate and not LEAST_RATE < rate < MOST_RATE:
                says = (
                    f"Cluster has devices of {brief(flops)} FLOPs and links of {brief(link.bandwidth)} bytes"
                )
                hint = "of seconds, 312 TFLOP/s are flops=312e12, and 25 GB/s bandwidth=25e9"
                warnings.warn(f"{says} in a unit of time: {hint}", stacklevel=3)


@dataclass(frozen=True)
class OneRail(Nodes):
    """Nodes that a group of some of their devices leaves by the link of one, not by all links it has there.

    >>> links = gp.pricing.OneRail(8, inside=gp.Link(bandwidth=200e9), between=gp.Link(bandwidth=12.5e9))

    A sum over replicas then takes longer where tensor parallelism has some devices of a node, not all: two
    groups of four devices in each node use two of its eight links. A group that has all uses all.
    """


@dataclass(frozen=True)
class Placed(Nodes):
    """The links of some devices of a cluster, numbered anew from 0 on; ``place`` has their nodes."""

    place: tuple[int, ...] = ()

    def link(self, source: int, target: int) -> Link:
        return super().link(self.place[source], self.place[target])
