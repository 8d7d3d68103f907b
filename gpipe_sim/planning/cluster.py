"""A cluster, and where the devices of pipelines and their replicas are on it."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import inf
from typing import NamedTuple

from gpipe_sim.errors import Real, got, listed, number, require, whole
from gpipe_sim.links.links import Link, Nodes
from gpipe_sim.planning.hardware import Accelerator, brief, warn_if_lost
from gpipe_sim.replicas.all_reduce import ring_links, ring_time

MOST_DEVICES = 65_536
MOST_MICROBATCHES = 4_096  #: that are tried where nobody says how many
#: FLOPs for each byte of a link: below and above, one of the two is in another unit.
LEAST_RATE, MOST_RATE = Fraction(1, 10**6), 10**10
AT_ONCE = Link()  #: messages take no time
Wanted = tuple[int, ...] | None  #: None is every one that divides


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
        for link in (links,) if isinstance(links, Link) else (links.inside, links.between):
            warn_if_lost("Cluster", "a latency", link.latency, flops)
            rate = 0 if link.bandwidth == inf else Fraction(flops) / Fraction(link.bandwidth)
            if rate and not LEAST_RATE < rate < MOST_RATE:
                says = (
                    f"Cluster has devices of {brief(flops)} FLOPs and links of {brief(link.bandwidth)} bytes"
                )
                hint = "of seconds, 312 TFLOP/s are flops=312e12, and 25 GB/s bandwidth=25e9"
                warnings.warn(f"{says} in a unit of time: {hint}", stacklevel=3)


class Mesh(NamedTuple):
    """Pipelines of so many devices, and so many replicas of them; how these are numbered on the cluster.

    ``adjacent`` is that of ``replicate``.
    """

    devices: int
    replicas: int
    adjacent: str = "stages"

    def device(self, replica: int, k: int) -> int:
        """Which device of the cluster is device k of a replica."""
        if self.adjacent == "stages":
            return replica * self.devices + k
        return k * self.replicas + replica

    def links(self, links: Link | Nodes) -> list[Link | Nodes]:
        """The links of a replica's own devices: one for each kind of place that replicas have."""
        if isinstance(links, Link):
            return [links]
        nodes = (
            [self.device(replica, k) // links.devices_per_node for k in range(self.devices)]
            for replica in range(self.replicas)
        )
        return [Placed(1, links.inside, links.between, place) for place in dict.fromkeys(map(_named, nodes))]


def _named(nodes: list[int]) -> tuple[int, ...]:
    """The same nodes, numbered in the order in which they come: only which are the same matters."""
    number = {node: i for i, node in enumerate(dict.fromkeys(nodes))}
    return tuple(number[node] for node in nodes)


@dataclass(frozen=True)
class Placed(Nodes):
    """The links of some devices of a cluster, numbered anew from 0 on; ``place`` has their nodes."""

    place: tuple[int, ...] = ()

    def link(self, source: int, target: int) -> Link:
        return super().link(self.place[source], self.place[target])


def quickest(links: Link | Nodes, size: Real) -> Real:
    """How long a message of so many bytes takes at least, whichever devices it is between."""
    kinds = (links,) if isinstance(links, Link) else (links.inside, links.between)
    return min(link.latency + link.busy(size) for link in kinds)


def ring_of(links: Link | Nodes, members: Sequence[int], size: Real) -> Real:
    """How long a ring all-reduce of so many bytes takes among these devices; nothing for one."""
    return _ring_of(tuple(ring_links(links, members)), size) if len(members) > 1 else 0


_ring_of = lru_cache(maxsize=4096)(ring_time)


def divisors(total: int, most: int = MOST_DEVICES) -> list[int]:
    """The whole numbers that divide a total, such as the numbers of replicas that divide the devices."""
    return [count for count in range(1, min(total, most) + 1) if not total % count]


def equal_cuts(samples: int, replicas: int, wanted: Wanted) -> Sequence[int]:
    """Every number of equal microbatches for each replica; if there is none, 1, to be refused."""
    if wanted is not None:
        return wanted
    return [1] if samples % replicas else divisors(samples // replicas, MOST_MICROBATCHES)


def meshes(devices: int, links: Link | Nodes, replicas: Wanted) -> Iterator[Mesh]:
    """Every mesh of all devices with so many replicas."""
    for count in replicas or divisors(devices):
        k = devices // count
        yield Mesh(k, count)
        if isinstance(links, Nodes) and links.inside != links.between and min(k, count) > 1:
            yield Mesh(k, count, "replicas")


def read_counts(owner: str, cluster: Cluster, replicas, microbatches) -> tuple[Wanted, Wanted]:
    """TypeError or ValueError for what are no numbers; replicas have to divide the devices."""
    if replicas is not None:
        replicas = read_wholes(owner, "replicas", replicas)
        for count in replicas:
            if cluster.devices % count:
                raise ValueError(
                    f"{owner} needs replicas that divide the cluster's {cluster.devices} devices {got(count)}"
                )
    return replicas, None if microbatches is None else read_wholes(owner, "microbatches", microbatches)


def read_wholes(owner: str, name: str, value: Sequence[int]) -> tuple[int, ...]:
    such_as = f"{name} to list whole numbers, such as [1, 2]"
    found = [whole(owner, f"each of {name}", each) for each in listed(owner, such_as, value)]
    if not found:
        raise ValueError(f"{owner} needs {name} to list at least one {got(value)}")
    return tuple(dict.fromkeys(found))
