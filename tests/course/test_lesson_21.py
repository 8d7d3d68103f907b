"""Lesson 21: its runs are what it says of them, and its checks know right from wrong."""

from statistics import mean, median, median_high, median_low

import pytest
from replies import assert_each_is_told, each_reply, natural

import gpipe_sim as gp
from gpipe_sim.course import lesson_21
from gpipe_sim.course.lesson_21 import LINKED, STEPS, trace


def usual(timeline, kind, of_stages=median, of_actions=median):
    return of_stages(
        [of_actions([s.end - s.start for s in row if s.action.kind == kind]) for row in timeline.rows]
    )


def first(timeline, **how):
    f, b = (usual(timeline, kind, **how) for kind in "FB")
    work = timeline.schedule.microbatches * (f + b)
    return work, gp.simulate(timeline.schedule, gp.Costs(f, b, 0)).makespan - work


def busy(timeline):
    return [sum(span.end - span.start for span in row) for row in timeline.rows]


def test_the_two_terms_are_those_of_the_library():
    """As the text says: each stage's median, and of the stages the lower of the two in the middle."""
    for make in STEPS:
        timeline = make()
        mine = first(timeline, of_stages=median_low)
        assert [term.time for term in gp.where_time_goes(timeline).terms[:2]] == pytest.approx(mine)


MEAN = "That is with the mean. Does one slow stage move a mean?"
TERMS = {
    "correct": [
        (lambda t, pick=pick: first(t, of_stages=pick), "in 5 steps")
        for pick in (median, median_low, median_high)
    ],
    "almost": [
        (lambda t: (first(t)[0], t.makespan - first(t)[0]), "What of it would equal stages take too?"),
        (lambda t: (max(busy(t)), first(t)[1]), "Is its stage a usual one?"),
        (lambda t: (mean(busy(t)), first(t)[1]), "Does one slow stage move a mean?"),
        (lambda t: (sum(busy(t)), first(t)[1]), "What does one of them do?"),
        (lambda t: first(t, of_stages=mean), MEAN),
        (lambda t: first(t, of_stages=mean, of_actions=mean), "Does one slow stage move a mean?"),
        (lambda t: (first(t)[0], sum(first(t))), "What of it is not work?"),
        (lambda t: (first(t)[0] / t.schedule.microbatches, 1), "How many are there?"),
    ],
    "wrong": [
        lambda t: 3,
        lambda t: (1, "two"),
        lambda t: (0, 0),
        lambda t: first(t)[::-1],
        lambda t: first(t, of_stages=max),
        lambda t: first(t, of_actions=mean),
        lambda t: gp.where_time_goes(t).terms[:2],
    ],
}


def which(pick=median, of=lambda each: True, pair=lambda each: frozenset((each.source, each.target))):
    """The pair of devices for which what is picked of its messages is largest."""

    def answer(timeline):
        took = {}
        for each in filter(of, timeline.messages):
            took.setdefault(pair(each), []).append(each.end - each.start)
        return tuple(max(took, key=lambda pair: pick(took[pair])))

    return answer


TAKES = "between them usually takes 1, and that of 0F0 from device 0 to 1 takes 7. What do you compare?"
LINKS = {
    "correct": [
        (which(), "in 8 steps"),
        (which(median_low), ""),
        (which(median_high), ""),
        (lambda t: which()(t)[::-1], ""),
        (lambda t: {*which()(t)}, ""),
    ],
    "keep working": [
        (lambda t: (1, 2), TAKES),
        (lambda t: (0, 2), "Between which do they go?"),
        (lambda t: (1, 1), "Between which do they go?"),
        (lambda t: 1, "Which two devices?"),
        (lambda t: (0, 1, 2), "Which two devices?"),
        (lambda t: "01", "Which two devices?"),
        (
            which(lambda times: times[0]),
            "between them usually takes 1, and that of 1F0 from device 1 to 2 takes 4. "
            "Is the first message a usual one?",
        ),
        (which(lambda times: times[-1]), "Is the last message a usual one?"),
        (which(min), "Is the quickest message a usual one?"),
        (which(of=lambda each: each.source < each.target), "Are outputs all that crosses a link?"),
        (which(of=lambda each: each.source > each.target), "Are gradients all that crosses a link?"),
        (which(pair=lambda each: (each.source, each.target)), "all that crosses a link?"),
    ],
    "wrong": [
        lambda t: which()(t)[:1],
        lambda t: (0, 1),
        which(mean),
        which(max),
        which(sum),
        lambda t: t.messages[0][1:3],
        lambda t: max(gp.fit_costs(t).by_pair, key=lambda each: each.time).pair,
    ],
}
test_replies = each_reply(lesson_21, first_terms=TERMS, slow_link=LINKS)


def test_the_slow_link_is_not_always_the_same():
    assert {frozenset(slow) for _, slow, _ in LINKED} == {
        frozenset(pair) for pair in ((0, 1), (3, 4), (1, 2), (2, 3))
    }


def test_each_natural_wrong_guess_is_told_what_it_is():
    for name, right, within in (
        ("How much of the time devices wait", 48.4, 0.1),
        ("One bar that sums to the step", "stages", 0),
        ("What the slow link costs", 20.5, 0.2),
        ("Which change saves most", "B", 0),
        ("The other cut, measured", "layers", 0),
        ("What the slow stage hides", "false", 0),
        ("Who waits", "false", 0),
    ):
        assert_each_is_told(natural("21", name), right, within)


@pytest.mark.parametrize(("run", "layers"), [("before", (4, 4, 4, 4)), ("after", (6, 3, 2, 5))])
def test_a_run_is_the_one_that_the_lesson_tells_of(run, layers):
    """Layers 8 to 11 sleep for 4 ms each, the others for 2; between devices 1 and 2 a message takes 10 ms."""
    [step] = gp.read_trace(trace(run))
    assert step.schedule == gp.OneFOneB(4, 8)
    fit, sleeps = gp.fit_costs(step), [2] * 8 + [4] * 4 + [2] * 4
    ends = [sum(layers[:k]) for k in range(5)]
    for k in range(4):
        forward = sum(sleeps[ends[k] : ends[k + 1]])
        assert fit.forward[k] == pytest.approx(forward, rel=0.1)
        assert fit.input_grad[k] + fit.weight_grad[k] == pytest.approx(2 * forward, rel=0.1)
    for pair, took in fit.by_pair:
        assert took == pytest.approx(10.4, abs=0.4) if {*pair} == {1, 2} else took < 0.5
    assert abs(fit.error) < 0.01 and gp.where_time_goes(step).rest == pytest.approx(0, abs=1e-6)


def test_the_gain_of_the_other_cut_was_predicted_to_a_percent_or_two():
    [before], [after] = (gp.read_trace(trace(run)) for run in ("before", "after"))
    [cut] = [
        each for each in gp.what_if(before, layers=[4] * 4, schedules=[]) if each.balance == (6, 3, 2, 5)
    ]
    assert cut.gain == pytest.approx(1 - after.makespan / before.makespan, abs=0.02)
