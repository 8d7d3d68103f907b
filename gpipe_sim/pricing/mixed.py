"""A cluster of unequal devices, and which of them have a stage."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from gpipe_sim.errors import got, require
from gpipe_sim.links.links import Link, Nodes
from gpipe_sim.pricing.cluster import AT_ONCE, Cluster
from gpipe_sim.pricing.hardware import OTHERS, TIMES, Accelerator


@dataclass(frozen=True, init=False)
class Mixed(Cluster):
    """Unequal devices, numbered group by group: such as two large cards, then two small ones.

    >>> large, small = gp.Accelerator(flops=600e12), gp.Accelerator(flops=150e12)
    >>> groups = gp.Cluster(2, large, memory=80e9), gp.Cluster(2, small, memory=24e9)
    >>> cluster = gp.pricing.Mixed(*groups, links=gp.Link(bandwidth=25e9))
    >>> cluster.devices, cluster.at(3).memory
    (4, 24000000000.0)

    A pipeline may have its stages on unequal devices, and uneven cuts then; devices that share a stage, by
    tensor parallelism or as replicas, have to be equal. The links are those between any two; those of the
    groups are not read. ``accelerator`` and ``memory`` are the best that any device has, so that what bounds
    a step on these holds here too. TypeError for what is no cluster, ValueError without two of them.
    """

    groups: tuple[Cluster, ...] = ()

    def __init__(self, *groups: Cluster, links: Link | Nodes = AT_ONCE):
        for group in groups:
            require(
                "Mixed", group, Cluster, "groups that are clusters, such as Cluster(2, A100, memory=80e9)"
            )
        if len(groups) < 2:
            raise ValueError(f"Mixed needs at least two groups of devices {got(list(groups))}")
        object.__setattr__(self, "groups", groups)
        memory = max(group.memory for group in groups)
        best = best_of([group.accelerator for group in groups])
        for name, value in (("devices", sum(group.devices for group in groups)), ("accelerator", best)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "memory", memory)
        object.__setattr__(self, "links", links)
        self.__post_init__()

    def at(self, device: int) -> Cluster:
        """The group that it is of."""
        return self.groups[bisect_right([*accumulate(group.devices for group in self.groups)], device)]


def best_of(accelerators: Sequence[Accelerator]) -> Accelerator:
    """As fast in everything as the fastest of them."""
    fastest = {name: max(getattr(each, name) for each in accelerators) for name in ("flops", "hbm")}
    fastest |= {name: max(getattr(each, name) or each.flops for each in accelerators) for name in OTHERS}
    least = (*TIMES, "exposed")
    return Accelerator(
        **fastest,
        **{name: min(getattr(each, name) for each in accelerators) for name in least},
    )


def of_pipeline(cluster: Cluster, devices: int, together: int) -> list[Cluster]:
    """What each device of a pipeline is: so many, that have its stages together.

    ValueError if these are unequal.
    """
    if not isinstance(cluster, Mixed):
        return [cluster] * devices
    found = []
    for device in range(devices):
        kinds = [cluster.at(device * together + i) for i in range(together)]
        if any(kind != kinds[0] for kind in kinds):
            raise ValueError(
                f"price needs equal devices for a stage: tensor x replicas, {together} devices, put unequal "
                f"ones together as device {device} of the pipeline"
            )
        found.append(kinds[0])
    return found


def homes(placement: Sequence[Sequence[int]], devices: Sequence[Cluster]) -> list[Accelerator]:
    """What each stage runs on. ValueError if copies of it are on unequal devices."""
    found: dict[int, Accelerator] = {}
    for on, device in zip(placement, devices, strict=True):
        for stage in on:
            if found.setdefault(stage, device.accelerator) != device.accelerator:
                raise ValueError(
                    f"price needs equal devices for the copies of a stage, here of stage {stage}"
                )
    return [found[stage] for stage in sorted(found)]
