"""The geometry of a chart: where each box is, its colour, and the number in it.

Time runs to the right and device 0 is on top. Every device has a lane, from 0 to the makespan, on which its
boxes stand: what shows of the lane is waiting. ``svg`` and ``plots`` both draw these lanes and boxes, so a
chart shows the same numbers whichever of them draws it.
"""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import accumulate, count, takewhile
from numbers import Real
from typing import NamedTuple

from gpipe_sim.drawing.palette import INK, KINDS, LANE, LATER, Look, in_legend, tint
from gpipe_sim.schedule.actions import Action, Kind, OverlapFB
from gpipe_sim.schedule.base import Schedule
from gpipe_sim.simulation.metrics import bubble_fraction, phases
from gpipe_sim.simulation.timeline import Span, Timeline, number

WAITING = "waiting"  #: what the legend calls the lane
LONG = 12  #: a wait is long, and says how long, from this part of the makespan on
PHASES = "last F"  #: how the legend's entry for the dashed lines between phases ends
ROW_FILL = 0.86  #: how much of a row's height a box takes


class Box(NamedTuple):
    """A rectangle for one part of a span: x and width in time, y and height in rows, row 0 on top."""

    x: Real
    y: float
    width: Real
    height: float
    kind: Kind
    fill: str
    label: str
    span: Span

    @property
    def title(self) -> str:
        """The text that appears when the mouse is over the box."""
        return f"{self.span.action} {number(self.span.start)}\u2013{number(self.span.end)}"


def boxes(timeline: Timeline) -> Iterator[Box]:
    """A box for each span; two, one above the other, for an overlapped pair."""
    shades = stage_shades(timeline.schedule)
    inset = (1 - ROW_FILL) / 2
    for span in timeline.spans:
        parts = span.action.parts
        height = ROW_FILL / len(parts)
        for i, part in enumerate(parts):
            yield Box(
                span.start,
                span.device + inset + i * height,
                span.end - span.start,
                height,
                part.kind,
                tint(KINDS[part.kind].colour, shades[span.device][part.stage]),
                str(part.microbatch),
                span,
            )


class Wait(NamedTuple):
    """What shows of a device's lane: from when to when it does nothing, and what is written there."""

    device: int
    start: Real
    end: Real
    label: str


def long_waits(timeline: Timeline) -> Iterator[Wait]:
    """The waits of a twelfth of the makespan or more, with how long they are."""
    long = timeline.makespan / LONG
    for device, row in enumerate(timeline.rows):
        ends = [0, *accumulate((span.end for span in row), max)]
        starts = [*(span.start for span in row), timeline.makespan]
        for place, (start, end) in enumerate(zip(ends, starts, strict=True)):
            if end - start >= long and end > start:
                done = "done, " if place == len(row) > 0 else ""
                yield Wait(device, start, end, f"{done}waits {number(end - start)}")


def phase_lines(timeline: Timeline) -> Iterator[tuple[Real, int]]:
    """(time, device) of each boundary between warm-up, steady state and drain.

    There are none if no device runs two forwards before its first backward, as in a naive order.
    """
    if not any(_warms_up(row) for row in timeline.rows):
        return
    for device, row in enumerate(timeline.rows):
        kinds = {part.kind for span in row for part in span.action.parts}
        if Kind.F in kinds and kinds & {Kind.B, Kind.I}:
            yield from ((time, device) for time in sorted(set(phases(timeline, device))))


def _warms_up(row: Sequence[Span]) -> bool:
    """Whether the device runs at least two forwards before its first backward."""
    kinds = [part.kind for span in row for part in span.action.parts]
    before = list(takewhile(lambda kind: kind not in (Kind.B, Kind.I), kinds))
    return before.count(Kind.F) >= 2


def stage_shades(schedule: Schedule) -> list[dict[int, float]]:
    """Per device, how pale each of its stages is drawn: 0 for the first one, more for later ones."""
    return [
        {stage: LATER * i / len(held) for i, stage in enumerate(sorted(held))} for held in schedule.placement
    ]


def kinds_drawn(*timelines: Timeline) -> list[Kind]:
    """The kinds that occur, in the order of the palette."""
    found = {kind for timeline in timelines for kind in timeline.schedule.program.where}
    return [kind for kind in KINDS if kind in found]


def legend(*timelines: Timeline, coarse: bool = False) -> list[tuple[Kind | None, str, str]]:
    """(kind, colour, words) of each entry: the kinds, then paler boxes and dashed lines if there are any.

    A ``coarse`` chart has neither.
    """
    kinds = kinds_drawn(*timelines)
    alike: dict[Look, list[Kind]] = {}
    for kind in kinds:  # B and I look the same, and so share an entry
        alike.setdefault(KINDS[kind], []).append(kind)
    entries = [(same[0], look.colour, ", ".join(map(in_legend, same))) for look, same in alike.items()]
    entries.append((None, LANE, WAITING))
    if coarse:
        return entries
    if any(len(held) > 1 for timeline in timelines for held in timeline.schedule.placement):
        entries.append((kinds[0], tint(KINDS[kinds[0]].colour, LATER / 2), "paler: a later stage"))
    if any(next(phase_lines(timeline), None) for timeline in timelines):
        backwards = " or ".join(kind for kind in (Kind.B, Kind.I) if kind in kinds)
        entries.append((None, INK, f"first {backwards}, {PHASES}"))
    return entries


def caption(timeline: Timeline) -> str:
    """The title of a chart: the schedule, and the makespan and bubble fraction of the timeline."""
    bubble = float(bubble_fraction(timeline))
    return f"{described(timeline.schedule)}: makespan {number(timeline.makespan)}, bubble {bubble:.1%}"


def described(schedule: Schedule) -> str:
    """A schedule in words: its family, and how many of what."""
    devices = "1 device" if schedule.devices == 1 else f"{schedule.devices} devices"
    microbatches = "1 microbatch" if schedule.microbatches == 1 else f"{schedule.microbatches} microbatches"
    most = max(map(len, schedule.placement))
    each = f" with {most} stages each" if most > 1 else ""
    return f"{schedule.name}, {devices}{each}, {microbatches}"


def has_pairs(timeline: Timeline) -> bool:
    """Whether there is an overlapped pair; its two halves need a higher row."""
    return timeline.schedule.program.paired


def ticks(until: Real, at_most: int = 12) -> list[Real]:
    """Round times for an axis from 0: steps of 1, 2 or 5 times a power of ten.

    From a length of 5 on a step is 1 or more: halves say nothing about times that are whole.
    """
    if until <= 0:
        return [0]
    if until >= 5:
        at_most = min(at_most, int(until))
    steps = (factor * Fraction(10) ** power for power in count(-12) for factor in (1, 2, 5))
    step = next(step for step in steps if until <= at_most * step)
    return [float(i * step) for i in range(int(until / step + 1e-9) + 1)]


def numbered(boxes: Sequence[Box], fits: Callable[[Box], bool]) -> list[Box]:
    """The boxes that show their number: of each kind all that have room, or none.

    None, if the longest number of its kind does not fit into a box of median width: or they would stop
    half-way, where numbers get longer.
    """
    shown = []
    for kind in dict.fromkeys(box.kind for box in boxes):
        alike = [box for box in boxes if box.kind is kind]
        median = sorted(alike, key=lambda box: box.width)[len(alike) // 2]
        if fits(median._replace(label=max((box.label for box in alike), key=len))):
            shown += filter(fits, alike)
    return shown


def short(action: Action | OverlapFB, schedule: Schedule) -> str:
    """The action's spelling, without the stage if every device has only one."""
    if isinstance(action, Action) and not schedule.program.stacked:
        return f"{action.kind}{action.microbatch}"
    return "/".join(map(str, action.parts))
