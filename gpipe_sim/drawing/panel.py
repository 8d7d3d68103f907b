"""A timeline, laid out: which marks there are, decided once for every painter."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.timeline import Timeline, number
from gpipe_sim.drawing.coarse import Grain, areas
from gpipe_sim.drawing.geometry import (
    Box,
    Rows,
    boxes,
    long_waits,
    phase_lines,
    rectangle,
)
from gpipe_sim.drawing.marks import (
    DIGIT,
    FRAME,
    MESSAGE,
    PHASE,
    QUEUE,
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
)
from gpipe_sim.drawing.palette import (
    FADED,
    FAINT,
    INK,
    KINDS,
    LANE,
    LATER,
    Look,
    in_legend,
    ink,
    tint,
)
from gpipe_sim.drawing.strips import strip_marks
from gpipe_sim.drawing.together import TOGETHER_HIGH, together_marks
from gpipe_sim.drawing.wanted import Picked, Wanted

FINE = 0.36  #: in sizes of the font: edges are drawn if three quarters of the boxes are at least this wide
PAIRED = 1.4  #: with overlapped pairs rows are so much higher, and a number fits into half a row
WAITING = Entry(10, "waiting", Look(LANE))
LATER_STAGE = "paler: a later stage"
PHASES = Entry(12, "first backward, last forward", PHASE)
ARROW = Entry(30, "message", MESSAGE)
QUEUED = Entry(30, "message that waits for its link", QUEUE)
NUMBER = Entry(40, "number: the microbatch")
VERSION = Entry(40, "number: the version of the weights")
MADE = Entry(41, "in U: the one that it makes")


def panel(timeline: Timeline, grain: Grain, scale: Scale, wanted: Wanted, rows: Rows | None = None) -> Panel:
    """Lanes, what the devices do, and what is wanted besides."""
    rows = rows or rows_of(timeline, wanted)
    marks = [lanes(timeline, grain, rows)]
    marks += _areas(timeline, grain, rows) if grain.column else _detail(timeline, scale, wanted, rows)
    marks += together_marks(timeline, grain, rows)
    peaks: list[Name] = []
    if wanted.strips:
        found, peaks = strip_marks(timeline, grain, rows, wanted.strips)
        marks += found
    if wanted.messages:
        marks += (lines for lines in _messages(timeline, wanted.picked, rows) if lines.paths)
    names = device_names(timeline, grain, rows, scale)
    return Panel(marks, rows.pitch * grain.rows(timeline), names, peaks)


def rows_of(timeline: Timeline, wanted: Wanted) -> Rows:
    """Lanes, with room below each for what is shown there."""
    rows = wanted.strips.rows if wanted.strips else Rows()
    high = TOGETHER_HIGH if timeline.collectives else 0
    return rows._replace(pitch=rows.pitch + high, collectives=high)


def stretch(*timelines: Timeline) -> float:
    """How much higher than usual the rows of these timelines are."""
    return PAIRED if any(timeline.schedule.program.paired for timeline in timelines) else 1


def device_names(timeline: Timeline, grain: Grain, rows: Rows, scale: Scale) -> list[Name]:
    """The device's name beside each lane; one in four if letters are higher than rows.

    Of a row that sums several devices, it is the name of the first.
    """
    every = 1 if rows.pitch * scale.row >= scale.font else 4
    return [
        Name(rows.y(row, 0.5), f"device {row * grain.devices}")
        for row in range(0, grain.rows(timeline), every)
    ]


def lanes(timeline: Timeline, grain: Grain, rows: Rows) -> Shape:
    return Shape(
        [rectangle(0, rows.y(row), timeline.makespan, rows.y(row, 1)) for row in range(grain.rows(timeline))],
        LANE,
        WAITING,
    )


def _areas(timeline: Timeline, grain: Grain, rows: Rows) -> Iterator[Shape]:
    """One shape per kind of action, and one for its pattern."""
    for kind, outlines in areas(timeline, grain, rows):
        look = KINDS[kind]
        yield Shape(outlines, look.colour, entry_of(kind))
        if look.pattern:
            yield Shape(outlines, "", pattern=look.pattern)


def entry_of(kind) -> Entry:
    return Entry(list(KINDS).index(kind), in_legend(kind), KINDS[kind])


def _detail(timeline: Timeline, scale: Scale, wanted: Wanted, rows: Rows) -> Iterator[Mark]:
    """The boxes and what is written on them; phases, and the frames of what is picked."""
    every, picked = list(boxes(timeline, rows, wanted.versions)), wanted.picked
    fine = is_fine(every, scale)
    yield from box_marks(every, picked, fine)
    yield from _waits(timeline, rows)
    yield from _numbers(every, picked, VERSION if wanted.versions else NUMBER)
    if fine and (phases := _phases(timeline, rows)).paths:
        yield phases
    if picked:
        framed = [box.outline for box in every if not fades(box, picked)]
        if framed:
            yield Lines(framed, FRAME, Entry(31, picked.words, FRAME))


def fades(box: Box, picked: Picked | None) -> bool:
    """Whether something else is picked."""
    return picked is not None and not picked.has(box.span)


def is_fine(every: Sequence[Box], scale: Scale) -> bool:
    """Whether three quarters of the boxes (of those that take any time) are wide enough for edges."""
    widths = sorted(box.width for box in every if box.width > 0)
    return bool(widths) and float(widths[len(widths) // 4]) * scale.unit >= FINE * scale.font


def _fill(box: Box) -> str:
    return tint(KINDS[box.kind].colour, box.shade)


def box_marks(every: Sequence[Box], picked: Picked | None, fine: bool) -> Iterator[Shape]:
    """A shape for the boxes of each colour; and one for each pattern, which is below the numbers."""
    alike, patterned = defaultdict(list), defaultdict(list)
    order = list(KINDS)
    for box in every:
        faded = fades(box, picked)
        alike[order.index(box.kind), box.shade, faded].append(box)
        if KINDS[box.kind].pattern and not faded:
            patterned[KINDS[box.kind].pattern].append(box)
    first = True
    for (code, shade, faded), group in sorted(alike.items(), key=lambda item: item[0]):
        kind = order[code]
        outlines, says = [box.outline for box in group], [box.title for box in group]
        entry = entry_of(kind)
        if shade and first:
            pale = tint(KINDS[kind].colour, LATER / 2)
            entry, first = Entry(11, LATER_STAGE, Look(pale)), False
        if kind is Kind.U and not any(box.width for box in group):
            entry = None  # nobody sees updates that take no time
        yield Shape(outlines, _fill(group[0]), entry, edged=fine, opaque=FADED if faded else 1, says=says)
    for pattern, group in patterned.items():
        yield Shape([_band(box) for box in group], "", pattern=pattern)


def _band(box: Box) -> list[Corner]:
    bottom = box.y + box.height
    return rectangle(box.x, bottom - KINDS[box.kind].band * box.height, box.x + box.width, bottom)


def _waits(timeline: Timeline, rows: Rows) -> Iterator[Labels]:
    """How long the long waits are."""
    labels = [
        Label(
            float(wait.start + wait.end) / 2,
            rows.y(wait.device, 0.5),
            wait.label,
            float(wait.end - wait.start),
            rows.height,
        )
        for wait in long_waits(timeline)
    ]
    yield Labels(labels, INK)


def _numbers(every: Sequence[Box], picked: Picked | None, entry: Entry) -> Iterator[Labels]:
    """The number in each box: of a kind and a colour all that have room, or none."""
    alike = defaultdict(list)
    for box in every:
        alike[box.kind].append(box)
    for kind, group in alike.items():
        says = MADE if entry is VERSION and kind is Kind.U else entry
        by_ink = defaultdict(list)
        for box in group:
            colour = FAINT if fades(box, picked) else ink(_fill(box))
            by_ink[colour].append(_label(box))
        longest = max((box.label for box in group), key=len)
        median = sorted(float(box.width) for box in group)[len(group) // 2]
        for colour, labels in by_ink.items():
            yield Labels(labels, colour, DIGIT, (longest, median), says)


def _label(box: Box) -> Label:
    """A number stands above the pattern of its box."""
    look = KINDS[box.kind]
    clear = box.height * (1 - look.band / 2 if look.pattern else 1)
    return Label(float(box.x + box.width / 2), box.y + clear / 2, box.label, float(box.width), box.height)


def _phases(timeline: Timeline, rows: Rows) -> Lines:
    """A line across a device's lane wherever one of its phases ends, as far over both edges of the lane."""
    over = (rows.top + rows.height / 2) if rows.pitch > 1 else rows.pitch / 2
    paths = []
    for time, device in phase_lines(timeline):
        middle = rows.y(device, 0.5)
        paths.append([(float(time), middle - over), (float(time), middle + over)])
    return Lines(paths, PHASE, PHASES)


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
    yield Lines(queues, QUEUE, QUEUED)
    yield Lines(paths, MESSAGE, ARROW, says)


def _joined(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same times, each once: what overlaps is one interval."""
    joined: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1]:
            first, last = joined.pop()
            start, end = first, max(last, end)
        joined.append((start, end))
    return joined
