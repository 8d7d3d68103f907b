"""No order is faster than ``lower_bound``: for small sizes all orders are tried."""

from itertools import pairwise, permutations, product

import numpy as np
import pytest
from planned import ACCELERATOR, X, Y, cluster, model, toy

import gpipe_sim as gp
from gpipe_sim.planning import lower_bound

LINK = gp.Link(latency=1, bandwidth=400)
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


def fastest(microbatches: int, kinds: str, layers, where: gp.Cluster, batch) -> float:
    """Of all cuts in two and all orders of two devices."""
    found = []
    rows = [orders(stage, microbatches, kinds) for stage in (0, 1)]
    schedules = [gp.Explicit(list(each)) for each in product(*rows)]
    schedules = [each for each in schedules if not gp.problems(each)]
    for first in range(1, len(layers)):
        partitions = gp.split(layers, balance=[first, len(layers) - first])
        profile = gp.profile(partitions, batch, gp.cross_entropy)
        costs = gp.planning.costs_from_flops(profile, where.accelerator, microbatches)
        found += [gp.simulate(each, costs, links=where.links, profile=profile).makespan for each in schedules]
    return min(found)


@pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("sizes", [[12, 8, 8, 4], [12, 4, 4], [12, 24, 24, 4], [12, 2, 30, 4]], ids=str)
def test_no_order_of_two_devices_is_faster(kinds, sizes):
    layers, batch = gp.mlp(sizes), (X[:4], Y[:4])
    for links in (gp.Link(), LINK):
        where = gp.Cluster(2, ACCELERATOR, 1e9, links)
        for microbatches in (1, 2):
            given = {"replicas": [1], "microbatches": [microbatches]}
            bound = lower_bound(layers, where, batch, gp.cross_entropy, **given)
            best = float(fastest(microbatches, kinds, layers, where, batch))
            assert 0.5 * best < bound <= best * (1 + 1e-12)


def test_it_is_reached_where_nothing_is_in_the_way():
    """By one layer on one device; and by two copies of two equal layers, where no device waits to start."""
    one = gp.Cluster(1, toy(1), 1e9)
    layers = [gp.core.Linear(8, 8, rng=np.random.default_rng(i)) for i in (0, 1)]
    batch = np.zeros((4, 8)), np.zeros((4, 8))
    forward = 2 * 8 * 8  # of a sample; I and W are as long
    assert lower_bound(layers[:1], one, batch, gp.mse) == 4 * 3 * forward
    two = gp.Cluster(2, toy(1), 1e9)
    given = {"replicas": [1], "microbatches": [4]}
    assert lower_bound(layers, two, batch, gp.mse, **given) == 4 * 3 * forward
    plans = gp.plan(layers, two, batch, gp.mse, schedules=[gp.families.Chimera, gp.OneFOneB], **given)
    assert plans.best.words == "1 x Chimera K=2 M=4" and plans.gap == 0


def test_the_largest_layer_waits_for_those_before_it():
    """Where it is nearly all of the work, and an odd number of devices has no two copies to share it."""
    sizes, batch = [8, 8, 8, 800], (np.zeros((4, 8)), np.zeros((4, 800)))
    layers = [gp.core.Linear(a, b, rng=np.random.default_rng(0)) for a, b in pairwise(sizes)]
    small, large = 2 * 8 * 8, 2 * 8 * 800  # forward of a sample; I and W are as long
    three = gp.Cluster(3, toy(1), 1e9)
    found = lower_bound(layers, three, batch, gp.mse, replicas=[1], microbatches=[4])
    assert found == 2 * small + 4 * 3 * large


def test_more_devices_more_speed_and_faster_links_never_raise_it():
    def bound(devices=4, flops=64, overhead=2, latency=1, bandwidth=400):
        where = gp.Cluster(devices, toy(flops, overhead), 1e9, gp.Link(latency, bandwidth))
        return lower_bound(model(), where, (X, Y), gp.cross_entropy)

    assert bound() < bound(flops=32) and bound() < bound(overhead=4) and bound(2) < bound(1)
    assert bound() <= bound(latency=2) and bound() <= bound(bandwidth=200)
    assert bound() <= bound(devices=2) <= bound(devices=1)


def test_a_batch_that_cannot_be_cut_has_none():
    with pytest.raises(
        ValueError, match="lower_bound finds no way to cut 8 samples and 15 layers for 3 devices"
    ):
        lower_bound(model(), cluster(3), (X, Y), gp.cross_entropy, microbatches=[5])


def test_devices_wait_for_messages_before_they_start():
    """The four devices of a pipeline wait for 0, 1, 2 and 3 messages: 1.5 x 4 on average.

    Two copies wait less, but their rings take 2 x 4; without latency they are ahead, by a little.
    """
    batch = np.zeros((64, 8)), np.zeros((64, 8))
    bounds = [
        lower_bound(
            gp.mlp([8] * 5, seed=0),
            gp.Cluster(4, toy(100), 1e9, gp.Link(latency=latency)),
            batch,
            gp.mse,
            replicas=[1],
            microbatches=[64],
        )
        for latency in (0, 4)
    ]
    assert 6 <= bounds[1] - bounds[0] < 8
