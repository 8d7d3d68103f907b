"""Run every benchmark, or with `torch` the one that needs torch; exit with 1 if one misses its target.

A busy machine can miss them.
"""

import sys
from importlib import import_module

from benchmarks import bench_growth, bench_plan, bench_simulate, bench_step, bench_svg

if __name__ == "__main__":
    benchmarks = (bench_simulate, bench_growth, bench_plan, bench_step, bench_svg)
    if sys.argv[1:] == ["torch"]:
        benchmarks = (import_module("benchmarks.bench_torch"),)
    met = [benchmark.run() for benchmark in benchmarks]
    sys.exit(0 if all(met) else 1)
