"""Lesson 13: splitting the backward."""

from collections.abc import Callable
from fractions import Fraction
from numbers import Real

from gpipe_sim.course.called import called
from gpipe_sim.course.reply import Reply, almost, correct, is_number, keep_working, your_turn
from gpipe_sim.families import ZBH1, ZBH2, OneFOneB
from gpipe_sim.schedule.actions import Action, Kind
from gpipe_sim.schedule.base import needs
from gpipe_sim.schedule.explicit import Explicit
from gpipe_sim.simulation.costs import Costs
from gpipe_sim.simulation.deadlock import cycle, in_words, waiting
from gpipe_sim.simulation.metrics import (
    bubble_fraction,
    bubble_overhead,
    idle_spans,
    peak_in_flight,
    span_bubble,
)
from gpipe_sim.simulation.problems import problems
from gpipe_sim.simulation.simulate import simulate
from gpipe_sim.simulation.timeline import Timeline

GIVEN = ZBH1(devices=3, microbatches=4)  #: all rows but the last are given; its length is the goal
LAST = GIVEN.devices - 1

#: (devices, microbatches, F, I, W), where a span bubble is tried; ZB-H2's formula needs W <= F, M >= 2K-1.
SETTINGS = (
    (3, 7, 5, 6, 1),
    (4, 12, 20, 21, 1),
    (2, 5, 3, 3, 0),
    (6, 11, 4, 4, 4),
    (5, 30, 10, 12, 7),
)
ROUNDED = 5.1e-5  #: how far off an answer may be that was rounded to four digits

#: What natural wrong guesses at the length of 1F1B, 4 x 8, with W right behind its I would be.
IN_HALVES = {
    33: "That is as before. When does a device know the gradient that the one before it waits for?",
    32: "That is one W less. How many devices pass the last gradient on before it reaches device 0?",
    27: "That is a way back that costs nothing. How long is I?",
    24: "That is without any waiting. When can device 3 begin?",
}
#: What natural wrong guesses at its length with every W put off by three microbatches would be.
ALL_PUT_OFF = {
    33: "That is three W more at the end. Did the last gradient arrive at device 0 when it did before?",
    27: "That is three units gained. What has device 0 still to do when its last gradient has arrived?",
    24: "That is without any waiting. When can device 3 begin?",
}
#: What natural wrong guesses at the length of ZB-H2, 4 x 8, would be.
TWICE_THE_WARM_UP = {
    24: "That is without any waiting. What does device 3 do before the first forward reaches it?",
    21: "That is as much gained again as ZB-H1 gained. How much work has each device?",
    30: "That is three forwards that delay the first gradient. Does device 3 start any later?",
}
#: What natural wrong guesses at ZB-H2's span bubble, 8 x 24 at measured times, in percent, would be.
PERCENT = {
    0: "That is the name. How long is W here, beside F and I?",
    14.8: "That is ZB-H1's formula, with one W. How many does ZB-H2 fill in?",
    22.6: "That is the formula of 1F1B. What has been filled with W here?",
    0.102: "That is a share of 1. What is it in percent?",
}


def put_off(answer: str | None) -> Reply:
    """Check the row of the last of three devices: with the given rows, a step as short as that of ZB-H1."""
    goal = simulate(GIVEN).makespan
    if answer is None:
        return your_turn(f"write the row of device {LAST} as text: four F, four I and four W")
    schedule = _with_row(answer)
    if isinstance(schedule, Reply):
        return schedule
    timeline, held = simulate(schedule), peak_in_flight(schedule)[LAST]
    if timeline.makespan > goal:
        return almost(f"it takes {timeline.makespan}. {_who_waits(timeline)}")
    return correct(f"{goal} long, and device {LAST} holds at most {held}. Which of your W fills which hole?")


def _with_row(answer: str) -> Explicit | Reply:
    """The given rows and the student's as a schedule, or a reply that says what is wrong with the row."""
    if not isinstance(answer, str):
        return keep_working(f"write the row as text, such as '2F0 2I0 2W0' (got {type(answer).__name__})")
    rows = [line for line in answer.splitlines() if line.strip()]
    if len(rows) != 1:
        return keep_working(f"one row please, that of device {LAST} (got {len(rows)})")
    placement, given = GIVEN.placement, str(GIVEN).splitlines()[:LAST]
    try:
        schedule = Explicit.parse(
            "\n".join([*given, *rows]), placement=placement, microbatches=GIVEN.microbatches
        )
    except ValueError as error:
        return keep_working(str(error))
    if whole := next((action for action in schedule.actions[LAST] if action.parts[0].kind is Kind.B), None):
        return keep_working(f"{whole} is a backward in one piece; write its I and its W, each by itself")
    found = problems(schedule)
    if not found:
        return schedule
    if found[0].rule == "deadlock":
        return keep_working(f"{in_words(cycle(waiting(schedule)))}.")
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return keep_working(f"{found[0].sentence}{more}")


def _who_waits(timeline: Timeline) -> str:
    """A sentence on the first wait of device 1 that a W of the student causes; or else on their own waits."""
    row = [span.action for span in timeline.on(LAST)]
    for start, end in idle_spans(timeline, LAST - 1):
        for late in _awaited(timeline, end):
            ahead = [action for action in row[: row.index(late)] if action.kind is Kind.W]
            if ahead:
                wait = f"waits from {start} to {end} for {late}"
                behind = f"stands behind {ahead[-1]} on your row"
                return f"Device {LAST - 1} {wait}, which {behind}. Who waits for {ahead[-1]}?"
    works = timeline.on(LAST)
    gaps = (gap for gap in idle_spans(timeline, LAST) if works[0].end <= gap[0] < works[-1].start)
    if gap := next(gaps, None):
        return f"Device {LAST} waits from {gap[0]} to {gap[1]}. What could it do then?"
    return (
        f"Device {LAST} starts at {works[0].start} and ends at {works[-1].end}. What do the others wait for?"
    )


def _awaited(timeline: Timeline, at: Real) -> list[Action]:
    """What the device before the last got from the last one, for the action that it starts at this time."""
    started = [span.action for span in timeline.on(LAST - 1) if span.start == at]
    wanted = (need for action in started for need in needs(action, timeline.schedule))
    return [need for need in wanted if timeline.schedule.device_of(need) == LAST]


def small_weight_times(answer: Callable | None) -> Reply:
    """Check ``answer(K, M, F, I, W)``: ZB-H2's span bubble as an exact fraction, also for W small or 0."""
    if answer is None:
        return your_turn("write a function of (K, M, F, I, W) and pass it in")
    for setting in SETTINGS:
        said = called(answer, *setting)
        if isinstance(said, Reply):
            return said
        if wrong := _what_is_wrong(said, *setting):
            return wrong
    return correct(
        f"exact in {len(SETTINGS)} settings, down to W = 0. What can ZB-H2 fill its bubble with then?"
    )


def _what_is_wrong(said: object, K: int, M: int, F: int, I: int, W: int) -> Reply | None:
    where = f"K = {K}, M = {M}, F = {F}, I = {I}, W = {W}"
    if not is_number(said):
        return keep_working(
            f"{where}: you say {said!r}; the span bubble is a number, such as Fraction(1, 10)"
        )
    costs = Costs(Fraction(F), Fraction(I), Fraction(W))
    timeline = simulate(ZBH2(K, M), costs)
    measured = span_bubble(timeline)
    if said == measured:
        return None
    if abs(said - measured) < ROUNDED:
        return almost(f"{where}: {float(said):.4f} is right but for rounding. Make it exact, with Fraction")
    for name, other in _mistaken_for(timeline, K, M, costs).items():
        if abs(said - other) < ROUNDED:
            return almost(f"{where}: {name}")
    return keep_working(
        f"{where}: you say {float(said):.4f}, measured {float(measured):.4f}. Idle over what?"
    )


def _mistaken_for(timeline: Timeline, K: int, M: int, costs: Costs) -> dict[str, Real]:
    """Wrong numbers that one easily arrives at, each with the question that leads on from it."""
    longest = max(row[-1].end - row[0].start for row in timeline.rows)
    useful = M * (costs.forward + costs.input_grad + costs.weight_grad)
    return {
        "that is in percent. As a fraction of 1?": 100 * span_bubble(timeline),
        "that is idle over the makespan. Is any device there from 0 to the end?": (
            (longest - useful) / timeline.makespan
        ),
        "that is the bubble time. Over how long a span?": longest - useful,
        "that is idle over useful time. Divide by the longest span.": (longest - useful) / useful,
        "that is the bubble fraction, corners and all. Which corners does a span leave out?": bubble_fraction(
            timeline
        ),
        "that is idle over useful time, corners and all. Which corners does a span leave out?": (
            bubble_overhead(timeline)
        ),
        "that is ZB-H1's. How many W does a device of ZB-H2 put off?": span_bubble(
            simulate(ZBH1(K, M), costs)
        ),
        "that is 1F1B's. What has moved into its holes?": span_bubble(simulate(OneFOneB(K, M), costs)),
    }
