"""The geometry of a timeline: where each box is, how pale, and the number in it; the waits; the phases.

Time runs to the right and device 0 is on top. Every device has a lane, from 0 to the makespan, on which its
boxes stand: what shows of the lane is waiting.
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain, count, pairwise, takewhile
from typing import NamedTuple

import numpy as np

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.core.program import CODE
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.timeline import Span, Timeline, number
from gpipe_sim.drawing.marks import Corner, Entry, Label
from gpipe_sim.drawing.palette import KINDS, LATER, tint
from gpipe_sim.errors import Real
from gpipe_sim.links.collective import collectives_of
from gpipe_sim.why.metrics import phases, waits

Array = np.ndarray
Levels = Sequence[float] | Array
Versions = Mapping[Action, int]  #: of its weights, that each action uses; an update, that it makes
RANK = {kind: i for i, kind in enumerate(KINDS)}  #: where a kind of action stands in the legend
LONG = 12  #: a wait is long, and says how long, from this part of the makespan on
LANE_HIGH = 0.86  #: how much of a row's height a lane takes


class Rows(NamedTuple):
    """Where lanes are, in rows: each device has a block ``pitch`` high, its lane ``top`` below the edge.

    Right below the lane there is so much room for the device's ``collectives``.
    """

    pitch: float = 1.0
    top: float = (1 - LANE_HIGH) / 2
    height: float = LANE_HIGH
    collectives: float = 0

    def y(self, device: int, part: float = 0.0) -> float:
        """How far down a part of a device's lane is: 0 is the lane's upper edge, 1 its lower one."""
        return device * self.pitch + self.top + part * self.height


class Box(NamedTuple):
    """A rectangle for one part of a span: x and width in time, y and height in rows; ``shade``: how pale.

    ``note`` is what its title says besides the times.
    """

    x: Real
    y: float
    width: Real
    height: float
    kind: Kind
    shade: float
    label: str
    span: Span
    note: str = ""

    @property
    def fill(self) -> str:
        return tint(KINDS[self.kind].colour, self.shade)

    @property
    def outline(self) -> list[Corner]:
        return rectangle(self.x, self.y, self.x + self.width, self.y + self.height)

    @property
    def band(self) -> list[Corner]:
        """Where the pattern of its kind is: below the number."""
        bottom = self.y + self.height
        high = KINDS[self.kind].band * self.height
        return rectangle(self.x, bottom - high, self.x + self.width, bottom)

    @property
    def title(self) -> str:
        """The text that appears when the mouse is over the box."""
        return f"{self.span.action} {number(self.span.start)}\u2013{number(self.span.end)}{self.note}"


def rectangle(left: Real, top: float, right: Real, bottom: float) -> list[Corner]:
    left, right = float(left), float(right)
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def between(edges: Sequence[Real] | Array, above: Levels, below: Levels) -> Array:
    """(corners, 2): the outline between two lines of steps, each with a level from every edge to the next."""
    along = np.repeat(np.array(edges, float), 2)[1:-1]
    forth, back = (np.column_stack([along, np.repeat(levels, 2)]) for levels in (above, below))
    return np.concatenate([forth, back[::-1]])


def boxes(
    timeline: Timeline,
    rows: Rows = Rows(),  # noqa: B008 (a value that cannot change)
    versions: Versions | None = None,
) -> Iterator[Box]:
    """A box for each span; two, one above the other, for an overlapped pair.

    The number in it is the microbatch; with ``versions``, the version of the weights.
    """
    shades = stage_shades(timeline.schedule)
    for span in chain.from_iterable(timeline.rows):
        parts = span.action.parts
        for i, part in enumerate(parts):
            yield Box(
                span.start,
                rows.y(span.device, i / len(parts)),
                span.end - span.start,
                rows.height / len(parts),
                part.kind,
                shades[span.device][part.stage],
                str(versions[part] if versions else part.microbatch),
                span,
                f", {'makes ' * (part.kind is Kind.U)}version {versions[part]}" if versions else "",
            )


def long_waits(timeline: Timeline, rows: Rows, arrows: bool = False) -> Iterator[Label]:
    """The waits of a twelfth of the makespan or more, with how long; a device in a sum is not done.

    With ``arrows`` for messages, none that an arrow between two other devices would strike through.
    """
    for device, row in enumerate(timeline.rows):
        for place, (start, end) in enumerate(waits(timeline, device)):
            if arrows and _is_crossed(start, end, timeline, device):
                continue
            if (long := end - start) >= timeline.makespan / LONG and long > 0:
                done = "done, " if row and place == len(row) else ""
                sums = any(device in each.devices and each.end > start for each in collectives_of(timeline))
                words = "computes nothing" if sums and done else f"{done}waits {number(long)}"
                left, right = _widest(start, end, timeline, device)
                yield Label((left + right) / 2, rows.y(device, 0.5), words, right - left, rows.height)


def _is_crossed(start: Real, end: Real, timeline: Timeline, device: int) -> bool:
    """Whether a message passes this device on its way, during the wait."""
    return any(
        min(each.source, each.target) < device < max(each.source, each.target)
        for each in timeline.messages
        if each.start < end and start < each.end
    )


def _widest(start: Real, end: Real, timeline: Timeline, device: int) -> tuple[float, float]:
    """The widest part of a wait on a lane that no line from strip to strip of a collective crosses."""
    joins = (
        each.start for each in collectives_of(timeline) if min(each.devices) < device <= max(each.devices)
    )
    edges = [float(start), *sorted({float(at) for at in joins if start < at < end}), float(end)]
    return max(pairwise(edges), key=lambda part: part[1] - part[0])


def phase_lines(timeline: Timeline) -> Iterator[tuple[Real, int]]:
    """(time, device) of each boundary between warm-up, steady state and drain.

    There are none if no device runs two forwards before its first backward, as in a naive order.
    """
    rows = [[part.kind for span in row for part in span.action.parts] for row in timeline.rows]
    if not any(map(_warms_up, rows)):
        return
    for device, kinds in enumerate(rows):
        if Kind.F in kinds and (Kind.B in kinds or Kind.I in kinds):
            yield from ((time, device) for time in sorted(set(phases(timeline, device))))


def _warms_up(kinds: Sequence[Kind]) -> bool:
    """Whether a device that runs these runs at least two forwards before its first backward."""
    before = list(takewhile(lambda kind: kind not in (Kind.B, Kind.I), kinds))
    return before.count(Kind.F) >= 2


def stage_shades(schedule: Schedule) -> list[dict[int, float]]:
    """Per device, how pale each of its stages is drawn: 0 for the first one, more for later ones."""
    return [
        {stage: LATER * i / len(held) for i, stage in enumerate(sorted(held))} for held in schedule.placement
    ]


def kinds_drawn(timeline: Timeline) -> list[Kind]:
    """The kinds that occur, in the order of the palette; without updates if these take no time."""
    program = timeline.schedule.program
    updates = program.entry[program.kind == CODE[Kind.U]]
    unseen = {Kind.U} if not (timeline.end[updates] > timeline.start[updates]).any() else set()
    return [kind for kind in KINDS if kind in program.where and kind not in unseen]


def entry_of(kind: Kind) -> Entry:
    """What the legend says of a kind of action: its letter and its meaning."""
    return Entry(RANK[kind], f"{kind}  {kind.meaning}", KINDS[kind])


def ticks(until: Real, at_most: int = 12) -> list[float]:
    """Round times for an axis from 0: steps of 1, 2 or 5 times a power of ten.

    From a length of 5 on a step is 1 or more: halves say nothing about times that are whole.
    """
    if until <= 0:
        return [0]
    if until >= 5:
        at_most = min(at_most, int(until))
    first = 0 if until >= 5 else -12
    steps = (factor * Fraction(10) ** power for power in count(first) for factor in (1, 2, 5))
    step = next(step for step in steps if until <= at_most * step)
    return [float(i * step) for i in range(int(until / step + 1e-9) + 1)]
