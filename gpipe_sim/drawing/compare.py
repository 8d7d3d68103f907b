"""Families side by side, on equal work: the same layers, of which each stage gets its share.

What a stage costs says nothing by itself: with two stages on each device there are twice as many of them. So
costs are those of the layers here. One number is cut evenly, however many stages there are; a list where the
slowest stage is as fast as can be.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import lcm
from typing import NamedTuple

import numpy as np

from gpipe_sim.balance.by_makespan import even_cuts
from gpipe_sim.balance.costs_of_stages import layers_listed, merged
from gpipe_sim.core.bubbles import bubble_fraction, most_held
from gpipe_sim.core.costs import PER_DEVICE, UNIT, Costs
from gpipe_sim.core.numbers import quotient
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import Timeline, number, rounded
from gpipe_sim.drawing.document import Drawn, Svg
from gpipe_sim.drawing.svg import draw
from gpipe_sim.drawing.words import html_table, table
from gpipe_sim.errors import Real, duration, got, listed, whole

OWNER = "compare"
SUCH_AS = "families or schedules, such as [OneFOneB, Interleaved1F1B(4, 8, stages_per_device=4)]"
HEADS = "", "time", "bubble", "in flight", "copies", "messages"
UNIT_IN_FLIGHT = "in flight: microbatches of a device's share of the layers, on the fullest device"


@rounded
class Compared(NamedTuple):
    """A schedule with its share of the layers on each stage, and what follows from that.

    ``in_flight`` is the most that each device holds, in microbatches of a device's share of the layers: one
    of two stages that it has counts half.
    """

    schedule: Schedule
    balance: tuple[int, ...] | None  #: layers of each stage; None where they are cut evenly
    timeline: Timeline
    in_flight: tuple[Real, ...]

    @property
    def makespan(self) -> Real:
        return self.timeline.makespan

    @property
    def bubble(self) -> Real:
        """The bubble fraction."""
        return bubble_fraction(self.timeline)

    @property
    def messages(self) -> int:
        return int(self.schedule.program.crosses.sum())

    @property
    def copies(self) -> int:
        """Of the parameters: how many devices hold each stage."""
        return sum(map(len, self.schedule.placement)) // self.schedule.stages

    @property
    def name(self) -> str:
        """The schedule's, and how many stages a device has if it has several."""
        several = self.schedule.stages // self.schedule.devices
        return self.schedule.name + (f" V={several}" if several > 1 else "")

    @property
    def cells(self) -> tuple[str, ...]:
        """Its row of the table."""
        numbers = number(self.makespan), f"{float(self.bubble):.1%}", number(max(self.in_flight))
        return self.name, *numbers, str(self.copies), f"{self.messages:,}"


@dataclass(frozen=True, repr=False, eq=False)
class Comparison(Drawn):
    """Rows in the order asked for: a table in ``print`` and in a notebook; ``drawing`` is the chart.

    ``refused`` says which families have no step of this size, and why.
    """

    rows: tuple[Compared, ...]
    refused: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Compared]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> Compared:
        return self.rows[row]

    @cached_property
    def drawing(self) -> Svg:
        """All timelines on one time axis."""
        return draw(*(row.timeline for row in self.rows))

    @property
    def _notes(self) -> list[str]:
        schedule = self.rows[0].schedule
        size = f"{schedule.devices} devices, {schedule.microbatches} microbatches, the same layers for all"
        return [f"{size}; {UNIT_IN_FLIGHT}", *self.refused]

    def __str__(self) -> str:
        return "\n".join([*table([HEADS, *(row.cells for row in self.rows)]), *self._notes])

    def _repr_html_(self) -> str:
        return html_table([HEADS, *(row.cells for row in self.rows)], self._notes)

    def __repr__(self) -> str:
        best = min(self.rows, key=lambda row: row.makespan)
        return f"<Comparison of {len(self.rows)}: the shortest is {best.schedule!r}, {number(best.makespan)}>"


def compare(
    schedules: Iterable[type[Schedule] | Schedule],
    devices: int | None = None,
    microbatches: int | None = None,
    costs: Costs | None = None,
    *,
    links: object = None,
    message_bytes: Real | None = None,
) -> Comparison:
    """Families compared on equal work: time, bubble, microbatches in flight, copies of stages, messages.

    >>> print(gp.compare([gp.OneFOneB, gp.Interleaved1F1B, gp.ZBH1], 4, 8))
                          time  bubble  in flight  copies  messages
    1F1B                    33   27.3%          4       1        48
    Interleaved 1F1B V=2  28.5   15.8%        5.5       1       112
    ZB-H1                   27   11.1%          4       1        48
    4 devices, 8 microbatches, the same layers for all; in flight: microbatches of a device's share of
    the layers, on the fullest device

    ``compare(gp.SCHEDULES, 4, 8)`` takes every family; a schedule of your own, or with other stages per
    device, may stand among them. ``costs`` are those of layers. One number is what a device has of them: its
    stages get equal parts of it, so F, I and W of a microbatch take 1 per device unless costs say otherwise.
    A list has the costs of each layer, and is cut as ``balance_by_cost`` cuts it for so many stages; where
    these differ by a layer, the larger ones come first or last, whichever is shorter. ``comm`` and
    ``overhead`` are those of a message and of an action in all of them, so what more and smaller stages cost
    is in the times. So are ``links``, as ``simulate`` takes them; if one has a bandwidth, ``message_bytes``
    says how large a message is, one number, because what crosses is as large wherever a model is cut.

    A family that is not defined for this size, or has more stages than there are layers, is named below the
    table, with the reason. ValueError if none is left, for schedules of several sizes, or for messages
    between devices that have no link; TypeError for what is no family, no size, no ``Costs``, or no links.
    """
    asked = listed(OWNER, SUCH_AS, schedules)
    costs = UNIT if costs is None else costs
    layers = layers_listed(OWNER, costs)
    sizes = _size("devices", devices, asked), _size("microbatches", microbatches, asked)
    costs.require_length("devices", sizes[0], PER_DEVICE, "the comparison")
    if message_bytes is not None:
        message_bytes = duration(OWNER, "message_bytes", message_bytes)
    timed = partial(simulate, links=links, message_bytes=message_bytes)
    found, refused = list[Schedule](), list[str]()
    for each in asked:
        schedule = _made(each, sizes)
        if isinstance(schedule, str):
            refused.append(schedule)
        elif 0 < layers < schedule.stages:
            refused.append(f"{schedule.name}: {layers} layers cannot be cut into {schedule.stages} stages")
        else:
            found.append(schedule)
    if not found:
        raise ValueError(f"{OWNER} has nothing to compare: {'; '.join(refused) or f'it needs {SUCH_AS}'}")
    finest = lcm(sizes[0], *(schedule.stages for schedule in found))
    rows = tuple(_compared(schedule, costs, layers, finest, timed) for schedule in found)
    return Comparison(rows, tuple(refused))


def _size(name: str, given: int | None, asked: Sequence) -> int:
    """What is given; otherwise what the first schedule has."""
    have = (getattr(each, name) for each in asked if isinstance(each, Schedule))
    if given is None and (given := next(have, None)) is None:
        raise TypeError(f"{OWNER} needs {name}= for families, such as compare([OneFOneB, ZBV], 4, 8)")
    return whole(OWNER, name, given)


def _made(each: type[Schedule] | Schedule, sizes: tuple[int, int]) -> Schedule | str:
    """The schedule; or why a family has none of this size."""
    if isinstance(each, Schedule):
        if (each.devices, each.microbatches) != sizes:
            size = f"{sizes[0]} devices and {sizes[1]} microbatches"
            raise ValueError(f"{OWNER} needs schedules of one size, here {size} {got(each)}")
        return each
    if not (isinstance(each, type) and issubclass(each, Schedule)):
        raise TypeError(f"{OWNER} needs {SUCH_AS} {got(each)}")
    try:
        return each(*sizes)
    except ValueError as error:
        return str(error)


def _compared(
    schedule: Schedule, costs: Costs, layers: int, finest: int, timed: Callable[..., Timeline]
) -> Compared:
    """``finest``: into how many layers all is cut if costs list none. ``timed`` simulates on the links."""
    alike = (finest // schedule.stages,) * schedule.stages
    cuts = dict.fromkeys(even_cuts(schedule, costs, layers) if layers else [alike])
    each = costs if layers else costs.per_stage(finest // schedule.devices)
    found = [(timed(schedule, merged(each, cut)), cut) for cut in cuts]
    timeline, cut = min(found, key=lambda pair: pair[0].makespan)
    layers_held = most_held(schedule.program, np.array(cut)[schedule.program.stage])
    held = (quotient(most * schedule.devices, layers or finest) for most in layers_held)
    return Compared(schedule, cut if layers else None, timeline, tuple(held))
