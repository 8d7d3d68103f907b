"""Plans: ``greedy`` for 16 devices and 256 microbatches, split backwards, and the same on a V within a limit.

And where to cut 1,000 layers for 64 devices: for the fastest slowest stage, and for the shortest step.
"""

import random

from benchmarks.timing import medians, report
from gpipe_sim.families.one_f_one_b import OneFOneB
from gpipe_sim.planning.balance_makespan import balance_by_makespan
from gpipe_sim.planning.greedy import greedy
from gpipe_sim.runtime.balance import balance_by_cost
from gpipe_sim.schedule.placement import v_shaped
from gpipe_sim.simulation.costs import Costs

DEVICES, MICROBATCHES = 16, 256
LAYERS, STAGES = 1000, 64


def run() -> bool:
    met = True
    for name, options in (
        ("one stage per device", {}),
        ("over a V within 2K", {"placement": v_shaped(DEVICES), "memory_limit": 2 * DEVICES}),
    ):

        def plan(options=options):
            return greedy(DEVICES, MICROBATCHES, priority=("I", "F", "W"), **options)

        size = sum(map(len, plan().actions))
        met &= report(f"greedy, {name}: plan {size:,} actions", *medians(plan, rounds=5), "s", 1)
    return met & balances()


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


if __name__ == "__main__":
    run()
