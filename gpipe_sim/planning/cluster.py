"""Where the devices of pipelines and their replicas are on a cluster."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from gpipe_sim.errors import Real, got, listed, whole
from gpipe_sim.links.links import Link, Nodes
from gpipe_sim.pricing.cluster import MOST_DEVICES, Cluster, Placed
from gpipe_sim.replicas.all_reduce import ring_links, ring_time

MOST_MICROBATCHES = 4_096  #: that are tried where nobody says how many
Wanted = tuple[int, ...] | None  #: None is every one that divides


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
