"""A priced configuration in words: what it is, what time and bytes are made of, and what was assumed."""

from dataclasses import fields
from typing import Any

from gpipe_sim.core.timeline import number
from gpipe_sim.links.links import Link, Nodes
from gpipe_sim.memory.limit import in_bytes
from gpipe_sim.pricing.cluster import Cluster
from gpipe_sim.pricing.hardware import Accelerator
from gpipe_sim.pricing.layout import Layout
from gpipe_sim.pricing.mixed import Mixed


def said(priced: Any) -> str:
    """Lines for ``print``: every number that was used is in them."""
    layout, cluster = priced.layout, priced.cluster
    held = [sum(each.values()) for each in priced.memory]
    fullest = max(range(len(held)), key=lambda device: held[device] / priced.devices[device].memory)
    rows = [("time of a step", number(priced.time), "")]
    rows += [
        (f"  {name}", number(part), f"{part / priced.time:.1%}")
        for name, part in priced.parts.items()
        if part
    ]
    room = in_bytes(priced.devices[fullest].memory)
    rows.append((f"device {fullest} of the pipeline holds", in_bytes(held[fullest]), f"of {room}"))
    rows += [(f"  {name}", in_bytes(size), "") for name, size in priced.memory[fullest].items() if size]
    width = max(len(name) for name, *_ in rows)
    lines = [f"{name:<{width}}  {value:>9}  {share}".rstrip() for name, value, share in rows]
    unseen = (
        [f"no factor is known for blocks of {', '.join(map(str, priced.unseen))}"] if priced.unseen else []
    )
    return "\n".join(
        [_configuration(layout), *lines, *_assumed(cluster), *_slow(layout, cluster.links), *unseen]
    )


def _configuration(layout: Layout) -> str:
    schedule = layout.schedule
    devices = f"tensor {layout.tensor} x pipeline {schedule.devices} x replicas {layout.replicas}"
    several = f", {schedule.stages_per_device} stages each" if schedule.stages_per_device > 1 else ""
    pieces = f"{schedule.microbatches} microbatches of {layout.microbatch}"
    options = (
        f"recompute {layout.recompute}, zero {layout.zero}" + ", sequence parallel" * layout.sequence_parallel
    )
    order = f"{schedule.name}{several}"
    return f"{devices}, {order}, {pieces}, {options}, gradients of {layout.gradient_bytes} bytes"


def _assumed(cluster: Cluster) -> list[str]:
    """The numbers of the hardware, also those that nobody gave."""
    groups = cluster.groups if isinstance(cluster, Mixed) else (cluster,)
    each = [f"{group.devices} accelerators of {_numbers(group.accelerator)}" for group in groups]
    return [*each, *_links(cluster.links)]


def _slow(layout: Layout, links: Link | Nodes) -> list[str]:
    leaves = isinstance(links, Nodes) and layout.tensor_group.leaves(links.devices_per_node)
    return ["tensor parallelism leaves its nodes: its sums take the links between them"] if leaves else []


def _numbers(accelerator: Accelerator) -> str:
    given = ((each.name, getattr(accelerator, each.name)) for each in fields(accelerator))
    return ", ".join(
        f"{name} {value if isinstance(value, str) else f'{float(value):g}'}" for name, value in given if value
    )


def _links(links: Link | Nodes) -> list[str]:
    if isinstance(links, Link):
        return [f"a link between any two: {_link(links)}"]
    node = f"a link inside a node of {links.devices_per_node}: {_link(links.inside)}"
    return [node, f"between nodes, for each device: {_link(links.between)}"]


def _link(link: Link) -> str:
    return f"latency {float(link.latency):g}, bandwidth {float(link.bandwidth):g}"
