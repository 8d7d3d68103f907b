"""Timelines such as a real engine gives: every action lasts a little longer, and starts a little late."""

import random

from gpipe_sim import Costs, simulate
from gpipe_sim.core import Schedule, Span, Timeline, needs
from gpipe_sim.core.memory import (
    BOUNDARY,
    GRADIENTS,
    MESSAGES,
    OLDER,
    PARAMETERS,
    PENDING,
    SAVED,
    STATE,
    MemoryTrace,
)
from gpipe_sim.export.spans import from_spans
from gpipe_sim.families.derived import unpaired
from gpipe_sim.streams.updates import updates_of
from gpipe_sim.why import in_flight

PLANNED = Costs(20, 20, 20)


def measured(
    schedule: Schedule,
    costs: Costs = PLANNED,
    seed: int = 0,
    noise: float = 0.1,
    late: tuple[float, float] = (0.05, 1.0),
) -> Timeline:
    """The schedule in its own order, each action up to ``noise`` longer, and started ``late`` by so much.

    An overlapped pair is two spans, the forward first. The earliest start is 0.
    """
    chance = random.Random(seed)
    free, ends, spans = [0.0] * schedule.devices, {}, []
    for span in simulate(schedule, costs).spans:
        for part in span.action.parts:
            arrivals = (ends[need] for need in needs(part, schedule))
            start = max(free[span.device], *arrivals, 0.0) + chance.uniform(*late)
            end = start + costs.duration(part, span.device) * (1 + noise * chance.random())
            free[span.device] = ends[part] = end
            spans.append(Span(part, span.device, start, end))
    first = min(span.start for span in spans)
    moved = (Span(action, device, start - first, end - first) for action, device, start, end in spans)
    return from_spans(unpaired(schedule), moved)


def metered(timeline: Timeline) -> list[MemoryTrace]:
    """Memory such as a real step gives: each device's bytes by category, where one of its actions ends."""
    return [_metered(timeline, device) for device in range(timeline.schedule.devices)]


def _metered(timeline: Timeline, device: int) -> MemoryTrace:
    steps = in_flight(timeline, device)
    older = 4000 if updates_of(timeline.schedule.program).before.any() else 0
    held = {
        PARAMETERS: [4000] * len(steps),
        OLDER: [older * (i % 3) for i, _ in enumerate(steps)],
        GRADIENTS: [4000 if i > len(steps) / 2 else 0 for i, _ in enumerate(steps)],
        STATE: [2000] * len(steps),
        BOUNDARY: [300 * count for _, count in steps],
        SAVED: [900 * count for _, count in steps],
        PENDING: [200 * (i % 2) for i, _ in enumerate(steps)],
        MESSAGES: [(device + i) % 3 * 150 for i, _ in enumerate(steps)],
    }
    return MemoryTrace(tuple(time for time, _ in steps), {name: tuple(each) for name, each in held.items()})
