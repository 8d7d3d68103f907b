"""Lesson 18: on real devices. None of it needs torch: the timelines are recorded ones, or made here."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import isclose, isfinite
from numbers import Real
from statistics import mean, median

from gpipe_sim.actions import Action, Kind
from gpipe_sim.costs import Costs
from gpipe_sim.exercises.reply import Reply, almost, called, correct, keep_working, your_turn
from gpipe_sim.fit import fit_costs
from gpipe_sim.recorded import recorded_run
from gpipe_sim.schedule import Schedule, needs
from gpipe_sim.schedules import ZBH1, GPipe, OneFOneB
from gpipe_sim.simulate import Span, Timeline, simulate

NEAR = 0.03  #: how far off, relatively, a time may be
PAUSE = 0.75  #: how long a device takes between two actions in a timeline that is made here
LENGTHS = (0.93, 1.05, 1.0, 0.96, 1.09, 0.91, 1.02)  #: of its cost, how long each action takes in turn


def measured(schedule: Schedule, costs: Costs, slow: dict[str, Real] | None = None) -> Timeline:
    """A timeline such as a clock could note: actions take about their cost, and those of ``slow`` far more.

    It is the same every time. A device pauses between two actions, unless it waits for longer anyway.
    """
    slow = {} if slow is None else slow
    ends: dict[Action, float] = {}
    free = [0.0] * schedule.devices
    spans = []
    for number, span in enumerate(simulate(schedule, costs).spans):
        arrived = (
            ends[need] + (costs.transfer(need, home, span.device) if home != span.device else 0)
            for need in needs(span.action, schedule)
            for home in [schedule.device_of(need)]
        )
        start = max([free[span.device], *arrived])
        usual = costs.duration(span.action, span.device) * LENGTHS[number % len(LENGTHS)]
        ends[span.action] = end = start + slow.get(str(span.action), 1) * usual
        free[span.device] = end + PAUSE
        spans.append(Span(span.action, span.device, start, end))
    spans.sort(key=lambda span: span.end)
    return Timeline(schedule, Costs(), tuple(spans))


#: Where the time of a forward is asked for, and the stages.
FORWARDS = (
    (lambda: measured(OneFOneB(3, 7), Costs((5, 9, 7), 8, 8, comm=1), {"1F0": 30, "2F3": 12}), (1, 2, 0)),
    (lambda: measured(GPipe(2, 9), Costs((40, 12), 12, 12, comm=1), {"0F0": 8, "0F4": 5}), (0, 1)),
    (lambda: measured(ZBH1(4, 8), Costs((3, 4, 5, 6), 4, 4, comm=1), {"3F7": 25}), (3, 2)),
    (recorded_run, (0, 3)),
)


def forward_time(answer: Callable | None) -> Reply:
    """Check ``answer(timeline, stage)``: how long a forward of the stage takes, whatever a slow one took."""
    if answer is None:
        return your_turn("write a function of (timeline, stage) and pass it in")
    asked = 0
    for make, stages in FORWARDS:
        timeline = make()
        for stage in stages:
            said = called(answer, timeline, stage, where=f"called with {timeline!r} and stage {stage}")
            if isinstance(said, Reply):
                return said
            if wrong := _forward_is_wrong(said, timeline, stage):
                return wrong
            asked += 1
    return correct(
        f"at {asked} stages of {len(FORWARDS)} timelines, with slow actions among them. "
        "How many slow ones would it take to mislead you?"
    )


def _took(timeline: Timeline, stage: int | None = None, kind: Kind | None = Kind.F) -> list[Real]:
    """How long actions took: of a stage or of all, of a kind or of all."""
    return [
        span.end - span.start
        for span in timeline.spans
        if stage in (None, span.action.stage) and kind in (None, span.action.kind)
    ]


def _forward_is_wrong(said: object, timeline: Timeline, stage: int) -> Reply | None:
    where = f"stage {stage} of {timeline.schedule!r}"
    if not _is_time(said):
        return keep_working(f"{where}: you say {said!r}; a time is a number")
    took = sorted(_took(timeline, stage))
    if isclose(said, median(took), rel_tol=NEAR):
        return None
    says = (
        f"{where}: you say {float(said):.4g}; its {len(took)} forwards took {took[0]:.4g} to {took[-1]:.4g}"
    )
    for other, question in (
        (mean(took), f", {took[-2]:.4g} the longest but one. Should one slow action move your answer?"),
        (took[-1], f", {took[-2]:.4g} the longest but one. Is the longest what a forward takes?"),
        (took[0], f", {took[1]:.4g} the shortest but one. Is the shortest what a forward takes?"),
        (sum(took), ". That is the sum of them. How long is one?"),
        (median(_took(timeline)), ". You have all stages in it. Are they equally long?"),
        (mean(_took(timeline)), ". You have all stages in it. Are they equally long?"),
        (median(_took(timeline, stage, None)), ". Is every action of the stage a forward?"),
        (mean(_took(timeline, stage, None)), ". Is every action of the stage a forward?"),
    ):
        if isclose(said, other, rel_tol=1e-3):
            return almost(f"{says}{question}")
    return keep_working(f"{says}. Which of them are like most of them?")


#: Timelines of 1F1B, with the number of microbatches for which GPipe's step is asked.
STEPS = (
    (lambda: measured(OneFOneB(3, 8), Costs((10, 30, 20), (10, 30, 20), (10, 30, 20), comm=2)), 24),
    (lambda: measured(OneFOneB(4, 8), Costs(20, 20, 20, comm=15)), 5),
    (lambda: measured(OneFOneB(2, 6), Costs(7, (5, 8), (5, 8), comm=1)), 30),
)


def gpipe_step(answer: Callable | None) -> Reply:
    """Check ``answer(timeline, microbatches)``: how long a step of GPipe takes on devices measured with 1F1B.

    The last question is of the recorded run, and its answer was measured as well.
    """
    if answer is None:
        return your_turn("write a function of (timeline, microbatches) and pass it in")
    clock = recorded_run("gpipe16")
    cases = [*((make(), size) for make, size in STEPS), (recorded_run(), clock.schedule.microbatches)]
    for timeline, size in cases:
        said = called(answer, timeline, size, where=f"called with {timeline!r} and {size}")
        if isinstance(said, Reply):
            return said
        if wrong := _step_is_wrong(said, timeline, size):
            return wrong
    return correct(
        f"for the recorded devices and {size} microbatches you say {float(said):.0f} ms, and the clock said "
        f"{clock.makespan:.0f} ms. What do your costs leave out?"
    )


def _step_is_wrong(said: object, timeline: Timeline, size: int) -> Reply | None:
    schedule, costs = timeline.schedule, fit_costs(timeline)
    asked = GPipe(schedule.devices, size)
    where = f"{asked!r} after {schedule!r} of {timeline.makespan:.4g}"
    if not _is_time(said):
        return keep_working(f"{where}: you say {said!r}; a time is a number")
    right = simulate(asked, costs).makespan
    if isclose(said, right, rel_tol=NEAR):
        return None
    says = f"{where}: you say {float(said):.4g}"
    for other, question in _other_steps(timeline, asked, costs):
        if isclose(said, other, rel_tol=1e-3):
            return almost(f"{says}. {question}")
    way = "more" if said < right else "less"
    return keep_working(f"{says}, and it is {way}. Which costs did you simulate it with?")


def _other_steps(timeline: Timeline, asked: Schedule, costs: Costs) -> Iterator[tuple[Real, str]]:
    """Wrong ways, each with the question that leads on from it."""
    old, new = timeline.schedule.microbatches, asked.microbatches
    yield timeline.makespan, f"That is the step with {old} microbatches. How many are asked for?"
    yield (
        timeline.makespan * new / old,
        f"That is {new}/{old} of the measured step. Does the time in which devices fill and drain grow too?",
    )
    yield (
        simulate(asked, replace(costs, comm=0)).makespan,
        f"That is without messages, and each took {float(costs.comm):.3g}. Who waits for them?",
    )
    other = simulate(OneFOneB(asked.devices, new), costs) if new >= asked.devices else timeline
    yield other.makespan, "That is 1F1B's. Which of the two waits for more messages?"
    each = [costs.forward, costs.input_grad, costs.weight_grad]
    for name, pick in (("the first stage", lambda c: c[0]), ("the mean", mean)):
        for comm in (costs.comm, 0):
            alike = Costs(*(pick(c) if isinstance(c, Sequence) else c for c in each), comm=comm)
            question = f"That takes every stage to be as long as {name}. Are they alike?"
            yield simulate(asked, alike).makespan, question


#: Timelines in which devices pause between actions, by how much.
PAUSES = (
    lambda: measured(OneFOneB(4, 8), Costs(20, 20, 20, comm=1)),
    lambda: measured(GPipe(3, 7), Costs((5, 9, 7), 8, 8, comm=2)),
    recorded_run,
)


def pause(answer: Callable | None) -> Reply:
    """Check ``answer(timeline)``: the median time between two actions of a device that waited for nothing.

    That is where a device went on to an action whose messages had arrived before the one ahead of it ended.
    """
    if answer is None:
        return your_turn("write a function of a timeline and pass it in")
    for make in PAUSES:
        timeline = make()
        said = called(answer, timeline, where=f"called with {timeline!r}")
        if isinstance(said, Reply):
            return said
        if wrong := _pause_is_wrong(said, timeline):
            return wrong
    return correct(
        f"{float(said):.2f} ms in the recorded run. How many of them lie on the way through the step?"
    )


def _pauses(timeline: Timeline) -> Iterator[tuple[Real, bool, Span]]:
    """Between two actions of a device: how long, whether a message came meanwhile, and before what."""
    schedule = timeline.schedule
    for device, row in enumerate(timeline.rows):
        for before, after in pairwise(row):
            wanted = (need for need in needs(after.action, schedule) if schedule.device_of(need) != device)
            late = any(timeline.ends[need] > before.end for need in wanted)
            yield after.start - before.end, late, after


def _pause_is_wrong(said: object, timeline: Timeline) -> Reply | None:
    where = repr(timeline.schedule)
    if not _is_time(said):
        return keep_working(f"{where}: you say {said!r}; a time is a number")
    found = list(_pauses(timeline))
    alone = [time for time, late, _ in found if not late]
    if isclose(said, median(alone), rel_tol=NEAR):
        return None
    says = f"{where}: you say {float(said):.3g}"
    longest, _, after = max(found, key=lambda one: one[0])
    whole = [time for time, _, _ in found]
    if any(isclose(said, other, rel_tol=1e-3) for other in (mean(whole), median(whole), max(whole))):
        return almost(
            f"{says}. Device {after.device} did nothing for {longest:.3g} before {after.action}. "
            "What was it waiting for?"
        )
    if isclose(said, mean(alone), rel_tol=1e-3):
        longest = f"the longest is {max(alone):.3g}"
        return almost(f"{says}, the mean; {longest}. Should one slow pause count so much?")
    return keep_working(
        f"{says}; {len(alone)} of {len(found)} pauses had nothing to wait for, and took {min(alone):.3g} to "
        f"{max(alone):.3g}. Which are yours?"
    )


def _is_time(said: object) -> bool:
    return isinstance(said, Real) and not isinstance(said, bool) and isfinite(said)
