"""When everything happens: a schedule and its costs give a timeline.

There is no tick loop. Each device runs its row in order; an action starts at the later of two times,
when its device is free and when the last thing that it needs has arrived.
"""

from gpipe_sim.schedule.actions import Action, Kind
from gpipe_sim.schedule.base import Schedule, require_schedule
from gpipe_sim.simulation.costs import Costs
from gpipe_sim.simulation.deadlock import wanted_slots
from gpipe_sim.simulation.problems import check, check_actions
from gpipe_sim.simulation.timeline import Span, Timeline


def simulate(schedule: Schedule, costs: Costs | None = None) -> Timeline:
    """Time a schedule. Raises ScheduleError or DeadlockError if it cannot be run.

    Costs default to 1 for F, I and W each, so that a full backward takes 2. Linear in the number of
    actions.
    """
    require_schedule("simulate", schedule)
    costs = Costs() if costs is None else costs
    if not isinstance(costs, Costs):
        raise TypeError(f"simulate needs costs, such as Costs(comm=1) (got {costs!r})")
    costs.require_stages(schedule.stages)
    check_actions(schedule)
    spans = _run(schedule, costs)
    if len(spans) < sum(map(len, schedule.actions)):
        check(schedule)
    return Timeline(schedule, costs, tuple(spans))


def _run(schedule: Schedule, costs: Costs) -> list[Span]:
    """The spans in the order in which the devices get to them; it stops early at a deadlock.

    A device runs until something that it needs has not ended; the action that it waits for wakes it.
    This loop runs once per action, so it looks things up by slot (stage * microbatches + microbatch)
    and neither hashes an action nor builds one.
    """
    rows, size = schedule.actions, schedule.microbatches
    made = {kind: [None] * len(slots) for kind, slots in schedule.located.items()}
    waiting = {kind: {} for kind in Kind}
    wanted = wanted_slots(schedule, made, waiting)
    duration, transfer = costs.duration, costs.transfer
    free, at = [0] * schedule.devices, [0] * schedule.devices
    runnable = list(reversed(range(schedule.devices)))
    spans = []

    def advance(device: int) -> None:
        row = rows[device]
        while at[device] < len(row):
            action = row[at[device]]
            start = free[device]
            parts = (action,) if action.__class__ is Action else action.parts
            for stage, kind, microbatch in parts:
                for spans_made, located, offset, waiters in wanted[kind][stage]:
                    slot = offset + microbatch
                    span = spans_made[slot]
                    if span is None:
                        if located[slot] is None:
                            continue
                        waiters.setdefault(slot, []).append(device)
                        return
                    part, source, _, arrival = span
                    if source != device:
                        arrival += transfer(part, source, device)
                    if arrival > start:
                        start = arrival
            free[device] = end = start + duration(action, device)
            span = Span(action, device, start, end)
            spans.append(span)
            at[device] += 1
            for part in parts:
                stage, kind, microbatch = part
                slot = stage * size + microbatch
                made[kind][slot] = span
                if slot in waiting[kind]:
                    runnable.extend(waiting[kind].pop(slot))

    while runnable:
        advance(runnable.pop())
    return spans
