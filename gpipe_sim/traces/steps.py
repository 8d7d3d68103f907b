"""Which actions belong to one step: by ``ProfilerStep#``, else by ``Optimizer.step#``, else by repetition."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from math import isfinite

from gpipe_sim.core.actions import Action, Kind, OverlapFB
from gpipe_sim.traces.kineto import RankTrace
from gpipe_sim.traces.ran import Ran

#: (the profiler's number, or how many came before in the file; which of several schedules in it)
Key = tuple[int, int]
BY = {
    "ProfilerStep": "steps are those that ProfilerStep# bounds",
    "Optimizer.step": "no ProfilerStep#: a step is what ends with Optimizer.step#",
    "repetition": "no ProfilerStep# and no Optimizer.step#: a step ends before an action comes again",
}


def bounded_by(trace: RankTrace) -> str:
    """What ends a step in this file, a key of ``BY``."""
    ends = any(event.name.startswith("Optimizer.step") for event in trace.optimizer)
    return "ProfilerStep" if trace.marks else "Optimizer.step" if ends else "repetition"


def windows(trace: RankTrace, ran: Sequence[Ran]) -> dict[int, list[Ran]]:
    """The actions in each mark; outside of all marks they are left out. Without any, all are in one."""
    by, found = bounded_by(trace), dict[int, list[Ran]]()
    if by == "ProfilerStep":
        for number, start, end in trace.marks:
            found.setdefault(number, []).extend(each for each in ran if start <= each.called < end)
        return found
    ends = [event.start for event in trace.optimizer if event.name.startswith("Optimizer.step")]
    for each in ran:
        found.setdefault(bisect_right(ends, each.called), []).append(each)
    return found


def labelled_steps(trace: RankTrace, ran: Sequence[Ran]) -> dict[Key, list[Ran]]:
    """The steps of a rank whose actions have their microbatches: a new one begins where one comes again."""
    found: dict[Key, list[Ran]] = {}
    for number, window in windows(trace, ran).items():
        for at, step in enumerate(_until_again(window)):
            found[number, at] = step
    return found if trace.marks else {(at, 0): step for at, step in enumerate(found.values())}


def _until_again(ran: Sequence[Ran]) -> Iterator[list[Ran]]:
    step: list[Ran] = []
    known: set[Action | OverlapFB] = set()
    for each in ran:
        if each.action in known:
            yield step
            step, known = [], set()
        step.append(each)
        known.add(each.action)
    if step:
        yield step


def numbered_steps(traces: Sequence[RankTrace], ran: Sequence[Sequence[Ran]]) -> list[dict[Key, list[Ran]]]:
    """For each rank, its steps with numbered microbatches; a step has as many as the first rank's has.

    On the first rank a step is over when as many backwards as forwards have run.
    """
    counts = {number: list(_balanced(window)) for number, window in windows(traces[0], ran[0]).items()}
    return [_numbered(trace, windows(trace, each), counts) for trace, each in zip(traces, ran, strict=True)]


def _balanced(ran: Sequence[Ran]) -> Iterator[int]:
    open_, size = 0, 0
    for each in ran:
        open_ += 1 if each.part.kind is Kind.F else -1
        size += each.part.kind is Kind.F
        if open_ == 0:
            yield size
            size = 0
    if size:
        yield size


def _numbered(
    trace: RankTrace, found: dict[int, list[Ran]], counts: dict[int, list[int]]
) -> dict[Key, list[Ran]]:
    steps: dict[Key, list[Ran]] = {}
    for number, window in found.items():
        queues = {kind: [each for each in window if each.part.kind is kind] for kind in (Kind.F, Kind.B)}
        sizes = counts.get(number, [])
        for at, size in enumerate(sizes):
            step = []
            for kind, queue in queues.items():
                taken = queue if at == len(sizes) - 1 else queue[:size]
                queues[kind] = queue[len(taken) :]
                step += [
                    each._replace(action=Action(each.part.stage, kind, m)) for m, each in enumerate(taken)
                ]
            steps[number, at] = sorted(step, key=lambda each: each.called)
    return steps if trace.marks else {(at, 0): step for at, step in enumerate(steps.values())}


def in_place(step: list[Ran]) -> list[Ran]:
    """Actions without a kernel, which took no time, at the end of the one before; and starts in order."""
    times = [time for each in step for time in (each.start, each.end) if isfinite(time)]
    now = min(times, default=0.0)
    placed: list[Ran] = []
    for each in step:
        start, end = (each.start, each.end) if isfinite(each.start) else (now, now)
        start = max(start, placed[-1].start) if placed else start
        placed.append(each._replace(start=start, end=max(start, end)))
        now = max(now, placed[-1].end)
    return placed
