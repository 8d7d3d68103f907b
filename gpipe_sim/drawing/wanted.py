"""What a reader wants to see besides lanes and boxes, checked; the same for every painter."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from gpipe_sim.drawing.coarse import Grain
from gpipe_sim.drawing.marks import Entry
from gpipe_sim.drawing.strips import Strips, most_held, most_in_flight
from gpipe_sim.errors import got, listed, require, require_flags
from gpipe_sim.runtime.memory import MemoryTrace
from gpipe_sim.schedule.actions import Action, OverlapFB
from gpipe_sim.schedule.rows import read
from gpipe_sim.simulation.critical_path import critical_path as path_of
from gpipe_sim.simulation.timeline import Span, Timeline

MOST_ARROWS = 800  #: messages that a page shows
MESSAGE, CRITICAL, HIGHLIGHTED = "message", "critical path", "highlighted"


class Picked(NamedTuple):
    """The actions that keep their colours and get a frame, and what the legend calls them."""

    parts: frozenset[Action]
    words: str

    def has(self, span: Span) -> bool:
        return not self.parts.isdisjoint(span.action.parts)


class Wanted(NamedTuple):
    """What one panel shows. ``too_fine`` are words for what was asked for and has no room."""

    strips: Strips | None = None
    messages: bool = False
    picked: Picked | None = None
    too_fine: tuple[str, ...] = ()


def read_wanted(
    owner: str,
    timelines: Sequence[Timeline],
    grain: Grain,
    in_flight: bool,
    memory: Sequence | None,
    messages: bool,
    critical_path: bool,
    highlight: Iterable | None,
) -> list[Wanted]:
    """For each timeline of a page. TypeError or ValueError, in the owner's name, for what cannot be shown."""
    require_flags(owner, in_flight=in_flight, messages=messages, critical_path=critical_path)
    if in_flight and memory is not None:
        raise ValueError(f"{owner} needs in_flight or memory: a device has one strip")
    if critical_path and highlight is not None:
        raise ValueError(f"{owner} needs critical_path or highlight: both frame actions")
    listed_parts = None if highlight is None else _parts(owner, timelines, highlight)
    strips = _strips(owner, timelines, in_flight, memory)
    fine = grain.column == 0
    arrows = sum(int(timeline.schedule.program.crosses.sum()) for timeline in timelines)
    picks = critical_path or highlight is not None
    asked = {
        MESSAGE: (messages, fine and arrows <= MOST_ARROWS),
        CRITICAL if critical_path else HIGHLIGHTED: (picks, fine),
    }
    missing = tuple(words for words, (wanted, has_room) in asked.items() if wanted and not has_room)

    def picked(timeline: Timeline) -> Picked | None:
        if not picks or not fine:
            return None
        if listed_parts is not None:
            there = any(timeline.schedule.program.part_of(part) >= 0 for part in listed_parts)
            return Picked(listed_parts, HIGHLIGHTED) if there else None
        return Picked(_all_parts(span.action for span in path_of(timeline)), CRITICAL)

    return [
        Wanted(each, messages and MESSAGE not in missing, picked(timeline), missing)
        for timeline, each in zip(timelines, strips, strict=True)
    ]


def notes(grain: Grain, wanted: Sequence[Wanted]) -> Iterator[Entry]:
    """Lines of the legend for a chart without a box per action: what it shows, and what it leaves out."""
    if grain.column:
        yield Entry(50, grain.words)
    if missing := wanted[0].too_fine:
        yield Entry(51, f"too fine to draw: any {' or '.join(missing)}")


def _strips(
    owner: str, timelines: Sequence[Timeline], in_flight: bool, memory: Sequence | None
) -> list[Strips | None]:
    """One scale for all strips of a page."""
    if in_flight:
        return [Strips(most_in_flight(timelines))] * len(timelines)
    if memory is None:
        return [None] * len(timelines)
    such_as = "memory of every device, such as memory=step.memory"
    several = listed(owner, such_as, memory)
    several = several if len(timelines) > 1 else [several]
    if len(several) != len(timelines):
        raise ValueError(f"{owner} needs the memory of {len(timelines)} timelines {got(len(several))}")
    traces = [
        [require(owner, trace, MemoryTrace, such_as) for trace in listed(owner, such_as, each)]
        for each in several
    ]
    for timeline, each in zip(timelines, traces, strict=True):
        if len(each) != timeline.schedule.devices:
            raise ValueError(f"{owner} needs memory of {timeline.schedule.devices} devices {got(len(each))}")
    return [Strips(most_held(traces), each) for each in traces]


def _parts(owner: str, timelines: Sequence[Timeline], highlight: Iterable) -> frozenset[Action]:
    """The actions to highlight; ValueError for one that no timeline has."""
    such_as = "actions to highlight, such as highlight=['0F0', '1F0']"
    actions = [
        item.action if isinstance(item, Span) else read(f"{owner}'s highlight", item)
        for item in listed(owner, such_as, highlight)
    ]
    parts = _all_parts(actions)
    for part in parts:
        if not any(timeline.schedule.program.part_of(part) >= 0 for timeline in timelines):
            raise ValueError(f"{owner} cannot highlight {part}: no timeline has it")
    return parts


def _all_parts(actions: Iterable[Action | OverlapFB]) -> frozenset[Action]:
    return frozenset(chain.from_iterable(action.parts for action in actions))
