"""A measured timeline: the same ``Timeline`` as a simulated one, with the times of a clock."""

from collections.abc import Iterator, Sequence

from gpipe_sim.schedule.actions import Action, Kind
from gpipe_sim.schedule.base import Schedule
from gpipe_sim.schedule.explicit import Explicit, unpaired
from gpipe_sim.simulation.timeline import Span, Timeline
from gpipe_sim.torch_backend.clock import Timed

MILLISECONDS = 1000


def measured(schedule: Schedule, noted: Sequence[Timed], turns: bool = False) -> Timeline:
    """The timeline of what was noted in seconds, in milliseconds from the first start.

    Waiting is not part of an action. The engine runs the halves of an overlapped pair one after the other, so
    they are two actions here. A recompute runs within a backward: it lasts from that one's start until all
    is restored, and the backward goes on from there.
    """
    times = dict(_unfolded(noted, schedule))
    zero = min(start for start, _ in times.values())
    spans = [
        Span(action, schedule.device_of(action), (start - zero) * MILLISECONDS, (end - zero) * MILLISECONDS)
        for action, (start, end) in times.items()
    ]
    return Timeline.from_spans(_as_run(unpaired(schedule), spans), spans, took_turns=turns)


def _as_run(schedule: Schedule, spans: Sequence[Span]) -> Schedule:
    """The schedule, or where a recompute ran later than it stands there, the order in which things ran."""
    rows = [[] for _ in range(schedule.devices)]
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        rows[span.device].append(span.action)
    if list(map(tuple, rows)) == list(schedule.actions):
        return schedule
    return Explicit(rows, placement=schedule.placement, microbatches=schedule.microbatches)


def _unfolded(noted: Sequence[Timed], schedule: Schedule) -> Iterator[tuple[Action, tuple[float, float]]]:
    """Each action with its times, a recompute taken out of the backward that it ran in.

    Stage 0 leaves its whole backward to W, and its recompute with it: R is then an instant before I. So it is
    where nothing was recomputed, because the stage saves nothing.
    """
    restored = {(a.stage, a.microbatch): end for a, _, end in noted if a.kind is Kind.R}
    for action, start, end in noted:
        again = action._replace(kind=Kind.R)
        if action.kind in (Kind.B, Kind.I) and schedule.contains(again):
            until = restored.get((action.stage, action.microbatch), start)
            middle = until if until <= end else start
            yield again, (start, middle)
            yield action, (middle, end)
        elif action.kind is not Kind.R:
            yield action, (start, end)
