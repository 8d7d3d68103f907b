"""The picture of a deadlock: where each device is stuck, and for which other device it waits.

It has no time axis, because nothing moves any more. Each device's row is a queue, first action on the left.
"""

from collections.abc import Iterator, Sequence

from gpipe_sim.drawing.page import Svg, document
from gpipe_sim.drawing.palette import IN_THE_WAY, INK, KINDS, NOT_RUN, PAPER, WAITS, ink, tint
from gpipe_sim.schedule.actions import Kind
from gpipe_sim.schedule.base import Schedule
from gpipe_sim.simulation.deadlock import Wait, blocked, waiting
from gpipe_sim.simulation.problems import check_actions

WIDTH, HEIGHT, STEP = 52, 28, 64  #: a box, and from one box to the next, in pixels
LEFT, TOP, ROW = 74, 34, 104  #: the first box, and from one row to the next


def draw_deadlock(schedule: Schedule) -> Svg:
    """Each device's queue: what it has run, where it is stuck, what it waits for, and what is in the way.

    ScheduleError if actions are missing, repeated or misplaced; ValueError if the order can finish.
    """
    check_actions(schedule)
    stuck = blocked(schedule)
    if not stuck:
        raise ValueError(f"{schedule!r} can finish: nobody waits for ever")
    longest = max(map(len, schedule.actions))
    width = max(LEFT + longest * STEP + 10, 540)
    height = TOP + (schedule.devices - 1) * ROW + HEIGHT + 66
    queues, arrows = _queues(schedule, stuck), _arrows(waiting(schedule), stuck)
    parts = [_heads(), *queues, *arrows, *_legend(height - 14)]
    return document(parts, width, height, f"{schedule!r}, deadlocked", size=12)


def _queues(schedule: Schedule, stuck: dict[int, int]) -> Iterator[str]:
    for device, row in enumerate(schedule.actions):
        y = TOP + device * ROW
        yield _text(LEFT - 12, y + HEIGHT // 2 + 4, f"device {device}", INK, "end")
        done = stuck.get(device, len(row))
        for i, action in enumerate(row):
            fill = tint(KINDS[action.parts[0].kind].colour, 0 if i < done else NOT_RUN)
            edge = f' stroke="{INK}" stroke-width="2.5"' if i == done else ""
            x = LEFT + i * STEP
            yield f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="3" fill="{fill}"{edge}/>'
            label = "/".join(map(str, action.parts))
            yield _text(x + WIDTH // 2, y + HEIGHT // 2 + 4, label, ink(fill), "middle")


def _arrows(waits: Sequence[Wait], stuck: dict[int, int]) -> Iterator[str]:
    """From each stuck action to what it needs; and from there, along its queue, to the action in its way."""
    for device, _, _, other, place in waits:
        if other == device:
            yield _arc(device, stuck[device], place, 1, WAITS)
        else:
            yield _across(device, stuck[device], other, place)
        if place > stuck[other]:
            outside = -1 if other <= device else 1  # the side of the queue to which no long arrow goes
            yield _arc(other, place, stuck[other], outside, IN_THE_WAY)


def _across(device: int, at: int, other: int, place: int) -> str:
    down = other > device
    y0 = TOP + device * ROW + (HEIGHT + 3 if down else -3)
    y1 = TOP + other * ROW + (-3 if down else HEIGHT + 3)
    return _arrow(f"M{_middle(at)} {y0}L{_middle(place)} {y1}", WAITS)


def _arc(device: int, a: int, b: int, side: int, colour: str) -> str:
    """An arrow over a row (side -1) or under it (side 1), from box a to box b."""
    y = TOP + device * ROW + (HEIGHT + 3 if side > 0 else -3)
    bulge = y + side * 32
    return _arrow(f"M{_middle(a)} {y}C{_middle(a)} {bulge} {_middle(b)} {bulge} {_middle(b)} {y}", colour)


def _arrow(path: str, colour: str) -> str:
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
    done, swatch = KINDS[Kind.F].colour, f'y="{y - 11}" width="14" height="14" rx="2"'
    yield f'<rect x="{LEFT}" {swatch} fill="{done}"/>'
    yield f'<rect x="{LEFT + 66}" {swatch} fill="{PAPER}" stroke="{INK}" stroke-width="2.5"/>'
    yield f'<rect x="{LEFT + 136}" {swatch} fill="{tint(done, NOT_RUN)}"/>'
    yield _arrow(f"M{LEFT + 212} {y - 4}h28", WAITS)
    yield _arrow(f"M{LEFT + 300} {y - 4}h28", IN_THE_WAY)
    for x, words in ((20, "done"), (87, "stuck"), (156, "not run"), (247, "needs"), (335, "stands behind")):
        yield _text(LEFT + x, y, words, INK, "start")


def _middle(i: int) -> int:
    return LEFT + i * STEP + WIDTH // 2


def _text(x: int, y: int, words: str, colour: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}">{words}</text>'
