"""Cuts for a short step: against every other cut on small cases, and the case that everybody asks about."""

import random
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from cases import every_order, over, overlapped
from test_balance import every_cut

import gpipe_sim as gp
from gpipe_sim.balance import by_makespan
from gpipe_sim.balance.costs_of_stages import merged
from gpipe_sim.balance.many_cuts import ManyCuts
from gpipe_sim.balance.stage_bounds import StageBounds


def some_costs(draw: random.Random, layers: int, devices: int) -> gp.Costs:
    """With and without each of the things that cost time."""

    def each(low=0):
        return [draw.choice([draw.randint(low, 4), Fraction(draw.randint(low, 9), 2)]) for _ in range(layers)]

    return gp.Costs(
        each(),
        each() if draw.random() < 0.7 else 2,
        each() if draw.random() < 0.7 else 1,
        recompute=each() if draw.random() < 0.3 else None,
        update=draw.randint(0, 3),
        overlap=each() if draw.random() < 0.3 else None,
        comm=draw.choice([0, 0, 1, Fraction(5, 2)]),
        speed=draw.choice([1, 2, [draw.choice([1, 2, Fraction(1, 2)]) for _ in range(devices)]]),
        overhead=draw.choice([0, 0, 1, [draw.randint(0, 2) for _ in range(devices)]]),
    )


SMALL = [
    *every_order([(1, 2), (2, 4), (3, 4)]),
    gp.remat(gp.GPipe(3, 4), "always"),
    gp.remat(gp.OneFOneB(3, 4), "except_last"),
    overlapped(3, 4),
    gp.with_updates(gp.OneFOneB(3, 4)),
]


def in_floats(costs: gp.Costs) -> gp.Costs:
    """The same, but no sum of its numbers is exact."""

    def tenths(cost):
        return tuple(map(tenths, cost)) if isinstance(cost, tuple) else cost and float(cost) / 10

    return gp.Costs(**{name: tenths(cost) for name, cost in vars(costs).items()})


@over(SMALL)
def test_of_all_cuts_it_is_the_shortest_and_no_bound_is_above_what_a_cut_takes(schedule):
    """Also in floats, and where a pair takes no time, which is less than its halves."""
    draw, layers = random.Random(str(schedule)), schedule.stages + 2
    cuts = list(every_cut(layers, schedule.stages))
    exact = some_costs(draw, layers, schedule.devices)
    at_once = [replace(exact, overlap=0)] if schedule.program.paired else []
    for costs in (exact, in_floats(exact), *at_once):
        takes = [gp.simulate(schedule, merged(costs, cut)).makespan for cut in cuts]
        timed = ManyCuts(schedule.program, costs, layers)
        ends = np.cumsum([[0, *cut] for cut in cuts], axis=1)
        assert timed.makespans(ends).tolist() == pytest.approx(takes, rel=1e-12)
        require_bounds(StageBounds(timed, float(max(takes))), dict(zip(map(tuple, cuts), takes, strict=True)))
        found = gp.balance_by_makespan(schedule, costs)
        assert takes[cuts.index(list(found.balance))] == found.makespan == found.bound
        assert found.makespan == (min(takes) if costs is exact else pytest.approx(min(takes), rel=1e-9))
        assert found.gap == 0 and "no cut is better" in repr(found)
        with without_proofs():
            searched = gp.balance_by_makespan(schedule, costs)
        assert searched.bound <= min(takes) * (1 + 1e-9) and min(takes) <= searched.makespan * (1 + 1e-9)


def require_bounds(bounds: StageBounds, takes: dict) -> None:
    """For each cut, and for the least of all; and the cuts that may be shorter are all counted and listed."""
    for cut, makespan in takes.items():
        starts = np.cumsum([0, *cut[:-1]])
        for table, start, size in zip(bounds.tables, starts, cut, strict=True):
            assert table[start, size - 1] <= makespan * (1 + 1e-9)
    assert bounds.least() <= min(takes.values()) * (1 + 1e-9)
    longest = float(max(takes.values()))
    listed = {tuple(np.diff(ends).tolist()) for ends in bounds.cuts(longest)}
    assert len(listed) == bounds.count(longest)
    assert listed >= {cut for cut, makespan in takes.items() if makespan < longest * (1 - 1e-6)}


@contextmanager
def without_proofs():
    """Only search."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_makespan, "CUTS", -1)
        yield


# What it is for


def test_real_layers_are_timed_one_by_one_and_cut_for_their_schedule():
    layers = gp.mlp([64, 32, 32, 32, 10])
    rng = np.random.default_rng(0)
    batch = rng.normal(size=(16, 64)), rng.integers(10, size=16)
    one_by_one = gp.split(layers, stages=len(layers))
    schedule = gp.OneFOneB(3, 4)
    for costs in (
        gp.Costs.measured(one_by_one, batch, microbatches=4),
        gp.profile(one_by_one, batch, gp.cross_entropy).costs(4),
    ):
        plan = gp.balance_by_makespan(schedule, costs)
        partitions = gp.split(layers, balance=plan.balance)
        step = gp.train_step(partitions, schedule, batch, gp.cross_entropy, costs=merged(costs, plan.balance))
        assert step.timeline.makespan == plan.makespan


def test_a_slow_device_gets_fewer_layers():
    found = gp.balance_by_makespan(
        gp.OneFOneB(4, 8), gp.Costs([1] * 14, 1, 1, speed=[1, 1, Fraction(1, 2), 1])
    )
    assert found.balance == (4, 4, 2, 4)


def test_costs_of_layers_add_up_to_those_of_stages():
    costs = gp.Costs(
        [1, 2, 3, 4], 2, 1, recompute=[1, 1, 1, Fraction(1, 2)], comm=3, speed=2, overhead=[1, 5]
    )
    assert merged(costs, [1, 3]) == gp.Costs(
        [1, 9], [2, 6], [1, 3], [1, Fraction(5, 2)], [0, 0], comm=3, speed=2, overhead=[1, 5]
    )
    assert merged(gp.Costs(2), [1, 2]).forward == (2, 4)


# Larger cases


def with_head(layers: int, head: Fraction) -> gp.Costs:
    """Unit layers, F = 1 and B = 2; the last one has a head as well."""
    work = [1] * (layers - 1) + [1 + head]
    return gp.Costs(work, work, work)


def test_40_layers_and_a_head_of_one_and_a_half_on_16_devices():
    """As even as can be, 786. Of all 25 billion cuts the shortest takes 672: the head all but alone."""
    schedule, costs = gp.OneFOneB(16, 64), with_head(40, Fraction(3, 2))

    def makespan(balance):
        return gp.simulate(schedule, merged(costs, balance)).makespan

    assert makespan([3] * 8 + [2] * 8) == makespan([2] * 7 + [3] * 8 + [2]) == 786
    assert makespan([3] * 4 + [2] + [3] * 5 + [2] * 5 + [1]) == 675
    assert makespan([2] * 3 + [3] * 9 + [2] * 3 + [1]) == 681
    assert makespan([2] * 6 + [3] * 9 + [1]) == 690
    found = gp.balance_by_makespan(schedule, costs)
    assert repr(found) == "<BalancePlan 3x9, 2x6, 1: makespan 672, no cut is better>"
    assert found.balance == (3,) * 9 + (2,) * 6 + (1,)


def test_of_cuts_with_as_fast_a_slowest_stage_the_one_with_large_stages_first_is_a_good_start():
    """A large stage waits for all stages before it, twice; so it had better be in front."""
    assert gp.balance_by_cost([1] * 39 + [Fraction(5, 2)], 16) == [3] * 9 + [2] * 6 + [1]


def bounds_of(schedule: gp.core.Schedule, costs: gp.Costs, limit: float) -> StageBounds:
    return StageBounds(ManyCuts(schedule.program, costs, len(costs.forward)), limit)


def test_no_cut_of_those_layers_need_be_simulated_to_see_that_672_is_the_best():
    """The ninth stage of 3 layers cannot come before layer 24. It does 9 for each of 64 microbatches."""
    bounds = bounds_of(gp.OneFOneB(16, 64), with_head(40, Fraction(3, 2)), 786)
    assert bounds.least() == 672
    assert bounds.count(672) == 0 < bounds.count(673)


def test_for_1f1b_without_messages_the_bound_mostly_is_what_the_best_cut_takes():
    """So a thousand layers on 64 devices are cut for the shortest step in a second or two."""
    draw, exact = random.Random(0), 0
    for _ in range(30):
        devices = draw.randint(2, 5)
        schedule = gp.OneFOneB(devices, draw.randint(1, 9))
        work = [draw.randint(0, 6) for _ in range(devices + draw.randint(0, 4))]
        costs = gp.Costs(work, work, work)
        found = gp.balance_by_makespan(schedule, costs)
        least = bounds_of(schedule, costs, found.makespan).least()
        assert found.gap == 0 and 0.95 * found.makespan <= least <= found.makespan
        exact += least == found.makespan
    assert exact >= 25


@pytest.mark.parametrize("family", [gp.Naive, gp.GPipe, gp.OneFOneB, gp.ZBH1])
def test_a_hundred_layers_on_sixteen_devices_are_cut_as_well_as_can_be(family):
    """No cut need be simulated but a few: that all others are longer is seen from a stage's layers."""
    draw = random.Random(0)
    work = [draw.randint(1, 100) for _ in range(100)]
    assert gp.balance_by_makespan(family(16, 64), gp.Costs(work, work, work, comm=3)).gap == 0


def test_gpipes_bound_is_its_makespan():
    """Every device waits between its last forward and its first backward, for the stages after it."""
    schedule, costs = gp.GPipe(4, 8), gp.Costs([3] * 3 + [2], [3] * 3 + [2], [3] * 3 + [2])
    assert bounds_of(schedule, costs, 1000).least() == gp.simulate(schedule, costs).makespan == 96


def test_a_device_of_many_actions_makes_a_step_last_as_long_as_all_devices_do_on_average():
    """With two stages on a device, no single stage shows that: it is what all layers take, shared out."""
    schedule, costs = gp.Interleaved1F1B(2, 4), gp.Costs([1] * 8, 1, 1, overhead=1, speed=[1, 3])
    work, overhead = 8 * 4 * 3, 32 * 1
    assert bounds_of(schedule, costs, 1000).least() >= (work + overhead / 2 * (1 + 3)) / (1 + 3)


def test_where_there_are_too_many_cuts_the_gap_is_told():
    schedule, costs = gp.ZBV(8, 32), with_head(40, Fraction(3, 2))
    found = gp.balance_by_makespan(schedule, costs)
    assert 0 < found.gap < 0.2 and found.bound < found.makespan <= 585
    assert repr(found).endswith(f"makespan {found.makespan}, at most {found.gap:.1%} above the best>")


@pytest.mark.parametrize("family", [gp.OneFOneB, gp.ZBH1, gp.Interleaved1F1B, gp.ZBV])
def test_moving_layers_about_nearly_always_finds_the_best(family):
    """Where it can be proven; the cut of the slowest stage alone, from which it starts, is often not it."""
    draw, schedule, best = random.Random(family.__name__), family(4, 8), 0
    for _ in range(4):
        costs = some_costs(draw, schedule.stages + draw.randint(3, 6), 4)
        proven = gp.balance_by_makespan(schedule, costs)
        with without_proofs():
            searched = gp.balance_by_makespan(schedule, costs)
        assert proven.gap == 0 and searched.makespan <= 1.02 * proven.makespan
        best += searched.makespan == proven.makespan
    assert best >= 3
