"""A wire that all devices share: whoever finds it free goes first, so time decides the order.

On links of its own each pair's messages go in the order of their sender's row, and a faster action never
makes a step longer. On a shared wire it may: what it made is on the wire a little earlier, and something that
is waited for more has to go after it.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np

from gpipe_sim.core.clock import Clock
from gpipe_sim.core.cost_model import CostModel, require_costs
from gpipe_sim.core.costs import UNIT
from gpipe_sim.core.numbers import InUnits
from gpipe_sim.core.program import Program
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.core.simulate import Sizes, simulate
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.errors import Real, require
from gpipe_sim.links.links import Links, OnLinks
from gpipe_sim.links.traffic import traffic_of


def simulate_shared(
    schedule: Schedule,
    links: Links,
    costs: CostModel | None = None,
    *,
    profile: Sizes | None = None,
    message_bytes: Real | Sequence[Real] | None = None,
) -> Timeline:
    """Time a schedule whose messages all go over one wire, one at a time.

    ``links`` say how long a message keeps the wire busy and how late it arrives, the ``profile`` or
    ``message_bytes`` how large it is, as for ``simulate``. What is ready first is sent first; of messages
    that are ready together, the one from the lower device. It refuses what ``simulate`` refuses, with the
    same errors.
    """
    require_schedule("simulate_shared", schedule)
    costs = UNIT if costs is None else costs
    require_costs("simulate_shared", costs, schedule.stages, schedule.devices)
    if profile is not None:
        require("simulate_shared", profile, Sizes, "a profile, as profile(partitions, batch, loss) gives it")
    return simulate(schedule, OnOneWire(schedule, costs, links, profile, message_bytes, overlap=True))


class OnOneWire(OnLinks):
    """As on links, but all of them are one wire."""

    def clock(self, program: Program) -> tuple[Clock, InUnits]:
        columns, in_units = self.columns(program)
        times = _time_program(program, *(column.tolist() for column in columns))
        return Clock(*(np.array(each, columns[0].dtype) for each in times)), in_units


def _time_program(program: Program, durations: list, busy: list, late: list) -> tuple[list, ...]:
    """The columns of a clock. Entries end one by one, the earliest first, and then what they made is sent."""
    size, traffic = program.size, traffic_of(program)
    users, missing, sends = _waits(program)
    start, there, sent, free = [0] * size, [0] * len(users), [0] * len(busy), 0
    running = sorted((durations[entry], entry) for entry in range(size) if not missing[entry])

    def is_there(what: int, time) -> None:
        there[what] = time
        for user in users[what]:
            missing[user] -= 1
            start[user] = max(start[user], time)
            if not missing[user]:
                heappush(running, (start[user] + durations[user], user))

    while running:
        end, entry = heappop(running)
        for message in sends[entry]:
            sent[message] = max(end, free)
            free = sent[message] + busy[message]
            is_there(size + message, free + late[message])
        is_there(entry, end)
    by_need = [[times[message] for message in traffic.of_need] for times in (sent, there[size:])]
    return start, there[:size], *by_need


def _waits(program: Program) -> tuple[list[list[int]], list[int], list[list[int]]]:
    """Who waits for each entry and message, numbered on; how much an entry waits for; and what it sends."""
    size, traffic = program.size, traffic_of(program)
    waited_for = program.entry[program.needs]
    waited_for[program.crosses] = size + traffic.of_need
    waits = [(entry - 1, entry) for a, b in pairwise(program.rows.tolist()) for entry in range(a + 1, b)]
    waits += zip(waited_for.tolist(), program.owner.tolist(), strict=True)
    users: list[list[int]] = [[] for _ in range(size + len(traffic.sender))]
    for what, user in waits:
        users[what].append(user)
    sends: list[list[int]] = [[] for _ in range(size)]
    for message, entry in enumerate(program.levels.order[traffic.sender].tolist()):
        sends[entry].append(message)
    return users, np.bincount([user for _, user in waits], minlength=size).tolist(), sends
