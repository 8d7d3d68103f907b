"""When everything happens: a schedule and its costs give a timeline.

There is no tick loop. An action starts at the later of two times: when its device is free, and when the last
thing that it needs has arrived. All actions of a level (``core.levels``) are timed at once, level after
level. An order in which some device gets stuck is refused before anything is timed.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import isfinite
from typing import Protocol, runtime_checkable

import numpy as np

from gpipe_sim.core.cost_model import CostModel, require_costs
from gpipe_sim.core.costs import UNIT
from gpipe_sim.core.hooks import Hook
from gpipe_sim.core.numbers import CostColumn
from gpipe_sim.core.problems import check
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.errors import Real, got, require_flags

Limit = Real | Sequence[Real]  #: bytes that a device may hold: one number for all, or one for each


@runtime_checkable
class Sizes(Protocol):
    """What the core asks of a profile: plain numbers, never layers."""

    def message_bytes(self, schedule: Schedule) -> CostColumn:
        """The bytes of each need that crosses, in the order of the program's."""

    def require_within(
        self, schedule: Schedule, limit: Limit, costs: CostModel | None = None, weights: str | None = None
    ) -> object:
        """MemoryLimitError if a device would hold more than the limit."""


#: Given (schedule, costs, links, profile, message_bytes, overlap): the same costs with a clock of their own,
#: which goes through the same levels and lets a message leave once its link is free.
ON_LINKS: Hook[Callable[[Schedule, CostModel, object, Sizes | None, object, bool], CostModel]] = Hook(
    "on_links", "simulate(..., links=...)"
)


def simulate(
    schedule: Schedule,
    costs: CostModel | None = None,
    *,
    links: object = None,
    overlap: bool = True,
    profile: Sizes | None = None,
    message_bytes: "Real | Sequence[Real] | None" = None,
    memory_limit: "Limit | None" = None,
) -> Timeline:
    """Time a schedule. ScheduleError or DeadlockError if it cannot run, ValueError if its costs do not fit.

    >>> timeline = gp.simulate(gp.OneFOneB(devices=2, microbatches=3))
    >>> timeline.makespan
    12
    >>> print(timeline)
    time      0  1  2  3  4  5  6  7  8  9 10 11
    device 0 F0 F1  ·  · B0 -- F2 B1 --  · B2 --
    device 1  · F0 B0 -- F1 B1 -- F2 B2 --  ·  ·

    With ``links``, messages wait for each other: a ``Link`` for all, ``Nodes``, or links by pair of devices.
    If a link has a bandwidth, their bytes have to be known: from a ``profile``, or as ``message_bytes``, one
    number for all, or one for each stage but the last, of what it and the next stage send each other.
    ``overlap=False`` keeps a device busy while it sends and while it receives; it computes nothing then, so
    charts and metrics count it as waiting.

    With a ``memory_limit``, bytes for all devices or for each, and the ``profile`` of a model, a step that
    does not fit is a MemoryLimitError.

    ``costs`` are ``Costs`` or any other ``CostModel``; they default to 1 for F, I and W each, so that a full
    backward takes 2, a recompute 1 like its forward, and an update nothing. Times are in the unit of the
    costs, and exact if the costs are: whole numbers, however large, and ``Fraction``. It takes some
    microseconds per level and nanoseconds per action, so it is slow only for an order in which hardly any two
    devices ever work at the same time.
    """
    require_schedule("simulate", schedule)
    costs = UNIT if costs is None else costs
    require_flags("simulate", overlap=overlap)
    if links is None and not (overlap and message_bytes is None):
        raise TypeError(
            "overlap=False needs links, and so does message_bytes=: such as links=Link(bandwidth=100)"
        )
    require_costs("simulate", costs, schedule.program.stages, schedule.program.devices)
    check(schedule)
    if profile is not None and not hasattr(type(profile), "require_within"):
        raise TypeError(f"simulate needs a profile, as profile(partitions, batch, loss) gives {got(profile)}")
    if memory_limit is not None:
        if profile is None:
            raise TypeError("simulate needs a profile to know what a step holds: simulate(..., profile=...)")
        profile.require_within(schedule, memory_limit, costs)
    if links is not None:
        costs = ON_LINKS.filled(schedule, costs, links, profile, message_bytes, overlap)
    return within_floats(schedule, partial(_timed, schedule, costs))


def _timed(schedule: Schedule, costs: CostModel) -> Timeline:
    with np.errstate(over="ignore"):
        clock, in_units = costs.clock(schedule.program)  # columns, and what turns them into costs' units
    start, end, sent, arrived = map(in_units, clock)
    return Timeline(schedule, start, end, sent, arrived)


def within_floats(schedule: Schedule, make: Callable[[], Timeline]) -> Timeline:
    """The timeline that is made; ValueError if it is too long for a float."""
    try:
        timeline = make()
    except OverflowError:  # of whole numbers beside floats
        raise too_long(schedule) from None
    if isinstance(timeline.makespan, float) and not isfinite(timeline.makespan):
        raise too_long(schedule)
    return timeline


def too_long(schedule: Schedule) -> ValueError:
    return ValueError(f"{schedule!r} lasts longer than the largest float; whole numbers may be any size")
