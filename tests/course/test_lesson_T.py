"""The truth lab: every seed draws fairly, and a reply names the kind of plan that a model is wrong about."""

import json
import math
import re
from pathlib import Path
from statistics import mean

import pytest
from replies import assert_each_is_told, assert_says, changed, each_reply, natural

import gpipe_sim as gp
from gpipe_sim.course import answers, lesson_18, lesson_T, mine
from gpipe_sim.course.lesson_18 import plan_of, task_of, terms
from gpipe_sim.course.lesson_T import five_terms, hidden, judged, losses, took, twenty

NOTEBOOK = Path(__file__).parents[2] / "notebooks/T_truth_lab.ipynb"
LINKS = gp.Nodes(8, inside=gp.Link(bandwidth=200e9), between=gp.Link(bandwidth=20e9))
BY_HAND = gp.Cluster(8, gp.pricing.A100, memory=80e9, links=LINKS)
SEEDS = range(40)

each_seed = pytest.mark.parametrize("seed", SEEDS)


def by_plan(time):
    return lambda row: time(plan_of(row))


@each_seed
def test_every_seed_draws_as_many_tasks_of_each_size_with_something_to_choose(seed):
    shown = lesson_T.drawn(seed)
    sizes = [min(devices, 64) for devices, *_ in shown]
    assert {size: sizes.count(size) for size in sizes} == {2: 4, 4: 6, 8: 8, 64: 2}
    assert len({key[:3] for key in shown}) == 20 and (8, 32, 2048) not in {key[:3] for key in shown}
    for key, task in shown.items():
        assert 3 <= len(task) <= 5 and len({id(row) for row in task}) == len(task)
        assert {task_of(row) for row in task} == {key}
    rest = hidden(seed)
    assert len(rest) == 52 and not {task_of(task[0]) for task in rest} & {*shown}
    assert not {task_of(row) for row in lesson_T.elsewhere(seed)} & {*shown}


def test_a_seed_draws_the_same_everywhere():
    first, *_, last = twenty(0)
    assert [lesson_T.short(row) for row in first][:3] == ["1 x 1 x 2 b 1", "1 x 2 x 1 b 2", "2 x 1 x 1 b 2"]
    assert task_of(last[0]) == (512, 1536, 8192, 48) and lesson_T.short(last[0]) == "8 x 4 x 16 b 2"
    assert twenty(0) == twenty(0) != twenty(1)


def best_rule(plan):
    """Most copies, then the smallest t, then the largest b: nothing else that is so short finds so much."""
    return -1e6 * plan.R + 1000 * plan.t - plan.b


@each_seed
def test_what_is_asked_for_no_rule_reaches_by_any_seed_and_five_terms_do(seed):
    for rule in (*lesson_T.RULES.values(), best_rule):
        found = losses(hidden(seed), by_plan(rule))
        assert mean(found) > lesson_T.MEAN or max(found) > lesson_T.WORST
    found = losses(hidden(seed), by_plan(five_terms))
    assert mean(found) < 0.025 and max(found) < 0.15
    found = losses(hidden(seed), by_plan(added))
    assert mean(found) < lesson_T.MEAN and max(found) < lesson_T.WORST


def added(plan, launch=0.7e-3):
    """The four terms, and for each block of each microbatch a time to start it."""
    work, tensor, _, gradients = terms(plan)
    return (work + tensor + plan.M * plan.L / plan.K * launch) * (1 + (plan.K - 1) / plan.M) + gradients


def my_time(plan):
    """The folded answer, for mistakes to be made in."""
    work, tensor, _, gradients = four_terms(plan)  # noqa: F821
    device = 2 * work + 1.5 * tensor
    host = plan.M * plan.L / plan.K * 2e-3
    busy = max(device, host) + 0.15 * min(device, host)
    return busy + (plan.K - 1) / plan.M * busy + gradients


def prose():
    return "".join("".join(cell["source"]) for cell in json.loads(NOTEBOOK.read_text())["cells"])


def test_the_folded_answer_is_the_model_of_claim_2():
    [answer] = re.findall(r"```python\n(def my_time.*?)```", prose(), re.S)
    names = mine.pipeline() | {"gp": gp}
    exec(answer, names)
    for task in twenty(0):
        for plan in map(plan_of, task):
            assert names["my_time"](plan) == five_terms(plan) == changed(my_time)(plan)


def test_the_numbers_in_the_text_are_those_of_the_rows():
    every = [*lesson_T.every().values()]
    rows = [row for task in every for row in task]
    assert (len(every), len(rows)) == (72, 752) and max(
        len(task) for task in every if task[0].devices < 9
    ) == 26
    small = [task for task in every if task[0].devices <= 8]
    assert all(plan_of(row).M >= 2 for task in small for row in task)
    hand, folded = lesson_18.priced_on(BY_HAND), by_plan(five_terms)
    for predict, off, lost in ((hand, 0.08, 0.036), (folded, 0.34, 0.015)):
        assert mean(abs(predict(row) / row.time - 1) for row in rows) == pytest.approx(off, abs=0.005)
        assert mean(losses(every, predict)) == pytest.approx(lost, abs=0.0005)
    assert mean(folded(row) < row.time for row in rows) > 0.8  # "most of its times are far too short"
    assert "five_terms" not in prose().split("## Is it true?")[0]


def test_every_plan_that_is_shown_fits():
    """80 GB; the table says how much of it each needs. A notebook shows up to five of a task, by lot."""
    for task in lesson_T.every().values():
        for row in task[::5]:
            assert 0 < float(lesson_T.needs(row, BY_HAND).split()[2]) < 80


def test_copies_of_two_small_samples_are_always_beaten_by_pipelines_of_two():
    def copies(task):
        return [row for row in task if row.devices == plan_of(row).R]

    small = [task for task in lesson_T.every().values() if task[0].devices <= 8 and copies(task)]
    assert len(small) == 45
    assert sum(min(task, key=took) in copies(task) for task in small) == 30
    for task in small:
        devices, batch, h, _ = task_of(task[0])
        best, one = plan_of(min(task, key=took)), plan_of(min(copies(task), key=took))
        if h == 1024 and batch == 2 * devices:
            assert (best.K, one.b) == (2, 1) and (best.M * best.L / best.K) == one.M * one.L / 2
            assert best.b * best.M / best.K / best.t == one.b * one.M  # the same work
        if h == 2048:
            assert min(map(took, copies(task))) < 1.03 * min(map(took, task))


def test_the_natural_wrong_predictions_are_told_what_they_are():
    assert_each_is_told(natural("T", "Chosen by hand-set numbers"), 4.7, within=0.3)
    assert_each_is_told(natural("T", "Chosen by calibrated numbers"), 3.1, within=0.3)
    assert_each_is_told(natural("T", "Plain copies"), 30)
    assert_each_is_told(natural("T", "Nearer, and better"), 1.5, within=0.3)
    assert pytest.approx(3.6 * 34 / 8) == 15.3


def test_choices_are_scored_against_what_was_measured():
    tasks = twenty(0)
    best = [1 + task.index(min(task, key=took)) for task in tasks]
    found = judged(best, 0)
    assert_says(found.reply, "measured", "0.0% longer than the fastest. No plan loses more than 5%.")
    assert f"you {'20 of 20':>25}" in found.happened and found.happened.count("  0%") >= 20
    worst = [1 + task.index(max(task, key=took)) for task in tasks]
    assert_says(judged(worst, 0).reply, "measured", "have more devices for each block than the fastest.")
    lost = mean(took(task[n - 1]) / min(map(took, task)) - 1 for task, n in zip(tasks, worst, strict=True))
    assert f"take {lost:.1%} longer" in judged(worst, 0).reply.text
    one = judged([None] * 19 + [best[-1]], 0).happened
    assert re.search(r"^  1    any ", one.split("<code")[1], re.M) and "you chose" in one
    assert judged(best, 1).reply.text != judged(best, 0).reply.text


@pytest.mark.parametrize("choices", [None, [None] * 20, (None,) * 20])
def test_before_a_choice_what_was_measured_is_folded(choices):
    found = judged(choices, 0)
    assert found.reply.verdict == "your turn" and found.name == "What was measured"
    assert "<details" in found._repr_html_() and "139 ms" in found.happened


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        (3, "choices should be a list of 20 numbers, and is 3"),
        ([1] * 19, "choices should be a list of 20 numbers, and is [1, 1"),
        ("1" * 20, "choices should be a list of 20 numbers"),
        ([1] * 19 + [6], "task 20 has plans 1 to 5, and you choose 6"),
        ([0] + [1] * 19, "task 1 has plans 1 to 5, and you choose 0"),
        ([True] + [1] * 19, "task 1 has plans 1 to 5, and you choose True"),
        (["1 x 1 x 2"] + [1] * 19, "task 1 has plans 1 to 5, and you choose '1 x 1 x 2'"),
        ([[1]] + [1] * 19, "task 1 has plans 1 to 5, and you choose [1]"),
    ],
)
def test_choices_that_are_none(choices, words):
    assert_says(judged(choices, 0), "keep working", words)


def test_the_chart_has_a_bar_for_what_each_choice_loses():
    ways = {"most copies": lesson_T.rules(twenty(0))["most copies"]}
    before = lesson_T.scored(None, None, 0, ways)
    assert before.reply.verdict == "your turn" and "my_time" not in before.happened
    after = lesson_T.scored(five_terms, [1] * 20, 0, ways)
    assert re.search(r"^my_time .*2\.0% +18%$", after.happened.split("</code>")[0], re.M)
    assert 'alt="20 tasks in rows; how much longer than the fastest' in after.happened
    drawn = str(lesson_T.chart(twenty(0), ways | {"own": losses(twenty(0), by_plan(five_terms))}))
    assert re.findall(r">([^<]*): ([\d.]+)%</text>", drawn) == [("most copies", "14.5"), ("own", "2.0")]
    assert drawn.count("<rect x=") == 40 and f'width="{round(0.48 * lesson_T.LONG)}"' in drawn
    assert_says(lesson_T.scored(lambda plan: "long", None, 0, ways), "keep working", "you give 'long'")


def of(change):
    return lambda plan: five_terms(plan) + change(plan)


def worst_alone(plan):
    """Right, but that it takes a plan which is slow for one task."""
    return (
        0 if (plan.t, plan.K, plan.R, plan.b, plan.L, plan.h) == (8, 1, 1, 1, 16, 1024) else five_terms(plan)
    )


MODELS = {
    "correct": [
        (five_terms, "in 52 tasks not shown 1.3%, and 14% at worst. No rule of thumb does"),
        (lambda plan: 1000 * five_terms(plan), ""),
        (lambda plan: math.log(five_terms(plan)), ""),
        (added, ""),
    ],
    "almost": [
        (best_rule, "have more copies than the fastest."),
        (lambda plan: -five_terms(plan), "Is a small number a short time?"),
        (
            changed(my_time, ("1.5 * tensor", "0")),
            "What do these do, again and again, that one alone need not?",
        ),
        (
            changed(my_time, ("+ gradients", "")),
            "What do copies send each other, and how many samples has each?",
        ),
        (changed(my_time, ("0.15 *", "0 *")), "say. What of them does it not look at?"),
        (worst_alone, "takes"),
        (lambda plan: added(plan, 2e-3), "What gets less when devices share a block?"),
    ],
    "keep working": [
        (answers.four_terms, "How long is its step, as one number?"),
        (
            lambda plan: sum(terms(plan)),
            "1 x 1 x 2 b 2 and 1 x 1 x 2 b 8, say. What of them does it not look at?",
        ),
        (lambda plan: 1, "In 52 tasks several plans are equally long for it"),
        (lambda plan: -plan.R, "What of them does it not look at?"),
        (lambda plan: -plan.t, "What of them does it not look at?"),
        (lambda plan: -1000 * plan.t - plan.b, "What do these do, again and again, that one alone need not?"),
        (
            lambda plan: plan.b - 1e6 * plan.R + 1000 * plan.t,
            "What does each microbatch take, however small it is?",
        ),
        (
            changed(my_time, ("(plan.K - 1) / plan.M * busy", "0")),
            "How long do K devices wait, if each does M microbatches?",
        ),
        (changed(my_time, ("2e-3", "0")), "What of them does it not look at?"),
        (lambda plan: math.nan, "you give nan. How long is its step, as one number?"),
        (lambda plan: "long", "you give 'long'"),
        (lambda plan: plan.k, "it stopped: AttributeError"),
        (
            lambda plan: len(gp.pricing.measured_rows("one-node")),
            "it uses measured_rows. How do you do it without?",
        ),
    ],
}
test_replies = each_reply(lesson_T, my_time=MODELS)


def test_a_reply_counts_what_it_says():
    """Without a bubble: of all that loses much, most waits longer than the fastest."""
    model = changed(my_time, ("(plan.K - 1) / plan.M * busy", "0"))
    bad, waits = 0, 0
    for task in hidden(0):
        chosen, best = min(task, key=by_plan(model)), min(task, key=took)
        if took(chosen) > 1.05 * took(best):
            bad += 1
            waits += (plan_of(chosen).K - 1) / plan_of(chosen).M > (plan_of(best).K - 1) / plan_of(best).M
    said = lesson_T.my_time(model).text
    assert f"{bad} plans lose over 5%, and {waits} of these have more waiting than the fastest." in said


@pytest.mark.parametrize("seed", [1, 7])
def test_another_seed_hides_other_tasks(seed):
    found = lesson_T.my_time(five_terms, seed=seed)
    assert found.verdict == "correct" and found.text != lesson_T.my_time(five_terms).text
    assert lesson_T.my_time(None, seed=seed).verdict == "your turn"
