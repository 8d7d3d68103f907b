"""No order is faster than ``lower_bound``: for small sizes all orders are tried."""

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from planned import all_ways, cluster, model, tokens, toy

import gpipe_sim as gp
from gpipe_sim.planning import lower_bound
from gpipe_sim.planning.bounds import Order, least_time
from gpipe_sim.planning.problem import Problem
from gpipe_sim.planning.space import Way
from gpipe_sim.pricing.price import Priced

KINDS = {"full": "FB", "split": "FIW"}


def orders(stage: int, microbatches: int, kinds: str) -> list[str]:
    """All orders of a device in which each microbatch's actions come in turn, and microbatches in order."""
    turns = {*permutations(sorted(list(range(len(kinds))) * microbatches))}
    rows = []
    for turn in turns:
        done, row = [0] * microbatches, []
        for kind in turn:
            if kind not in done:
                break
            m = done.index(kind)
            row.append(f"{stage}{kinds[kind]}{m}")
            done[m] += 1
        else:
            rows.append(" ".join(row))
    return rows


def fastest(kinds: str, problem: Problem, microbatches: int) -> float:
    """Of all cuts in two and all orders of two devices."""
    rows = [orders(stage, microbatches, kinds) for stage in (0, 1)]
    schedules = [gp.Explicit(list(each)) for each in product(*rows)]
    schedules = [each for each in schedules if not gp.problems(each)]
    size = problem.samples // microbatches
    way = Way(1, 2, 1, size, gp.OneFOneB(2, microbatches), "none", False, 0)
    cuts = [(first, problem.count - first) for first in range(1, problem.count)]
    layouts = [problem.priced(way, cut).layout for cut in cuts]
    return min(
        Priced(replace(layout, schedule=each), problem.cluster).time
        for layout in layouts
        for each in schedules
    )


@pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("sizes", [[12, 8, 8, 4], [12, 4, 4], [12, 24, 24, 4], [12, 2, 30, 4]], ids=str)
def test_no_order_of_two_devices_is_faster(kinds, sizes):
    layers, batch = gp.mlp(sizes), (gp.MetaArray((4, 12), "f8"), gp.MetaArray((4,), "i8"))
    for links in (gp.Link(), gp.Link(latency=1, bandwidth=400)):
        where = gp.Cluster(2, gp.Accelerator(1000, 2, hbm=8000), 1e9, links)
        problem = Problem("plan", layers, where, batch, None, None)
        for microbatches in (1, 2):
            given = {"tensor": [1], "replicas": [1], "microbatch": [4 // microbatches]}
            bound = lower_bound(layers, where, batch, **given)
            best = fastest(kinds, problem, microbatches)
            assert 0.3 * best < bound <= best * (1 + 1e-12)


def test_it_is_reached_where_nothing_is_in_the_way():
    """By one layer on one device; and by two copies of two equal layers, where no device waits to start."""
    one, flops = gp.Cluster(1, toy(1), 1e9), 2 * 8 * 8  # of a sample's forward; I and W are as long
    layers = [gp.core.Linear(8, 8, rng=np.random.default_rng(i)) for i in (0, 1)]
    batch = np.zeros((4, 8)), np.zeros((4, 8))
    assert lower_bound(layers[:1], one, batch, gp.mse) == pytest.approx(4 * 3 * flops, rel=1e-8)
    two = gp.Cluster(2, toy(1), 1e9)
    given = {"replicas": [1], "microbatch": [1], "tensor": [1]}
    assert lower_bound(layers, two, batch, gp.mse, **given) == pytest.approx(4 * 3 * flops, rel=1e-8)
    plans = gp.plan(layers, two, batch, gp.mse, schedules=[gp.families.Chimera, gp.OneFOneB], **given)
    assert plans.best.way.order == "Chimera, 4 of 1" and plans.gap == pytest.approx(0, abs=1e-8)


def test_the_largest_layer_waits_for_those_before_it():
    """Where it is nearly all of the work, and an odd number of devices has no two copies to share it."""
    layers, batch = gp.mlp([8, 8, 8, 800])[::2], (np.zeros((4, 8)), np.zeros((4, 800)))
    small, large = 2 * 8 * 8, 2 * 8 * 800  # forward of a sample; I and W are as long
    three = gp.Cluster(3, toy(1), 1e9)
    found = lower_bound(layers, three, batch, gp.mse, tensor=[1], replicas=[1], microbatch=[1])
    assert found == pytest.approx(2 * small + 4 * 3 * large, rel=1e-8)


def test_more_devices_more_speed_and_faster_links_never_raise_it():
    def bound(devices=4, flops=2000, overhead=2, latency=1, bandwidth=400, **given):
        where = gp.Cluster(devices, gp.Accelerator(flops, overhead), 1e9, gp.Link(latency, bandwidth))
        return lower_bound(model(), where, tokens(), **given)

    least, two, one = bound(), bound(2), bound(1)
    assert least < bound(flops=1000) and least < bound(overhead=4) and least <= two < one
    assert least <= bound(latency=2) and least <= bound(bandwidth=200)
    assert least <= bound(microbatch=[2]) and least <= bound(replicas=[1])


def test_it_counts_what_tensor_parallelism_costs():
    """Its sums over slow links, its calls, and the kernels that do not get smaller."""

    def bound(link: gp.Link, call: float = 0, launch: float = 0) -> float:
        accelerator = gp.Accelerator(1000, call=call, launch=launch)
        return lower_bound(model(), gp.Cluster(4, accelerator, 1e9, link), tokens(), tensor=[4])

    least = bound(gp.Link())
    sums = 4 * 4 + 2  # two forward and two backward in each of four blocks, and those of embedding and head
    assert bound(gp.Link(), call=1) == pytest.approx(least + sums, rel=1e-8)
    assert bound(gp.Link(bandwidth=1000)) > least and bound(gp.Link(), launch=50) > least


@pytest.mark.parametrize(("node", "devices"), [(8, 6), (4, 3)])
def test_groups_that_do_not_fill_their_node_are_bounded_on_the_links_that_they_are_priced_on(node, devices):
    """Two groups of three in a node of eight, and one in a node of four: the bound took them to leave it."""
    links = gp.Nodes(node, gp.Link(bandwidth=8000), gp.Link(latency=30, bandwidth=20))
    layers = gp.gpt(2, 24, 3, tokens=9, sequence=8, dtype="f2")
    problem = Problem("plan", layers, cluster(devices, links=links), tokens(), None, None)
    found = [each for each in all_ways(problem) if each.tensor == 3]
    assert found
    for way in found:
        priced = problem.priced(way, problem.even_cut(way))
        assert 0.5 * priced.time < least_time(problem, way, Order.of(way.schedule)) <= priced.time, way


def test_it_leaves_out_what_cannot_hold_the_weights():
    """One device of four cannot, all four can: copies side by side do not count then."""
    roomy, tight = (
        lower_bound(model(), cluster(4, memory, gp.Link()), tokens(), tensor=[1]) for memory in (1e9, 80_000)
    )
    assert roomy < tight
    with pytest.raises(
        ValueError, match="lower_bound finds no way to deal out 8 samples and 8 layers to 4 d"
    ):
        lower_bound(model(), cluster(4, 1_000), tokens())


def test_a_batch_that_cannot_be_cut_has_none():
    with pytest.raises(ValueError, match="lower_bound finds no way to deal out 8 samples"):
        lower_bound(model(), cluster(4), tokens(), microbatch=[5])


def test_a_higher_zero_stage_may_be_slower_and_the_bound_knows_it():
    """Weights that take more bytes than their gradients are better summed than gathered."""
    layers, batch = (
        [gp.core.Linear(512, 512, rng=np.random.default_rng(0))],
        (np.zeros((4, 512)), np.zeros((4,), int)),
    )
    where = gp.Cluster(4, gp.Accelerator(1e13, hbm=1e12), 1e9, gp.Link(bandwidth=1e9))
    prices = [gp.price(layers, where, batch, replicas=4, zero=zero).time for zero in (0, 1)]
    assert prices[0] < prices[1]
    assert gp.planning.lower_bound(layers, where, batch, replicas=[4]) <= prices[0] * (1 + 1e-9)


def test_the_fastest_of_unequal_cards_is_as_fast_in_weights_products_as_any():
    cards = [gp.Accelerator(100e12, linear=rate) for rate in (200e12, 50e12)]
    assert gp.pricing.mixed.best_of(cards).linear == 200e12
    assert gp.pricing.mixed.best_of([gp.Accelerator(100e12), cards[1]]).linear == 100e12
