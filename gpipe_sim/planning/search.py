"""The best plans of thousands, without simulating most of them.

What a step takes and holds at the least is known before anything is laid out. So ways wait in a queue by
that. The first of the queue is looked at more closely and put back: its single stages, then its cuts, then
the price of a cut. When a cut comes up that has its time, no other can be faster, and it is asked what it
holds exactly.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

import numpy as np

from gpipe_sim.core.timeline import Timeline
from gpipe_sim.memory.limit import in_bytes
from gpipe_sim.planning.bounds import Order, least_bytes, least_time
from gpipe_sim.planning.cuts import Cuts, all_are_few, cuts_of, longer, shorter
from gpipe_sim.planning.problem import Problem
from gpipe_sim.planning.space import MEMORY, SIZE, Refused, Way
from gpipe_sim.pricing.price import Priced

PACE = 0.999  #: the share of a long step's time, as told by shorter ones, that it is taken to take at least


@dataclass(order=True)
class Waiting:
    """A way, and how much is known of it: ``at`` is which of its cuts this is about."""

    least: float
    number: int
    way: Way = field(compare=False)
    cuts: Cuts | None = field(default=None, compare=False)
    at: int = field(default=0, compare=False)
    timed: bool = field(default=False, compare=False)  #: whether it is what a step takes
    paced: bool = field(default=False, compare=False)
    searched: bool = field(default=False, compare=False)  #: whether cuts are to be looked for


class Search:
    """The queue, by the least time of a step or its time; then as the ways came."""

    def __init__(self, problem: Problem, ways: Iterable[Way], even: bool):
        self.problem, self.even = problem, even
        self.limit = problem.cluster.memory
        self.numbers, self.queue = count(), list[Waiting]()
        self.refused: list[Refused] = []
        self.simulated = 0
        self.given: set[tuple] = set()
        self.known: dict[Way, Cuts] = {}  #: of ways whose cuts have been looked for
        for way in ways:
            self.start(way)
        heapify(self.queue)

    def start(self, way: Way) -> None:
        """If what there is of one microbatch beside the weights can be held, on average."""
        if says := self.problem.unequal(way):
            self.refused.append(Refused(str(way), SIZE, says))
            return
        order = Order.of(way.schedule)
        held = self.problem.least_held(way, order.copies)
        if held > self.limit:
            self.refuse(way, held)
        else:
            self.queue.append(Waiting(least_time(self.problem, way, order), next(self.numbers), way))

    def __iter__(self) -> Iterator[tuple[Way, Priced, float]]:
        """(a way, its price with a cut that fits, what no cut takes less than), fastest first.

        Of ways of one sort, only the best is given.
        """
        while self.queue:
            each = heappop(self.queue)
            if each.way.sort in self.given:
                continue
            if each.timed and each.cuts is not None:
                priced = self.problem.priced(each.way, each.cuts.cuts[each.at])
                if not priced.fits:
                    self.refuse(each.way, priced.peak, least="")
                else:
                    self.given.add(each.way.sort)
                    known = self.known.get(each.way, each.cuts)
                    yield each.way, priced, priced.time if known.proven else known.least
            elif each.cuts is not None:
                self.price(each)
            elif self.even or each.searched or all_are_few(self.problem, each.way):
                self.cut(each)
            elif not each.paced and (short := shorter(each.way)):
                self.pace(each, short)
            else:
                self.price_even(each)

    def wait(self, each: Waiting, least: float, **known: Any) -> None:
        known = {"cuts": each.cuts, "at": each.at} | known
        heappush(self.queue, Waiting(max(least, each.least), next(self.numbers), each.way, **known))

    def cut(self, each: Waiting) -> None:
        cuts = cuts_of(self.problem, each.way, each.least, self.even)
        self.known[each.way] = cuts
        if cuts.cuts:
            self.wait(each, cuts.times[0], cuts=cuts)
        else:
            self.refused.append(Refused(str(each.way), MEMORY, "no cut fits"))

    def pace(self, each: Waiting, short: Sequence[Way]) -> None:
        """A long step is looked at as two shorter ones first, whose program many ways share."""
        cut = self.problem.even_cut(each.way)
        held = least_bytes(self.problem, short[-1], cut)
        if held.mean() > self.limit:
            self.refuse(each.way, held.max())
            return
        priced = [self.problem.priced(way, cut) for way in short]
        times = [(way.schedule.microbatches, one.time) for way, one in zip(short, priced, strict=True)]
        time = longer(each.way.schedule.microbatches, times)
        self.wait(each, PACE * time * balanced(priced[-1].timeline), paced=True)

    def price_even(self, each: Waiting) -> None:
        """Where cuts are too many to try all, another is looked for only if it could still be a row.

        It is taken to be no faster than if all devices had as much to do as they have on average.
        """
        cuts = Cuts([self.problem.even_cut(each.way)], [each.least], each.least)
        held = least_bytes(self.problem, each.way, cuts.cuts[0])
        if held.mean() > self.limit:
            self.refuse(each.way, held.max())
            return
        priced = self.problem.priced(each.way, cuts.cuts[0])
        self.simulated += 1
        if held.max() <= self.limit:
            self.wait(each, priced.time, cuts=cuts, timed=True)
        self.wait(each, priced.time * balanced(priced.timeline), searched=True)

    def price(self, each: Waiting) -> None:
        """Unless what it holds at the least is too much already; and let the next cut wait."""
        cuts, at = each.cuts, each.at
        assert cuts is not None
        if at + 1 < len(cuts.cuts):
            self.wait(each, cuts.times[at + 1], at=at + 1)
        held = least_bytes(self.problem, each.way, cuts.cuts[at]).max()
        if held > self.limit:
            self.refuse(each.way, held)
            return
        priced = self.problem.priced(each.way, cuts.cuts[at])
        self.simulated += 1
        self.wait(each, priced.time, timed=True)

    def refuse(self, way: Way, size: float, least: str = "at least ") -> None:
        says = f"a device holds {least}{in_bytes(int(size))}, and may hold {in_bytes(self.limit)}"
        self.refused.append(Refused(str(way), MEMORY, says))


def smallest(problem: Problem, ways: Sequence[Way]) -> tuple[Way, int]:
    """(the way whose fullest device holds least with its even cut, these bytes): bounds first."""
    queue = [(problem.least_held(way, Order.of(way.schedule).copies), i, 0) for i, way in enumerate(ways)]
    heapify(queue)
    while True:
        size, i, known = heappop(queue)
        if known == 2:
            return ways[i], int(size)
        way, cut = ways[i], problem.even_cut(ways[i])
        size = least_bytes(problem, way, cut).max() if known == 0 else problem.priced(way, cut).peak
        heappush(queue, (float(size), i, known + 1))


def balanced(timeline: Timeline) -> float:
    """What the devices have to do on average, as a share of what the busiest of them has."""
    program = timeline.schedule.program
    busy = np.add.reduceat(timeline.end - timeline.start, program.rows[:-1]).astype(float)
    return float(busy.mean() / busy.max())
