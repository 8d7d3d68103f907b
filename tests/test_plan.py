"""Plans for a cluster: bounds hold, the search finds what trying all finds, and each row draws and runs."""

import random
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
from planned import ALIKE, FEW, NODES, SAMPLES, X, Y, cluster, every_candidate, model, plan, table, toy

import gpipe_sim as gp
from gpipe_sim.errors import MemoryLimitError
from gpipe_sim.families import Chimera, LoopedBFS
from gpipe_sim.planning import lower_bound
from gpipe_sim.planning.bounds import least_bytes, static_bytes
from gpipe_sim.planning.cluster import Mesh, meshes, ring_of
from gpipe_sim.planning.layer_table import table_of
from gpipe_sim.planning.plans import Plans

CLUSTERS = [cluster(4), cluster(6, links=NODES), cluster(3, links=gp.Link())]


@pytest.mark.parametrize("where", CLUSTERS, ids=repr)
def test_no_plan_is_faster_than_its_own_bound_or_the_bound_of_all(where):
    least = lower_bound(model(), where, (X, Y), gp.cross_entropy)
    tried = every_candidate(table(where), schedules=gp.SCHEDULES, microbatches=[1, 4, 8])
    close = 0
    for each in tried:
        time, bound = float(each.simulated().step), each.least_time()
        assert bound <= time, each
        assert least <= time * (1 + 1e-12), each
        close += bound > 0.8 * time
    assert len(tried) > 80 and close > len(tried) / 2  # or the bounds would be of no use


def test_no_device_holds_less_than_its_bound():
    close = 0
    tried = every_candidate(table(cluster(4)), schedules=gp.SCHEDULES, microbatches=[2, 4])
    for each in tried:
        bound = least_bytes(each.laid_out.program, each.stages, each.recompute)
        exact = np.array([trace.peak_inside.bytes for trace in each.predicted()[1]])
        assert (bound <= exact).all(), each
        close += (bound > 0.8 * exact).all()
    assert close > len(tried) / 2


@pytest.mark.parametrize("links", [ALIKE, NODES], ids=["alike", "nodes"])
def test_the_search_finds_what_trying_all_plans_finds(links):
    where, best = cluster(4, 17_000, links), {}
    families = [gp.OneFOneB, gp.ZBV, Chimera, LoopedBFS]
    for each in every_candidate(table(where), stages_per_device=(2, 4), schedules=families):
        if each.predicted()[0] <= where.memory:
            time = each.simulated().step
            best[each.sort] = min(time, best.get(each.sort, time))
    plans = plan(where, rows=None, schedules=families)
    assert {each.candidate.sort: each.time for each in plans} == best
    times = [each.time for each in plans]
    assert times == sorted(times) and len(times) > 3
    first = plan(where, rows=3, schedules=families)
    assert [each.time for each in first] == times[:3]
    assert first.simulated < plans.simulated


@pytest.mark.parametrize("links", [ALIKE, NODES], ids=["alike", "nodes"])
@pytest.mark.parametrize(("devices", "replicas"), [(4, 1), (6, 2), (8, 4)])
def test_the_time_of_a_row_is_that_of_all_devices_and_all_rings(links, devices, replicas):
    differ, families = 0, [*FEW, LoopedBFS]
    for row in plan(cluster(devices, links=links), replicas=[replicas], rows=None, schedules=families):
        assert row.time == row.timeline.makespan
        ends = [end for action, end in row.timeline.ends.items() if action.kind in ("B", "W")]
        rings = row.timeline.collectives
        assert row.time == max([*ends, *(each.end for each in rings)])
        devices_of_stage_0 = {*row.schedule.program.homes(gp.core.Kind.F)[0].tolist()}
        assert bool(rings) == (len(devices_of_stage_0) > 1)
        replica_ends = [each.makespan for each in row.candidate.simulated().timelines]
        assert row.candidate.simulated().pipelines == max(replica_ends)
        differ += replica_ends[0] < max(replica_ends)
    assert bool(differ) == (links is NODES and devices == 6), "in a node: its first two devices, or its last"


@pytest.mark.parametrize(("replicas", "rings"), [(1, 0), (2, 4)])
def test_copies_that_no_microbatch_goes_through_have_nothing_to_sum_and_no_gradients_to_hold(replicas, rings):
    """Two microbatches of Chimera on four devices go in one direction; it once paid for both."""
    options = {"schedules": [Chimera], "replicas": [replicas], "microbatches": [2], "recompute": [False]}
    row = plan(cluster(4 * replicas), **options).best
    assert row.time == row.timeline.makespan and len(row.timeline.collectives) == rings
    each = row.candidate
    assert each.least_time() <= row.time
    low, exact = static_bytes(each.schedule, each.stages), each.predicted()[1]
    assert all(least <= trace.peak_inside.bytes for least, trace in zip(low, exact, strict=True))
    exactly_enough = plan(cluster(4 * replicas, row.peak), **options)
    assert exactly_enough.best.peak <= row.peak


@pytest.mark.parametrize("links", [ALIKE, NODES], ids=["alike", "nodes"])
def test_the_parts_of_a_step_add_up_to_its_time(links):
    for row in plan(cluster(4, links=links), rows=12):
        assert float(sum(row.parts.values())) == pytest.approx(float(row.time), rel=1e-12)
        assert all(part >= -1e-9 for part in row.parts.values())
        assert row.limited_by == max((n for n in row.parts if n != "compute"), key=row.parts.get)


def test_a_ring_of_equal_links_takes_2_n_minus_1_times_a_piece():
    link = gp.Link(latency=Fraction(1, 2), bandwidth=100)
    for n in (2, 3, 8):
        assert ring_of(link, range(n), 420) == 2 * (n - 1) * (Fraction(1, 2) + Fraction(420, n * 100))
    assert ring_of(link, [3], 420) == 0
    assert ring_of(NODES, [0, 1], 800) == 2 * (1 + Fraction(400, 800))


def test_replicas_in_other_places_have_other_links():
    """Pipelines of 3 on nodes of 2: one has its first two devices in a node, the other its last two."""
    assert [each.place for each in Mesh(3, 2).links(NODES)] == [(0, 0, 1), (0, 1, 1)]
    assert [each.place for each in Mesh(2, 3).links(NODES)] == [(0, 0)]
    assert [each.place for each in Mesh(2, 2, "replicas").links(NODES)] == [(0, 1)]
    assert [each.place for each in Mesh(4, 1).links(NODES)] == [(0, 0, 1, 1)]


def test_copies_next_to_each_other_have_short_rings_and_long_messages():
    rows = plan(cluster(4, links=NODES), replicas=[2], rows=None)
    assert {row.candidate.mesh.adjacent for row in rows} == {"stages", "replicas"}


def test_each_row_runs_with_the_gradients_of_one_device_and_the_bytes_that_it_says():
    alone = gp.single_device_step(model(), (X, Y), gp.cross_entropy).gradients
    rows = plan(cluster(4, 40_000), rows=None, schedules=[gp.OneFOneB, gp.ZBV])
    assert str(gp.draw(rows.best.timeline)).startswith("<svg")
    assert {row.replicas for row in rows} == {1, 2, 4}
    assert {row.candidate.recompute for row in rows} == {True, False}
    for row in rows:
        optimizer = gp.Adam(0.1)
        step = gp.train_step(row.partitions, row.schedule, (X, Y), gp.cross_entropy, optimizer=optimizer)
        for key, gradient in alone.items():
            assert np.allclose(step.gradients[key], gradient, rtol=1e-12, atol=1e-15)
        assert max(trace.peak_inside.bytes for trace in step.memory) == row.peak <= 40_000


def test_the_table_says_for_each_row_what_it_takes_and_for_the_others_why_not():
    plans = plan(cluster(4, 17_000), rows=3)
    text = str(plans)
    assert len(text.splitlines()) == 1 + 3 + 2 + len(plans.why_refused)
    for row, line in zip(plans, text.splitlines()[1:], strict=False):
        assert f"<= {row.cut_gap:.1%}" in line and f"at most {row.cut_gap:.1%} off the best>" in repr(row)
    assert plans.best.words in text and "limited by" in text
    assert sum(count for _, count, _ in plans.why_refused) == len(plans.refused)
    reasons = {reason for reason, _, _ in plans.why_refused}
    assert reasons == {
        "do not fit",
        "have a size that the schedule refuses",
        "have more stages than layers",
    }
    assert repr(plans).startswith(f"<Plans: 3 of {plans.looked_at}, the best <Plan ")


def test_the_frontier_trades_time_for_bytes():
    plans = plan(cluster(4), rows=None)
    frontier = plans.frontier
    assert frontier[0] is plans.best and len(frontier) > 1
    assert frontier[-1].peak == min(row.peak for row in plans)
    assert all(a.time <= b.time and a.peak > b.peak for a, b in pairwise(frontier))


def test_what_fits_nowhere_is_told_what_would_fit():
    small = 11_500
    with pytest.raises(MemoryLimitError, match=r"no plan that fits 4 devices of 11\.5 kB") as refused:
        plan(cluster(4, small))
    said = str(refused.value)
    needed = int(said.split(" bytes. ")[0].split()[-1].replace(",", ""))
    fewest = int(said.split("A pipeline of ")[1].split()[0])
    assert plan(cluster(4, needed)).best.peak == needed
    with pytest.raises(MemoryLimitError):
        plan(cluster(4, needed - 1))
    assert plan(cluster(fewest, small), replicas=[1]).best.peak <= small


def test_what_fits_no_number_of_devices_says_so():
    with pytest.raises(MemoryLimitError, match="However many such devices there are, no pipeline"):
        plan(cluster(4, 2_000))


def test_a_batch_that_is_too_small_is_refused_with_a_reason():
    plans = plan(cluster(4), microbatches=[4, 3])
    assert "do not cut the batch into equal microbatches" in str(plans)


def test_on_paper_a_plan_is_as_on_arrays():
    where = cluster(4, 17_000)
    paper = gp.MetaArray((SAMPLES, 12), np.float64), gp.MetaArray((SAMPLES,), np.int64)
    rows = gp.plan(model(), where, paper, gp.cross_entropy, gp.Adam(0.1), rows=2, schedules=FEW)
    assert [(row.words, row.time, row.peak) for row in rows] == [
        (row.words, row.time, row.peak) for row in plan(where, rows=2)
    ]


def test_one_device_has_one_plan_that_matters():
    row = plan(cluster(1), schedules=[gp.OneFOneB], recompute=[False]).best
    assert (row.replicas, row.bubble, row.balance) == (1, 0, (15,))
    assert row.schedule == gp.OneFOneB(1, 1) == row.candidate.order


def test_a_cut_that_fits_is_found_where_the_fastest_does_not():
    """1F1B holds four microbatches on its first device and one on its last."""
    layers = gp.gpt(24, 8, 2, tokens=6, sequence=32)
    batch = gp.MetaArray((8, 32), np.int64), gp.MetaArray((8, 32), np.int64)
    only = {"schedules": [gp.OneFOneB], "replicas": [1], "microbatches": [8], "recompute": [False]}

    def found(memory: float) -> Plans:
        return gp.plan(layers, cluster(4, memory), batch, gp.cross_entropy, **only)

    roomy = found(1e9)
    tight = found(roomy.best.peak * 0.8)
    assert tight.best.peak <= tight.table.cluster.memory < roomy.best.peak
    assert tight.best.balance[0] < roomy.best.balance[0] and sum(tight.best.balance) == len(layers)
    assert roomy.best.time < tight.best.time
    assert "do not fit: 1 x 1F1B K=4 M=8: a device holds at least" in str(tight)


def test_bounds_hold_for_models_of_all_kinds():
    """Blocks with dropout, norms, and layers that pass their input on, on links that differ."""
    pick, tried = random.Random(0), 0
    for _ in range(8):
        layers = gp.gpt(pick.randint(2, 4), 8, 2, tokens=5, sequence=4, dropout=pick.choice([0.0, 0.1]))
        layers = pick.choice(
            [
                layers,
                gp.transformers.unpacked(layers),
                [*layers[:3], gp.transformers.Dropout(0.0), *layers[3:]],
            ]
        )
        near = gp.Link(pick.choice([0, 1, 50]), pick.choice([10, 1000]))
        links = pick.choice([near, gp.Nodes(2, near, gp.Link(100, pick.choice([5, 2000])))])
        where = gp.Cluster(pick.choice([2, 3, 4, 6]), toy(100, pick.choice([0, 20])), 1e9, links)
        batch = gp.MetaArray((12, 4), np.int64), gp.MetaArray((12, 4), np.int64)
        found = table_of("plan", layers, where, batch, gp.cross_entropy, pick.choice([None, gp.Adam(0.1)]))
        least = lower_bound(layers, where, batch, gp.cross_entropy)
        for each in pick.sample(every_candidate(found, microbatches=[1, 2, 6]), 12):
            time = float(each.simulated().step)
            assert max(least * (1 - 1e-12), each.least_time()) <= time, each
            held = least_bytes(each.laid_out.program, each.stages, each.recompute)
            exact = [trace.peak_inside.bytes for trace in each.predicted()[1]]
            assert (held <= exact).all(), each
            tried += 1
    assert tried == 96


def test_no_cut_is_faster_than_a_row_says_and_some_are_faster_than_those_tried():
    better = 0
    for sizes in ([12, 16, 16, 8, 24, 8], [4, 24, 4, 4, 4, 24, 4]):
        layers, batch = gp.mlp(sizes), (X, np.arange(len(X)) % sizes[-1])
        batch = np.ones((len(X), sizes[0])), batch[1]
        for devices in (2, 3, 4):
            rows = gp.plan(layers, cluster(devices), batch, gp.cross_entropy, schedules=FEW, rows=12)
            for row in rows:
                least = float(row.time) / (1 + row.cut_gap)
                assert least >= rows.bound * (1 - 1e-12)
                for marks in combinations(range(1, len(layers)), len(row.balance) - 1):
                    cut = tuple(b - a for a, b in pairwise([0, *marks, len(layers)]))
                    time = float(replace(row.candidate, cut=cut).simulated().step)
                    assert time >= least * (1 - 1e-12), (row, cut)
                    better += time < row.time
    assert better >= 10


def test_more_memory_and_faster_links_never_make_the_best_plan_slower():
    by_memory = [plan(cluster(4, memory), rows=1).best.time for memory in (12_416, 13_000, 17_000, 50_000)]
    assert by_memory == sorted(by_memory, reverse=True) and by_memory[0] > by_memory[-1]
    by_latency = [plan(cluster(4, links=gp.Link(late, 400)), rows=1).best.time for late in (0, 1, 5, 50)]
    assert by_latency == sorted(by_latency) and by_latency[0] < by_latency[-1]


def test_slow_links_turn_data_parallel_into_a_pipeline():
    """An all-reduce sends more bytes than the messages of a pipeline do, in this model."""
    fast, slow = (plan(cluster(4, links=gp.Link(0, speed)), rows=1).best for speed in (1e6, 20))
    assert (fast.replicas, slow.replicas) == (4, 1)


def test_a_plan_that_is_as_fast_as_can_be_is_not_said_to_be_faster():
    """Here the best plan and the bound are one number, but for rounding: the table once said -0.0%."""
    where = gp.Cluster(3, toy(100), 1e9)
    batch = np.zeros((12, 8)), np.zeros((12, 8))
    plans = gp.plan(gp.mlp([8] * 8), where, batch, gp.mse)
    assert float(plans.best.time) < plans.bound and plans.gap == 0
    assert "at most 0.0% slower" in str(plans)


def test_copies_are_numbered_in_two_ways_only_where_that_makes_a_difference():
    assert [*meshes(4, NODES, (1, 4))] == [Mesh(4, 1), Mesh(1, 4)]
    assert [*meshes(4, NODES, (2,))] == [Mesh(2, 2), Mesh(2, 2, "replicas")]
    assert [*meshes(4, ALIKE, (2,))] == [Mesh(2, 2)]
