"""What a stage with certain layers makes a step last at the least, whatever layers the other stages have.

A device works on a stage from some action p to some action q. Before p, a microbatch has come through other
stages, and after q it still goes through others:

    device k   [ head: before p ][ all that device k does for the stage, from p to q ][ tail: after q ]

    p a forward    head: the forwards of the stages before
    p a backward   head: all forwards, and the backwards of the stages after
    q a forward    tail: the forwards of the stages after, and all backwards
    q a backward   tail: the backwards of the stages before

Which stages these are does not matter, only which layers: those before and those after the stage's own. So
all three can be read off running sums. p is the first forward or the first backward, q the last forward, the
last backward or the end.

In between the device may wait. After the forward of a microbatch it cannot start the backward before that
microbatch has been at the last stage, and has come back:

    stage s          [ F3 ][ what it does meanwhile ][ waits ][ B3 ]
    stages after it        [ forwards of 3 ][ backwards of 3 ]
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from functools import cached_property, partial
from itertools import product
from numbers import Real

import numpy as np

from gpipe_sim.balance.many_cuts import PAIR, Prices, kinds_of
from gpipe_sim.core.actions import Kind
from gpipe_sim.core.program import CODE, KINDS, Program

Column = np.ndarray
Table = np.ndarray
FORWARD = (CODE[Kind.F],)
BACKWARD = (CODE[Kind.I], CODE[Kind.B])  #: the shorter one first
WINDOWS = tuple(product((FORWARD, BACKWARD), (FORWARD, BACKWARD, None)))  #: the kinds of p and of q


class StageTimes:
    """Tables of (layers, width): a row for each layer that a stage starts with, a column for each number of
    layers that it has. Where it would end beyond the last layer, it is not ``there``.

    They are as wide as a stage can be large that does no more than the ``limit``.
    """

    def __init__(self, program: Program, prices: Prices, layers: int, limit: Real):
        self.program, self.prices, self.layers = program, prices, layers
        self.kinds = kinds_of(program, prices)
        self.width = min(layers - program.stages + 1, max(map(partial(self._largest, limit), self._each())))
        self.start = np.arange(layers)[:, None]
        end = self.start + np.arange(1, self.width + 1)
        self.there = end <= layers
        self.end = np.minimum(end, layers)

    def _each(self) -> Iterator[tuple[int, int]]:
        """Every stage with each device that holds it."""
        return ((stage, device) for device, held in enumerate(self.program.placement) for stage in held)

    def _largest(self, limit: Real, held: tuple[int, int]) -> int:
        """How many layers a stage can have at most if its actions take a device no longer than the limit."""
        stage, device = held
        row = self._row(device)
        sums = np.zeros_like(next(iter(self.prices.sums.values())))
        for kind, times in self._counts(row[self.program.stage[row] == stage]):
            sums = sums + self.prices.sums[kind] * (self.prices.slowness[device] * times)
        ends = np.searchsorted(sums, sums + limit, side="right") - 1
        return int((ends - np.arange(len(sums))).max())

    def _counts(self, parts: Column) -> Iterator[tuple[Hashable, int]]:
        """How often each kind is among the parts."""
        counts = Counter(self.kinds[part] for part in parts.tolist())
        return ((kind, times) for kind, times in counts.items() if kind is not None)

    def alone(self, stage: int) -> Table:
        """The most of all its devices and windows, between actions of the stage and of the whole device.

        A device's other stages have a layer each at the least, so they count as the cheapest one.
        """
        most = np.zeros(self.end.shape, self.prices.comm.dtype)
        for device in self._holding(stage):
            row = self._row(device)
            mine = row[self.program.stage[row] == stage]
            for among, window in product((mine, row), WINDOWS):
                if ends := self._ends(among, window):
                    np.maximum(most, self._between(row, *ends, stage, device, window), out=most)
            turns = self._turns(mine)
            for chosen, window in product((turns, turns[-1:]), ((FORWARD, BACKWARD), (FORWARD, None))):
                if chosen:
                    first, last = self._ends(mine, window)
                    taken = self._between(row, first, last, stage, device, window)
                    np.maximum(most, taken + self._waiting(row, chosen, stage, device), out=most)
        return most

    def _between(self, row: Column, first: int, last: int, stage: int, device: int, window: tuple) -> Table:
        total = self._held(row[(row >= first) & (row <= last)], stage, device)
        if self.program.stage[first] == stage:
            total = total + self._head(first)
        if self.program.stage[last] == stage:
            total = total + self._tail(last, window)
        return total

    def _held(self, parts: Column, stage: int, device: int) -> Table:
        """What these actions of a device take, of this stage and of others."""
        own = self.program.stage[parts] == stage
        return self._work(parts[own], device) + self._others(parts[~own], device)

    def _turns(self, mine: Column) -> list[tuple[int, int]]:
        """Forwards of a stage, each with the backward of its microbatch; one such pair after the other."""
        forwards, found, end = {}, [], -1
        for part, code in zip(mine.tolist(), self.program.kind[mine].tolist(), strict=True):
            microbatch = int(self.program.microbatch[part])
            if code in FORWARD:
                forwards[microbatch] = part
            elif code in BACKWARD and forwards.get(microbatch, -1) > end:
                found.append((forwards[microbatch], part))
                end = part
        return found

    def _waiting(self, row: Column, turns: list[tuple[int, int]], stage: int, device: int) -> Table:
        """How long the device waits, at the least, for microbatches to go on to the last stage and come back.

        It waits for what it does not work between the forward and the backward.
        """
        entry, alike = self.program.entry, {}
        for forward, backward in turns:
            inside = row[(entry[row] > entry[forward]) & (entry[row] < entry[backward])]
            kinds = Counter((self.kinds[part], int(self.program.stage[part])) for part in inside.tolist())
            way = self._homes[FORWARD][:, self.program.microbatch[forward]].tobytes()
            alike.setdefault((way, frozenset(kinds.items())), []).append((forward, inside))
        waits = ((len(each), *each[0]) for each in alike.values())
        return sum(
            times * np.maximum(self._turn(forward) - self._held(inside, stage, device), 0)
            for times, forward, inside in waits
        )

    def _turn(self, forward: int) -> Table:
        """What a microbatch takes at the least in the stages after, there and back."""
        stage, stages = self.program.stage[forward], self.program.stages
        work = self._after(FORWARD) + self._after(BACKWARD)
        return self._way(forward, range(stage, stages), range(stages - 1, stage - 1, -1), work, ends=2)

    def shared(self, stage: int, window: tuple) -> Table:
        """What the stage adds to the sum, over all devices, of a window of all that a device does.

        Its head and its tail are added by the stages that it begins and ends with.
        """
        total = np.zeros(self.end.shape, self.prices.comm.dtype)
        for device in self._holding(stage):
            inside = self._row(device)
            if not (ends := self._ends(inside, window)):
                continue
            inside = inside[(inside >= ends[0]) & (inside <= ends[1])]
            mine = inside[self.program.stage[inside] == stage]
            if mine.size:
                total += self._work(mine, device)
                if mine[0] == inside[0]:
                    total += self._head(inside[0])
                if mine[-1] == inside[-1]:
                    total += self._tail(inside[-1], window)
        return total

    def _holding(self, stage: int) -> list[int]:
        return [device for device, held in enumerate(self.program.placement) if stage in held]

    def _row(self, device: int) -> Column:
        """The parts of a device, first to last."""
        return np.arange(*self.program.parts[self.program.rows[device : device + 2]])

    def _ends(self, row: Column, window: tuple) -> tuple[int, int] | None:
        """p and q; None where there is no p before a q."""
        kind, (first, last) = self.program.kind[row], window
        starts = row[np.isin(kind, first)]
        ends = row if last is None else row[np.isin(kind, last)]
        if not starts.size or not ends.size or starts[0] > ends[-1]:
            return None
        return int(starts[0]), int(ends[-1])

    def _work(self, parts: Column, device: int) -> Table:
        """What these actions of one stage take the device."""
        total = np.full(self.end.shape, len(parts) * self.prices.overhead[device])
        for kind, times in self._counts(parts):
            sums = self.prices.sums[kind]
            total += (sums[self.end] - sums[self.start]) * (self.prices.slowness[device] * times)
        return total

    def _others(self, parts: Column, device: int) -> Real:
        """What these actions of other stages take the device at the least."""
        total = len(parts) * self.prices.overhead[device]
        named = ((self.kinds[part], int(self.program.stage[part])) for part in parts.tolist())
        for (kind, stage), times in Counter(named).items():
            if kind is not None:
                total += self._cheapest(kind, stage) * self.prices.slowness[device] * times
        return total

    def _cheapest(self, kind: Hashable, stage: int) -> Real:
        """The layer that a stage has at the least: any one, or the first or the last of the model."""
        each = np.diff(self.prices.sums[kind])
        known = {0: each[0], self.program.stages - 1: each[-1]}
        return known.get(stage, each.min())

    def _head(self, part: int) -> Table:
        """What comes before an action, at the least."""
        stage, stages = self.program.stage[part], self.program.stages
        if self.program.kind[part] in FORWARD:
            return self._way(part, range(stage + 1), (), self._before(FORWARD))
        backwards = range(stages - 1, stage - 1, -1)
        return self._way(part, range(stages), backwards, self._all(FORWARD) + self._after(BACKWARD))

    def _tail(self, part: int, window: tuple) -> Table:
        """What comes after an action, at the least; after the end of a row nothing does."""
        stage, stages = self.program.stage[part], self.program.stages
        if window[1] is None:
            return np.zeros((1, 1), self.prices.comm.dtype)
        if self.program.kind[part] in BACKWARD:
            return self._way(part, (), range(stage, -1, -1), self._before(BACKWARD))
        backwards = range(stages - 1, -1, -1)
        return self._way(part, range(stage, stages), backwards, self._after(FORWARD) + self._all(BACKWARD))

    def _way(self, part: int, forwards: range, backwards: range, work: Table, ends: int = 1) -> Table:
        """The work, with what its actions and the messages between them take; nothing if one is missing.

        So many ends of the way are actions that are counted elsewhere.
        """
        microbatch = self.program.microbatch[part]
        devices = np.concatenate(
            [
                self._homes[kinds][list(stages), microbatch]
                for kinds, stages in ((FORWARD, forwards), (BACKWARD, backwards))
            ]
        )
        if (devices < 0).any():
            return np.zeros((1, 1), self.prices.comm.dtype)
        messages = np.count_nonzero(np.diff(devices)) * self.prices.comm
        return work + messages + (len(devices) - ends) * self.prices.overhead.min()

    @cached_property
    def _homes(self) -> dict:
        """The devices of forwards and of backwards, (stages, microbatches); -1 where there is none."""
        return {
            kinds: np.max([self.program.homes(KINDS[code]) for code in kinds], axis=0)
            for kinds in (FORWARD, BACKWARD)
        }

    def _sums(self, kinds: tuple[int, ...]) -> Column:
        """Running sums of the shortest that layers take; as a part of a pair they may take any time."""
        priced = [KINDS[code] for code in kinds if KINDS[code] in self.prices.sums]
        if PAIR in self.prices.sums or not priced:
            return np.zeros(self.layers + 1, self.prices.comm.dtype)
        return self.prices.sums[priced[0]] * self.prices.slowness.min()

    def _before(self, kinds: tuple[int, ...]) -> Table:
        """Of the layers before the stage's."""
        return self._sums(kinds)[self.start]

    def _after(self, kinds: tuple[int, ...]) -> Table:
        """Of the layers after the stage's."""
        return self._all(kinds) - self._sums(kinds)[self.end]

    def _all(self, kinds: tuple[int, ...]) -> Table:
        return self._sums(kinds)[-1:, None]
