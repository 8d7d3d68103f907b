"""Devices that run one action at a time: the clock for code that chooses what to run next.

``simulate`` times a complete order at once. A ``Machine`` is told one action after another, and can take the
last one back. A planner asks it what is ready and what that would cost; a puzzle lets its player try things;
an order whose sends block is replayed on it until no device can go on. If it is told all actions of an order,
it gives the times that ``simulate`` gives.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from numbers import Real
from typing import NamedTuple

from gpipe_sim.schedule.program import KINDS, Program
from gpipe_sim.schedule.rules import in_flight
from gpipe_sim.simulation.cost_model import CostModel, priced
from gpipe_sim.simulation.costs import UNIT

Need = tuple[int, Real]  #: (entry, how long what it made is on its way)


class Price(NamedTuple):
    """What an entry would cost now: when it would start and end, and how much its device would then hold.

    ``held`` counts (stage, microbatch) pairs in flight.
    """

    start: Real
    end: Real
    held: int


class _Done(NamedTuple):
    """What ``undo`` needs to put things back."""

    entry: int
    free: Real
    front: int


class Machine:
    """Entries on devices; an entry can start once its device is free and all that it needs has arrived.

    ``rows`` says where each device's entries begin, and where those of the last device end; ``needs`` lists
    the needs of each entry. If ``ordered``, a device runs its entries first to last; if not, the rows only
    say which entries it has, and any that is ready may come next. ``held`` counts what is in flight per
    device. ``changes`` says of each entry by how much it changes that, and by how much at most meanwhile:
    an overlapped pair adds its forward before its backward frees anything.
    """

    def __init__(
        self,
        rows: Sequence[int],
        needs: Sequence[Sequence[Need]],
        durations: Sequence[Real] | None = None,
        changes: Sequence[tuple[int, int]] | None = None,
        ordered: bool = True,
    ):
        count = rows[-1]
        self.rows, self.needs, self.ordered = rows, needs, ordered
        self.durations, self.changes = durations or [0] * count, changes or [(0, 0)] * count
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
        """A machine for a program's entries, with unit costs unless given."""
        costs = UNIT if costs is None else costs
        durations, delays = priced(costs, program)
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
            [(sum(per_part[a:b]), max(accumulate(per_part[a:b]))) for a, b in pairwise(parts)],
            ordered,
        )

    def ready(self) -> list[int]:
        """The entries that could run next, device by device."""
        if self.ordered:
            fronts = (self.next_of(device) for device in range(len(self.front)))
            return [entry for entry in fronts if entry is not None and self.is_ready(entry)]
        return [entry for entry in range(len(self.ends)) if self.is_ready(entry)]

    def is_ready(self, entry: int) -> bool:
        """Whether an entry could run next: it has not, it has all it needs, and it is its device's turn."""
        if self.ends[entry] is not None or not self._has_needs(entry):
            return False
        return not self.ordered or self.next_of(self.home[entry]) == entry

    def _has_needs(self, entry: int) -> bool:
        return not self.missing[entry]

    def next_of(self, device: int) -> int | None:
        """The next entry in a device's row, ready or not; None if all have run."""
        while self.front[device] < self.rows[device + 1] and self.ends[self.front[device]] is not None:
            self.front[device] += 1
        return self.front[device] if self.front[device] < self.rows[device + 1] else None

    def blockers(self, entry: int) -> list[int]:
        """What an entry still lacks: the entries that it needs and that have not run."""
        return [need for need, _ in self.needs[entry] if self.ends[need] is None]

    def arrival(self, entry: int) -> Real:
        """When the last thing that a ready entry needs reaches its device; 0 if it needs nothing."""
        return max((self.ends[need] + late for need, late in self.needs[entry]), default=0)

    def price(self, entry: int) -> Price:
        """What a ready entry would cost, in time and in memory, if it came next on its device."""
        device = self.home[entry]
        start = max(self.free[device], self.arrival(entry))
        return Price(start, start + self.durations[entry], self.held[device] + self.changes[entry][1])

    def earliest(self) -> int | None:
        """The ready entry that could start first, on the lowest device of several; None if none is ready."""
        return min(self.ready(), key=lambda entry: (self.price(entry).start, entry), default=None)

    def apply(self, entry: int, at: Real = 0, rest: Real = 0, force: bool = False) -> list[int]:
        """Run an entry, not before ``at``, and return the entries that can run now and could not before.

        Its device rests for ``rest`` afterwards.
        ValueError unless the entry is ready and, in an ordered machine, the next of its device. With
        ``force`` it runs all the same, at ``at``, as if everything that it needs were there.
        """
        device = self.home[entry]
        if not force:
            self._require_next(entry, device)
        self.done.append(_Done(entry, self.free[device], self.front[device]))
        start = max(self.free[device], at, 0 if force else self.arrival(entry))
        self.starts[entry] = start
        self.ends[entry] = start + self.durations[entry]
        self.free[device] = self.ends[entry] + rest
        self.held[device] += self.changes[entry][0]
        for user in self.users[entry]:
            self.missing[user] -= 1
        return [candidate for candidate in self._affected(entry) if self.is_ready(candidate)]

    def _affected(self, entry: int) -> list[int]:
        """The entries that may have become ready because this one has run."""
        users, after = self.users[entry], self.next_of(self.home[entry]) if self.ordered else None
        return users if after is None or after in users else [*users, after]

    def undo(self) -> int:
        """Take back the entry that ran last, and return it."""
        if not self.done:
            raise ValueError("nothing has run that could be undone")
        entry, free, front = self.done.pop()
        device = self.home[entry]
        self.free[device], self.front[device] = free, front
        self.starts[entry] = self.ends[entry] = None
        self.held[device] -= self.changes[entry][0]
        for user in self.users[entry]:
            self.missing[user] += 1
        return entry

    def run(self) -> None:
        """Run whatever is ready, and what becomes ready by that, until no device can go on."""
        while going := self.ready():
            while going:
                if self.is_ready(entry := going.pop()):
                    going += self.apply(entry)

    def _require_next(self, entry: int, device: int) -> None:
        if self.is_ready(entry):
            return
        if self.ends[entry] is not None:
            raise ValueError(f"entry {entry} has been done")
        if blockers := self.blockers(entry):
            raise ValueError(f"entry {entry} is not ready: it needs {', '.join(map(str, blockers))}")
        raise ValueError(f"entry {entry} is not the next of device {device}: {self.next_of(device)} is")
