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

from gpipe_sim.core.cost_model import CostModel, priced
from gpipe_sim.core.costs import UNIT
from gpipe_sim.core.numbers import CostColumn
from gpipe_sim.core.program import KINDS, Program
from gpipe_sim.core.rules import in_flight
from gpipe_sim.links.links import Links
from gpipe_sim.machine.deliveries import Post, posts_of

Need = tuple[int, int | None]  #: (entry, the message that brings what it made; None on the same device)


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
    received: list[int]
    link_free: list[tuple[int, Real]]


class Machine:
    """Entries on devices; an entry can start once its device is free and all that it needs has arrived.

    ``rows`` says where each device's entries begin, and where those of the last device end; ``needs`` lists
    the needs of each entry. If ``ordered``, a device runs its entries first to last; if not, the rows only
    say which entries it has, and any that is ready may come next. ``held`` counts what is in flight per
    device. ``changes`` says of each entry by how much it changes that, and by how much at most meanwhile:
    an overlapped pair adds its forward before its backward frees anything.

    ``posts`` lists the messages that each entry sends; a link carries one at a time. Without ``overlap`` a
    device is busy while it sends, and while it receives.
    """

    def __init__(
        self,
        rows: Sequence[int],
        needs: Sequence[Sequence[Need]],
        durations: Sequence[Real] | None = None,
        changes: Sequence[tuple[int, int]] | None = None,
        ordered: bool = True,
        posts: Sequence[Sequence[Post]] | None = None,
        overlap: bool = True,
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
        self.posts, self.overlap = posts or [()] * count, overlap
        sent = [post for each in self.posts for post in each]
        self.busy = {post.message: post.busy for post in sent}
        self.arrived: dict[int, Real] = {}
        self.received: set[int] = set()
        self.link_free: dict[int, Real] = dict.fromkeys((post.link for post in sent), 0)
        self.done: list[_Done] = []

    @classmethod
    def of(
        cls,
        program: Program,
        costs: CostModel | None = None,
        ordered: bool = True,
        *,
        links: Links | None = None,
        sizes: CostColumn | None = None,
        overlap: bool = True,
    ) -> "Machine":
        """A machine for a program's entries, with unit costs unless given, and links as for ``simulate``.

        ``sizes`` are the bytes of each need that crosses, 1 unless given.
        """
        costs = UNIT if costs is None else costs
        durations, delays = priced(costs, program)
        carried, posts = posts_of(program, delays, links, sizes)
        needed = list(zip(program.entry[program.needs].tolist(), carried, strict=True))
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
            posts,
            overlap,
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
        there, arrived = self.ends, self.arrived
        needed = self.needs[entry]
        return max((there[need] if by is None else arrived[by] for need, by in needed), default=0)

    def price(self, entry: int) -> Price:
        """What a ready entry would cost, in time and in memory, if it came next on its device."""
        device = self.home[entry]
        start = max(self.free[device], self.arrival(entry)) + self._receiving(self._new(entry))
        return Price(start, start + self.durations[entry], self.held[device] + self.changes[entry][1])

    def _new(self, entry: int) -> list[int]:
        """The messages for an entry that its device has not yet received."""
        return list({by: None for _, by in self.needs[entry] if by is not None and by not in self.received})

    def _receiving(self, messages: list[int]) -> Real:
        """How long it takes a device to receive them, if it has to do that itself."""
        return 0 if self.overlap else sum(self.busy[message] for message in messages)

    def earliest(self) -> int | None:
        """The ready entry that could start first, on the lowest device of several; None if none is ready."""
        return min(self.ready(), key=lambda entry: (self.price(entry).start, entry), default=None)

    def apply(self, entry: int, at: Real = 0, rest: Real = 0, force: bool = False) -> list[int]:
        """Run an entry, not before ``at``, and return the entries that can run now and could not before.

        Its device rests for ``rest`` afterwards.
        ValueError unless the entry is ready and, in an ordered machine, the next of its device. With
        ``force`` it runs all the same, at ``at``, as if everything that it needs were there.
        """
        device, new = self.home[entry], self._new(entry)
        if not force:
            self._require_next(entry, device)
        was = [(post.link, self.link_free[post.link]) for post in self.posts[entry]]
        self.done.append(_Done(entry, self.free[device], self.front[device], new, was))
        start = max(self.free[device], at, 0 if force else self.arrival(entry)) + self._receiving(new)
        self.starts[entry] = start
        self.ends[entry] = end = start + self.durations[entry]
        self.received.update(new)
        self.free[device] = self._send(entry, end) + rest
        self.held[device] += self.changes[entry][0]
        for user in self.users[entry]:
            self.missing[user] -= 1
        return [candidate for candidate in self._affected(entry) if self.is_ready(candidate)]

    def _send(self, entry: int, end: Real) -> Real:
        """Send what the entry made, and return when its device is free again."""
        free = end
        for message, link, busy, late in self.posts[entry]:
            leaves = max(end, self.link_free[link]) if self.overlap else free
            free = until = leaves + busy
            self.link_free[link] = until
            self.arrived[message] = until + late
        return end if self.overlap else free

    def _affected(self, entry: int) -> list[int]:
        """The entries that may have become ready because this one has run."""
        users, after = self.users[entry], self.next_of(self.home[entry]) if self.ordered else None
        return users if after is None or after in users else [*users, after]

    def undo(self) -> int:
        """Take back the entry that ran last, and return it."""
        if not self.done:
            raise ValueError("nothing has run that could be undone")
        entry, free, front, new, was = self.done.pop()
        device = self.home[entry]
        self.free[device], self.front[device] = free, front
        self.starts[entry] = self.ends[entry] = None
        self.held[device] -= self.changes[entry][0]
        self.received.difference_update(new)
        self.link_free.update(reversed(was))
        for post in self.posts[entry]:
            del self.arrived[post.message]
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
