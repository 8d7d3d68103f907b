"""A wire that several pairs of devices share: who finds it free goes first, so it is timed event by event.

On links of its own each pair's messages go in the order of their sender's row, and a faster action never
makes a step longer. On a shared wire it may: what it made is on the wire a little earlier, and something that
is waited for more has to go after it.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from numbers import Real

import numpy as np

from gpipe_sim.core.cost_model import CostModel, priced, require_costs
from gpipe_sim.core.costs import UNIT
from gpipe_sim.core.problems import check
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.core.simulate import too_long
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.errors import got
from gpipe_sim.links.links import Links, link_between
from gpipe_sim.links.traffic import traffic_of

Wire = Callable[[int, int], object]
ENDS, ARRIVES = 0, 1  #: at one time, actions end before messages arrive


def simulate_shared(
    schedule: Schedule, links: Links, wire: Wire | None = None, costs: CostModel | None = None
) -> Timeline:
    """Time a schedule whose messages share wires; each is a message of 1 byte.

    ``wire(source, target)`` names the wire between two devices; without it all share one. ``links`` say how
    long a message keeps its wire busy and how late it arrives, as for ``simulate``. A wire serves first what
    is ready first; of messages that are ready together, the one from the lower device. If every pair has a
    wire of its own, the times are those of ``simulate(schedule, costs, links=links)``.
    """
    require_schedule("simulate_shared", schedule)
    costs = UNIT if costs is None else costs
    require_costs("simulate_shared", costs, schedule.stages, schedule.devices)
    if wire is not None and not callable(wire):
        raise TypeError(
            f"simulate_shared needs wire to be a function of two devices, as lambda a, b: 'bus' {got(wire)}"
        )
    check(schedule)
    try:
        timeline = _Events(schedule, links, wire or (lambda source, target: None), costs).timeline()
    except OverflowError:  # of whole numbers beside floats
        raise too_long(schedule) from None
    if timeline.makespan == inf:
        raise too_long(schedule)
    return timeline


def _different(names: list) -> list:
    """Each name once; TypeError for a name that cannot be told from others, such as a list."""
    try:
        return list(dict.fromkeys(names))
    except TypeError:
        raise TypeError(f"simulate_shared needs wire to give names, such as 'bus' {got(names[0])}") from None


class _Events:
    """What happens, in order of time: actions end, and messages arrive."""

    def __init__(self, schedule: Schedule, links: Links, wire: Wire, costs: CostModel):
        self.schedule, program = schedule, schedule.program
        self.rows, self.traffic = program.rows.tolist(), traffic_of(program)
        durations, delays = priced(costs, program)
        self.durations = [durations.values[i] for i in durations.index.tolist()]
        late = [delays.values[i] for i in delays.index.tolist()]
        ways = [link_between(links, *pair) for pair in self.traffic.pairs]
        named = [wire(*pair) for pair in self.traffic.pairs]
        numbers = {name: number for number, name in enumerate(_different(named))}
        on = self.traffic.link.tolist()
        self.wire = [numbers[named[link]] for link in on]
        self.busy = [ways[link].busy(1) for link in on]
        self.late = [
            ways[link].latency + late[need] for link, need in zip(on, self.traffic.need.tolist(), strict=True)
        ]
        self.free: list[Real] = [0] * len(numbers)
        self.sent: list[Real] = [0] * len(on)
        self.arrived: list[Real] = [0] * len(on)
        self._read_needs(program)
        self.start, self.end = [0] * program.size, [0] * program.size
        self.front = self.rows[:-1].copy()
        self.events: list[tuple[Real, int, int]] = []

    def _read_needs(self, program) -> None:
        """Which entries each entry and each message is for, and how many an entry lacks."""
        order = program.levels.order.tolist()
        self.sends: list[list[int]] = [[] for _ in range(program.size)]
        for message, place in enumerate(self.traffic.sender.tolist()):
            self.sends[order[place]].append(message)
        self.users: list[list[int]] = [[] for _ in range(program.size)]
        self.receivers: list[list[int]] = [[] for _ in self.sent]
        self.missing = np.diff(program.needs_from).tolist()
        owner, crosses = program.owner.tolist(), program.crosses.tolist()
        of_need = iter(self.traffic.of_need.tolist())
        for need, part in enumerate(program.needs.tolist()):
            if crosses[need]:
                self.receivers[next(of_need)].append(owner[need])
            else:
                self.users[int(program.entry[part])].append(owner[need])
        self.device = np.repeat(np.arange(program.devices), np.diff(program.rows)).tolist()

    def timeline(self) -> Timeline:
        for device in range(len(self.front)):
            self._go_on(device, 0)
        while self.events:
            time, kind, number = heappop(self.events)
            if kind == ENDS:
                self._ends(number, time)
            else:
                self._there(self.receivers[number], time)
        of_need = self.traffic.of_need
        columns = (
            self.start,
            self.end,
            *(np.array(each, object)[of_need] for each in (self.sent, self.arrived)),
        )
        return Timeline(self.schedule, *(np.array(list(column), object) for column in columns))

    def _ends(self, entry: int, time: Real) -> None:
        self.front[self.device[entry]] += 1
        for message in self.sends[entry]:
            leaves = self.sent[message] = max(time, self.free[self.wire[message]])
            until = self.free[self.wire[message]] = leaves + self.busy[message]
            self.arrived[message] = until + self.late[message]
            heappush(self.events, (self.arrived[message], ARRIVES, message))
        self._there(self.users[entry], time)
        self._go_on(self.device[entry], time)

    def _there(self, users: list[int], time: Real) -> None:
        """Something that these entries need is there now."""
        for user in users:
            self.missing[user] -= 1
        for device in {self.device[user] for user in users}:
            self._go_on(device, time)

    def _go_on(self, device: int, time: Real) -> None:
        """Start the device's next entry, if it is free and has all that the entry needs."""
        entry = self.front[device]
        if entry == self.rows[device + 1] or self.missing[entry]:
            return
        self.missing[entry] = -1  # it runs
        self.start[entry], self.end[entry] = time, time + self.durations[entry]
        heappush(self.events, (self.end[entry], ENDS, entry))
