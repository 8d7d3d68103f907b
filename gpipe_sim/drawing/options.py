"""The options of a chart, such as ``in_flight=True``: checked, and turned into what each panel shows.

``draw`` and ``plot_timeline`` both come here first. Whether there are too many actions for a box each is
decided here too, and with it which of the options have no room on such a chart.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import NamedTuple

from gpipe_sim.core.actions import Action, Kind, OverlapFB
from gpipe_sim.core.memory import MemoryTrace
from gpipe_sim.core.rows import read_action
from gpipe_sim.core.timeline import Message, Span, Timeline
from gpipe_sim.drawing.coarse import Grain, grain_of
from gpipe_sim.drawing.geometry import Versions
from gpipe_sim.drawing.marks import Entry
from gpipe_sim.drawing.memory_strips import Strips, strips_of
from gpipe_sim.errors import got, listed, require, require_flags
from gpipe_sim.streams.versions import lives, read_weights
from gpipe_sim.why.critical_path import critical_path as path_of

MOST_ARROWS = 800  #: messages that a page shows
MESSAGE, CRITICAL, HIGHLIGHTED, VERSION = "message", "critical path", "highlighted", "version"
PUSHED = "box pushed to the left"


class Picked(NamedTuple):
    """The actions that keep their colours and get a frame, and what the legend calls them.

    ``messages`` are picked whoever sent them: on the critical path, those that kept a link busy for others.
    """

    parts: frozenset[Action]
    words: str
    messages: frozenset[Message] = frozenset()


class Wanted(NamedTuple):
    """What one panel shows; ``notes`` are what the legend says of how to read it, and of what is missing.

    With ``versions`` they are the numbers in the boxes, and ``weights`` is the mode that chose them. ``grey``
    says that these are not on colours.
    """

    strips: Strips | None = None
    messages: bool = False
    picked: Picked | None = None
    notes: Sequence[Entry] = ()
    weights: str = ""
    versions: Versions | None = None
    grey: bool = False


def read_options(
    owner: str,
    timelines: Sequence[Timeline],
    in_flight: bool,
    memory: Sequence | None,
    messages: bool,
    critical_path: bool,
    highlight: Iterable | None,
    weights: str | None,
    pushed: bool = False,
) -> tuple[Grain, list[Wanted]]:
    """How coarse the page is, and what it shows of each timeline.

    TypeError or ValueError, in the owner's name, for what cannot be shown.
    """
    flags = {"in_flight": in_flight, "messages": messages, "critical_path": critical_path, "pushed": pushed}
    require_flags(owner, **flags)
    if in_flight and memory is not None:
        raise ValueError(f"{owner} needs in_flight or memory: a device has one strip")
    if critical_path and highlight is not None:
        raise ValueError(f"{owner} needs critical_path or highlight: both frame actions")
    traces = None if memory is None else _traces(owner, timelines, memory)
    listed_parts = None if highlight is None else _parts(owner, timelines, highlight)
    modes = ["" if weights is None else read_weights(owner, each.schedule, weights) for each in timelines]
    strips, picks = bool(in_flight or traces), bool(critical_path or listed_parts)
    crossing = sum(int(timeline.schedule.program.crosses.sum()) for timeline in timelines)
    few = bool(messages) and crossing <= MOST_ARROWS
    grain = grain_of(*timelines, strips=strips, pushed=bool(pushed), others=picks + few)
    fine = grain.column == 0
    too_fine = {
        MESSAGE: messages and not (fine and few),
        CRITICAL if critical_path else f"{HIGHLIGHTED} action": picks and not fine,
        VERSION: weights is not None and not fine,
        PUSHED: pushed and not fine,
    }
    missing = " or ".join(words for words, left_out in too_fine.items() if left_out)
    notes = [*grain.notes, *([Entry(51, f"too fine to draw: any {missing}")] if missing else [])]
    picked = [_picked(timeline, listed_parts) if picks and fine else None for timeline in timelines]
    below = strips_of(timelines, traces) if strips else repeat(None)
    return grain, [
        Wanted(strip, fine and few, parts, notes, mode, _versions(timeline, mode) if mode else None)
        for timeline, strip, parts, mode in zip(timelines, below, picked, modes, strict=False)
    ]


def _traces(owner: str, timelines: Sequence[Timeline], memory: Sequence) -> list[MemoryTrace]:
    """The memory of the timeline's devices."""
    such_as, devices = "memory of every device, such as memory=step.memory", timelines[0].schedule.devices
    traces = [require(owner, trace, MemoryTrace, such_as) for trace in listed(owner, such_as, memory)]
    if len(timelines) > 1:
        raise ValueError(f"{owner} shows memory below one timeline {got(len(timelines))}")
    if len(traces) != devices:
        raise ValueError(f"{owner} needs memory of {devices} devices {got(len(traces))}")
    return traces


def _versions(timeline: Timeline, weights: str) -> Versions:
    """The version that each action uses; of an update, the one that it makes."""
    used = lives(timeline.schedule.program, weights).reads
    return {action: version + (action.kind is Kind.U) for action, version in used.items()}


def _picked(timeline: Timeline, listed_parts: frozenset[Action] | None) -> Picked | None:
    """The listed actions, None if the timeline has none of them; without a list, the critical path."""
    if listed_parts is not None:
        there = any(_has(timeline, part) for part in listed_parts)
        return Picked(listed_parts, HIGHLIGHTED) if there else None
    path = path_of(timeline)
    spans = (each.action for each in path if isinstance(each, Span))
    messages = frozenset(each for each in path if isinstance(each, Message))
    return Picked(_all_parts(spans), CRITICAL, messages)


def _parts(owner: str, timelines: Sequence[Timeline], highlight: Iterable) -> frozenset[Action]:
    """The actions to highlight; ValueError for one that no timeline has."""
    such_as = "actions to highlight, such as highlight=['0F0', '1F0']"
    actions = [
        item.action if isinstance(item, Span) else read_action(f"{owner}'s highlight", item)
        for item in listed(owner, such_as, highlight)
    ]
    parts = _all_parts(actions)
    for part in parts:
        if not any(_has(timeline, part) for timeline in timelines):
            raise ValueError(f"{owner} cannot highlight {part}: no timeline has it")
    return parts


def _has(timeline: Timeline, part: Action) -> bool:
    return timeline.schedule.program.part_of(part) >= 0


def _all_parts(actions: Iterable[Action | OverlapFB]) -> frozenset[Action]:
    return frozenset(chain.from_iterable(action.parts for action in actions))
