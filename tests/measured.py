"""Timelines such as a real engine gives: every action lasts a little longer, and starts a little late."""

import random

from gpipe_sim import Costs, Schedule, Span, Timeline, needs, simulate
from gpipe_sim.schedule.explicit import unpaired

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
    return Timeline.from_spans(unpaired(schedule), moved)
