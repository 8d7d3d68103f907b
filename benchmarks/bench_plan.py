"""Plans: ``greedy`` for 16 devices and 256 microbatches, split backwards, and the same on a V within a limit.

A cluster's best plans of more than 2,000, for 64 devices; its time is that of the machine it runs on.
And where to cut 1,000 layers for 64 devices: for the fastest slowest stage, and for the shortest step.
"""

import random
from time import perf_counter

import numpy as np

from benchmarks.timing import medians, report
from gpipe_sim.balance.by_cost import balance_by_cost
from gpipe_sim.balance.by_makespan import balance_by_makespan
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.losses import cross_entropy
from gpipe_sim.core.meta_array import MetaArray
from gpipe_sim.core.one_f_one_b import OneFOneB
from gpipe_sim.families.placements import v_shaped
from gpipe_sim.links.links import Link, Nodes
from gpipe_sim.memory.greedy import greedy
from gpipe_sim.planning.plans import plan
from gpipe_sim.pricing.cluster import Cluster
from gpipe_sim.pricing.hardware import Accelerator
from gpipe_sim.transformers.models import gpt
from gpipe_sim.transformers.optimizers import Adam, MixedPrecision

DEVICES, MICROBATCHES = 16, 256
LAYERS, STAGES = 1000, 64


def run() -> bool:
    met = True
    for name, options in (
        ("one stage per device", {}),
        ("over a V within 2K", {"placement": v_shaped(DEVICES), "memory_limit": 2 * DEVICES}),
    ):

        def order(options=options):
            return greedy(DEVICES, MICROBATCHES, priority=("I", "F", "W"), **options)

        size = sum(map(len, order().actions))
        met &= report(f"greedy, {name}: plan {size:,} actions", *medians(order, rounds=5), "s", 1)
    return met & balances() & searches()


def balances() -> bool:
    """Random costs, in whole numbers and in floats; and many that are nothing beside a single one."""
    draw, schedule, met = random.Random(0), OneFOneB(STAGES, 4 * STAGES), True
    for name, costs in (
        ("whole numbers", [draw.randint(1, 100) for _ in range(LAYERS)]),
        ("floats", [draw.random() for _ in range(LAYERS)]),
        ("one large layer", [draw.randint(1, 100) for _ in range(LAYERS - 1)] + [10**6]),
    ):
        taken = medians(lambda costs=costs: balance_by_cost(costs, STAGES), rounds=5)
        met &= report(f"balance {LAYERS:,} layers on {STAGES} devices, {name}", *taken, "s", 1)
    work = [draw.randint(1, 100) for _ in range(LAYERS)]
    taken = medians(lambda: balance_by_makespan(schedule, Costs(work, work, work)), rounds=3)
    return met & report(f"  and for the makespan of {schedule.name}", *taken, "s", 5)


def searches() -> bool:
    """A Transformer of 126 blocks on 8 nodes of 8 devices: the ten fastest plans, with their exact bytes."""
    layers = gpt(126, 1024, 16, tokens=30_522, sequence=512, dtype=np.float16)
    batch = MetaArray((512, 512), np.int64), MetaArray((512, 512), np.int64)
    links = Nodes(8, Link(5e-6, 300e9), Link(5e-6, 25e9))
    cluster = Cluster(64, Accelerator(140e12, 1e-5), 80e9, links)
    start = perf_counter()
    plans = plan(layers, cluster, batch, cross_entropy, MixedPrecision(Adam(1e-4)))
    taken, count = perf_counter() - start, plans.looked_at
    met = report(f"plan {count:,} candidates on 64 devices, {plans.simulated} simulated", taken, "s", 15)
    return met & report("  each candidate", 1000 * taken / count, "ms", 5)


if __name__ == "__main__":
    run()
