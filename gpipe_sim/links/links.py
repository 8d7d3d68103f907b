"""Links between devices: latency, bandwidth, and who has to wait while a message crosses.

A link carries the messages of one device to one other, one at a time, in the order of the sender's row. A
message of so many bytes keeps its link busy for bytes / bandwidth, and arrives a latency after that:

    device 0   [ 0F0 ][ 0F1 ]
    link            [==0F0==]....              = the link is busy    . latency
                            [==0F1==]....      0F1 waits for the link
    device 1                    [ 1F0 ]   [ 1F1 ]
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

import numpy as np

from gpipe_sim.core.actions import Action, Kind, OverlapFB
from gpipe_sim.core.clock import Clock, time_program
from gpipe_sim.core.cost_model import CostModel, price_program
from gpipe_sim.core.levels import places
from gpipe_sim.core.numbers import CostColumn, InUnits, as_columns, quotient
from gpipe_sim.core.program import CODE, Program
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.simulate import Sizes
from gpipe_sim.core.timeline import rounded
from gpipe_sim.errors import Real, duration, got, listed, number, one_of, require, whole
from gpipe_sim.links.traffic import Traffic, traffic_of

Column = np.ndarray
MOST_BUSY = 10_000  #: times the longest action; a message of a model takes no link for longer


@rounded
@dataclass(frozen=True)
class Link:
    """How a message gets from one device to another.

    >>> slow = gp.Link(latency=1, bandwidth=8)
    >>> gp.simulate(gp.OneFOneB(2, 4), links=slow, message_bytes=16).makespan  # each message takes 1 + 16/8
    27

    ``latency`` is in the unit of the costs, ``bandwidth`` in bytes for each unit of time; infinite unless
    given. Whole numbers give exact times, in fractions where need be; a float is quicker for large schedules.
    ValueError for a negative latency, or a bandwidth that is not above 0.
    """

    latency: Real = 0
    bandwidth: Real = inf

    def __post_init__(self):
        object.__setattr__(self, "latency", duration("Link", "latency", self.latency))
        bandwidth = number("Link", "bandwidth", self.bandwidth)
        object.__setattr__(self, "bandwidth", bandwidth)
        if not bandwidth > 0:
            raise ValueError(f"Link needs bandwidth > 0, in bytes for each unit of time {got(bandwidth)}")

    def busy(self, size: Real) -> Real:
        """How long so many bytes keep it busy; exact where both are."""
        return 0 if self.bandwidth == inf else quotient(size, self.bandwidth)


@dataclass(frozen=True)
class Nodes:
    """Links of a cluster: ``inside`` a node of so many devices, and ``between`` nodes.

    >>> links = gp.Nodes(2, inside=gp.Link(), between=gp.Link(latency=1))
    >>> gp.simulate(gp.OneFOneB(4, 8), links=links).makespan
    41

    Devices 0 to ``devices_per_node`` - 1 are in the first node, and so on. The bandwidth ``between`` is that
    of each "device", unless ``per`` says that it is of a whole "node": then its devices have equal shares.

    >>> gp.Nodes(8, inside=gp.Link(), between=gp.Link(bandwidth=200e9), per="node").between.bandwidth
    25000000000.0
    """

    devices_per_node: int
    inside: Link
    between: Link
    per: str = field(default="device", kw_only=True, repr=False)

    def __post_init__(self):
        whole("Nodes", "devices_per_node", self.devices_per_node)
        for link in (self.inside, self.between):
            require("Nodes", link, Link, "links, such as Link(latency=1, bandwidth=100)")
        if one_of("Nodes", "per", self.per, ("device", "node")) == "node":
            share = (
                inf
                if self.between.bandwidth == inf
                else quotient(self.between.bandwidth, self.devices_per_node)
            )
            object.__setattr__(self, "between", Link(self.between.latency, share))
            object.__setattr__(self, "per", "device")

    def link(self, source: int, target: int) -> Link:
        """The link from one device to another."""
        same = source // self.devices_per_node == target // self.devices_per_node
        return self.inside if same else self.between


Links = Link | Nodes | Mapping[tuple[int, int], Link]


def link_between(links: Links, source: int, target: int, owner: str = "simulate") -> Link:
    """The link from one device to another. ValueError if there is none, TypeError for what is no link."""
    such_as = "links to be a Link, Nodes(...), or links by pair, such as {(0, 1): Link(latency=1)}"
    if isinstance(links, Link):
        return links
    if isinstance(links, Nodes):
        return links.link(source, target)
    if (source, target) in require(owner, links, Mapping, such_as):
        return require(owner, links[source, target], Link, such_as)
    for pair in links:
        if not isinstance(pair, tuple) or [*map(type, pair)] != [int, int]:
            raise TypeError(f"{owner} needs {such_as}; {got(pair, '')[1:-1]} is no pair of devices")
    there = ", ".join(f"{a} to {b}" for a, b in list(links)[:8]) or "nowhere"
    says = f"there is no link from device {source} to device {target}"
    raise ValueError(f"{says}; there are links from {there}")


class OnLinks(CostModel):
    """Other costs, but messages wait for each other on their links: it times a program itself.

    A message has the bytes that the ``profile`` says, or ``message_bytes``; if links have a latency alone, it
    needs none. Without ``overlap`` a device is busy while it sends and while it receives.
    """

    def __init__(
        self,
        schedule: Schedule,
        costs: CostModel,
        links: Links,
        profile: Sizes | None,
        message_bytes: Real | Sequence[Real] | None,
        overlap: bool,
    ):
        self.costs, self.links, self.overlap, self.measured = costs, links, overlap, profile is not None
        if profile is None:
            self.sizes = sizes_of(schedule.program, links, message_bytes)
        elif message_bytes is None:
            self.sizes = profile.message_bytes(schedule)
        else:
            raise TypeError(
                "simulate takes the bytes of messages from a profile, or message_bytes=: not both"
            )

    def duration(self, action: Action | OverlapFB, device: int) -> Real:
        return self.costs.duration(action, device)

    def transfer(self, action: Action, source: int, target: int) -> Real:
        return self.costs.transfer(action, source, target)

    def clock(self, program: Program) -> tuple[Clock, InUnits]:
        (durations, busy, late), in_units = self.columns(program)
        if not self.overlap:
            return _on_devices(program, durations, busy, late), in_units
        if _may_queue(program, durations, busy):
            return queued(program, durations, busy, late), in_units
        return time_program(program, durations, (busy + late)[traffic_of(program).of_need]), in_units

    def columns(self, program: Program) -> tuple[tuple[Column, Column, Column], InUnits]:
        """How long each entry takes, each message keeps its link busy, and is on its way after that."""
        traffic = traffic_of(program)
        bills = *price_program(self.costs, program), *prices(traffic, self.links, self.sizes)
        (durations, delays, busy, latency), in_units = as_columns(*bills)
        ratio = busy.max(initial=0) / (durations.max() or 1) if self.measured else 0
        if ratio > MOST_BUSY and durations.any():
            says = (
                f"a message keeps its link busy {float(ratio):,.0f} times as long as the longest action takes"
            )
            warnings.warn(f"{says}: bandwidth is in bytes, of seconds 25 GB/s are 25e9", stacklevel=4)
        return (durations, busy, latency + delays[traffic.need]), in_units


def sizes_of(
    program: Program, links: Links, given: Real | Sequence[Real] | None, owner: str = "simulate"
) -> CostColumn:
    """The bytes of each need that crosses, as ``message_bytes`` says.

    TypeError if links need them and nobody says them; ValueError for negative ones, or too few.
    """
    needed = program.needs[program.crosses]
    boundary = program.stage[needed] - (program.kind[needed] != CODE[Kind.F])  # the stage before it
    if given is None:
        if {link_between(links, *pair).bandwidth for pair in traffic_of(program).pairs} - {inf}:
            raise TypeError(
                "simulate needs to know how large messages are, because links have a bandwidth: give it "
                "profile=profile(partitions, batch, loss), or message_bytes=, such as message_bytes=1e6"
            )
        given = 0
    if not hasattr(type(given), "__len__"):
        return CostColumn([duration(owner, "message_bytes", given)], np.zeros_like(boundary))
    such_as = "message_bytes to be a number, or a list with one for each stage but the last"
    sizes = listed(owner, such_as, given)
    if len(sizes) != program.stages - 1:
        raise ValueError(f"{owner} needs {such_as}: {program.stages - 1} of them {got(given)}")
    return CostColumn([duration(owner, "each of message_bytes", each) for each in sizes], boundary)


def prices(traffic: Traffic, links: Links, sizes: CostColumn) -> tuple[CostColumn, CostColumn]:
    """How long each message keeps its link busy, and how long it is on its way after that."""
    of_pair = [link_between(links, *pair) for pair in traffic.pairs]
    kinds = len(sizes.values)
    ways, index = np.unique(traffic.link * kinds + sizes.index[traffic.need], return_inverse=True)
    busy = [of_pair[way // kinds].busy(sizes.values[way % kinds]) for way in ways.tolist()]
    return CostColumn(busy, index.reshape(-1)), CostColumn([link.latency for link in of_pair], traffic.link)


def _may_queue(program: Program, durations: Column, busy: Column) -> bool:
    """Whether a message may find the one before it on its link: what sends it takes less than that does."""
    traffic = traffic_of(program)
    between = durations[program.levels.order[traffic.sender]] * (1 - traffic.turn)
    between, busy = between[traffic.queue], busy[traffic.queue]
    return bool((traffic.follows[1:] & (between[1:] < busy[:-1])).any())


def _on_devices(program: Program, durations: Column, busy: Column, late: Column) -> Clock:
    """Sending keeps a device busy after an action, receiving before it: each makes an entry longer.

    What another device needs without a message, an update the gradients of another copy, is there before
    anything is sent.
    """
    traffic, rank = traffic_of(program), program.levels.rank
    sender = program.levels.order[traffic.sender]
    sending, receiving = (np.zeros(program.size, busy.dtype) for _ in range(2))
    np.add.at(sending, sender, busy)
    owner = program.owner[program.crosses]
    receiver = np.full(len(busy), program.size)
    np.minimum.at(receiver, traffic.of_need, rank[owner])  # of several actions that need it, the first
    np.add.at(receiving, program.levels.order[receiver], busy)
    before = np.cumsum(busy) - busy
    gap = before - before[np.searchsorted(traffic.sender, traffic.sender)]  # it leaves after earlier ones
    elsewhere = program.device[program.needs] != program.target
    delays = -sending[program.entry[program.needs]]
    delays[program.crosses] += (gap + busy + late)[traffic.of_need]
    clock = time_program(program, receiving + durations + sending, delays[elsewhere], elsewhere)
    start, end = clock.start + receiving, clock.end - sending
    arrived = clock.arrived[program.crosses[elsewhere]]
    return Clock(start, end, (end[sender] + gap)[traffic.of_need], arrived)


def queued(program: Program, durations: Column, busy: Column, late: Column) -> Clock:
    """Time an order whose messages wait for each other; ``late`` is by message, ``durations`` by entry.

    One array of times has the ends of all entries by place, the start of the step, and the arrivals.
    """
    levels, traffic, size = program.levels, traffic_of(program), program.size
    dtype, messages = durations.dtype, len(traffic.sender)
    times = np.zeros(size + 1 + messages, dtype)
    before = _table(program, size + 1)
    durations = durations[levels.order]
    starts, sent = np.empty_like(durations), np.empty(messages, dtype)
    link_free = np.zeros(len(traffic.pairs), dtype)
    bounds = np.searchsorted(traffic.sender, levels.bounds).tolist()
    turns = _turns(traffic, bounds)
    ends, arrivals = times[:size], times[size + 1 :]
    sender, link = traffic.sender, traffic.link
    for level, (low, high) in enumerate(pairwise(levels.bounds)):
        start = np.maximum.reduce(times.take(before[:, low:high], axis=0), axis=0, out=starts[low:high])
        np.add(start, durations[low:high], out=ends[low:high])
        a, b = bounds[level], bounds[level + 1]
        for chosen in turns.get(level, (slice(a, b),)):
            on = link[chosen]
            leaves = sent[chosen] = np.maximum(ends.take(sender[chosen], axis=0), link_free.take(on, axis=0))
            until = link_free[on] = leaves + busy[chosen]
            arrivals[chosen] = until + late[chosen]
    rank = levels.rank
    return Clock(starts[rank], ends[rank], sent[traffic.of_need], arrivals[traffic.of_need])


def _table(program: Program, arrivals: int) -> Column:
    """``levels.before``, but what crosses is found among the arrivals, which begin at this place."""
    before = program.levels.before.copy()
    row, entry = places(program.needs_from)
    crosses = program.crosses
    cells = row[crosses] + 1, program.levels.rank[entry[crosses]]
    before[cells] = arrivals + traffic_of(program).of_need
    return before


def _turns(traffic: Traffic, bounds: list[int]) -> dict[int, list[Column]]:
    """For each level in which an entry sends twice on one link: which messages leave first, which then."""
    levels = np.unique(np.searchsorted(bounds, np.flatnonzero(traffic.turn), "right") - 1)
    return {
        level: [bounds[level] + np.flatnonzero(here == turn) for turn in (0, 1)]
        for level in levels.tolist()
        for here in (traffic.turn[bounds[level] : bounds[level + 1]],)
    }
