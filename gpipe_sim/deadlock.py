"""The picture of a deadlock: who stands where in which queue, and who waits for whom.

There is no time in it, since time stopped: each device's row is drawn as a queue, first action on the left.
"""

from collections.abc import Iterator
from typing import NamedTuple

from gpipe_sim.actions import Action, OverlapFB
from gpipe_sim.chart import INK, PALETTE, ink, tint
from gpipe_sim.schedule import Schedule, needs
from gpipe_sim.svg import Svg
from gpipe_sim.validate import blocked, check_actions

WIDTH, HEIGHT, STEP = 52, 28, 64  #: a box, and from one box to the next, in pixels
LEFT, TOP, ROW = 74, 34, 104  #: the first box, and from one row to the next
WAITS, BEHIND = "#D55E00", "#888888"
PALE = 0.72


class Wait(NamedTuple):
    """A device is stuck at the ``at``-th action of its row until ``need``, the ``place``-th
    action of device ``other``, is done."""

    action: Action | OverlapFB
    at: int
    need: Action
    other: int
    place: int


def waiting(schedule: Schedule) -> dict[int, Wait]:
    """What each device is stuck at, and what it waits for; nothing if the order can finish."""
    stuck = blocked(schedule)
    return {device: _wait(schedule, schedule.actions[device][at], stuck) for device, at in stuck.items()}


def circle(waits: dict[int, Wait]) -> list[Wait]:
    """The waits that go round in a circle, without those that only queue up behind it."""
    device = min(waits)
    for _ in waits:  # after so many steps we are on the circle
        device = waits[device].other
    devices = [device]
    while (device := waits[device].other) != devices[0]:
        devices.append(device)
    first = devices.index(min(devices))
    return [waits[device] for device in devices[first:] + devices[:first]]


def _wait(schedule: Schedule, action: Action | OverlapFB, stuck: dict[int, int]) -> Wait:
    for need in needs(action, schedule):
        other = schedule.device_of(need)
        row = schedule.actions[other]
        place = next(i for i, queued in enumerate(row) if need in queued.parts)
        if place >= stuck.get(other, len(row)):
            return Wait(action, stuck[schedule.device_of(action.parts[0])], need, other, place)
    raise ValueError(f"{action} waits for nothing")


def draw_deadlock(schedule: Schedule) -> Svg:
    """Each device's queue: what is done, where it is stuck, what it waits for and what stands in between.

    ScheduleError if actions are missing, repeated or misplaced; ValueError if the order can finish.
    """
    check_actions(schedule)
    waits = waiting(schedule)
    if not waits:
        raise ValueError(f"{schedule!r} can finish: nobody waits for ever")
    longest = max(map(len, schedule.actions))
    width = max(LEFT + longest * STEP + 10, 470)
    height = TOP + (schedule.devices - 1) * ROW + HEIGHT + 66
    body = "\n".join([*_queues(schedule, waits), *_arrows(waits), *_legend(height - 14)])
    text = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n{_heads()}\n{body}\n</svg>'
    )
    return Svg(text, f"{schedule!r}, deadlocked")


def _queues(schedule: Schedule, waits: dict[int, Wait]) -> Iterator[str]:
    for device, row in enumerate(schedule.actions):
        y = TOP + device * ROW
        yield _text(LEFT - 12, y + HEIGHT // 2 + 4, f"device {device}", INK, "end")
        done = waits[device].at if device in waits else len(row)
        for i, action in enumerate(row):
            fill = tint(PALETTE[action.parts[0].kind], 0 if i < done else PALE)
            edge = f' stroke="{INK}" stroke-width="2.5"' if i == done else ""
            x = LEFT + i * STEP
            yield f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="3" fill="{fill}"{edge}/>'
            label = "/".join(map(str, action.parts))
            yield _text(x + WIDTH // 2, y + HEIGHT // 2 + 4, label, ink(fill), "middle")


def _arrows(waits: dict[int, Wait]) -> Iterator[str]:
    """From each stuck action to what it needs, and from that along its queue to what is in its way."""
    for device, (_, at, _, other, place) in waits.items():
        if other == device:
            yield _arc(device, at, place, 1, WAITS)
        else:
            yield _across(device, at, other, place)
        if place > waits[other].at:
            outside = -1 if other <= device else 1  # the side of the queue that the long arrows leave free
            yield _arc(other, place, waits[other].at, outside, BEHIND)


def _across(device: int, at: int, other: int, place: int) -> str:
    down = other > device
    y0 = TOP + device * ROW + (HEIGHT + 3 if down else -3)
    y1 = TOP + other * ROW + (-3 if down else HEIGHT + 3)
    return _arrow(f"M{_middle(at)} {y0}L{_middle(place)} {y1}", WAITS)


def _arc(device: int, a: int, b: int, side: int, colour: str) -> str:
    """Over a row (side -1) or under it (1), from its a-th box to its b-th."""
    y = TOP + device * ROW + (HEIGHT + 3 if side > 0 else -3)
    bulge = y + side * 32
    return _arrow(f"M{_middle(a)} {y}C{_middle(a)} {bulge} {_middle(b)} {bulge} {_middle(b)} {y}", colour)


def _arrow(path: str, colour: str) -> str:
    dashes = ' stroke-dasharray="5 3"' if colour == BEHIND else ""
    head = "waits" if colour == WAITS else "behind"
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes} '
        f'marker-end="url(#deadlock-{head})"/>'
    )


def _heads() -> str:
    return "".join(
        f'<marker id="deadlock-{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="5" markerHeight="5" '
        f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{colour}"/></marker>'
        for name, colour in (("waits", WAITS), ("behind", BEHIND))
    )


def _legend(y: int) -> Iterator[str]:
    swatch = f'y="{y - 11}" width="14" height="14" rx="2"'
    yield f'<rect x="{LEFT}" {swatch} fill="{PALETTE["F"]}"/>'
    yield f'<rect x="{LEFT + 66}" {swatch} fill="#fff" stroke="{INK}" stroke-width="2.5"/>'
    yield _arrow(f"M{LEFT + 136} {y - 4}h28", WAITS)
    yield _arrow(f"M{LEFT + 226} {y - 4}h28", BEHIND)
    for x, words in ((20, "done"), (87, "stuck"), (172, "needs"), (262, "stands behind")):
        yield _text(LEFT + x, y, words, INK, "start")


def _middle(i: int) -> int:
    return LEFT + i * STEP + WIDTH // 2


def _text(x: int, y: int, words: str, colour: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}">{words}</text>'
