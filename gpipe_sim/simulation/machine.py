"""Devices that go one action at a time: the clock for whoever chooses what comes next.

``simulate`` times a complete order at once. This one is told each step, and can take it back: a planner asks
it what is ready and what that would cost, a player of a puzzle tries, and an order whose sends block is
replayed until nobody can go on. Told every step of an order, it gives the times that ``simulate`` gives.
"""

from collections.abc import Sequence
from itertools import pairwise
from numbers import Real
from typing import NamedTuple

from gpipe_sim.schedule.program import KINDS, Program
from gpipe_sim.schedule.rules import in_flight
from gpipe_sim.simulation.costs import UNIT, CostModel

Need = tuple[int, Real]  #: (entry, how long what it made is on its way)


class Price(NamedTuple):
    """What an entry would cost now: when it would start and end, and what its device would then hold."""

    start: Real
    end: Real
    held: int


class _Done(NamedTuple):
    """What ``undo`` puts back."""

    entry: int
    free: Real
    front: int


class Machine:
    """Entries on devices, each done once what it needs has ended and arrived.

    ``rows``: where each device's entries begin, and where the last one's end. ``needs``: of each entry. With
    ``ordered`` a device does its entries first to last; else the rows only say what is whose, and whatever is
    ready may come next. ``held`` counts microbatches in flight per device, ``changes`` what each entry adds.
    """

    def __init__(
        self,
        rows: Sequence[int],
        needs: Sequence[Sequence[Need]],
        durations: Sequence[Real] | None = None,
        changes: Sequence[int] | None = None,
        ordered: bool = True,
    ):
        count = rows[-1]
        self.rows, self.needs, self.ordered = rows, needs, ordered
        self.durations, self.changes = durations or [0] * count, changes or [0] * count
        self.home = [device for device in range(len(rows) - 1) for _ in range(rows[device], rows[device + 1])]
        self.users: list[list[int]] = [[] for _ in range(count)]
        for entry, needed in enumerate(needs):
            for need, _ in needed:
                self.users[need].append(entry)
        self.missing = list(map(len, needs))  #: how many of its needs have not ended, per entry
        self.starts: list[Real | None] = [None] * count
        self.ends: list[Real | None] = [None] * count
        self.free: list[Real] = [0] * (len(rows) - 1)
        self.held = [0] * (len(rows) - 1)
        self.front = list(rows[:-1])
        self.done: list[_Done] = []

    @classmethod
    def of(cls, program: Program, costs: CostModel | None = None, ordered: bool = True) -> "Machine":
        """A machine for a program's entries."""
        costs = UNIT if costs is None else costs
        durations, delays = costs.durations(program), costs.transfers(program)
        late = [0] * len(program.needs)
        for need, price in zip(program.crosses.nonzero()[0].tolist(), delays.index.tolist(), strict=True):
            late[need] = delays.values[price]
        needed = list(zip(program.entry[program.needs].tolist(), late, strict=True))
        starts = program.needs_from.tolist()
        change = [in_flight(kind) for kind in KINDS]
        per_part = [change[code] for code in program.kind.tolist()]
        parts = program.parts.tolist()
        return cls(
            program.rows.tolist(),
            [needed[a:b] for a, b in pairwise(starts)],
            [durations.values[i] for i in durations.index.tolist()],
            [sum(per_part[a:b]) for a, b in pairwise(parts)],
            ordered,
        )

    def ready(self) -> list[int]:
        """What could be done next, device by device."""
        if self.ordered:
            return [
                e for e in map(self.next_of, range(len(self.front))) if e is not None and self.is_ready(e)
            ]
        return [entry for entry in range(len(self.ends)) if self.is_ready(entry)]

    def is_ready(self, entry: int) -> bool:
        """Whether all that an entry needs has ended, and it has not."""
        return not self.missing[entry] and self.ends[entry] is None

    def next_of(self, device: int) -> int | None:
        """The next entry in a device's row, ready or not; None when it is through."""
        while self.front[device] < self.rows[device + 1] and self.ends[self.front[device]] is not None:
            self.front[device] += 1
        return self.front[device] if self.front[device] < self.rows[device + 1] else None

    def blockers(self, entry: int) -> list[int]:
        """Why an entry is not ready: what it needs that has not ended."""
        return [need for need, _ in self.needs[entry] if self.ends[need] is None]

    def arrival(self, entry: int) -> Real:
        """When the last thing that a ready entry needs reaches its device."""
        return max((self.ends[need] + late for need, late in self.needs[entry]), default=0)

    def price(self, entry: int) -> Price:
        """What a ready entry would cost, in time and in room, if it came next on its device."""
        device = self.home[entry]
        start = max(self.free[device], self.arrival(entry))
        return Price(start, start + self.durations[entry], self.held[device] + self.changes[entry])

    def earliest(self) -> int | None:
        """Of all that is ready what could start first, on the lowest device; None if nothing is ready."""
        return min(self.ready(), key=lambda entry: (self.price(entry).start, entry), default=None)

    def apply(self, entry: int, at: Real = 0, force: bool = False) -> list[int]:
        """Do an entry, not before ``at``; what can be done now and could not before.

        ValueError unless it is ready and, in an ordered machine, the next of its device. ``force`` does it
        all the same, and takes what it needs for given.
        """
        device = self.home[entry]
        if not force:
            self._require_next(entry, device)
        self.done.append(_Done(entry, self.free[device], self.front[device]))
        start = max(self.free[device], at, 0 if force else self.arrival(entry))
        self.starts[entry] = start
        self.free[device] = self.ends[entry] = start + self.durations[entry]
        self.held[device] += self.changes[entry]
        for user in self.users[entry]:
            self.missing[user] -= 1
        return [candidate for candidate in self._affected(entry) if self._may_start(candidate)]

    def _affected(self, entry: int) -> list[int]:
        """What may have become ready because this entry is done."""
        after = self.next_of(self.home[entry]) if self.ordered else None
        return (
            self.users[entry] if after is None or after in self.users[entry] else [*self.users[entry], after]
        )

    def _may_start(self, entry: int) -> bool:
        return self.is_ready(entry) and (not self.ordered or self.next_of(self.home[entry]) == entry)

    def undo(self) -> int:
        """Take back what was done last; the entry."""
        entry, free, front = self.done.pop()
        device = self.home[entry]
        self.free[device], self.front[device] = free, front
        self.starts[entry] = self.ends[entry] = None
        self.held[device] -= self.changes[entry]
        for user in self.users[entry]:
            self.missing[user] += 1
        return entry

    def run(self) -> None:
        """Do whatever is ready, and what that makes ready, until nobody can go on."""
        while going := self.ready():
            while going:
                if self.is_ready(entry := going.pop()):
                    going += self.apply(entry)

    def _require_next(self, entry: int, device: int) -> None:
        if self.ends[entry] is not None:
            raise ValueError(f"entry {entry} has been done")
        if not self.is_ready(entry):
            raise ValueError(
                f"entry {entry} is not ready: it needs {', '.join(map(str, self.blockers(entry)))}"
            )
        if self.ordered and self.next_of(device) != entry:
            raise ValueError(f"entry {entry} is not the next of device {device}: {self.next_of(device)} is")
