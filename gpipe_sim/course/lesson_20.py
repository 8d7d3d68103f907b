"""Lesson 20: on real devices. Its checks need no torch: their timelines are recorded, or made here."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import isclose, isfinite
from statistics import mean, median

from gpipe_sim.core.actions import B, F, Kind
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.core.timeline import number as written
from gpipe_sim.course.build import exercise
from gpipe_sim.course.called import called
from gpipe_sim.course.clocked import measured
from gpipe_sim.course.reply import NOTHING_BACK, Reply, almost, correct, is_number, keep_working
from gpipe_sim.errors import Real
from gpipe_sim.export.recorded import recorded_run
from gpipe_sim.families import ZBH1, GPipe, Interleaved1F1B, OneFOneB
from gpipe_sim.why.fit_costs import fit_costs

NEAR = 0.03  #: how far off, relatively, a step or a pause may be
NEAR_FORWARD = 0.05  #: and a forward, for which there are several good ways to leave slow ones out


#: Where the time of a forward is asked for, and the stages.
FORWARDS = (
    (lambda: measured(OneFOneB(3, 7), Costs((5, 9, 7), 8, 8, comm=1), {"1F3": 30, "2F3": 12}), (1, 2, 0)),
    (
        lambda: measured(GPipe(2, 9), Costs((40, 12), 12, 12, comm=1), {"0F0": 5, "0F4": 8, "1F5": 0.02}),
        (0, 1),
    ),
    (lambda: measured(ZBH1(4, 8), Costs((3, 4, 5, 6), 4, 4, comm=1), {"3F7": 25}), (3, 2)),
    (lambda: measured(Interleaved1F1B(2, 6, 2), Costs((4, 9, 6, 14), 5, 5, comm=1), {"1F2": 9}), (1, 0, 3)),
    (recorded_run, (0, 3)),
)


@exercise("write a function of (timeline, stage) and pass it in")
def forward_time(answer: Callable | None) -> Reply:
    """Check ``answer(timeline, stage)``: how long a usual forward of the stage takes, despite slow ones."""
    for make, stages in FORWARDS:
        timeline = make()
        for stage in stages:
            where = f"called with a step of {timeline.schedule!r} and stage {stage}"
            got = called(answer, timeline, stage, where=where, without=(fit_costs,))
            _forward_is_wrong(got, timeline, stage)
    asked = sum(len(stages) for _, stages in FORWARDS)
    return correct(
        f"at {asked} stages of {len(FORWARDS)} timelines, with slow actions among them. "
        "How many slow ones would it take to mislead you?"
    )


def _took(timeline: Timeline, stage: int | None = None, kind: Kind | None = Kind.F) -> list[float]:
    """How long the actions of a stage and kind took; None stands for every stage, or every kind."""
    return [
        float(span.end - span.start)
        for span in timeline.spans
        for action in span.action.parts
        if stage in (None, action.stage) and kind in (None, action.kind)
    ]


def _forward_is_wrong(got: object, timeline: Timeline, stage: int) -> None:
    where = f"stage {stage} of {timeline.schedule!r}"
    said = _as_time(where, got)
    took = sorted(_took(timeline, stage))
    # a good way too, by a clock that is right
    fastest = min(time for time in took if 2 * time > median(took))
    if (1 - 1e-9) * fastest <= said <= (1 + NEAR_FORWARD) * median(took):
        return
    shortest, *_, last_but_one, longest = map(written, took)
    says = f"{where}: you say {written(said)}; its {len(took)} forwards took {shortest} to {longest}"
    slow = f", {last_but_one} the longest but one"
    for other, verdict, question in (
        (mean(took), almost, f"{slow}. Should one slow action move your answer?"),
        (_took(timeline, stage)[0], keep_working, ". That is the first of them. Is it like the others?"),
        (took[-1], keep_working, f"{slow}. Is the longest what a forward takes?"),
        (
            took[0],
            almost,
            f", {written(took[1])} the shortest but one. Is the shortest what a forward takes?",
        ),
        (sum(took), keep_working, ". That is the sum of them. How long is one?"),
        (median(_took(timeline)), almost, f". Are all of these forwards of stage {stage}?"),
        (mean(_took(timeline)), keep_working, f". Are all of these forwards of stage {stage}?"),
        (median(_took(timeline, stage, None)), almost, ". Is every action of the stage a forward?"),
        (mean(_took(timeline, stage, None)), keep_working, ". Is every action of the stage a forward?"),
    ):
        if isclose(said, other, rel_tol=1e-3):
            raise verdict(f"{says}{question}")
    raise keep_working(f"{says}. Which of them are like most of them?")


#: What is measured with 1F1B, at which costs, and the number of microbatches for which GPipe's step is asked.
STEPS = (
    (OneFOneB(4, 5), Costs((10, 40, 20, 10), (10, 40, 20, 10), (10, 40, 20, 10), comm=2), 20),
    (OneFOneB(4, 8), Costs(20, 20, 20, comm=15), 6),
    (OneFOneB(2, 6), Costs(40, (30, 45), (30, 45), comm=4), 30),
)
UNSHOWN = 11  #: microbatches that are asked of the recorded devices too, because the lesson may show 16


@exercise("write a function of (timeline, microbatches) and pass it in")
def gpipe_step(answer: Callable | None) -> Reply:
    """Check ``answer(timeline, microbatches)``: how long a GPipe step takes on devices measured with 1F1B.

    An answer is right if it is what the fitted costs give, with the pauses between actions or without, what
    was measured, or anything in between. The last question is about the recorded run, whose answer was really
    measured.
    """
    for timeline, size, clock in _step_cases():
        got = called(answer, timeline, size, where=f"called with a step of {timeline.schedule!r} and {size}")
        said = _right_step(got, timeline, size, clock)
    return correct(
        f"for the recorded devices and {size} microbatches you say {float(said):.0f} ms, and the clock said "
        f"{clock:.0f} ms. What do your costs leave out?"
    )


def _step_cases() -> Iterator[tuple[Timeline, int, Real | None]]:
    """(a measured step of 1F1B, the microbatches that GPipe gets, GPipe's measured makespan or None)."""
    for schedule, costs, size in STEPS:
        clock = measured(GPipe(schedule.devices, size), costs).makespan
        yield measured(schedule, costs), size, clock
    recorded, gpipe = recorded_run(), recorded_run("gpipe16")
    yield recorded, UNSHOWN, None
    yield recorded, gpipe.schedule.microbatches, gpipe.makespan


def _right_step(got: object, timeline: Timeline, size: int, clock: Real | None) -> Real:
    """The time that a student's function gives; raises a Reply if it is wrong."""
    schedule, full = timeline.schedule, fit_costs(timeline)
    costs = replace(full.plain, overhead=0)
    asked = GPipe(schedule.devices, size)
    where = f"{asked!r} after {schedule!r} of {written(timeline.makespan)}"
    said = _as_time(where, got)
    fitted = simulate(asked, costs).makespan
    low, high = sorted((fitted, fitted if clock is None else clock))
    with_pauses = isclose(said, simulate(asked, full).makespan, rel_tol=1e-3)
    if with_pauses or (1 - NEAR) * low <= said <= (1 + NEAR) * high:
        return said
    says = f"{where}: you say {written(said)}"
    for other, verdict, question in _other_steps(timeline, asked, costs):
        if isclose(said, other, rel_tol=1e-3):
            raise verdict(f"{says}. {question}")
    way = "more" if said < low else "less"
    raise keep_working(f"{says}, and it is {way}. What does your way count, and what not?")


def _other_steps(timeline: Timeline, asked: Schedule, costs: Costs) -> Iterator[tuple[Real, Callable, str]]:
    """Results of wrong ways to compute the step, each with a verdict and the question that leads on."""
    old, new, devices = timeline.schedule.microbatches, asked.microbatches, asked.devices
    turns, before = new + devices - 1, old + devices - 1
    question = f"That is the step with {old} microbatches. How many are asked for?"
    yield timeline.makespan, keep_working, question
    yield (
        timeline.makespan * new / old,
        keep_working,
        f"That is {new}/{old} of the measured step. Does the time in which devices fill and drain grow too?",
    )
    yield (
        timeline.makespan * turns / before,
        almost,
        f"That is {turns}/{before} of the measured step, as if all of it grew alike. "
        "Which stage, or which message, sets how long one more microbatch takes?",
    )
    yield (
        simulate(asked, replace(costs, comm=0)).makespan,
        almost,
        f"That is without messages, and each took {written(costs.comm)}. Who waits for them?",
    )
    other = simulate(OneFOneB(devices, new), costs) if new >= devices else timeline
    yield other.makespan, almost, "That is 1F1B's. Which of the two waits for more messages?"
    for name, pick in (("the first stage", lambda c: c[0]), ("the mean", mean)):
        for comm in (costs.comm, 0):
            question = f"That takes every stage to be as long as {name}. Are they alike?"
            yield simulate(asked, _alike(costs, pick, comm)).makespan, almost, question
    yield from _slowest_only(asked, costs)


def _slowest_only(asked: Schedule, costs: Costs) -> Iterator[tuple[Real, Callable, str]]:
    """Results of ways that treat every stage as if it were the slowest, with a verdict and a question."""
    alike = _alike(costs, max, costs.comm)
    longest = sum(alike.duration(action, device=0) for action in (F(0, 0), B(0, 0)))
    turns = asked.microbatches + asked.devices - 1
    question = (
        "That takes every stage to be as long as the slowest. "
        "How long does the first microbatch take to reach the slowest, and the last one from there?"
    )
    yield turns * longest, almost, question
    yield turns * (longest + 2 * costs.comm), almost, question
    yield simulate(asked, alike).makespan, almost, question
    yield (
        asked.microbatches * longest,
        keep_working,
        "That is what the slowest stage works. When can it start, and what happens after it?",
    )


def _alike(costs: Costs, pick: Callable, comm: Real) -> Costs:
    """The same costs at every stage: what ``pick`` makes of the costs of all stages."""
    backward = costs.input_grad, costs.weight_grad
    stages = max(len(half) if isinstance(half, Sequence) else 1 for half in backward)
    listed = [half if isinstance(half, Sequence) else [half] * stages for half in backward]
    forward, full = costs.forward, [i + w for i, w in zip(*listed, strict=True)]
    return Costs(pick(forward) if isinstance(forward, Sequence) else forward, 0, pick(full), comm=comm)


def _as_time(where: str, said: object) -> Real:
    """The number that a function gives; raises a Reply to anything else, of several values how many."""
    if said is None:
        raise keep_working(f"{where}: {NOTHING_BACK}")
    if isinstance(said, list | tuple | dict):
        its = f"it gives a {type(said).__name__} of {len(said)}"
        raise keep_working(f"{where}: {its}. Which one number is the time?")
    if not is_number(said) or not isfinite(said):
        raise keep_working(f"{where}: you say {said!r}. How do you say a time as a plain number?")
    return said
