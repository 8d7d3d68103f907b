"""Devices that run one action at a time: the clock for code that chooses what to run next.

``simulate`` times a complete order at once. A ``Machine`` is told one action after another, and says what
could come next and when that could start. If it is told all actions of an order, it gives the times that
``simulate`` gives.
"""

from itertools import pairwise

import numpy as np

from gpipe_sim.core.cost_model import CostModel, price_program
from gpipe_sim.core.costs import UNIT
from gpipe_sim.core.program import KINDS, Program
from gpipe_sim.core.rules import in_flight
from gpipe_sim.errors import Real


class Machine:
    """The entries of a program, run one at a time, with unit costs unless given.

    An entry can run once all that it needs has run, and if the machine is ``ordered``, once the entry before
    it in its device's row has. If it is not, the rows only say which entries a device has.

    ``ready`` has the entries that can run now; ``starts`` and ``ends`` the times of those that have run, by
    entry; ``free`` when each device is free again, and ``held`` how many (stage, microbatch) pairs it has in
    flight.
    """

    def __init__(self, program: Program, costs: CostModel | None = None, ordered: bool = True):
        durations, delays = price_program(UNIT if costs is None else costs, program)
        self.durations = [durations.values[i] for i in durations.index.tolist()]
        self.home = program.device[program.first].tolist()
        firsts = set(program.rows.tolist())
        kinds = [KINDS[code] for code in program.kind.tolist()]
        self.changes = [sum(map(in_flight, kinds[a:b])) for a, b in pairwise(program.parts.tolist())]
        late: list[Real] = [0] * len(program.needs)
        for need, i in zip(np.flatnonzero(program.crosses).tolist(), delays.index.tolist(), strict=True):
            late[need] = delays.values[i]
        needs = list(zip(program.entry[program.needs].tolist(), late, strict=True))
        self.needs = [needs[a:b] for a, b in pairwise(program.needs_from.tolist())]
        self.starts: list[Real | None] = [None] * program.size
        self.ends: list[Real | None] = [None] * program.size
        self.free: list[Real] = [0] * program.devices
        self.held = [0] * program.devices
        self.users: list[list[int]] = [[] for _ in range(program.size)]  # the entries that wait for each
        self.missing = [0] * program.size  # for how many others each waits
        for entry, needed in enumerate(self.needs):
            waits_for = [need for need, _ in needed]
            if ordered and entry not in firsts:
                waits_for.append(entry - 1)
            for need in waits_for:
                self.users[need].append(entry)
            self.missing[entry] = len(waits_for)
        self.ready = {entry for entry, count in enumerate(self.missing) if not count}

    def arrival(self, entry: int) -> Real:
        """When the last thing that a ready entry needs reaches its device; 0 if it needs nothing."""
        return max((self.ends[need] + late for need, late in self.needs[entry]), default=0)

    def start(self, entry: int) -> Real:
        """When a ready entry would start if it came next on its device."""
        return max(self.free[self.home[entry]], self.arrival(entry))

    def earliest(self) -> int | None:
        """The ready entry that could start first, on the lowest device of several; None if none is ready."""
        return min(self.ready, key=lambda entry: (self.start(entry), entry), default=None)

    def apply(self, entry: int, at: Real = 0) -> list[int]:
        """Run an entry, not before ``at``, and return the entries that become ready by that.

        KeyError unless the entry is ready.
        """
        self.ready.remove(entry)
        device = self.home[entry]
        self.starts[entry] = start = max(self.start(entry), at)
        self.ends[entry] = self.free[device] = start + self.durations[entry]
        self.held[device] += self.changes[entry]
        for user in self.users[entry]:
            self.missing[user] -= 1
        opened = [user for user in dict.fromkeys(self.users[entry]) if not self.missing[user]]
        self.ready.update(opened)
        return opened
