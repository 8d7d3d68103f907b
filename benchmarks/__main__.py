"""Run every benchmark; exit with 1 if one misses its target."""

import sys

from benchmarks import bench_growth, bench_plan, bench_simulate, bench_step, bench_svg


def main() -> int:
    met = [benchmark.run() for benchmark in (bench_simulate, bench_growth, bench_plan, bench_step, bench_svg)]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
