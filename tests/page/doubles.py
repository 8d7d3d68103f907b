"""Costs and links in doubles, as the page calculates with them."""

from dataclasses import fields
from typing import Any

from gpipe_sim.core.costs import Costs
from gpipe_sim.links.links import Link, Links, Nodes


def as_doubles(costs: Costs) -> Costs:
    """The same costs in doubles, as the page calculates with them; OverflowError for what none holds."""
    return Costs(**{field.name: _doubles(getattr(costs, field.name)) for field in fields(Costs)})


def links_as_doubles(links: Links | None) -> Links | None:
    """The same links in doubles."""
    if isinstance(links, Link):
        return Link(float(links.latency), float(links.bandwidth))
    if isinstance(links, Nodes):
        inside, between = (
            Link(float(one.latency), float(one.bandwidth)) for one in (links.inside, links.between)
        )
        return Nodes(links.devices_per_node, inside, between)
    return links and {pair: Link(float(one.latency), float(one.bandwidth)) for pair, one in links.items()}


def _doubles(value: Any) -> Any:
    if isinstance(value, tuple):
        return [float(each) for each in value]
    return None if value is None else float(value)
