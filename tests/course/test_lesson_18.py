"""Lesson 18: what the checks say to right answers and to the usual wrong ones."""

import json
import math
import re
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
from replies import assert_each_is_told, changed, each_reply, natural

import gpipe_sim as gp
from gpipe_sim.course import answers, lesson_18
from gpipe_sim.course.lesson_18 import HIDDEN, Plan, mistaken, terms

NOTEBOOK = Path(__file__).parents[2] / "notebooks/18_planning.ipynb"
ROWS = gp.pricing.measured_rows("one-node")
TASK = [row for row in ROWS if lesson_18.task_of(row) == (8, 32, 2048, 20)]  #: that of the lesson
LINKS = gp.Nodes(8, inside=gp.Link(bandwidth=200e9), between=gp.Link(bandwidth=20e9))
BY_HAND = gp.Cluster(8, gp.pricing.A100, memory=80e9, links=LINKS)


def of(name):
    return next(row for row in TASK if lesson_18.short_name(row) == name)


def off(rows, predict):
    return mean(abs(predict(row) / row.time - 1) for row in rows)


def yours(row):
    return sum(terms(lesson_18.plan_of(row)))


def test_the_example_by_hand():
    assert terms(Plan(2, 2, 2, 2, 1, 4, 10, 10, 600, 1000, 100)) == (224, 48, 136, 48)


@pytest.mark.parametrize("row", TASK, ids=lesson_18.short_name)
def test_four_terms_are_the_librarys_price_of_the_blocks(row):
    """With two rates alone; its pipelines also send messages."""
    plan = lesson_18.plan_of(row)
    blocks = [layer for layer in row.layout.model if isinstance(layer, gp.transformers.TransformerBlock)]
    cluster = gp.Cluster(8, gp.Accelerator(plan.flops), memory=80e9, links=gp.Link(bandwidth=plan.bandwidth))
    x = gp.MetaArray((32, 1024, 2048), "f2")
    how = {"tensor": plan.t, "pipeline": plan.K, "microbatch": plan.b, "recompute": "full"}
    priced = gp.price(blocks, cluster, (x, x), gp.mse, **how)
    work, tensor, bubble, gradients = answers.four_terms(plan)
    assert priced.parts["bubble"] == pytest.approx(bubble, rel=1e-9, abs=1e-12)
    assert priced.parts["gradients"] == pytest.approx(gradients, rel=1e-9, abs=1e-12)
    ends = priced.parts["head"]  # the first and the last layer of a model are its ends
    assert priced.parts["work"] + priced.parts["tensor"] + ends == pytest.approx(work + tensor, rel=1e-9)
    assert priced.time - priced.parts["messages"] == pytest.approx(sum(terms(plan)), rel=1e-9)


def test_every_mistake_gives_other_numbers_than_the_others():
    for i in range(4):
        each = [mistaken(plan)[i] for plan in HIDDEN]
        found = [tuple(f"{one[ask]:.9g}" for one in each) for ask in each[0]]
        right = tuple(f"{terms(plan)[i]:.9g}" for plan in HIDDEN)
        assert len({*found, right}) == len(each[0]) + 1


def test_what_no_other_beats_is_the_librarys_frontier():
    gpu = gp.Accelerator(137e12, hbm=1.6e12, launch=1e-5)
    cluster, tokens = gp.Cluster(8, gpu, 16e9, LINKS), gp.MetaArray((64, 512), "i8")
    how = {"schedules": [gp.GPipe, gp.OneFOneB], "microbatch": [2], "cut": "even", "rows": None}
    plans = gp.plan(gp.bert_large(), cluster, (tokens, tokens), **how)
    found = lesson_18.kept([(each.time, each.peak, str(each.way)) for each in plans])
    assert {name for *_, name in found} >= {str(each.way) for each in plans.frontier}
    assert {plan[:2] for plan in found} == {(each.time, each.peak) for each in plans.frontier}


def test_the_numbers_in_the_text_are_those_of_the_rows():
    times = sorted(row.time for row in TASK)
    assert len(ROWS) == 698 and len({lesson_18.shape_of(row) for row in ROWS}) == 32 and len(TASK) == 20
    assert of("4 1 2 1").time == times[-1] and round(1000 * times[-1]) == 1019
    assert of("1 1 8 1").time / of("1 1 8 2").time == pytest.approx(1.29, abs=0.005)
    assert yours(of("1 1 8 1")) == pytest.approx(yours(of("1 1 8 2")), rel=1e-12)
    assert max(TASK, key=lambda row: row.time / yours(row)) is of("4 1 2 1")
    worst = lesson_18.plan_of(of("4 1 2 1"))
    assert (round(1000 * sum(terms(worst))), round(1000 * terms(worst)[0])) == (158, 115)
    [block] = [piece for piece in TASK[0].layout.pieces if piece.shape]
    assert block.work.launches == 13
    _, others = lesson_18.one_of_each_shape(ROWS)
    assert len(others) == 666
    assert off(others, yours) == pytest.approx(0.76, abs=0.005)
    hand = lesson_18.priced_on(BY_HAND)
    assert off(others, hand) == pytest.approx(0.076, abs=0.0005)
    found = lesson_18.regrets(others, hand)
    assert len(found) == 68 and mean(found) == pytest.approx(0.035, abs=0.0005)
    assert lesson_18.regrets(others, yours).count(0) == 7


def test_a_row_of_each_shape_is_enough_where_shapes_are_known():
    """By the tables that the lesson stores. nbval prices all of these rows again."""
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    shown = "".join(json.dumps(cell.get("outputs")) for cell in cells)
    [mean_off] = re.findall(r"calibrated on 32 +mean +([\d.]+)%", shown)
    [worst_regret] = re.findall(r"calibrated on 32 +\d+ of 68 +[\d.]+% +(\d+)%", shown)
    [far_off] = re.findall(r"64 to 512 devices +mean +([\d.]+)%", shown)
    assert float(mean_off) < 2 and float(worst_regret) < 5 and float(far_off) > 10


def test_a_rate_with_the_waiting_in_it_counts_that_twice():
    """On a row that is as long as four terms say, too."""
    plan = Plan(1, 4, 2, 2, 8, 20, 2048, 1024, 50_000_000)
    step = sum(terms(plan))
    fed = terms(Plan(**{**vars(plan), "flops": plan.flops * terms(plan)[0] / step}))
    assert fed[0] == pytest.approx(step) and sum(fed) > (1 + 3 / 2) * step


def test_the_natural_wrong_predictions_are_what_they_are_said_to_be():
    by_time = [lesson_18.short_name(row) for row in sorted(TASK, key=lambda row: row.time)]
    assert {*natural("18", "Twenty steps")} <= {*by_time[1:]}
    assert (by_time[1], by_time[-1]) == ("2 1 4 4", "4 1 2 1") and "1 2 4 2" in by_time[2:5]
    assert_each_is_told(natural("18", "Twenty steps"), by_time[0])
    assert_each_is_told(natural("18", "With b = 1 and b = 2"), 1)
    forward = 13 * 0.055 * 20 * 16  # ms: the kernels of 20 blocks, for 16 microbatches
    assert_each_is_told(natural("18", "What the host adds"), 4 * forward)
    times = 1, 2, 3, 4 / 16, 4 / 20, 8, 16
    assert [*natural("18", "What the host adds")] == pytest.approx([n * forward for n in times])
    assert_each_is_told(natural("18", "On rows not used"), 1.3, within=0.3)
    assert_each_is_told(natural("18", "Best plans found"), 64, within=0.06)
    assert_each_is_told(natural("18", "A rate with the waiting in it"), 2.51, within=0.02)
    assert_each_is_told(natural("18", "Eight devices for each block"), 16.2, within=0.3)


def test_a_guess_at_a_plan_is_read_generously():
    for guess in ("1 1 8 2", "1 x 1 x 8, b = 2", (1, 1, 8, 2)):
        assert lesson_18.numbers_in(guess) == "1 1 8 2"
    assert lesson_18.numbers_in(None) is None and lesson_18.numbers_in("eight copies") == "eight copies"


def wrong_term(i, ask):
    """Four terms, one of them with a mistake."""
    return lambda plan: [mistaken(plan)[i][ask] if j == i else each for j, each in enumerate(terms(plan))]


TERMS = {
    "correct": [
        (answers.four_terms, "four terms of 5 plans"),
        (lambda plan: list(terms(plan)), ""),
        (lambda plan: np.array(terms(plan)), ""),
    ],
    "almost": [
        *((wrong_term(i, ask), ask) for i in range(4) for ask in mistaken(HIDDEN[0])[i]),
        (lambda plan: sum(terms(plan)), "you give one number, "),
        (lambda plan: terms(plan)[::-1], "In which one are they asked for?"),
    ],
    "keep working": [
        (lambda plan: terms(plan)[:3], "Which four numbers should it be, and in which order?"),
        (lambda plan: (*terms(plan)[:3], math.nan), "Which line makes that?"),
        (lambda plan: "terms", "you give 'terms'"),
        (lambda plan: plan.k, "it stopped: AttributeError"),
        (changed(answers.four_terms, ("plan.M * plan.L", "plan.M + plan.L")), "you say that the work takes"),
    ],
}


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


def emptied(plans):
    found = lesson_18.kept(plans)
    plans.clear()
    return found[::-1]


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
test_replies = each_reply(lesson_18, four_terms=TERMS, unbeaten=CHOICES)
