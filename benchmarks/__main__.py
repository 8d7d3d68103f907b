"""Run every benchmark except that of torch, or with `torch` only that one; exit with 1 on a missed target.

On a busy machine, targets can be missed.
"""

import sys
from importlib import import_module

from benchmarks import bench_growth, bench_memory, bench_plan, bench_simulate, bench_step, bench_svg

if __name__ == "__main__":
    benchmarks = (bench_simulate, bench_growth, bench_plan, bench_step, bench_memory, bench_svg)
    if sys.argv[1:] == ["torch"]:
        benchmarks = (import_module("benchmarks.bench_torch"),)
    met = [benchmark.run() for benchmark in benchmarks]
    sys.exit(0 if all(met) else 1)
