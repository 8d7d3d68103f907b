"""What a chart says: its title is a claim in numbers, its caption says what was run."""

from collections.abc import Sequence
from html import escape

import numpy as np

from gpipe_sim.core.bubbles import bubble_fraction, useful_time
from gpipe_sim.core.program import KINDS as CODES
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.timeline import Timeline, number
from gpipe_sim.drawing.palette import KINDS
from gpipe_sim.errors import Real
from gpipe_sim.streams.updates import updates_of

OVERHEAD = 1.25  #: work is equal up to this factor
SAME = 1e-9  #: times differ by rounding up to this part of them


def title(timeline: Timeline) -> str:
    """The claim: how long the step is, and how much of the devices' time is waiting."""
    waiting = f"{float(bubble_fraction(timeline)):.1%} waiting"
    return f"{timeline.schedule.name}: {number(timeline.makespan)} long, {waiting}"


def caption(timeline: Timeline, weights: str = "", beside: str = "", messages: bool = False) -> str:
    """What was run: how many of what, and how long an action of each kind takes.

    With the hop that is slower than others, if the chart shows ``messages``; the mode in which it uses its
    weights, if it shows their versions; and what has to be said because of what it stands ``beside``.
    """
    mode = f"weights: {weights}" if weights else ""
    slow = slow_hop(timeline) if messages else ""
    return "; ".join(filter(None, (size(timeline.schedule), durations(timeline), slow, mode, beside)))


def slow_hop(timeline: Timeline) -> str:
    """Between which two devices messages take longest, if they take less time between others."""
    longest: dict[tuple[int, ...], Real] = {}
    for message in timeline.messages:
        hop = tuple(sorted((message.source, message.target)))
        longest[hop] = max(longest.get(hop, 0), message.end - message.start)
    if not longest or max(longest.values()) - min(longest.values()) <= SAME * max(longest.values()):
        return ""
    (one, other), slowest = max(longest.items(), key=lambda each: each[1])
    return f"the slowest hop, {one} to {other}: {number(slowest)}"


def unequal_work(timelines: Sequence[Timeline]) -> list[str]:
    """For each, what to say if one of fewer stages beside it, of the same size otherwise, has other work.

    That is so wherever stages cost as much although there are more of them. A little more is the overhead of
    more actions.
    """
    said, stages = [], [each.schedule.stages for each in timelines]
    for each, most in zip(timelines, stages, strict=True):
        of = each.schedule
        beside = [
            (count, other)
            for count, other in zip(stages, timelines, strict=True)
            if count < most
            and (other.schedule.devices, other.schedule.microbatches) == (of.devices, of.microbatches)
        ]
        _, least = min(beside, key=lambda pair: pair[0], default=(most, each))
        work, other = float(useful_time(each)), float(useful_time(least))
        alike = work <= OVERHEAD * other and other <= OVERHEAD * work
        words = (
            "" if alike or not other else f"{number(work / other)} times the work of {least.schedule.name}"
        )
        said.append("" if alike or not words else f"{words}: see gp.compare")
    return said


def size(schedule: Schedule) -> str:
    """How many devices, stages on each, and microbatches; and how often weights are updated on the way."""
    devices = "1 device" if schedule.devices == 1 else f"{schedule.devices} devices"
    microbatches = "1 microbatch" if schedule.microbatches == 1 else f"{schedule.microbatches} microbatches"
    most = max(map(len, schedule.placement))
    each = f" with {most} stages each" if most > 1 else ""
    return f"{devices}{each}, {microbatches}{_updated(schedule)}"


def _updated(schedule: Schedule) -> str:
    """Nothing, unless there is more than one update; the last may come after fewer microbatches."""
    *most, last = map(len, updates_of(schedule.program).members)
    if not most:
        return ""
    if max(most) == 1 == last:
        return ", an update after each"
    alike = min(most) == max(most) >= last
    return f", an update after every {max(most)}" if alike else f", {len(most) + 1} updates"


def durations(timeline: Timeline) -> str:
    """In words, as "F takes 1, B 2" or "F takes 1 to 3, B 2 to 6"; a pair that runs as one is F&B."""
    program = timeline.schedule.program
    if not program.size:
        return ""
    times = (timeline.end - timeline.start)[program.entry]
    paired = np.bincount(program.entry)[program.entry] > 1
    found = {CODES[code]: times[(program.kind == code) & ~paired] for code in np.unique(program.kind)}
    named = {str(kind): found[kind] for kind in KINDS if kind in found} | {"F&B": times[paired]}
    first, *others = (
        f"{name} {' to '.join(dict.fromkeys(map(number, (each.min(), each.max()))))}"
        for name, each in named.items()
        if each.size
    )
    return ", ".join([first.replace(" ", " takes ", 1), *others])


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table: names on the left, numbers below each other's ends."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]


def html_table(rows: Sequence[Sequence[str]], notes: Sequence[str]) -> str:
    """The same for a notebook, with sentences below it."""
    head, *body = (
        "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)
        for tag, cells in zip(["th", *["td"] * (len(rows) - 1)], rows, strict=True)
    )
    lines = "".join(f"<tr>{cells}</tr>" for cells in body)
    below = "<br>".join(map(escape, notes))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table><p>{below}</p>"
