"""Lay a timeline out: all shapes, lines and labels of its chart, in units of time and rows.

Nothing here knows pixels, SVG or matplotlib: a painter says how large a unit, a row and a letter will be.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.timeline import Timeline, number
from gpipe_sim.drawing.coarse import Grain, areas
from gpipe_sim.drawing.geometry import RANK, Box, Rows, boxes, entry_of, long_waits, phase_lines, rectangle
from gpipe_sim.drawing.marks import (
    DIGIT,
    Corner,
    Entry,
    Label,
    Labels,
    Lines,
    Mark,
    Name,
    Panel,
    Scale,
    Shape,
    Style,
)
from gpipe_sim.drawing.memory_strips import strip_marks
from gpipe_sim.drawing.options import Picked, Wanted
from gpipe_sim.drawing.palette import (
    COLLECTIVE,
    DOTS,
    FADED,
    FAINT,
    INK,
    KINDS,
    LANE,
    LATER,
    LINES,
    Look,
    grey,
    ink,
    tint,
)
from gpipe_sim.links.collective import collectives_of, names_of

FINE = 0.36  #: in sizes of the font: edges are drawn if three quarters of the boxes are at least this wide
PAIRED = 1.4  #: with overlapped pairs rows are so much higher, and a number fits into half a row
COLLECTIVE_HIGH, GAP = 0.7, 0.04  #: rows of a collective's strip and of the gap above it, and of the gap
TOGETHER = "", LINES, DOTS  #: patterns of collectives, in the order of their names
WAITING = Entry(10, "waiting", Look(LANE))
LATER_STAGE = "paler: a later stage"
PHASES = Entry(12, "warm-up ends, drain begins", Style.PHASE)
JOINED = Entry(14, "they do it together", Style.JOINED)
ARROW = Entry(30, "message", Style.MESSAGE)
QUEUED = Entry(30, "message that waits for its link", Style.QUEUE)
NUMBER = Entry(40, "number: the microbatch")
VERSION = Entry(40, "number: the version of the weights")
PAIR = Entry(42, "two half-height boxes: F&B, one block")
MADE = Entry(41, "in U: the one that it makes")
Key = TypeVar("Key")


def panel(timeline: Timeline, grain: Grain, scale: Scale, wanted: Wanted, rows: Rows | None = None) -> Panel:
    """Lanes, what the devices do, and what is wanted besides."""
    rows = rows or rows_of(timeline, wanted)
    marks: list[Mark] = [lanes(timeline, rows)]
    if rows.collectives and (joins := _joins(timeline, rows)).paths:
        marks.append(joins)
    marks += areas(timeline, grain, rows) if grain.column else _detail(timeline, scale, wanted, rows)
    if rows.collectives:
        marks += _collectives(timeline, rows)
    shapes, peaks = strip_marks(timeline, grain, rows, wanted.strips) if wanted.strips else ([], [])
    marks += shapes
    if wanted.messages:
        marks += (lines for lines in _messages(timeline, wanted.picked, rows) if lines.paths)
    names = device_names(timeline, rows, scale)
    pairs = [PAIR] if timeline.schedule.program.paired and not grain.column else []
    return Panel(marks, rows.pitch * timeline.schedule.devices, names, peaks, [*wanted.notes, *pairs])


def rows_of(timeline: Timeline, wanted: Wanted) -> Rows:
    """Lanes, with room below each for what is shown there."""
    rows = wanted.strips.rows if wanted.strips else Rows()
    high = COLLECTIVE_HIGH if timeline.collectives else 0
    return rows._replace(pitch=rows.pitch + high, collectives=high)


def stretch(*timelines: Timeline) -> float:
    """How much higher than usual the rows of these timelines are."""
    return PAIRED if any(timeline.schedule.program.paired for timeline in timelines) else 1


def device_names(timeline: Timeline, rows: Rows, scale: Scale) -> list[Name]:
    """The device's name beside each lane; one in four if letters are higher than rows."""
    shown = range(0, timeline.schedule.devices, 1 if rows.pitch * scale.row >= scale.font else 4)
    return [Name(rows.y(device, 0.5), f"device {device}") for device in shown]


def lanes(timeline: Timeline, rows: Rows) -> Shape:
    """From 0 to the makespan for every row: what shows of a lane is waiting."""
    every = range(timeline.schedule.devices)
    outlines = [rectangle(0, rows.y(row), timeline.makespan, rows.y(row, 1)) for row in every]
    return Shape(outlines, LANE, WAITING)


def _collectives(timeline: Timeline, rows: Rows) -> Iterator[Mark]:
    """What devices send each other together, such as an all-reduce: a strip below the lane of each."""
    high = rows.collectives - GAP
    for i, what in enumerate(names_of(timeline)):
        outlines, labels, says = [], [], []
        look = COLLECTIVE._replace(pattern=TOGETHER[i % len(TOGETHER)])
        for each in (each for each in collectives_of(timeline) if each.what == what):
            middle, wide = float(each.start + each.end) / 2, float(each.end - each.start)
            words = each.what if each.stage is None else f"stage {each.stage}"
            for device in each.devices:
                top = rows.y(device, 1) + GAP
                outlines.append(rectangle(each.start, top, each.end, top + high))
                labels.append(Label(middle, top + high / 2, words, wide, high))
                says.append(str(each))
        yield Shape(outlines, look.colour, Entry(13, what, look), edged=True, says=says)
        if look.pattern:
            yield Shape([_band(corners, look.band) for corners in outlines], "", pattern=look.pattern)
        yield Labels(labels, ink(look.colour))


def _joins(timeline: Timeline, rows: Rows) -> Lines:
    """From strip to strip of those who take part, where they begin; behind all boxes."""
    paths = []
    for each in collectives_of(timeline):
        tops = [rows.y(device, 1) + GAP for device in sorted(each.devices)]
        paths += [[(float(each.start), y) for y in ends] for ends in pairwise(tops)]
    return Lines(paths, Style.JOINED, JOINED)


def _band(corners: Sequence[Corner], part: float) -> list[Corner]:
    """The lower part of a rectangle."""
    (left, top), _, (right, bottom), _ = corners
    return rectangle(left, bottom - part * (bottom - top), right, bottom)


def _detail(timeline: Timeline, scale: Scale, wanted: Wanted, rows: Rows) -> Iterator[Mark]:
    """The boxes and what is written on them; phases, and the frames of what is picked."""
    every, picked = list(boxes(timeline, rows, wanted.versions)), wanted.picked
    fine = is_fine(every, scale)
    yield from box_marks(every, picked, fine)
    yield Labels(list(long_waits(timeline, rows, wanted.messages)), INK)
    yield from _numbers(every, picked, VERSION if wanted.versions else NUMBER, wanted.grey)
    if fine and (phases := _phases(timeline, rows)).paths:
        yield phases
    if picked and (framed := [box.outline for box in every if not _fades(box, picked)]):
        yield Lines(framed, Style.FRAME, Entry(31, picked.words, Style.FRAME))


def _fades(box: Box, picked: Picked | None) -> bool:
    """Whether something else is picked."""
    return picked is not None and picked.parts.isdisjoint(box.span.action.parts)


def is_fine(every: Sequence[Box], scale: Scale) -> bool:
    """Whether three quarters of the boxes (of those that take any time) are wide enough for edges."""
    widths = sorted(box.width for box in every if box.width > 0)
    return bool(widths) and float(widths[len(widths) // 4]) * scale.unit >= FINE * scale.font


def box_marks(every: Sequence[Box], picked: Picked | None, fine: bool) -> Iterator[Shape]:
    """A shape for the boxes of each colour; and one for each pattern, which is below the numbers."""
    alike = _grouped(every, lambda box: (RANK[box.kind], box.shade, _fades(box, picked)))
    first_pale = min((key for key in alike if key[1]), default=None)
    for key, group in sorted(alike.items()):
        box, faded = group[0], key[2]
        entry: Entry | None = entry_of(box.kind)
        if key == first_pale:
            entry = Entry(11, LATER_STAGE, Look(tint(KINDS[box.kind].colour, LATER / 2)))
        if box.kind is Kind.U and not any(each.width for each in group):
            entry = None  # nobody sees updates that take no time
        outlines, says = [each.outline for each in group], [each.title for each in group]
        yield Shape(outlines, box.fill, entry, edged=fine, opaque=FADED if faded else 1, says=says)
    bright = [box for box in every if KINDS[box.kind].pattern and not _fades(box, picked)]
    for pattern, group in _grouped(bright, lambda box: KINDS[box.kind].pattern).items():
        yield Shape([box.band for box in group], "", pattern=pattern)


def _grouped(every: Iterable[Box], key: Callable[[Box], Key]) -> dict[Key, list[Box]]:
    groups = defaultdict(list)
    for box in every:
        groups[key(box)].append(box)
    return groups


def _numbers(every: Sequence[Box], picked: Picked | None, entry: Entry, in_grey: bool) -> Iterator[Labels]:
    """The number in each box: of a kind and a colour all that have room, or none."""
    seen: Callable[[str], str] = grey if in_grey else str
    for kind, group in _grouped(every, lambda box: box.kind).items():
        says = MADE if entry is VERSION and kind is Kind.U else entry
        longest = max((box.label for box in group), key=len)
        median = sorted(float(box.width) for box in group)[len(group) // 2]
        by_ink = _grouped(group, lambda box: FAINT if _fades(box, picked) else ink(seen(box.fill)))
        for colour, alike in by_ink.items():
            yield Labels([_number(box) for box in alike], colour, DIGIT, (longest, median), says)


def _number(box: Box) -> Label:
    """A number stands above the pattern of its box."""
    look = KINDS[box.kind]
    clear = box.height * (1 - look.band / 2 if look.pattern else 1)
    return Label(float(box.x + box.width / 2), box.y + clear / 2, box.label, float(box.width), box.height)


def _phases(timeline: Timeline, rows: Rows) -> Lines:
    """A line across a device's lane wherever one of its phases ends, as far over both edges of the lane."""
    over = Rows().top + rows.height / 2
    ends = [(float(time), rows.y(device, 0.5)) for time, device in phase_lines(timeline)]
    return Lines([[(x, middle - over), (x, middle + over)] for x, middle in ends], Style.PHASE, PHASES)


def _messages(timeline: Timeline, picked: Picked | None, rows: Rows) -> Iterator[Lines]:
    """One arrow per message, between the sides of the two lanes that face each other: it hides few numbers.

    Where messages wait for a link, a line goes from the end of their actions to where they leave. Beside what
    is picked, only the messages that picked actions send, and those that are picked themselves.
    """
    waits, paths, says = defaultdict(list), [], []
    for message in timeline.messages:
        action, source, target, start, end = message
        if picked and action not in picked.parts and message not in picked.messages:
            continue
        leaves, enters = (0.79, 0.21) if target > source else (0.21, 0.79)
        said = f"{action} from device {source} to {target}, {number(start)}\u2013{number(end)}"
        if (made := timeline.ends[action]) < start:
            leaves = 0.9 if target > source else 0.1  # clear of how long a device waits
            waits[rows.y(source, leaves)].append((float(made), float(start)))
            said += f"; it waits for its link from {number(made)} on"
        paths.append([(float(start), rows.y(source, leaves)), (float(end), rows.y(target, enters))])
        says.append(said)
    queues = [[(a, y), (b, y)] for y, times in waits.items() for a, b in _joined(times)]
    yield Lines(queues, Style.QUEUE, QUEUED)
    yield Lines(paths, Style.MESSAGE, ARROW, says)


def _joined(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same times, each once: what overlaps is one interval."""
    joined: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1]:
            first, last = joined.pop()
            start, end = first, max(last, end)
        joined.append((start, end))
    return joined
