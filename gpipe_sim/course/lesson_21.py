"""Lesson 21: read a real run. Its two runs are real; what is asked of them is asked of made ones too."""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from importlib.resources import files
from inspect import unwrap
from itertools import permutations
from math import isclose
from statistics import mean, median_high, median_low
from typing import cast

import numpy as np

from gpipe_sim.core.actions import Action, OverlapFB
from gpipe_sim.core.cost_model import CostModel
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.core.timeline import number as written
from gpipe_sim.course.build import exercise
from gpipe_sim.course.called import called
from gpipe_sim.course.clocked import measured
from gpipe_sim.course.reply import Reply, almost, correct, is_number, is_whole, keep_working
from gpipe_sim.errors import Real
from gpipe_sim.export.recorded import recorded_run
from gpipe_sim.families import GPipe, OneFOneB
from gpipe_sim.links.links import Link
from gpipe_sim.traces.read import read_trace
from gpipe_sim.why.causes import where_time_goes
from gpipe_sim.why.fit_costs import fit_costs

TRACES = files("gpipe_sim") / "data" / "traces"
LIBRARY = (unwrap(where_time_goes), fit_costs)  #: what an answer has to do without
MEAN = "That is with the mean. Does one slow stage move a mean?"
NEAR = 0.01  #: how far off, relatively, a term may be


def trace(run: str) -> list[str]:
    """The files of a run of this lesson, ``"before"`` or ``"after"``: one for each of four devices."""
    return [str(TRACES / run / f"rank{device}.json.gz") for device in range(4)]


#: Steps of F and B, with one stage on each device.
STEPS = (
    lambda: measured(OneFOneB(3, 5), Costs((4, 9, 5), (4, 9, 5), (4, 9, 5), comm=1), {"0F1": 30, "1F3": 20}),
    lambda: measured(GPipe(5, 7), Costs((6, 6, 7, 30, 8), (9, 9, 9, 40, 9), 5, comm=2)),
    lambda: measured(OneFOneB(5, 8), Costs((20, 5, 5, 5, 5), (20, 5, 5, 5, 5), (20, 5, 5, 5, 5), comm=9)),
    recorded_run,
    lambda: read_trace(trace("before"))[0],
)


@exercise("write a function of a timeline and pass it in")
def first_terms(answer: Callable | None) -> Reply:
    """Check ``answer(timeline)``: (work, bubble) of a step in which every stage is as long as a usual one.

    Of an even number of stages, either of the two in the middle is usual, and what is between them.
    """
    for timeline in (make() for make in STEPS):
        where = f"called with a step of {timeline.schedule!r} that took {written(timeline.makespan)}"
        said = called(answer, timeline, where=where, without=LIBRARY)
        _require_first(where, said, timeline)
    return correct(f"in {len(STEPS)} steps, the real one among them. No slow stage moved your two terms")


def _require_first(where: str, said: object, timeline: Timeline) -> None:
    """Raises a Reply unless both terms are right."""
    if not (isinstance(said, Sequence) and len(said) == 2 and all(map(is_number, said))):
        raise keep_working(f"{where}: you say {said!r}. What are the two numbers, work first?")
    low, high = (_first(timeline, pick) for pick in (median_low, median_high))
    for name, its, least, most, others in zip(
        ("work", "bubble"), said, low, high, (_works(timeline), _bubbles(timeline, said[0])), strict=True
    ):
        if (1 - NEAR) * least <= its <= (1 + NEAR) * most:
            continue
        says = f"{where}: for the {name} you say {written(its)}"
        for other, question in others:
            if isclose(its, other, rel_tol=1e-3):
                raise almost(f"{says}. {question}")
        way = "little" if its < least else "much"
        raise keep_working(f"{says}, which is too {way}. What do F and B of a usual stage take?")


def _usual(timeline: Timeline, kind: str, of_stages: Callable, of_actions: Callable = median_low) -> Real:
    """How long an action of a kind takes: of each stage's times, and then of the stages."""
    each = [[s.end - s.start for s in row if s.action.parts[0].kind == kind] for row in timeline.rows]
    return of_stages([of_actions(times) for times in each])


def _first(timeline: Timeline, of_stages: Callable, of_actions: Callable | None = None) -> tuple[Real, Real]:
    forward, backward = (_usual(timeline, kind, of_stages, of_actions or of_stages) for kind in "FB")
    makespan = simulate(timeline.schedule, Costs(forward, backward, 0)).makespan
    work = timeline.schedule.microbatches * (forward + backward)
    return work, makespan - work


def _works(timeline: Timeline) -> Iterator[tuple[Real, str]]:
    """What a wrong way gives for the work, and the question that leads on."""
    busy = [float(sum(span.end - span.start for span in row)) for row in timeline.rows]
    usual = _first(timeline, median_low)
    yield max(busy), "That is what the busiest device worked in this step. Is its stage a usual one?"
    yield mean(busy), MEAN
    yield sum(busy), "That is the work of all devices together. What does one of them do?"
    yield usual[0] / timeline.schedule.microbatches, "That is one microbatch. How many are there?"
    for of_actions in (mean, median_low):
        yield _first(timeline, mean, of_actions)[0], MEAN


def _bubbles(timeline: Timeline, work: Real) -> Iterator[tuple[Real, str]]:
    usual = _first(timeline, median_low)
    yield timeline.makespan - work, "That is all else. What of it would equal stages take too?"
    yield sum(usual), "That is that step's whole length. What of it is not work?"


def _linked(schedule: Schedule, slow: int, costs: Costs, late: Real = 7) -> Timeline:
    """A step in which messages between devices ``slow`` and ``slow + 1`` are late, and others are not."""
    pairs = permutations(range(schedule.devices), 2)
    return simulate(schedule, costs, links={pair: Link(late if min(pair) == slow else 1) for pair in pairs})


def _held_up(timeline: Timeline, action: str) -> Timeline:
    """The same step, but a message that was early comes only when it is needed."""
    ways, arrived = timeline.schedule.program.ways, cast(np.ndarray, timeline.arrived).copy()
    [late] = [i for i, (made, *_) in enumerate(ways) if str(made) == action]
    arrived[late] = next(span.start for span in timeline.on(1) if str(span.action) == f"1{action[1:]}")
    return replace(timeline, arrived=arrived)


class _Took(CostModel):
    """Actions take 10, and a message what ``took(source, target, microbatch)`` says."""

    def __init__(self, took: Callable[[int, int, int], Real]):
        self.took = took

    def duration(self, action: Action | OverlapFB, device: int) -> Real:
        return 10

    def transfer(self, action: Action, source: int, target: int) -> Real:
        return self.took(source, target, action.microbatch)


def _odd_ends(source: int, target: int, microbatch: int) -> Real:
    """The link in the middle is slow; elsewhere only one message is: the first output, the last gradient."""
    if (source, target, microbatch) in ((0, 1, 0), (3, 2, 5)):
        return 10
    return 4 if {source, target} == {1, 2} else 1


def _one_quick(source: int, target: int, microbatch: int) -> Real:
    """The link in the middle is slow, but one message was quick."""
    if {source, target} == {1, 2}:
        return 1 if (source, microbatch) == (1, 3) else 9
    return 2


def _one_way(source: int, target: int, microbatch: int) -> Real:
    """The link in the middle is slow both ways; the others are slower one way, and else quick."""
    if {source, target} == {1, 2}:
        return 5
    return 9 if (source, target) in ((0, 1), (3, 2)) and microbatch > 1 else 1


COMPARE = "What do you compare?"
FIRST, LAST = "Is the first message a usual one?", "Is the last message a usual one?"
QUICKEST = "Is the quickest message a usual one?"
OUTPUTS, GRADIENTS = "Are outputs all that crosses a link?", "Are gradients all that crosses a link?"

#: Steps with one slow link, which need not be the one that devices wait for longest: how it is made, the slow
#: link, and what another one says of how it was found.
LINKED: tuple[tuple[Callable[[], Timeline], set[int], dict[tuple[int, int], str]], ...] = (
    (lambda: _linked(OneFOneB(4, 6), 0, Costs(3)), {0, 1}, {}),
    (lambda: _held_up(_linked(GPipe(4, 6), 2, Costs((2, 9, 9, 9), 5, 5), 2), "0F5"), {2, 3}, {}),
    (lambda: _linked(GPipe(5, 4), 3, Costs((9, 2, 2, 2, 2), 5, 5), 4), {3, 4}, {}),
    (lambda: read_trace(trace("before"))[0], {1, 2}, {}),
    (lambda: read_trace(trace("after"))[0], {1, 2}, {}),
    (lambda: simulate(OneFOneB(4, 6), _Took(_odd_ends)), {1, 2}, {(0, 1): FIRST, (2, 3): LAST}),
    (lambda: simulate(OneFOneB(4, 6), _Took(_one_quick)), {1, 2}, {(0, 1): QUICKEST, (2, 3): QUICKEST}),
    (lambda: simulate(OneFOneB(4, 6), _Took(_one_way)), {1, 2}, {(0, 1): OUTPUTS, (2, 3): GRADIENTS}),
)


@exercise("write a function of a timeline and pass it in")
def slow_link(answer: Callable | None) -> Reply:
    """Check ``answer(timeline)``: the two devices between which a message usually takes longest."""
    for make, slow, mistaken in LINKED:
        timeline = make()
        where = f"called with a step of {timeline.schedule!r} that took {written(timeline.makespan)}"
        said = called(answer, timeline, where=where, without=LIBRARY)
        if not (isinstance(said, Sequence | Set) and len(said) == 2 and all(map(is_whole, said))):
            raise keep_working(f"{where}: you say {said!r}. Which two devices?")
        if {*said} != slow:
            question = mistaken.get((min(said), max(said)), COMPARE)
            raise keep_working(f"{where}: you say {said!r}. {_took(timeline, {*said}, slow, question)}")
    return correct(f"in {len(LINKED)} steps. Is the slowest link always the first thing to mend?")


def _took(timeline: Timeline, said: set[int], slow: set[int], question: str) -> str:
    """How long messages take between these devices, beside one that takes longer."""
    own = [each.end - each.start for each in timeline.messages if {each.source, each.target} == said]
    if not own:
        return "No message goes between these two. Between which do they go?"
    longer = next(each for each in timeline.messages if {each.source, each.target} == slow)
    return (
        f"A message between them usually takes {written(median_low(own))}, and that of {longer.action} from "
        f"device {longer.source} to {longer.target} takes "
        f"{written(longer.end - longer.start)}. {question}"
    )
