"""When everything happens: a schedule and its costs give a timeline.

There is no tick loop. Each device runs its row in order; an action starts at the later of two times,
when its device is free and when the last thing that it needs has arrived.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, wraps
from numbers import Real
from typing import NamedTuple

from gpipe_sim.actions import Action, Kind, OverlapFB
from gpipe_sim.costs import Costs
from gpipe_sim.refuse import got
from gpipe_sim.schedule import Schedule, needs, require_schedule
from gpipe_sim.validate import check, check_actions
from gpipe_sim.waits import wanted_slots


class Span(NamedTuple):
    """An action on a device from ``start`` to ``end``."""

    action: Action | OverlapFB
    device: int
    start: Real
    end: Real


class Message(NamedTuple):
    """What an action made, on its way between two devices from ``start`` to ``end``."""

    action: Action
    source: int
    target: int
    start: Real
    end: Real


@dataclass(frozen=True, eq=False, repr=False)
class Timeline:
    """What each device did and when. ``spans`` stand in an order in which they could be executed.

    ``turns``: whether the devices took turns, as they do when measured in one process on one processor.
    """

    schedule: Schedule
    costs: Costs
    spans: tuple[Span, ...]
    turns: bool = False

    @cached_property
    def makespan(self) -> Real:
        """When the last action ends; the clocks start at 0."""
        return max(span.end for span in self.spans)

    @cached_property
    def rows(self) -> tuple[tuple[Span, ...], ...]:
        """The spans of each device, in time order."""
        rows = [[] for _ in range(self.schedule.devices)]
        for span in self.spans:
            rows[span.device].append(span)
        return tuple(map(tuple, rows))

    def on(self, device: int) -> tuple[Span, ...]:
        """The spans of one device, in time order; ValueError for a device that there is not."""
        if not hasattr(device, "__index__") or device not in range(self.schedule.devices):
            raise ValueError(f"there are devices 0 to {self.schedule.devices - 1} (got {device!r})")
        return self.rows[device]

    @cached_property
    def ends(self) -> dict[Action, Real]:
        """When each action ends; both halves of an overlapped pair end with it."""
        return {part: span.end for span in self.spans for part in span.action.parts}

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """Everything that crossed from one device to another, in the order of its arrival."""
        return tuple(sorted(self._messages(), key=lambda message: message.end))

    def _messages(self) -> Iterator[Message]:
        for span in self.spans:
            for need in needs(span.action, self.schedule):
                source = self.schedule.device_of(need)
                if source != span.device:
                    sent = self.ends[need]
                    arrived = sent + self.costs.transfer(need, source, span.device)
                    yield Message(need, source, span.device, sent, arrived)

    def __repr__(self) -> str:
        return f"<Timeline of {self.schedule!r}: makespan {self.makespan}>"

    def __str__(self) -> str:
        from gpipe_sim.grid import text_grid

        return text_grid(self)

    def _repr_svg_(self) -> str:
        from gpipe_sim.svg import to_svg

        return to_svg(self)


def require_timeline(owner: str, value) -> None:
    """Refuse anything but a timeline, such as the schedule that it is of, or the step that has one."""
    if isinstance(value, Timeline):
        return
    has = isinstance(getattr(value, "timeline", None), Timeline)
    such_as = "such as its .timeline" if has else "such as simulate(GPipe(4, 8))"
    raise TypeError(f"{owner} needs a timeline, {such_as} {got(value)}")


def of_timeline(function: Callable) -> Callable:
    """A function of a timeline, which refuses anything else as ``require_timeline`` does."""

    @wraps(function)
    def checked(timeline: Timeline, *args, **kwargs):
        require_timeline(function.__name__, timeline)
        return function(timeline, *args, **kwargs)

    return checked


def simulate(schedule: Schedule, costs: Costs | None = None) -> Timeline:
    """Time a schedule. Raises ScheduleError or DeadlockError if it cannot be run.

    Costs default to 1 for F, I and W each, so that a full backward takes 2. Linear in the number of
    actions.
    """
    require_schedule("simulate", schedule)
    costs = Costs() if costs is None else costs
    if not isinstance(costs, Costs):
        raise TypeError(f"simulate needs costs, such as Costs(comm=1) (got {costs!r})")
    costs.require_stages(schedule.stages)
    check_actions(schedule)
    spans = _run(schedule, costs)
    if len(spans) < sum(map(len, schedule.actions)):
        check(schedule)
    return Timeline(schedule, costs, tuple(spans))


def _run(schedule: Schedule, costs: Costs) -> list[Span]:
    """The spans in the order in which the devices get to them; it stops early at a deadlock.

    A device runs until something that it needs has not ended; the action that it waits for wakes it.
    This loop runs once per action, so it looks things up by slot (stage * microbatches + microbatch)
    and neither hashes an action nor builds one.
    """
    rows, size = schedule.actions, schedule.microbatches
    made = {kind: [None] * len(slots) for kind, slots in schedule.located.items()}
    waiting = {kind: {} for kind in Kind}
    wanted = wanted_slots(schedule, made, waiting)
    duration, transfer = costs.duration, costs.transfer
    free, at = [0] * schedule.devices, [0] * schedule.devices
    runnable = list(reversed(range(schedule.devices)))
    spans = []

    def advance(device: int) -> None:
        row = rows[device]
        while at[device] < len(row):
            action = row[at[device]]
            start = free[device]
            parts = (action,) if action.__class__ is Action else action.parts
            for stage, kind, microbatch in parts:
                for spans_made, located, offset, waiters in wanted[kind][stage]:
                    slot = offset + microbatch
                    span = spans_made[slot]
                    if span is None:
                        if located[slot] is None:
                            continue
                        waiters.setdefault(slot, []).append(device)
                        return
                    part, source, _, arrival = span
                    if source != device:
                        arrival += transfer(part, source, device)
                    if arrival > start:
                        start = arrival
            free[device] = end = start + duration(action, device)
            span = Span(action, device, start, end)
            spans.append(span)
            at[device] += 1
            for part in parts:
                stage, kind, microbatch = part
                slot = stage * size + microbatch
                made[kind][slot] = span
                if slot in waiting[kind]:
                    runnable.extend(waiting[kind].pop(slot))

    while runnable:
        advance(runnable.pop())
    return spans
