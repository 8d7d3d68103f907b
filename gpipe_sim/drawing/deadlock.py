"""The picture of a deadlock: where each device is stuck, and for which other device it waits.

It has no time axis, because nothing moves any more. Each device's row is a queue, first action on the left.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.deadlock import Wait, all_waits, cycle, waiting
from gpipe_sim.core.problems import QUEUES, SENDS, check_actions
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.drawing.document import HEADLINE, Svg, text, words_wide
from gpipe_sim.drawing.palette import FAINT, INK, KINDS, PAPER, ink
from gpipe_sim.drawing.words import size
from gpipe_sim.errors import DeadlockError, one_of

WIDTH, HEIGHT, STEP = 52, 28, 64  #: a box, and from one box to the next, in pixels
LETTER = 9  #: the room for a letter, where words need a wider box
LEFT, TOP, ROW = 74, 62, 104  #: the first box, and from one row to the next
WAITS, IN_THE_WAY = INK, FAINT  #: the arrows
MOST_DEVICES = 16  #: of more, only those of the shortest cycle are shown
MOST_NAMED = 4  #: devices of the cycle that the headline names
MOST_IN_QUEUE = 24  #: of a longer queue, only the part in which something is stuck or needed


class Stopped(NamedTuple):
    """Queues that have stopped; ``rows``, ``stuck`` and ``waits`` as in ``core.problems.Queues``."""

    says: str
    text: str
    rows: Sequence[Sequence[tuple[str, Kind]]]
    stuck: dict[int, int]
    waits: Sequence[Wait]


class Queue(NamedTuple):
    """A device's row, and the places of it that are shown, in boxes so wide."""

    device: int
    y: int
    size: int
    shown: range
    wide: int

    def x(self, place: int) -> int:
        """The middle of the box at this place."""
        return LEFT + (place - self.shown.start) * (self.wide + STEP - WIDTH) + self.wide // 2


def draw_deadlock(schedule: Schedule | Iterable, sends: str = "buffered") -> Svg:
    """Each device's queue: what it has run, where it is stuck, what it waits for, and what is in the way.

    >>> stuck = gp.Explicit(["0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"])
    >>> gp.drawing.draw_deadlock(stuck).save("stuck.svg")

    Like ``check`` it takes a schedule, or programs of sends and receives. The queues of programs have these
    too, and those of a schedule whose deadlock is that of ``sends="blocking"``. Of long queues, the part with
    what is stuck or needed is shown; of more than 16 devices, the shortest cycle. ScheduleError if actions or
    messages are missing, repeated or misplaced; ValueError if all can finish.
    """
    one_of("draw_deadlock", "sends", sends, SENDS)
    stopped = _order(schedule) if isinstance(schedule, Schedule) else None
    if stopped is None:
        stopped = _programs(schedule, sends)
    rows, stuck, waits = stopped.rows, stopped.stuck, stopped.waits
    few = len(rows) <= MOST_DEVICES
    if not few:
        waits = cycle(waits)[:MOST_DEVICES]
    devices = range(len(rows)) if few else sorted({wait.device for wait in waits})
    queues = {device: _queue(stopped, device, i, waits) for i, device in enumerate(devices)}
    right = max(queue.x(queue.shown.stop) - queue.wide // 2 for queue in queues.values())
    notes = []
    if any(len(queue.shown) < queue.size for queue in queues.values()):
        notes.append("of long queues, only the part with what is stuck or needed")
    if len(queues) < len(rows):
        notes.append(f"{len(queues)} of {len(rows):,} devices: the shortest cycle, or its beginning")
    width, legend = max(right + 10, 540), TOP + (len(queues) - 1) * ROW + HEIGHT + 52
    boxes = (part for queue in queues.values() for part in _boxes(stopped, queue))
    arrows = _arrows([wait for wait in waits if wait.other in queues], stuck, queues)
    below = (text(LEFT, legend + 20 * i, words, "start") for i, words in enumerate(notes, 1))
    headline = _headline(cycle(stopped.waits))
    width = max(width, round(LEFT + words_wide(headline, HEADLINE.size * HEADLINE.wide) + 10))
    head = text(LEFT, 24, headline, "start", HEADLINE.size, bold=True)
    parts = [head, _heads(), *boxes, *arrows, *_legend(legend), *below]
    sheet = width, legend + 14 + 20 * len(notes)
    return Svg(lambda hover: iter(parts), sheet, f"{stopped.says}: deadlocked", stopped.text)


def _headline(waits: Sequence[Wait]) -> str:
    if len(waits) > MOST_NAMED:
        return f"Deadlock: {len(waits):,} devices wait for each other in a circle"
    return "Deadlock: " + ", ".join(
        f"device {each.device} waits for {'itself' if each.other == each.device else each.other}"
        for each in waits
    )


def _order(schedule: Schedule) -> Stopped | None:
    """An order that is stuck, whatever its sends do; None if it can finish with buffered ones."""
    check_actions(schedule)
    program = schedule.program
    if not program.levels.stuck:
        return None
    rows = [
        [("/".join(map(str, each.parts)), each.parts[0].kind) for each in row] for row in schedule.actions
    ]
    stuck = {device: entry - int(program.rows[device]) for device, entry in program.levels.stuck.items()}
    waits = waiting(schedule) if len(rows) <= MOST_DEVICES else all_waits(schedule)
    return Stopped(f"{schedule.name}, {size(schedule)}", str(schedule), rows, stuck, waits)


def _programs(source: Schedule | Iterable, sends: str) -> Stopped:
    if isinstance(source, Schedule) and sends == "buffered":
        raise ValueError(f"{source!r} can finish: nobody waits for ever")
    found = QUEUES.filled("draw_deadlock", source, sends)
    if found.error is None:
        whose = repr(source) if isinstance(source, Schedule) else "the programs"
        raise ValueError(f"{whose} can finish with {sends} sends: nobody waits for ever")
    if not isinstance(found.error, DeadlockError):
        raise found.error
    says = f"{len(found.rows)} programs with {sends} sends"
    return Stopped(says, str(found), found.rows, found.stuck, found.waits)


def _queue(stopped: Stopped, device: int, row: int, waits: Sequence[Wait]) -> Queue:
    """Which places of a device's row are shown: all, or those from just before what is stuck or needed on."""
    words = [words for words, _ in stopped.rows[device]]
    shown, y = range(len(words)), TOP + row * ROW
    if len(words) > MOST_IN_QUEUE:
        near = [
            stopped.stuck.get(device, len(words) - 1),
            *(wait.place for wait in waits if wait.other == device),
        ]
        shown = shown[max(0, min(near) - 1) : max(near) + 2]
    longest = max((len(each) for each in words[shown.start : shown.stop]), default=0)
    return Queue(device, y, len(words), shown, max(WIDTH, LETTER * longest))


def _boxes(stopped: Stopped, queue: Queue) -> Iterator[str]:
    """The boxes of a queue, and its device's name."""
    y, middle = queue.y, queue.y + HEIGHT // 2 + 4
    yield text(LEFT - 12, middle, f"device {queue.device}", "end")
    done = stopped.stuck.get(queue.device, queue.size)
    for i in queue.shown:
        words, kind = stopped.rows[queue.device][i]
        colour = KINDS[kind].colour
        yield _box(queue.x(i) - queue.wide // 2, y, queue.wide, HEIGHT, *_look(colour, i - done))
        yield text(queue.x(i), middle, words, "middle", colour=ink(colour) if i < done else INK)


def _look(colour: str, after: int) -> tuple[str, str, float]:
    """(fill, edge, its width): filled if it ran before the device got stuck, else hollow; framed if stuck."""
    if after < 0:
        return colour, colour, 0
    return (PAPER, INK, 3) if after == 0 else (PAPER, colour, 1.5)


def _box(x: int, y: int, wide: int, high: int, fill: str, edge: str, width: float) -> str:
    stroke = f' stroke="{edge}" stroke-width="{width:g}"' if width else ""
    return f'<rect x="{x}" y="{y}" width="{wide}" height="{high}" rx="3" fill="{fill}"{stroke}/>'


def _arrows(waits: Sequence[Wait], stuck: dict[int, int], queues: dict[int, Queue]) -> Iterator[str]:
    """From each stuck action to what it needs; and from there, along its queue, to the action in its way."""
    for device, _, _, other, place in waits:
        here, there, down = queues[device], queues[other], other > device
        if other == device:
            yield _arc(here, stuck[device], place, 1, WAITS)
        else:  # between the sides of the two queues that face each other
            start, end = here.y + (HEIGHT + 3 if down else -3), there.y + (-3 if down else HEIGHT + 3)
            yield _arrow(f"M{here.x(stuck[device])} {start}L{there.x(place)} {end}", WAITS)
        if place > stuck[other]:
            outside = -1 if other <= device else 1  # the side of the queue to which no long arrow goes
            yield _arc(queues[other], place, stuck[other], outside, IN_THE_WAY)


def _arc(queue: Queue, a: int, b: int, side: int, colour: str) -> str:
    """An arrow over a row (side -1) or under it (side 1), from box a to box b."""
    y = queue.y + (HEIGHT + 3 if side > 0 else -3)
    bulge, a, b = y + side * 32, queue.x(a), queue.x(b)
    return _arrow(f"M{a} {y}C{a} {bulge} {b} {bulge} {b} {y}", colour)


def _arrow(path: str, colour: str) -> str:
    """Drawn through if it is what the action waits for, dashed if it only says what is in the way."""
    dashes = ' stroke-dasharray="5 3"' if colour == IN_THE_WAY else ""
    head = "waits" if colour == WAITS else "behind"
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes} '
        f'marker-end="url(#deadlock-{head})"/>'
    )


def _heads() -> str:
    return "".join(
        f'<marker id="deadlock-{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="5" markerHeight="5" '
        f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{colour}"/></marker>'
        for name, colour in (("waits", WAITS), ("behind", IN_THE_WAY))
    )


def _legend(y: int) -> Iterator[str]:
    done = KINDS[Kind.F].colour
    for x, after in ((0, -1), (66, 0), (136, 1)):
        yield _box(LEFT + x, y - 11, 14, 14, *_look(done, after))
    yield _arrow(f"M{LEFT + 212} {y - 4}h28", WAITS)
    yield _arrow(f"M{LEFT + 300} {y - 4}h28", IN_THE_WAY)
    for x, words in ((20, "done"), (87, "stuck"), (156, "not run"), (247, "needs"), (335, "stands behind")):
        yield text(LEFT + x, y, words, "start")
