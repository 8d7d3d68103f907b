"""The SVG of a large timeline: how long it takes to make, and how large it is, for use in a notebook."""

from benchmarks.timing import medians, report
from gpipe_sim import OneFOneB, simulate, to_svg

DEVICES, MICROBATCHES = 32, 512


def run() -> bool:
    timeline = simulate(OneFOneB(DEVICES, MICROBATCHES))
    name = f"SVG of 1F1B, {DEVICES} x {MICROBATCHES}, {len(timeline.spans):,} boxes"
    [seconds] = medians(lambda: to_svg(timeline), rounds=5)
    quick = report(name, seconds, "s", 1)
    small = report(name, len(to_svg(timeline).encode()) / 1e6, "MB", 3)
    return quick and small


if __name__ == "__main__":
    run()
