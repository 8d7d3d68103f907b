"""Plans for a cluster: bounds hold, the search finds what trying all finds, and each row is one price."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from planned import ALIKE, FEW, NODES, all_cuts, all_ways, cluster, model, plan, random_case, tokens, toy

import gpipe_sim as gp
from gpipe_sim.core.memory import ACTIVATIONS, MESSAGES
from gpipe_sim.errors import MemoryLimitError
from gpipe_sim.planning.bounds import Order, least_bytes, least_time, stage_table
from gpipe_sim.planning.cuts import StepCuts, cuts_of
from gpipe_sim.planning.problem import Problem
from gpipe_sim.planning.search import Search

TOGETHER = 20  #: random cases to a test


@pytest.mark.parametrize("block", range(14))
def test_the_best_plan_is_that_of_all_configurations_and_all_cuts_and_no_bound_is_above(block):
    """280 small cases by seed."""
    compared = 0
    for seed in range(TOGETHER * block, TOGETHER * (block + 1)):
        problem, options = random_case(seed)
        best = float("inf")
        least = gp.planning.lower_bound(problem.layers, problem.cluster, problem.batch, zero=options["zero"])
        for way in all_ways(problem, **options):
            order = Order.of(way.schedule)
            bound, table = least_time(problem, way, order), stage_table(problem, way, order)
            for cut in all_cuts(problem.count, way.schedule.stages):
                time = problem.priced(way, cut).time
                ends = np.cumsum([0, *cut])
                of_stages = max(table[i, ends[i], size - 1] for i, size in enumerate(cut))
                assert max(bound, least, of_stages) <= time * (1 + 1e-9), (seed, way, cut)
                best, compared = min(best, time), compared + 1
        if best < float("inf"):
            found = gp.plan(problem.layers, problem.cluster, problem.batch, rows=1, **options)
            assert found.best.time == pytest.approx(best, rel=1e-9), (seed, found.best)
            assert found.best.cut_gap == 0
    assert compared > 100


def test_bounds_are_of_use():
    """Half of all plans take at most a third more than their bound says."""
    problem = Problem("plan", model(), cluster(4, links=NODES), tokens(), None, None)
    ratios = [
        problem.priced(way, problem.even_cut(way)).time / least_time(problem, way, Order.of(way.schedule))
        for way in all_ways(problem)
    ]
    assert np.median(ratios) < 1.34 and min(ratios) > 1


def test_times_of_many_cuts_at_once_are_those_of_price():
    """But where a message waits for another on its link."""
    problem = Problem("plan", model(), cluster(4, links=gp.Link(1)), tokens(), None, None)
    for way in all_ways(problem, schedules=gp.SCHEDULES)[::7]:
        cuts = list(all_cuts(problem.count, way.schedule.stages))[:3]
        found = StepCuts(problem, way).makespans(np.array([np.cumsum([0, *cut]) for cut in cuts]))
        if Order.of(way.schedule).copies == 1:
            assert found == pytest.approx([problem.priced(way, cut).time for cut in cuts], rel=1e-9), way


def test_no_device_holds_less_than_its_bounds():
    problem = Problem("plan", model(), cluster(4), tokens(), None, None)
    close = tried = 0
    for way in all_ways(problem, schedules=gp.SCHEDULES)[::5]:
        cut = problem.even_cut(way)
        exact = [sum(each.values()) for each in problem.priced(way, cut).memory]
        held = least_bytes(problem, way, cut)
        assert (held <= exact).all(), way
        assert problem.least_held(way, Order.of(way.schedule).copies) <= max(exact)
        tried, close = tried + 1, close + (max(held) > 0.7 * max(exact))
    assert tried > 40 and close > tried / 2


@pytest.mark.parametrize(("links", "families"), [(ALIKE, FEW[:2]), (NODES, FEW[2:])], ids=["alike", "nodes"])
def test_the_rows_are_the_best_of_each_sort_that_fits(links, families):
    problem, best = Problem("plan", model(2), cluster(4, 45_000, links), tokens(), None, None), {}
    for way in all_ways(problem, schedules=families):
        for cut in all_cuts(problem.count, way.schedule.stages):
            priced = problem.priced(way, cut)
            if priced.time < best.get(way.sort, float("inf")) and priced.fits:
                best[way.sort] = priced.time
    how = {"schedules": families, "recompute": ["none", "full"]}
    plans = plan(problem.cluster, 2, rows=None, **how)
    assert {row.way.sort: row.time for row in plans} == pytest.approx(best)
    times = [row.time for row in plans]
    assert times == sorted(times) and len(times) > 3
    first = plan(problem.cluster, 2, rows=3, **how)
    assert [row.time for row in first] == times[:3] and first.simulated < plans.simulated
    assert any(why == "do not fit" for why, _, _ in plans.why_refused)


def test_each_row_is_one_price():
    for row in plan(cluster(4, links=NODES), rows=8):
        way = row.way
        again = gp.price(
            model(), cluster(4, links=NODES), tokens(), tensor=way.tensor, pipeline=way.pipeline,
            microbatch=way.microbatch, schedule=type(row.schedule), cut=row.cut, recompute=way.recompute,
            stages_per_device=row.schedule.stages_per_device, zero=way.zero,
            sequence_parallel=way.sequence_parallel,
        )  # fmt: skip
        assert (again.time, again.peak, again.parts) == (row.time, row.peak, row.parts)
        assert sum(row.parts.values()) == pytest.approx(row.time)
        assert str(gp.draw(row.timeline)).startswith("<svg")


def test_each_row_runs_and_its_activations_are_those_of_the_step_s_meter():
    layers, rng = gp.mlp([12, 16, 8, 24, 8, 4], seed=1), np.random.default_rng(0)
    x, y = rng.normal(size=(8, 12)), np.arange(8) % 4
    where, optimizer = gp.Cluster(4, toy(64), 1e9, ALIKE), gp.Adam(0.1)
    rows = gp.plan(layers, where, (x, y), optimizer=optimizer, tensor=[1], schedules=FEW, rows=None)
    assert {row.way.replicas for row in rows} == {1, 2, 4}
    for row in rows:
        share = len(x) // row.way.replicas
        alone = gp.single_device_step(layers, (x[:share], y[:share]), gp.cross_entropy).gradients
        step = gp.train_step(
            row.partitions, row.schedule, (x[:share], y[:share]), gp.cross_entropy, optimizer=optimizer
        )
        assert all(np.allclose(step.gradients[key], gradient) for key, gradient in alone.items())
        kept = [trace.peak(*ACTIVATIONS, MESSAGES) for trace in step.memory]
        assert kept == [each["activations"] for each in row.memory]


def test_the_table_says_for_each_row_what_it_takes_and_for_the_others_why_not():
    plans = plan(cluster(4, 90_000), rows=3)
    text = str(plans).splitlines()
    assert text[0].split()[:5] == ["tensor", "x", "pipeline", "x", "replicas"]
    assert len(text) == 1 + 3 + 1 + len(plans.why_refused)
    for row, line in zip(plans, text[1:], strict=False):
        assert line.startswith(row.way.mesh) and row.way.order in line and row.way.options in line
    assert sum(count for _, count, _ in plans.why_refused) == len(plans.refused)
    assert repr(plans).startswith(f"<Plans: 3 of {plans.looked_at:,}, the best <Plan ")


def test_the_frontier_trades_time_for_bytes():
    plans = plan(cluster(4), rows=None)
    frontier = plans.frontier
    assert frontier[0] is plans.best and len(frontier) > 1
    assert frontier[-1].peak == min(row.peak for row in plans)
    assert all(a.time <= b.time and a.peak > b.peak for a, b in pairwise(frontier))


def test_what_fits_nowhere_is_told_what_would_fit():
    how = {"schedules": [gp.OneFOneB], "cut": "even"}
    with pytest.raises(MemoryLimitError, match=r"no plan that fits 2 devices of 20 kB") as refused:
        plan(cluster(2, 20_000), **how)
    said = str(refused.value)
    needed = int(said.split(" bytes. ")[0].split()[-1].replace(",", ""))
    assert plan(cluster(2, needed), **how).best.peak == needed
    with pytest.raises(MemoryLimitError):
        plan(cluster(2, needed - 1), **how)
    more = int(said.split(" bytes. ")[1].split()[0])
    assert plan(cluster(more, 20_000), **how).best.peak <= 20_000
    with pytest.raises(MemoryLimitError, match="128 such devices would not do either"):
        plan(cluster(2, 1_000), **how)


def test_tensor_parallelism_stays_in_a_node_unless_it_is_asked_for():
    inside = {row.way.tensor for row in plan(cluster(4, links=NODES), rows=None)}
    listed = {row.way.tensor for row in plan(cluster(4, links=NODES), tensor=[4], rows=None)}
    assert (inside, listed) == ({1, 2}, {4})
    refused = plan(cluster(8), tensor=[1, 8])
    assert "cannot be dealt out to so many devices: tensor 8: price cannot deal out Attention" in str(refused)


def test_a_cut_that_fits_is_found_where_the_even_one_does_not():
    """1F1B holds four microbatches on its first device and one on its last."""
    layers, batch = gp.gpt(24, 8, 2, tokens=6, sequence=32), (gp.MetaArray((8, 32), "i8"),) * 2
    only = {"schedules": [gp.OneFOneB], "tensor": [1], "replicas": [1], "microbatch": [1]}

    def best(memory: float, **how):
        how = only | {"recompute": ["none"], "optimizer": gp.SGD(0.1)} | how
        return gp.plan(layers, cluster(4, memory), batch, **how).best

    roomy = best(1e9, cut="even")
    with pytest.raises(MemoryLimitError):
        best(roomy.peak * 0.85, cut="even")
    tight = best(roomy.peak * 0.85)
    assert tight.peak <= roomy.peak * 0.85
    assert tight.cut[0] < roomy.cut[0] and sum(tight.cut) == len(layers)


def test_where_not_all_cuts_are_tried_no_cut_is_faster_than_a_row_says():
    """Of 26 layers in 5 stages there are 12,650 cuts: some of them are tried, and here all."""
    problem = Problem("plan", model(22), cluster(5), tokens(), None, None)
    every_way = all_ways(problem, schedules=[gp.OneFOneB], recompute=["none"])
    [way] = [each for each in every_way if (each.pipeline, each.microbatch) == (5, 1)]
    found = cuts_of(problem, way, 0.0, False)
    every = np.array([np.cumsum([0, *cut]) for cut in all_cuts(problem.count, 5)])
    least = StepCuts(problem, way).makespans(every).min()
    assert found.least <= least <= found.times[0] * (1 + 1e-8) and found.times[0] < 1.01 * least


def test_more_memory_and_faster_links_never_make_the_best_plan_slower():
    by_memory = [plan(cluster(4, memory), 2, rows=1).best.time for memory in (39_000, 52_000, 60_000, 1e6)]
    assert by_memory == sorted(by_memory, reverse=True) and by_memory[0] > by_memory[-1]
    by_latency = [plan(cluster(4, links=gp.Link(late, 400)), 2, rows=1).best.time for late in (0, 1, 50)]
    assert by_latency == sorted(by_latency) and by_latency[0] < by_latency[-1]


def test_measured_times_stand_in_for_a_model():
    """The best cut is that of ``balance_by_makespan``, and no way is refused for its bytes."""
    costs = gp.Costs([1, 2, 3, 2, 1, 1, 2, 4], [1] * 8, [2, 1, 1, 1, 1, 1, 1, 1], comm=0.5, overhead=0.25)
    where = gp.Cluster(4, gp.Accelerator(1e12), 1)
    plans = gp.plan(costs, where, 8, schedules=[gp.OneFOneB, gp.ZBH1], rows=None)
    for row in plans:
        assert row.time == pytest.approx(gp.balance_by_makespan(row.schedule, costs).makespan)
        assert row.way.mesh == "1 x 4 x 1" and row.cut_gap == 0
    assert [type(row.schedule) for row in plans] == [gp.ZBH1, gp.OneFOneB] and "?" in str(plans)
    two = gp.plan(costs, where, 8, replicas=[1, 2], schedules=[gp.OneFOneB], rows=None)
    assert {row.way.mesh for row in two} == {"1 x 4 x 1", "1 x 2 x 2"}


def test_unequal_devices_get_unequal_cuts():
    """Two large cards, two small: layers of few stages are all tried."""
    large, small = gp.Accelerator(20_000), gp.Accelerator(5000)
    groups = gp.Cluster(2, large, 1e9), gp.Cluster(2, small, 1e9)
    mixed = gp.pricing.Mixed(*groups, links=gp.Link(bandwidth=1e6))
    row = gp.plan(model(), mixed, tokens(), schedules=[gp.OneFOneB]).best
    assert row.way.pipeline in (2, 4) and row.cut[0] > row.cut[-1]


def test_what_a_search_refuses_is_no_row():
    problem = Problem("plan", model(2), cluster(4, 60_000), tokens(), None, None)
    ways_ = all_ways(problem)
    search = Search(problem, ways_, even=True)
    rows = list(search)
    assert rows and len(search.refused) + len(rows) <= len(ways_)
    assert all(replace(priced).fits for _, priced, _ in rows)
