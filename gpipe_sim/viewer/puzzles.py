"""The puzzles of the board: what may be placed, what it costs, how many a device may hold, and par.

Room counts stage-activations: an F takes one when it starts, and its B, or the W of a split backward, gives
it back when it ends. A device runs one action at a time, so the order of its row alone says what it holds: a
B that ends when an F starts has made its room free.

Par is the makespan of the best order known, which is shipped in ``rows``. ``bound`` is a time that no order
takes less than, and why; ``gap`` is how far par is above it, so 0 where par is proven (``python -m prove``).
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from itertools import accumulate
from typing import Any

from gpipe_sim.core.costs import Costs
from gpipe_sim.core.explicit import Explicit, row_texts
from gpipe_sim.core.rules import in_flight
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import Span, Timeline, number
from gpipe_sim.drawing.words import durations, size
from gpipe_sim.errors import Real, ScheduleError


@dataclass(frozen=True)
class Bound:
    """A time that no order of a puzzle takes less than, and the sentence that says why."""

    value: Real
    why: str


@dataclass(frozen=True)
class Puzzle:
    """A board to fill: each device takes all F and B, or F, I and W, of its stages, in an order to be found.

    ``name`` is what one types, ``idea`` says what there is to find and not how, ``learnt`` what was
    found, for who has reached par. ``room`` is the most
    stage-activations for each device, or None. ``rows`` is an order that takes ``par``.
    """

    name: str
    title: str
    idea: str
    learnt: str
    placement: tuple[tuple[int, ...], ...]
    microbatches: int
    kinds: str
    costs: Costs
    room: tuple[int, ...] | None
    par: Real
    rows: tuple[str, ...]
    bound: Bound
    gap: Real

    @property
    def devices(self) -> int:
        return len(self.placement)

    @property
    def stages(self) -> int:
        return sum(map(len, self.placement))

    @property
    def limits(self) -> tuple[Real, ...]:
        """The room of each device, which is infinite where there is no limit."""
        return (math.inf,) * self.devices if self.room is None else self.room

    @property
    def facts(self) -> str:
        """What there is to place, how long it takes, and the room for it, as charts say it."""
        timeline, speed = self.timed(self.schedule()), self.costs.speed
        said = [size(timeline.schedule), durations(timeline)]
        if self.costs.comm:
            said.append(f"a message takes {number(self.costs.comm)}")
        if isinstance(speed, Sequence):
            said += [f"device {k} has speed {number(each)}" for k, each in enumerate(speed) if each != 1]
        if self.room:
            said.append(f"room for {', '.join(map(str, self.room))}")
        return f"{'; '.join(said)}."

    @property
    def work(self) -> Explicit:
        """All that there is to place: stage by stage, in no order that is meant to be run."""
        rows = [
            [f"{stage}{kind}{m}" for stage in held for kind in self.kinds for m in range(self.microbatches)]
            for held in self.placement
        ]
        return self.schedule(rows)

    def schedule(self, rows: Sequence[Any] | None = None) -> Explicit:
        """These rows on the puzzle's devices; by default those that take par."""
        rows = self.rows if rows is None else rows
        return Explicit(rows, placement=self.placement, microbatches=self.microbatches)

    def read(self, text: str) -> Explicit:
        """The order of a text, as the board gives it; ValueError if it is of another board."""
        rows, held = row_texts(text)
        found = Explicit(rows, placement=held)
        if (theirs := _sizes(found)) != (ours := _sizes(self.work)):
            raise ValueError(f"{self.name} has {ours}; and this order {theirs}")
        if held and [sorted(stages) for stages in held] != [sorted(stages) for stages in self.placement]:
            raise ValueError(f"{self.name} has stages {self.placement} on its devices, not {tuple(held)}")
        others = (each for row in found.rows for each in row if getattr(each, "kind", "R") not in self.kinds)
        if other := next(others, None):
            raise ValueError(f"{self.name} is played with {', '.join(self.kinds)} alone, not with {other}")
        return self.schedule(found.rows)

    def timed(self, order: Schedule) -> Timeline:
        """Its times; ScheduleError if it cannot finish, or if a device holds more than its room."""
        timeline = simulate(order, self.costs)
        if first := self.one_more(timeline):
            raise ScheduleError(
                f"device {first.device} has room for {self.limits[first.device]} stage-activations, and "
                f"{first.action} at {number(first.start)} is one more"
            )
        return timeline

    def one_more(self, timeline: Timeline) -> Span | None:
        """The first action with which a device holds more than its room."""
        over = []
        for row, room in zip(timeline.rows, self.limits, strict=True):
            held = accumulate(in_flight(span.action.parts[0].kind) for span in row)
            over += [span for span, count in zip(row, held, strict=True) if count > room][:1]
        return min(over, key=lambda span: span.start, default=None)

    def record(self) -> dict[str, Any]:
        """The puzzle as plain lists, texts and numbers, as it stands in puzzles.json."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


@cache
def puzzles() -> dict[str, Puzzle]:
    """All puzzles by name, from the easiest to the hardest."""
    text = (files(__package__) / "puzzles.json").read_text(encoding="utf-8")
    return {record["name"]: from_record(record) for record in json.loads(text)}


def from_record(record: dict[str, Any]) -> Puzzle:
    """The puzzle of a record."""
    room = record["room"]
    return Puzzle(
        **record
        | {
            "placement": tuple(map(tuple, record["placement"])),
            "costs": Costs(**record["costs"]),
            "room": None if room is None else tuple(room),
            "rows": tuple(record["rows"]),
            "bound": Bound(**record["bound"]),
        }
    )


def _sizes(order: Schedule) -> str:
    return f"devices: {order.devices}, stages: {order.stages}, microbatches: {order.microbatches}"


def _plain(value: Any) -> Any:
    if isinstance(value, Costs | Bound):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value
