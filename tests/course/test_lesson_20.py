"""Lesson 20: what the checks say to right answers and to the usual wrong ones."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import mean, median

import numpy as np
from replies import assert_each_is_told, each_reply, natural

import gpipe_sim as gp
from gpipe_sim.core import F, needs
from gpipe_sim.course import lesson_20
from gpipe_sim.course.clocked import PAUSE, measured
from gpipe_sim.export import recorded_run


def reply(check, answer) -> str:
    return repr(check(answer))


def took(timeline, stage=None, kind="F"):
    return [
        span.end - span.start
        for span in timeline.spans
        if stage in (None, span.action.stage) and kind in (None, span.action.kind)
    ]


def plain(timeline):
    """What a student reads off: medians of actions and of messages, without the pauses."""
    return replace(gp.fit_costs(timeline).plain, overhead=0)


def step(timeline, microbatches, family=gp.GPipe, **changed):
    costs = replace(plain(timeline), **changed)
    return gp.simulate(family(timeline.schedule.devices, microbatches), costs).makespan


def test_a_step_by_the_fitted_costs():
    clock = recorded_run("gpipe16").makespan
    said = step(recorded_run(), 16)
    assert abs(said / clock - 1) < 0.05
    assert reply(lesson_20.gpipe_step, step) == (
        f"correct: for the recorded devices and 16 microbatches you say {said:.0f} ms, and the clock said "
        f"{clock:.0f} ms. What do your costs leave out?"
    )


def truth(timeline, microbatches):
    """What a clock says, or the fit where none was read."""
    clocks = {(case.makespan, size): clock for case, size, clock in lesson_20._step_cases()}
    return clocks[timeline.makespan, microbatches] or step(timeline, microbatches)


def scaled(timeline, microbatches):
    """By the fitted costs, and by how far these were off for the step that was measured."""
    same = gp.simulate(timeline.schedule, plain(timeline)).makespan
    return step(timeline, microbatches) * timeline.makespan / same


def turns(timeline, microbatches):
    return microbatches + timeline.schedule.devices - 1


def slowest(timeline):
    costs = plain(timeline)
    stages = range(timeline.schedule.devices)
    return max(sum(costs.duration(make(k, 0), k) for make in (F, gp.core.B)) for k in stages)


AS_THE_SLOWEST = (
    "That takes every stage to be as long as the slowest. "
    "How long does the first microbatch take to reach the slowest, and the last one from there?"
)


def like_the_first(timeline, microbatches):
    costs = plain(timeline)
    names = ("forward", "input_grad", "weight_grad")
    first = {name: getattr(costs, name)[0] for name in names if isinstance(getattr(costs, name), tuple)}
    return step(timeline, microbatches, **first)


def pauses(timeline):
    """Between two actions of a device, where all that the later one needs from others had ended."""
    schedule = timeline.schedule
    for row in timeline.rows:
        for before, after in pairwise(row):
            needed = [n for n in needs(after.action, schedule) if schedule.device_of(n) != after.device]
            if all(timeline.ends[need] <= before.end for need in needed):
                yield after.start - before.end


def test_a_made_timeline_is_the_same_every_time_and_respects_its_schedule():
    def made():
        steps = [make() for make, *_ in lesson_20.FORWARDS]
        return steps + [case for case, *_ in lesson_20._step_cases()]

    for timeline, same in zip(made(), made(), strict=True):
        assert timeline.spans == same.spans
        assert [tuple(span.action for span in row) for row in timeline.rows] == list(
            timeline.schedule.actions
        )
        for span in timeline.spans:
            assert all(timeline.ends[need] <= span.start for need in needs(span.action, timeline.schedule))


def test_a_made_timeline_has_its_costs_a_pause_and_its_slow_actions():
    timeline = measured(gp.OneFOneB(1, 7), gp.Costs(10, 20, 20), slow={"0F3": 30})
    assert [round(ms, 1) for ms in took(timeline)] == [10.5, 9.6, 9.1, 279, 10.0, 10.9, 10.2]
    assert [round(ms, 2) for ms in pauses(timeline)] == [PAUSE] * 13


def recorded_speedup(name):
    return recorded_run(f"{name}_alone").makespan / recorded_run(name).makespan


#: of each prediction: the known wrong guesses, what was measured, and how far off a guess may be
PREDICTIONS = [
    (natural("20", "How many work at once"), 1, 0),  # in one process, which the lesson counts
    (natural("20", "ZB-H1, simulated and measured"), round(median(took(recorded_run("zbh1"), 0, "I"))), 0),
    (natural("20", "GPipe with 16 microbatches"), "equal", 0),
    (natural("20", "The narrow model on one process and on two"), round(recorded_speedup("narrow"), 2), 0.25),
    (
        natural("20", "The wide model, and where the time of both goes"),
        round(recorded_speedup("wide"), 2),
        0.15,
    ),
    (natural("20", "Message for message"), "true", 0),
    (natural("20", "128 numbers, and 65,536"), 3.9, 0.5),
]


def test_each_natural_wrong_guess_is_told_what_it_is():
    for known, right, within in PREDICTIONS:
        assert_each_is_told(known, right, within)


def test_the_wrong_guesses_follow_from_a_thought():
    crossing = gp.simulate(gp.OneFOneB(4, 8)).messages
    assert sum((each.source == 1) + (each.target == 1) for each in crossing) == 32
    assert len(crossing) == 48
    sleep = gp.Costs(20, 20, 20)
    assert gp.simulate(gp.GPipe(4, 16), sleep).makespan == 1140
    clock = recorded_run("gpipe16").makespan
    assert 0.98 * clock < step(recorded_run(), 16) < 0.99 * clock
    assert step(recorded_run(), 16) < 1140 * recorded_run().makespan / 660 < clock
    assert round(2 * 8 / (2 + 8 - 1), 2) == 1.78
    assert round(recorded_speedup("narrow"), 2) == 0.85
    alone, crossing = 2 * 8 * (0.13 + 0.23), 2 * 8 * 0.09
    with_messages = gp.simulate(gp.OneFOneB(2, 8), gp.Costs(0.13, 0.115, 0.115, comm=0.09)).makespan
    assert round(alone / with_messages, 2) == 1.45 and round(alone / (9 * 0.36 + crossing), 2) == 1.23


def test_zb_h1_as_recorded_and_by_the_costs_of_1f1b():
    """By a clock of its own: medians of F and of half a B, all of it in W on stage 0, messages and pauses."""
    run, flat = recorded_run("zbh1"), recorded_run()
    b = [median(took(flat, k, "B")) for k in range(4)]
    halves = [each / 2 for each in b[1:]]
    lasts = {"F": [median(took(flat, k)) for k in range(4)], "I": [0, *halves], "W": [b[0], *halves]}
    fit, ends, free = gp.fit_costs(flat), {}, [0.0] * 4
    rows = [list(row) for row in run.schedule.actions]
    while any(rows):
        for k, row in enumerate(rows):
            while row and all(need in ends for need in needs(row[0], run.schedule)):
                action = row.pop(0)
                came = [ends[n] + fit.transfer(n, n.stage, k) for n in needs(action, run.schedule)]
                ends[action] = max([free[k], *came]) + lasts[str(action.kind)][k] + fit.jitter[k]
                free[k] = ends[action] + fit.overhead[k]
    text = (Path(__file__).parents[2] / "notebooks/20_on_real_devices.ipynb").read_text()
    assert f"ZB-H1 took {run.makespan:.1f} ms, and the costs of 1F1B say {max(ends.values()):.1f}" in text


def test_what_a_message_of_512_times_the_size_takes():
    """Median waits, taken here from the rows: 128 numbers and 65,536, between processes that compute."""
    assert 512 // 8 * 1024 == 512 * (64 // 8 * 16) == 65_536
    small, large = (gp.fit_costs(recorded_run(name)).comm for name in ("narrow", "wide"))
    assert round(small, 2) == 0.09 and round(large / small, 1) == 3.9
    narrow = gp.fit_costs(recorded_run("narrow"))
    assert (
        round(narrow.forward[0], 2) == 0.13 and round(narrow.input_grad[0] + narrow.weight_grad[0], 2) == 0.23
    )


#: what is no time, for each of the three checks, and times that are no check's
NO_TIMES = [
    (lambda *_, said=said: said, words)
    for said, words in (
        ("20", "you say '20'. How do you say a time as a plain number?"),
        (True, "you say True. How do you say a time as a plain number?"),
        (1j, "you say 1j. How do you say a time as a plain number?"),
        (float("nan"), "you say nan. How do you say a time as a plain number?"),
        (float("inf"), "you say inf. How do you say a time as a plain number?"),
        (30 * [9.180000000000007], "it gives a list of 30. Which one number is the time?"),
        ({0: 9.180000000000007}, "it gives a dict of 1. Which one number is the time?"),
    )
]
NUMBERS = [lambda *_, said=said: said for said in (0, -1, 1234.5)]


def only_what_was_shown(timeline, microbatches):
    """The recorded devices are asked for a size that the lesson does not show."""
    shown = timeline.makespan == recorded_run().makespan
    return recorded_run("gpipe16").makespan if shown else step(timeline, microbatches)


def of_device(timeline, stage):
    """The forwards of the device with the stage's number: once no device had two stages."""
    rows = timeline.rows[stage % timeline.schedule.devices]
    return [float(span.end - span.start) for span in rows if span.action.kind == "F"]


TIMES = {
    "correct": [
        (
            lambda t, s: median(took(t, s)),
            "at 12 stages of 5 timelines, with slow actions among them. How many",
        ),
        (lambda t, s: mean(sorted(took(t, s))[2:-2]), ""),
        (lambda t, s: mean(time for time in took(t, s) if 1 < time < 3 * median(took(t, s))), ""),
        (lambda t, s: np.quantile(took(t, s), 0.5), ""),
        (lambda t, s: min(time for time in took(t, s) if time > 1), ""),
    ],
    "wrong": [
        lambda t, s: took(t, s)[-1],
        lambda t, s: sorted(took(t, s))[-2],
        lambda t, s: t.spans[s].end - t.spans[s].start,
        lambda t, s: next(span.end for span in t.spans if span.action == F(s, 0)),
        lambda t, s: median(took(t, s, "B")),
        lambda t, s: (min(took(t, s)) + max(took(t, s))) / 2,
        lambda t, s: t.makespan / t.schedule.microbatches,
        *NUMBERS,
    ],
    "almost": [
        (
            lambda t, s: median(took(t, s + 1)),
            "you say 7.14; its 7 forwards took 8.19 to 275.4. Are all of these forwards of stage 1?",
        ),
        (
            lambda t, s: mean(took(t, s)),
            "stage 1 of OneFOneB(devices=3, microbatches=7): you say 47.13; its 7",
        ),
        (lambda t, s: mean(took(t, s)), "9.81 the longest but one. Should one slow action move your answer?"),
        (lambda t, s: median(took(t)), "Are all of these forwards of stage 1?"),
        (lambda t, s: min(took(t, s)), "the shortest but one. Is the shortest what a forward takes?"),
    ],
    "keep working": [
        *NO_TIMES,
        (lambda t, s: max(took(t, s)), "Is the longest what a forward takes?"),
        (lambda t, s: gp.fit_costs(t).forward[s], "it uses fit_costs. How do you do it without?"),
        (lambda t, s: median(of_device(t, s)), "stage 1 of Interleaved1F1B"),
        (lambda t, s: min(ms for ms in of_device(t, s) if ms > 1), "stage 3 of Interleaved1F1B"),
        (lambda t, s: took(t, s)[0], "That is the first of them. Is it like the others?"),
        (lambda t, s: sum(took(t, s)), "That is the sum of them. How long is one?"),
        (lambda t, s: mean(took(t)), "Are all of these forwards of stage 1?"),
        (lambda t, s: mean(took(t, s, None)), "Is every action of the stage a forward?"),
    ],
}
STEPS = {
    "correct": [(truth, ""), (scaled, ""), (lambda t, m: (truth(t, m) + step(t, m)) / 2, "")],
    "wrong": [
        lambda t, m: t.makespan + m - t.schedule.microbatches,
        lambda t, m: t.makespan + (m - t.schedule.microbatches) * mean(took(t, None, None)),
        lambda t, m: gp.simulate(gp.GPipe(t.schedule.devices, m)).makespan,
        lambda t, m: gp.simulate(gp.GPipe(m, t.schedule.devices), gp.Costs(comm=1)).makespan,
        lambda t, m: gp.simulate(gp.GPipe(4, m), gp.fit_costs(t)).makespan,
        lambda t, m: sum(took(t, None, None)),
        lambda t, m: step(t, t.schedule.microbatches),
        lambda t, m: gp.simulate(t.schedule, gp.fit_costs(t)),
        *NUMBERS,
    ],
    "keep working": [
        *NO_TIMES,
        (only_what_was_shown, "GPipe(devices=4, microbatches=11)"),
        (lambda t, m: t.makespan, "That is the step with 5 microbatches. How many are asked for?"),
        (
            lambda t, m: t.makespan * m / t.schedule.microbatches,
            "That is 20/5 of the measured step. Does the time in which devices fill and drain grow too?",
        ),
        (
            lambda t, m: m * slowest(t),
            "That is what the slowest stage works. When can it start, and what happens after it?",
        ),
    ],
    "almost": [
        (
            lambda t, m: t.makespan * turns(t, m) / turns(t, t.schedule.microbatches),
            "That is 23/8 of the measured step, as if all of it grew alike. "
            "Which stage, or which message, sets how long one more microbatch takes?",
        ),
        (lambda t, m: turns(t, m) * slowest(t), AS_THE_SLOWEST),
        (lambda t, m: turns(t, m) * (slowest(t) + 2 * gp.fit_costs(t).comm), AS_THE_SLOWEST),
        (lambda t, m: step(t, m, comm=0), "That is without messages, and each took 15. Who waits for them?"),
        (
            lambda t, m: step(t, m, family=gp.OneFOneB),
            "That is 1F1B's. Which of the two waits for more messages?",
        ),
        (like_the_first, "That takes every stage to be as long as the first stage. Are they alike?"),
    ],
}
#: A reply once said 662.8999999999999, and quoted a list of thirty such numbers.
LONG_NUMBERS = r"[1-9]\.\d{4}|\.\d{5}"
test_replies = each_reply(lesson_20, LONG_NUMBERS, forward_time=TIMES, gpipe_step=STEPS)
