"""Plans: ``greedy`` for 16 devices and 256 microbatches, split backwards, and the same on a V within a limit.

The best plans of a 70B on 128 devices and of a 405B on 16,384; the time is that of the machine it runs on.
And where to cut 1,000 layers for 64 devices: for the fastest slowest stage, and for the shortest step.
"""

import random
from time import perf_counter

import numpy as np

from benchmarks.timing import medians, report
from gpipe_sim.balance.by_cost import balance_by_cost
from gpipe_sim.balance.by_makespan import balance_by_makespan
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.meta_array import MetaArray
from gpipe_sim.core.one_f_one_b import OneFOneB
from gpipe_sim.families.placements import v_shaped
from gpipe_sim.links.links import Link, Nodes
from gpipe_sim.memory.greedy import greedy
from gpipe_sim.planning.plans import plan
from gpipe_sim.pricing.cluster import Cluster
from gpipe_sim.pricing.hardware import Accelerator
from gpipe_sim.transformers.known import known_model

DEVICES, MICROBATCHES = 16, 256
LAYERS, STAGES = 1000, 64
#: About what an H100 reaches in large products; stated, not measured.
H100 = Accelerator(600e12, hbm=2.7e12, launch=5e-6, exposed=0.15, call=2e-5)


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
    """Llamas on H100s with eight to a node, of all schedules: the ten fastest plans, with exact bytes."""
    met = True
    for name, devices, samples, sequence, most in (
        ("llama3-70b", 128, 256, 4096, 60),
        ("llama3-70b", 128, 1024, 8192, 60),
        ("llama3-405b", 16_384, 2048, 8192, 300),
    ):
        tokens = MetaArray((samples, sequence), np.int32)
        cluster = Cluster(devices, H100, 80e9, Nodes(8, Link(5e-6, 300e9), Link(1e-5, 50e9)))
        start = perf_counter()
        plans = plan(known_model(name), cluster, (tokens, tokens))
        bound, taken = plans.gap, perf_counter() - start
        what = f"plan {name} for {devices:,} devices and {samples:,} x {sequence:,} tokens"
        counts = f"{plans.looked_at:,} ways, {plans.simulated:,} simulated, within {bound:.1%} of the bound"
        met &= report(f"{what}: {counts}", taken, "s", most)
    return met


if __name__ == "__main__":
    run()
