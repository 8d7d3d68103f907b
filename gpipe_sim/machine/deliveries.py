"""The messages that each entry sends, for the machine that goes one action at a time."""

from numbers import Real
from typing import NamedTuple

import numpy as np

from gpipe_sim.core.numbers import CostColumn
from gpipe_sim.core.program import Program
from gpipe_sim.links.links import Link, Links, link_between


class Post(NamedTuple):
    """A message: its number, its link, how long it keeps that busy, and how long it takes after that."""

    message: int
    link: int
    busy: Real
    late: Real


def posts_of(
    program: Program, delays: CostColumn, links: Links | None = None, sizes: CostColumn | None = None
) -> tuple[list[int | None], list[list[Post]]]:
    """For each need, the message that brings it; and for each entry, the messages that it sends, in order."""
    links = Link() if links is None else links
    crossing = np.flatnonzero(program.crosses)
    ways = program.needs[crossing].astype(np.int64) * program.devices + program.target[crossing]
    each, first, of_need = np.unique(ways, return_index=True, return_inverse=True)
    carried: list[int | None] = [None] * len(program.needs)
    for need, message in zip(crossing.tolist(), of_need.reshape(-1).tolist(), strict=True):
        carried[need] = message
    posts: list[list[Post]] = [[] for _ in range(program.size)]
    for message, (i, way) in enumerate(zip(first.tolist(), each.tolist(), strict=True)):
        part, target = divmod(way, program.devices)
        source = int(program.device[part])
        link = link_between(links, source, target)
        busy = link.busy(1 if sizes is None else sizes.values[sizes.index[i]])
        late = link.latency + delays.values[delays.index[i]]
        post = Post(message, source * program.devices + target, busy, late)
        posts[int(program.entry[part])].append(post)
    return carried, posts
