"""Plan with ``greedy``: 16 devices, 256 microbatches, split backwards; and the same on a V within a limit."""

from benchmarks.timing import medians, report
from gpipe_sim.plan.greedy import greedy
from gpipe_sim.schedule.placement import v_shaped

DEVICES, MICROBATCHES = 16, 256


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
    return met


if __name__ == "__main__":
    run()
