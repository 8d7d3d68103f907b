"""What happened, and when: simulated or measured, the same kind of thing."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, wraps
from numbers import Real
from typing import NamedTuple

from gpipe_sim.errors import got
from gpipe_sim.schedule.actions import Action, OverlapFB
from gpipe_sim.schedule.base import Schedule, needs
from gpipe_sim.simulation.costs import Costs


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
        from gpipe_sim.drawing.text import text_grid

        return text_grid(self)

    def _repr_svg_(self) -> str:
        from gpipe_sim.drawing.svg import to_svg

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


def number(value: Real) -> str:
    """A time as text: whole numbers without a point, others to four digits, or all before the point."""
    if value == int(value):
        return str(int(value))
    return f"{float(value):.4g}" if abs(value) < 1000 else f"{float(value):.0f}"
