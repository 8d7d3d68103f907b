"""Lesson 11: what the checks say to right answers and to the usual wrong ones."""

from fractions import Fraction
from itertools import accumulate, pairwise, permutations

import numpy as np
from replies import assert_each_is_told, assert_says, each_reply, natural

import gpipe_sim as gp
from gpipe_sim.course import answers, lesson_11

HALF, TWO_THIRDS = Fraction(1, 2), Fraction(2, 3)


def by_limit(costs, K):
    """Fill stages up to a limit, for one limit after the other."""
    sums = sorted({sum(costs[a:b]) for a in range(len(costs)) for b in range(a + 1, len(costs) + 1)})
    for limit in sums:
        sizes, left = [], list(costs)
        while left and len(sizes) < K:
            taken = 1
            while taken < len(left) - (K - len(sizes) - 1) and sum(left[: taken + 1]) <= limit:
                taken += 1
            sizes.append(taken)
            left = left[taken:]
        if not left and len(sizes) == K and max(lesson_11.stage_costs(costs, sizes)) <= limit:
            return sizes
    return None


def by_share(costs, K):
    share, sizes, size, filled = sum(costs) / K, [], 0, 0
    for cost in costs:
        size, filled = size + 1, filled + cost
        if filled >= share:
            sizes.append(size)
            size, filled = 0, 0
    return sizes


def with_the_rest(costs, K):
    sizes = by_share(costs, K)
    return sizes + [len(costs) - sum(sizes)] * (sum(sizes) < len(costs))


def even(costs, K):
    small, larger = divmod(len(costs), K)
    return [small + (k < larger) for k in range(K)]


def least_varied(costs, K):
    if len(costs) > 20:
        return answers.best_cut(costs, K)
    return min(
        lesson_11.every_cut(len(costs), K),
        key=lambda sizes: np.var([float(x) for x in lesson_11.stage_costs(costs, sizes)]),
    )


def by_trying(costs, K):
    return min(lesson_11.every_cut(len(costs), K), key=lambda sizes: max(lesson_11.stage_costs(costs, sizes)))


def by_first(costs, K):
    return [len(costs) - K + 1] + [1] * (K - 1)


def test_trying_every_cut_takes_too_long(monkeypatch):
    monkeypatch.setattr("gpipe_sim.course.called.SECONDS", 1)
    said = lesson_11.best_cut(by_trying)
    assert_says(said, "keep working", "and K = 16 it was still running after 1 seconds")
    asks = (
        "41 layers in 16 stages have 40,225,345,056 cuts. Which smaller question do you ask again and again?"
    )
    assert said.text.endswith(asks)


def test_the_least_slow_stage_is_that_of_all_cuts():
    for costs, stages in lesson_11.HIDDEN_MODELS[:-1]:
        cuts = lesson_11.every_cut(len(costs), stages)
        assert lesson_11.least(costs, stages) == min(
            max(lesson_11.stage_costs(costs, sizes)) for sizes in cuts
        )


def test_the_slowest_belongs_to_the_front_but_the_second_slowest_not_behind_it():
    shortest = min(permutations(lesson_11.SPEEDS), key=lambda order: lesson_11.in_this_order(order).makespan)
    assert shortest[0] == HALF and shortest[1] == 1


def test_each_natural_wrong_guess_is_told_its_own_sentence():
    slow = [1, 2, 1, 1]
    assert_each_is_told(
        natural("11", "How long it is now"), gp.simulate(gp.GPipe(4, 8), gp.Costs(slow, slow, slow)).makespan
    )
    assert_each_is_told(natural("11", "What the first stage gets"), 0)
    assert_each_is_told(natural("11", "How many fit beside the head"), 1)
    assert_each_is_told(natural("11", "Where it should stand"), 0)
    assert_each_is_told(natural("11", "One cut for 3 and for 64"), "true")
    assert_each_is_told(natural("11", "What the least variance costs"), 7 * (1 + 2))


def test_nine_in_front_is_sooner_with_three_microbatches_only():
    """By a clock of its own: 1F1B of three stages, as rows that are typed."""
    rows = {
        3: "0F0 0F1 0F2 0B0 0B1 0B2 / 1F0 1F1 1B0 1F2 1B1 1B2 / 2F0 2B0 2F1 2B1 2F2 2B2",
        5: "0F0 0F1 0F2 0B0 0F3 0B1 0F4 0B2 0B3 0B4 / 1F0 1F1 1B0 1F2 1B1 1F3 1B2 1F4 1B3 1B4 / "
        "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3 2F4 2B4",
    }
    took = {}
    for M, text in rows.items():
        order = [[(int(s), kind, int(m)) for s, kind, m in row.split()] for row in text.split("/")]
        for takes in ((9, 7, 6), (8, 8, 6)):
            assert sum(takes) == sum([3, 1, 4, 1, 5, 2, 6])
            took[M, takes] = _ended(order, takes)
    assert took[3, (9, 7, 6)] == took[3, (8, 8, 6)] - 3 == 105
    assert took[5, (9, 7, 6)] > took[5, (8, 8, 6)]


def _ended(rows, takes):
    ends, at, free = {}, [0] * len(rows), [0] * len(rows)
    while any(place < len(row) for place, row in zip(at, rows, strict=True)):
        for k, row in enumerate(rows):
            if at[k] == len(row):
                continue
            s, kind, m = row[at[k]]
            need = (s - 1, "F", m) if kind == "F" else (s + 1, "B", m)
            if 0 <= need[0] < len(rows) and need not in ends:
                continue
            start = max(free[k], ends.get(need, 0))
            ends[s, kind, m] = free[k] = start + takes[s] * (1 if kind == "F" else 2)
            at[k] += 1
    return max(free)


def test_what_the_natural_guesses_are():
    """The figures in the sentences: 41.25 is the work spread evenly, 66 every stage twice as long, ..."""
    length = lambda stages: gp.simulate(gp.GPipe(4, 8), gp.Costs(stages, stages, stages)).makespan  # noqa: E731
    assert length([Fraction(5, 4)] * 4) == 41.25 and length([2] * 4) == 66
    for costs, makespan in (
        (gp.Costs([1, 2, 1, 1], 1, 1), 41),
        (gp.Costs(1, [1, 2, 1, 1], [1, 2, 1, 1]), 49),
    ):
        assert gp.simulate(gp.GPipe(4, 8), costs).makespan == makespan
    assert 8 * 2 * 3 == 48 and gp.simulate(gp.GPipe(4, 1), gp.Costs(*[[1, 2, 1, 1]] * 3)).makespan - 12 == 3


def test_the_best_cut_under_1f1b_changes_with_m():
    def best(M):
        length = lambda takes: gp.simulate(gp.OneFOneB(3, M), gp.Costs(takes, takes, takes)).makespan  # noqa: E731
        return min(([9, 7, 6], [8, 8, 6], [8, 6, 8]), key=length)

    assert best(3) == [9, 7, 6] and best(5) == best(64) == [8, 8, 6]


def test_the_obvious_cut_takes_what_its_last_stage_says_at_least():
    takes = [3] * 8 + [2] * 7 + [Fraction(7, 2)]
    step = gp.simulate(gp.OneFOneB(16, 64), gp.Costs(takes, takes, takes))
    assert step.makespan == 38 + 64 * 3 * Fraction(7, 2) + 76 == 786


def test_a_right_order_is_drawn_beside_the_one_of_the_plain_rule():
    says = lesson_11.best_order([HALF, 1, TWO_THIRDS, 1]).picture.says
    assert "Speeds 1/2, 1, 2/3, 1: 52.5" in says and "Speeds 1/2, 2/3, 1, 1: 53.0" in says
    assert "52.5" not in lesson_11.best_order([1, 1, HALF, TWO_THIRDS]).picture.says


def by_whole_limits(costs, K):
    """Fill stages up to a limit that grows in steps of 1."""
    limit = max(costs)
    while True:
        sizes, filled = [0], 0
        for at, cost in enumerate(costs):
            if sizes[-1] and (filled + cost > limit or len(costs) - at == K - len(sizes)):
                sizes.append(0)
                filled = 0
            sizes[-1] += 1
            filled += cost
        if len(sizes) == K:
            return sizes
        limit += 1


def with_prefixes(costs, K, taken):
    """By limits, of what the prefix sums say that layers take."""
    sums = list(accumulate(costs, taken, initial=0))
    return by_limit([b - a for a, b in pairwise(sums)], K)


def emptying(costs, K):
    sizes = answers.best_cut(costs, K)
    costs.clear()
    return sizes


CUTS = {
    "correct": [
        (answers.best_cut, ""),
        (by_limit, ""),
        (lambda c, K: np.array(answers.best_cut(c, K)), ""),
    ],
    "wrong": [
        with_the_rest,
        lambda costs, K: [len(costs) // K] * (K - 1) + [len(costs) - (K - 1) * (len(costs) // K)],
        lambda costs, K: [*list(accumulate(answers.best_cut(costs, K)))[:-1], len(costs) - 1],
        lambda costs, K: max(lesson_11.stage_costs(costs, answers.best_cut(costs, K))),
        lambda costs, K: [float(size) for size in answers.best_cut(costs, K)],
        lambda costs, K: [1] * (K - 1) + [len(costs) - K + 1],
        lambda costs, K: [0, *answers.best_cut(costs, max(1, K - 1))],
        lambda costs, K: answers.best_cut(costs, min(len(costs), K + 1)),
        lambda costs, K: [costs[:3], costs[3:]],
        lambda costs, K: list(accumulate(answers.best_cut(costs, K)[:-1], initial=0)),
    ],
    "almost": [
        (by_share, "2 stages with layers, and 3 devices. What does each device do?"),
        (by_whole_limits, "take 1/2, 1/2, 1/2, 1/2, 1/2, 1/2 and K = 3 you cut"),
        (lambda c, K: with_prefixes(c, K, lambda s, x: s + (x or 1)), "take 0, 0, 5, 1/2, 1/2 and K = 2"),
        (emptying, "costs is not what it was before. Who else may need it?"),
        (least_varied, "the stages take 5, 2, 3, 3, and a cut exists where none takes more than 4. Do you"),
        (
            lambda c, K: list(accumulate(answers.best_cut(c, K))),
            "you give [3, 6, 7]. Are those places in the list? How many layers has each stage?",
        ),
        (lambda c, K: answers.best_cut(c, max(1, K - 1)), "2 stages with layers, and 3 devices. What does"),
        (lambda c, K: answers.best_cut(c, K)[::-1], "Which of your numbers is device 0's?"),
        (
            lambda c, K: lesson_11.stage_costs(c, answers.best_cut(c, K)),
            "Is that what stages take? How many layers has each?",
        ),
    ],
    "keep working": [
        (lambda c, K: gp.balance_by_cost(c, K), "it uses balance_by_cost. How do you do it without?"),
        (
            lambda c, K: gp.balance_by_makespan(gp.GPipe(K, 9), gp.Costs(c, c, c)).balance,
            "it uses balance_by_makespan. How do you do it without?",
        ),
        (lambda c, K: iter(answers.best_cut(c, K)), "It should list how many layers each stage gets"),
        (gp.balance_by_cost, "it uses balance_by_cost. How do you do it without?"),
        (lambda c, K: by_share(c, K)[:1], "these stages hold 4 of 7 layers. Where are the others"),
        (even, "where none takes more than 7. Where does your cut look at what the layers take?"),
        (by_first, "more than 7. What do you compare two cuts by?"),
        (lambda c, K: None, "you give None. It should list how many layers each stage gets"),
        (lambda c, K: "223", "you give '223'. It should list how many"),
    ],
}
ORDERS = {
    "wrong": [
        [1, 1, HALF, TWO_THIRDS],
        [TWO_THIRDS, HALF, 1, 1],
        ((1, HALF, 1, TWO_THIRDS),),
        [1, TWO_THIRDS, HALF, 1],
        [HALF, HALF, 1, 1],
        [2, 0, 3, 1],
        "2 0 3 1",
        52.5,
        [],
        [1, 1, None, 2],
        [1, 1, float("nan"), HALF],
    ],
    "correct": [
        ([HALF, 1, TWO_THIRDS, 1], "52.5 long, and none of the 12 orders is shorter"),
        ([0.5, 1, 1, 2 / 3], "52.5 long"),
        (np.array([0.5, 1, 2 / 3, 1]), "52.5 long"),
    ],
    "almost": [
        ([HALF, TWO_THIRDS, 1, 1], "53.0 long; another order gives 52.5. Near: did you measure all 12?")
    ],
    "keep working": [
        ([1, 1, TWO_THIRDS, HALF], "58.5 long; another order gives 52.5. The slowest is device 3"),
        ([HALF, 1, 1], "There are 1, 1, 1/2, 2/3: which one is missing"),
    ],
}
test_replies = each_reply(lesson_11, best_cut=CUTS, best_order=ORDERS)
