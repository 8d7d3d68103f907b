"""Advice: every branch is a comparison of numbers, and these are those of the plans that it is about."""

import re
from functools import cache

import numpy as np
import pytest
from planned import NODES, X, Y, cluster, every_candidate, model, table
from planned import plan as planned

import gpipe_sim as gp
from gpipe_sim.errors import MemoryLimitError
from gpipe_sim.memory.limit import in_bytes
from gpipe_sim.planning.advice import Advice
from gpipe_sim.planning.plans import Plan

QUESTIONS = (
    "Does a replica fit one device?",
    "How long must a pipeline be?",
    "Data parallel, pipeline, or both: what is the fastest step?",
    "What do messages and all-reduce cost?",
    "Are there microbatches enough for a bubble of a tenth?",
    "Can the layers be cut evenly?",
    "GPipe or 1F1B?",
    "Does another schedule gain anything?",
    "Is recompute needed?",
    "What takes the most time that is not compute?",
)
FITS, WHERE, WHICH, LINKS, MICROBATCHES, EVEN, GPIPE, SCHEDULE, RECOMPUTE, LIMIT = range(len(QUESTIONS))


@cache
def advise(where: gp.Cluster) -> Advice:
    return gp.advise(model(), where, (X, Y), gp.cross_entropy, gp.Adam(0.1))


ROOMY, TIGHT, NARROW = cluster(4), cluster(4, 17_000), cluster(4, 14_000, NODES)


@cache
def best_of(where: gp.Cluster, replicas: int | None = None) -> Plan:
    counts = None if replicas is None else [replicas]
    return planned(where, schedules=gp.SCHEDULES, replicas=counts, rows=1).best


@pytest.mark.parametrize("where", [ROOMY, TIGHT], ids=["roomy", "tight"])
def test_it_compares_the_best_plans_of_each_kind_and_ends_with_the_best_of_all(where):
    advice = advise(where)
    assert tuple(step.question for step in advice.steps) == QUESTIONS
    for name, replicas in {"data parallel": 4, "pipeline": 1, "both": 2}.items():
        try:
            expected = f"{float(best_of(where, replicas).time):.4g}"
        except MemoryLimitError:
            expected = "has no plan"
        assert f"{name} {expected}" in advice.steps[WHICH].answer
    best = best_of(where)
    assert (advice.plan.time, advice.plan.words) == (best.time, best.words)
    assert str(advice).endswith(f"So: {best.words}, {float(best.time):.4g} for a step")


def test_a_replica_that_fits_is_told_from_one_that_does_not():
    tried = every_candidate(table(ROOMY), schedules=gp.SCHEDULES, stages_per_device=(2, 4), replicas=[4])
    least = min(each.predicted()[0] for each in tried)
    for where, word in ((ROOMY, "It does:"), (TIGHT, "It does not:")):
        step = advise(where).steps[FITS]
        assert (
            step.answer
            == f"{word} it holds at least {in_bytes(least)}, and a device has {in_bytes(where.memory)}."
        )


def test_the_shortest_pipeline_is_the_first_that_fits():
    step = advise(TIGHT).steps[WHERE]
    assert step.answer == "1F1B fits from K = 4 on, where it holds 14.34 kB."
    assert advise(ROOMY).steps[WHERE].answer.startswith("1F1B fits from K = 1 on")


def test_gpipe_holds_more_than_1f1b_and_at_some_limit_only_1f1b_fits():
    held = re.findall(r"holds ([\d.]+) kB", advise(TIGHT).steps[GPIPE].answer)
    assert float(held[0]) > float(held[1])
    assert "GPipe does not fit, 1F1B takes" in advise(NARROW).steps[GPIPE].answer


def test_what_crosses_links_is_a_share_of_the_step():
    advice = advise(ROOMY)
    for name, replicas in {"data parallel": 4, "pipeline": 1, "both": 2}.items():
        best = best_of(ROOMY, replicas)
        share = (best.parts["messages"] + best.parts["all-reduce"]) / float(best.time)
        assert share > 0 and f"{name} {share:.1%}" in advice.steps[LINKS].answer
    assert "both" not in advise(TIGHT).steps[LINKS].answer


def test_microbatches_are_counted_exactly_and_compared_with_the_samples():
    step = advise(TIGHT).steps[MICROBATCHES]
    assert step.answer.startswith("There are not: 1F1B wants 27 for K = 4, and a replica has 8 samples")
    assert advise(cluster(1)).steps[MICROBATCHES].answer.startswith("There are:")


def test_another_schedule_gains_what_the_times_say():
    step = advise(TIGHT).steps[SCHEDULE]
    simple = planned(TIGHT, schedules=[gp.GPipe, gp.OneFOneB], replicas=[1], rows=1).best
    assert f"{1 - float(advise(TIGHT).plan.time) / float(simple.time):.1%}" == "12.2%"
    assert step.answer == "ZB-H2 takes 12.2% less than the better of these."
    assert advise(cluster(1)).steps[SCHEDULE].answer == "None is faster."


def test_recompute_is_needed_only_where_nothing_else_fits():
    assert advise(ROOMY).steps[RECOMPUTE].answer.startswith("It is not: without it")
    layers = gp.gpt(6, 8, 2, tokens=6, sequence=64)
    batch = gp.MetaArray((4, 64), np.int64), gp.MetaArray((4, 64), np.int64)

    def of(memory: float):
        where = cluster(4, memory)
        return gp.advise(layers, where, batch, gp.cross_entropy).steps[RECOMPUTE]

    without, again = map(float, re.findall(r"it ([\d.e+]+[\d])", of(1e9).answer))
    assert of(1e9).answer.startswith("It is not") and without < again
    assert of(150_000).answer == "It is: without recompute, no plan with as many replicas fits."


def test_what_limits_a_step_is_its_largest_part():
    advice = advise(TIGHT)
    parts, name = advice.plan.parts, advice.plan.limited_by
    share = parts[name] / float(advice.plan.time)
    assert advice.steps[LIMIT].answer == f"{name.capitalize()}: {share:.1%} of the step."
    more = f"{parts['imbalance'] / parts['compute']:.1%} more"
    assert advice.steps[EVEN].answer.startswith(f"15 layers in {len(advice.plan.balance)} stages:")
    assert more in advice.steps[EVEN].answer


def test_where_nothing_fits_it_says_what_would():
    with pytest.raises(MemoryLimitError, match="finds no plan that fits 4 devices of 3 kB"):
        advise(cluster(4, 3_000))
