"""How many layers each stage gets: against every other cut, and in the numbers of others."""

import itertools
import random
import re
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from gpipe_sim import balance_by_cost

# Against every other cut


def every_cut(layers: int, stages: int) -> Iterator[list[int]]:
    """How many layers each stage gets, one or more."""
    for inner in itertools.combinations(range(1, layers), stages - 1):
        bounds = [0, *inner, layers]
        yield [bounds[i + 1] - bounds[i] for i in range(stages)]


def times(cut, costs, speeds=None, **_):
    """What each stage takes, added up layer by layer."""
    ends = [0, *itertools.accumulate(cut)]
    work = [Fraction(sum(costs[a:b])) for a, b in itertools.pairwise(ends)]
    return [time / speed for time, speed in zip(work, speeds or [1] * len(cut), strict=True)]


def keeps(cut, sizes=None, memory=None, **_):
    starts = [sum(cut[:stage]) for stage in range(len(cut))]
    held = [sum(sizes[a : a + n]) for a, n in zip(starts, cut, strict=True)] if sizes else []
    return all(bytes_ <= limit for bytes_, limit in zip(held, memory or [], strict=True))


def exhaustive(costs, stages, **options):
    """The first of all cuts by its slowest stage, the sum of squares, and large stages first; or None."""

    def rank(cut):
        taken = times(cut, costs, **options)
        return max(taken), sum(time**2 for time in taken), [-size for size in cut]

    return min(
        (cut for cut in every_cut(len(costs), stages) if keeps(cut, **options)), key=rank, default=None
    )


def some_number(draw: random.Random, exact: bool, low: int = 0):
    """Small, so that many cuts are as good as each other."""
    whole = draw.randint(low, 6)
    return whole if exact and draw.random() < 0.8 else Fraction(whole, draw.randint(1, 4))


def some_case(seed: int):
    """(costs, stages, options): each option is there in about half of the cases."""
    draw = random.Random(seed)
    layers = draw.randint(1, 9)
    stages, exact = draw.randint(1, layers), seed % 2
    costs = [some_number(draw, exact) for _ in range(layers)]
    options = {
        "speeds": [some_number(draw, exact, low=1) for _ in range(stages)],
    }
    options = {name: value for name, value in options.items() if draw.random() < 0.5}
    if draw.random() < 0.5:
        options["sizes"] = [some_number(draw, exact) for _ in range(layers)]
        enough = 2 * Fraction(sum(options["sizes"])) / stages
        options["memory"] = [enough * draw.randint(2, 6) / 4 for _ in range(stages)]
    return costs, stages, options


@pytest.mark.parametrize(
    "scale", [1, 10**30, Fraction(1, 7), 2.0**-8], ids=["as is", "large", "sevenths", "float"]
)
def test_no_cut_is_better(scale):
    """Floats are powers of two here, with which every sum is exact."""
    refused = 0
    for seed in range(200):
        costs, stages, options = some_case(seed)
        if isinstance(scale, float):
            costs = [int(cost) for cost in costs]
            options = {name: value for name, value in options.items() if name in ("sizes", "memory")}
        costs = [cost * scale for cost in costs]
        best = exhaustive(costs, stages, **options)
        if best is None:
            refused += 1
            with pytest.raises(ValueError, match="finds no cut"):
                balance_by_cost(costs, stages, **options)
        else:
            assert balance_by_cost(costs, stages, **options) == best, (costs, stages, options)
    assert 10 < refused < 50


def test_sizes_whose_sum_no_float_holds_are_refused_in_words_too():
    with pytest.raises(ValueError, match=r"keeps memory \(got 1e\+308\); if all stages"):
        balance_by_cost([1] * 4, 2, sizes=[1e308] * 4, memory=1e308)


@pytest.mark.parametrize("seed", range(10))
def test_no_layer_is_lost_and_no_stage_is_empty(seed):
    draw = np.random.default_rng(seed)
    layers = int(draw.integers(1, 300))
    stages = int(draw.integers(1, layers + 1))
    for costs in (draw.random(layers), draw.integers(0, 5, layers), draw.exponential(size=layers) ** 4):
        balance = balance_by_cost(costs, stages)
        assert len(balance) == stages and sum(balance) == layers and min(balance) >= 1
        assert {type(size) for size in balance} == {int}


@pytest.mark.parametrize("seed", range(10))
def test_a_long_row_is_cut_as_well_as_asking_for_every_limit_would(seed):
    """For a limit, filling stage after stage is best; so the least limit for which that does is best."""
    draw = random.Random(seed)
    costs = [draw.choice([1, 2, 3, draw.randint(1, 200)]) for _ in range(500)]
    stages = draw.randint(2, 40)

    def filled(limit):
        used, room = 1, limit
        for cost in costs:
            if cost > room:
                used, room = used + 1, limit
            room -= cost
        return used

    least = next(limit for limit in range(max(costs), sum(costs) + 1) if filled(limit) <= stages)
    assert max(times(balance_by_cost(costs, stages), costs)) == least


def test_costs_that_no_machine_number_holds_are_exact():
    big = 10**60
    assert balance_by_cost([big, 1, big, 1, big + 1], 3) == [2, 2, 1]
    assert balance_by_cost([big + 1, 1, big, 1, big], 3) == [1, 2, 2]


def test_equal_floats_are_equal_layers():
    """Added up, 0.1 three times is not what it is four times later; rounded to a grid it is."""
    for cost in (0.1, 1 / 3, 1e-300, 1e300):
        assert balance_by_cost([cost] * 11, 4) == [3, 3, 3, 2]
        assert balance_by_cost([cost] * 11, 4, speeds=[0.7] * 4) == [3, 3, 3, 2]
    assert balance_by_cost([0.0] * 3, 2) == [2, 1]


# What the options mean


def test_among_cuts_as_fast_the_most_even_one_is_taken():
    assert balance_by_cost([6, 1, 1, 1, 1, 1, 1], 3) == [1, 3, 3]


def test_a_stage_may_have_many_layers_that_cost_nothing():
    """[3, 2, 1, 1] is as fast and as even, but earlier stages get more where they can."""
    assert balance_by_cost([0, 3, 0, 0, 3, 3, 1], 4) == [4, 1, 1, 1]


def test_a_device_of_twice_the_speed_gets_twice_the_layers():
    assert balance_by_cost([1] * 10, 4, speeds=[1, 2, 1, 1]) == [2, 4, 2, 2]
    assert balance_by_cost([1] * 10, 4, speeds=[0.5, 1.0, 0.5, 0.5]) == [2, 4, 2, 2]


def test_memory_moves_the_cut_only_where_it_must():
    assert balance_by_cost([1] * 6, 2, sizes=[5, 5, 1, 1, 1, 1], memory=9) == [1, 5]
    assert balance_by_cost([1] * 6, 2, sizes=[5, 5, 1, 1, 1, 1], memory=[11, 3]) == [3, 3]
    assert balance_by_cost([0.1] * 6, 2, sizes=[0.1] * 6, memory=0.1 + 0.1 + 0.1) == [3, 3]


# Bad input that names its cause


def test_a_memory_that_no_cut_keeps_says_what_would_do():
    sizes = [4, 1, 9, 2, 2]
    with pytest.raises(ValueError) as refused:
        balance_by_cost([1] * 5, 3, sizes=sizes, memory=8)
    assert str(refused.value) == (
        "balance_by_cost finds no cut into 3 stages that keeps memory (got 8); layer 2 alone has 9, "
        "and if all stages had the same, 9 would do"
    )
    assert balance_by_cost([1] * 5, 3, sizes=sizes, memory=9) == [2, 1, 2]
    with pytest.raises(
        ValueError, match=r"keeps memory \(got \[9, 9, 3\]\); if all stages had the same, 9 would"
    ):
        balance_by_cost([1] * 5, 3, sizes=sizes, memory=[9, 9, 3])


@pytest.mark.parametrize("seed", range(30))
def test_the_memory_that_would_do_does_and_less_does_not(seed):
    draw = random.Random(seed)
    kind = draw.choice([lambda: draw.randint(1, 9), draw.random, lambda: Fraction(draw.randint(1, 9), 7)])
    sizes = [kind() for _ in range(8)]
    with pytest.raises(ValueError, match="if all stages had the same") as refused:
        balance_by_cost([1] * 8, 3, sizes=sizes, memory=sizes[0] / 2)
    least = re.search("the same, (.*) would do", str(refused.value))[1]
    least = Fraction(least) if "/" in least else float(least)
    balance_by_cost([1] * 8, 3, sizes=sizes, memory=least)
    with pytest.raises(ValueError, match="finds no cut"):
        balance_by_cost([1] * 8, 3, sizes=sizes, memory=least * (1 - 1e-12))
