"""Lesson 18: what the checks say to right answers and to the usual wrong ones."""

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from replies import assert_each_is_told, changed, each_alone, each_reply, natural

import gpipe_sim as gp
from gpipe_sim.core import Linear
from gpipe_sim.course import answers, lesson_18, mine
from gpipe_sim.course.jobs import (
    OVERLOOKED,
    Job,
    Plan,
    least,
    mistaken_bytes,
    mistaken_times,
    number_of_plans,
    simulated,
    sizes,
)


def by_simulation(job: Job) -> tuple[Plan, ...]:
    """Every plan that fits, by simulating 1F1B; then come the rings of the first stage."""
    found = (simulated(job, *each) for each in sizes(job))
    return tuple(sorted(plan for plan in found if plan.held <= job.room))


JOB = Job(16, 16, 64, 0.5, 0.5, 1024, 576, 2304, 512, 100_000)  #: that of the lesson


def right_time(job, K, R, M):
    return next(time for time, _, *size in map(list, everything(job)) if size == [K, R, M])


def everything(job):
    return answers.plans_that_fit(replace(job, room=math.inf))


def searching(time=None, held=None, fits=None, shapes=None, order=sorted):
    """A search; each argument is a piece that one can get wrong."""

    def answer(job):
        found = []
        for step, size, K, R, M in everything(job) if shapes is None else shapes(job):
            step = time(job, K, R, M) if time else step
            size = held(job, K, R, M) if held else size
            if fits(job, size) if fits else size <= job.room:
                found.append((step, size, K, R, M))
        return order(found)

    return answer


def every_number(job):
    """M that do not make equal microbatches."""
    shapes = dict.fromkeys(size[:2] for size in sizes(job))
    yield from ((0, 0, K, R, M) for K, R in shapes for M in range(1, job.samples // R + 1))


def all_pipelines(job):
    """K that do not divide the layers."""
    for K in range(1, job.devices + 1):
        if job.devices % K == 0:
            yield (0, 0, K, job.devices // K, 1)


def all_k(job):
    """K that do not divide the devices."""
    yield from ((0, 0, K, job.devices // K, 1) for K in range(1, job.devices + 1))


def best_of_each(job):
    found = {}
    for plan in answers.plans_that_fit(job):
        found.setdefault(plan[2], plan)
    return list(found.values())


TIMES, BYTES = (each_alone(of, lesson_18.HIDDEN_JOBS[0], 1, 1, 1) for of in (mistaken_times, mistaken_bytes))


def test_every_mistake_gives_other_numbers_than_the_others():
    for column, mistakes in enumerate((TIMES, BYTES)):
        found = [
            tuple(round(mistaken(job, *size), 9) for job in lesson_18.HIDDEN_JOBS for size in sizes(job))
            for mistaken, _ in mistakes
        ]
        every = [
            tuple(round(next(p[column] for p in everything(job) if p[2:] == size), 9) for size in sizes(job))
            for job in lesson_18.HIDDEN_JOBS
        ]
        assert len({*found, sum(every, ())}) == len(mistakes) + 1


def few(keep):
    return lambda plans: [plan for plan in plans if keep(plan, plans)]


def strictly(plan, plans):
    return not any(other[0] < plan[0] and other[1] < plan[1] for other in plans)


def weakly(plan, plans):
    return not any(other[0] <= plan[0] and other[1] <= plan[1] and other is not plan for other in plans)


def either(plan, plans):
    return not any(other[0] < plan[0] or other[1] < plan[1] for other in plans)


def by_sorting(plans):
    """Right, but for plans that are as good."""
    found = []
    for plan in sorted(plans):
        if not found or plan[1] < found[-1][1]:
            found.append(plan)
    return found


def test_what_no_other_beats_is_the_librarys_frontier():
    schedules = [gp.GPipe, gp.OneFOneB, gp.ZBH1]
    rows = planned(JOB.room, gp.Link(0.5, 1024), layers=8, rows=None, schedules=schedules)
    found = lesson_18.kept([(row.time, row.peak, row.words) for row in rows])
    assert {name for *_, name in found} >= {row.words for row in rows.frontier}
    assert {plan[:2] for plan in found} == {(row.time, row.peak) for row in rows.frontier}


def planned(room, link, layers=16, **options):
    model = [Linear(8, 8, rng=np.random.default_rng(0)) for _ in range(layers)]
    x = gp.MetaArray((64, 8, 8), np.float64)
    cluster = gp.Cluster(16, gp.Accelerator(1024, 0.5), room, link)
    return gp.plan(model, cluster, (x, x), gp.mse, gp.Adam(), **options)


def test_the_numbers_of_the_lessons_job_are_those_of_its_layers():
    x = gp.MetaArray((64, 8, 8), np.float64)
    layer = Linear(8, 8, rng=np.random.default_rng(0))
    [[profile]] = gp.profile(gp.split([layer], stages=1), (x, x), gp.mse, gp.Adam()).stages
    assert (profile.flops, profile.input_flops, profile.weight_flops) == (1024, 1024, 1024)
    assert sum(size.fixed for size in profile.gradients.values()) == JOB.gradients
    fixed = sum(profile.parameters.values()) + profile.state
    assert fixed + JOB.gradients == JOB.weights
    assert JOB.saved == 8 * 8 * 8


def test_the_students_times_are_the_planners_where_messages_take_no_time():
    free = answers.plans_that_fit(replace(JOB, latency=0, bandwidth=math.inf))
    one = {"schedules": [gp.OneFOneB], "recompute": [False]}
    for M in (1, 2, 4, 8):
        for row in planned(JOB.room, gp.Link(), rows=None, microbatches=[M], **one):
            size = 16 // row.replicas, row.replicas, M
            time, held = next(plan[:2] for plan in free if plan[2:] == size)
            assert row.time == time and held <= row.peak


def test_the_natural_wrong_predictions_are_what_they_are_said_to_be():
    shapes = {k for k, _, _ in sizes(JOB)}
    ways = [m for k, _, m in sizes(JOB) if k == 16]
    shares = [64 * k // 16 for k in shapes]
    assert (len(shapes), len(ways), sum(shares)) == (5, 7, 124)
    assert {5, 7, 124, len(shapes) * len(ways), len(shapes) * 64} <= set(natural("18", "All K, R and M"))
    assert number_of_plans(JOB) == len(answers.plans_that_fit(JOB)) == 25
    assert len(lesson_18.kept(answers.plans_that_fit(JOB))) == 7
    assert (301.125, 20_992, 8, 2, 16) in answers.plans_that_fit(JOB)
    assert_each_is_told(natural("18", "All K, R and M"), 25)
    best = {
        k: min((plan for plan in by_simulation(JOB) if k == plan.K), key=lambda plan: plan.held)
        for k in shapes
    }
    assert [k for k in sorted(shapes) if best[k].held <= 40_000] == [2, 4, 8, 16]
    assert by_simulation(replace(JOB, room=40_000))[0].K == 2
    assert 16 * JOB.weights == 36_864 and 16 * JOB.saved == 8_192
    assert_each_is_told(natural("18", "Where it fits"), 2)
    assert_each_is_told(natural("18", "Ten times slower between nodes"), 1.9, within=1)
    assert_each_is_told(natural("18", "The fastest of five"), "1F1B")
    assert_each_is_told(natural("18", "Predicted over measured"), 1.2, within=0.05)
    assert_each_is_told(natural("18", "With and without messages"), "true")
    assert_each_is_told(natural("18", "32 layers"), 1)


def with_messages(K, M):
    """The length of 1F1B on the lesson's job, simulated with messages, and the sums of its first stage."""
    b, n, R = 64 * K // (16 * M), 16 // K, 16 // K
    costs = gp.Costs(b * n, b * n, b * n, overhead=JOB.startup)
    link = gp.Link(JOB.latency, JOB.bandwidth)
    step = gp.simulate(gp.OneFOneB(K, M), costs, links=link, message_bytes=b * 8 * 8 * 8).makespan
    return step + 2 * (R - 1) * (JOB.latency + n * JOB.gradients / R / JOB.bandwidth)


def test_a_search_without_messages_is_wrong_about_times_and_right_about_the_first():
    """Room only takes the fastest away: what is left is in the same order."""
    best = [(1, 1), (2, 8), (4, 16), (8, 32)]
    times = [with_messages(*each) for each in best]
    found = [plan for plan in answers.plans_that_fit(JOB) if (plan[2], plan[4]) in best]
    assert times == sorted(times) and [plan[2] for plan in found] == [1, 2, 4, 8]
    assert times == pytest.approx([224.9, 247.9, 281.4, 343.1], abs=0.05)
    assert 1 - found[-1][0] / times[-1] == pytest.approx(1 / 5, abs=0.005)
    for room, (K, M) in zip((100_000, 40_000, 20_000, 15_000), best, strict=True):
        assert answers.plans_that_fit(replace(JOB, room=room))[0][2::2] == (K, M)


def test_what_the_five_hold_in_a_pipeline_of_four():
    """As the replies to wrong guesses say; beside the weights of four layers five microbatches fit."""
    assert (20_000 - 4 * JOB.weights) // (4 * JOB.saved) == 5
    assert gp.peak_in_flight(gp.GPipe(4, 16))[0] == 16
    assert gp.peak_in_flight(gp.Interleaved1F1B(4, 16, 2))[0] == 11 > 2 * 5
    assert gp.peak_in_flight(gp.ZBH1(4, 16)) == (4, 4, 4, 4)
    assert gp.peak_in_flight(gp.ZBV(4, 16)) == (8, 8, 8, 8)


def test_the_bound_in_three_terms_is_the_librarys():
    x, cluster = (
        gp.MetaArray((64, 8, 8), np.float64),
        gp.Cluster(16, gp.Accelerator(1024, 0.5), 1e6, gp.Link(0.5, 1024)),
    )
    model = [Linear(8, 8, rng=np.random.default_rng(0)) for _ in range(16)]
    assert (
        least(JOB)
        == answers.bound(JOB)
        == gp.planning.lower_bound(model, cluster, (x, x), gp.mse)
        == 204.484375
    )


def test_no_plan_of_a_hidden_job_is_faster_than_its_bound():
    for job in lesson_18.HIDDEN_JOBS:
        assert all(least(job) <= simulated(job, *size).time for size in sizes(job))


def test_every_overlooked_term_gives_another_bound():
    found = {
        tuple(least(job, **habit) for job in lesson_18.HIDDEN_JOBS) for habit in ({}, *OVERLOOKED.values())
    }
    assert len(found) == len(OVERLOOKED) + 1


def emptied(plans):
    found = lesson_18.kept(plans)
    plans.clear()
    return found[::-1]


SEARCHES = {
    "correct": [
        (answers.plans_that_fit, ""),
        (lambda job: list(map(list, by_simulation(job))), ""),
        (lambda job: answers.plans_that_fit(Job(**asdict(job))), ""),
        (lambda job: [tuple(map(np.float64, plan)) for plan in answers.plans_that_fit(job)], ""),
        (lambda job: sorted(answers.plans_that_fit(job), key=lambda plan: (plan[0], -plan[1])), ""),
    ],
    "keep working": [
        (changed(answers.plans_that_fit, (" or job.samples % R", "")), "you have R = 3 and M = 5"),
        (searching(shapes=every_number), "How many samples has each microbatch?"),
        (searching(shapes=all_pipelines), "How many layers has each stage?"),
        (searching(shapes=all_k), "How many devices are that?"),
        (searching(time=lambda *given: 1.0), "a step takes 1, and it is 105. What is"),
        (searching(held=lambda *given: 1.0), "you say the first device holds 1"),
        (
            lambda job: [(K, R, M, time, held) for time, held, K, R, M in answers.plans_that_fit(job)],
            "Where are its K, R and M? They come last, and are whole",
        ),
        (lambda job: [plan[:2] for plan in everything(job)], "Which five numbers should it have?"),
        (lambda job: answers.plans_that_fit(job)[0], "Which five numbers should it have?"),
        (lambda job: [(math.nan, *plan[1:]) for plan in everything(job)], "Which line makes that?"),
        (lambda job: [(1, 1, math.inf, 1, 1)], "Where are its K, R and M? They come last, and are whole"),
        (lambda job: iter(by_simulation(job)), "a tuple_iterator. Later cells ask for its first plan, and"),
        (lambda job: "plans", "you give 'plans'; it should be a list of plans"),
        (lambda job: job.stages, "it stopped: AttributeError"),
    ],
    "almost": [
        *((searching(time=mistaken), question) for mistaken, question in TIMES),
        *((searching(held=mistaken), question) for mistaken, question in BYTES),
        (best_of_each, "It is not in your list: which line leaves it out?"),
        (lambda job: answers.plans_that_fit(job)[:1], "which line leaves it out?"),
        (lambda job: [], "which line leaves it out?"),
        (everything, "Does it fit?"),
        (searching(fits=lambda job, size: size < job.room), "Does it fit?"),
        (lambda job: 2 * answers.plans_that_fit(job), "is there twice. Which loop repeats it?"),
        (
            searching(order=lambda found: sorted(found, key=lambda plan: plan[2])),
            "you have the smallest K first. Which should come first?",
        ),
        (
            searching(order=lambda found: sorted(found, key=lambda plan: plan[1])),
            "you have what holds least first. Which should come first?",
        ),
        (
            searching(order=lambda found: sorted(found)[::-1]),
            "you have another order. Which should come first?",
        ),
    ],
}
CHOICES = {
    "correct": [
        (answer, "")
        for answer in (
            lesson_18.kept,
            lambda plans: lesson_18.kept(plans)[::-1],
            lambda plans: tuple(lesson_18.kept(plans)),
            lambda plans: iter(lesson_18.kept(plans)),
            lambda plans: set(lesson_18.kept(plans)),
        )
    ],
    "keep working": [
        (few(strictly), "is faster and as small"),
        (few(weakly), "Which plan beats it?"),
        (few(either), "Which plan beats it?"),
        (lambda plans: plans, "is faster and smaller"),
        (lambda plans: sorted(plans)[:1], "Which plan beats it?"),
        (lambda plans: sorted(plans, key=lambda plan: plan[1])[:1], "Which plan beats it?"),
        (lambda plans: [], "Which plan beats it?"),
        (lambda plans: [plan[:2] for plan in lesson_18.kept(plans)], "Return whole plans"),
        (lambda plans: [plan[2] for plan in lesson_18.kept(plans)], "Return whole plans"),
        (lambda plans: [plans.index(plan) for plan in lesson_18.kept(plans)], "which is none of them"),
        (lambda plans: min(plans, default=()), "which is none of them"),
        (lambda plans: 3, "it should be a list of plans"),
        (lambda plans: sorted(plans)[0] and [], "it stopped: IndexError: list index out"),
    ],
    "almost": [
        (emptied, "plans is not what it was before. Who else may need it?"),
        (by_sorting, "Does another plan that is as good beat it?"),
        (lambda plans: lesson_18.kept(plans) + lesson_18.kept(plans)[:1], "twice. When is it added again?"),
    ],
}


def of_fitting(job):
    """The three terms of a plan: right, if it were not asked of those that fit alone."""

    def terms(plan):
        K, R, M = plan[2:]
        work = 3 * job.samples * job.layers / job.devices + 2 * M * job.startup
        waiting = (K - 1) / 2 * (job.samples // R // M + job.startup + job.latency)
        return work + waiting + 2 * (R - 1) * (job.latency + job.gradients / R / job.bandwidth)

    return terms


def test_what_is_kept_may_replace_a_part_of_a_job_as_the_lesson_does():
    own = """def bound(job):
    return min(map(of_fitting(job), plans_that_fit(replace(job, room=float("inf")))))"""
    bound = mine.pipeline(own)["bound"]
    bound.__globals__["of_fitting"] = of_fitting
    assert lesson_18.bound(bound).verdict == "correct"


BOUNDS = {
    "correct": [
        (answers.bound, "in 9 jobs"),
        (lambda job: np.float64(least(job)), ""),
        (lambda job: np.array(least(job)), ""),
    ],
    "almost": [
        *((lambda job, h=habit: least(job, **h), question) for question, habit in OVERLOOKED.items()),
        (
            lambda job: min(map(of_fitting(job), answers.plans_that_fit(job))),
            "Which plans count for the bound?",
        ),
    ],
    "keep working": [
        (changed(answers.bound, ("min(times)", "max(times)")), "and of which is that the least?"),
        (changed(answers.bound, ("min(times)", "times")), "How long does no plan take less than?"),
        (lambda job: job.bytes, "with 4 devices, 8 layers and 12 samples it stopped: AttributeError"),
        (lambda job: math.inf, "you say inf. How long"),
        (lambda job: None, "you say None. How long"),
    ],
}
test_replies = each_reply(lesson_18, plans_that_fit=SEARCHES, bound=BOUNDS, unbeaten=CHOICES)
