"""Run every benchmark; exit with 1 if one misses its target, which a busy machine can."""

import sys

from benchmarks import bench_growth, bench_plan, bench_simulate, bench_step, bench_svg

if __name__ == "__main__":
    benchmarks = (bench_simulate, bench_growth, bench_plan, bench_step, bench_svg)
    met = [benchmark.run() for benchmark in benchmarks]
    sys.exit(0 if all(met) else 1)
