"""Run every benchmark except those of torch and the page, or with `torch`, `what_if` or `page` only that one.

Exits with 1 on a missed target. On a busy machine, targets can be missed.
"""

import sys
from importlib import import_module

from benchmarks import (
    bench_growth,
    bench_memory,
    bench_plan,
    bench_recorder,
    bench_simulate,
    bench_step,
    bench_svg,
    bench_traces,
)

if __name__ == "__main__":
    benchmarks = (
        bench_simulate,
        bench_growth,
        bench_plan,
        bench_step,
        bench_memory,
        bench_svg,
        bench_traces,
        bench_recorder,
    )
    if sys.argv[1:] in (["torch"], ["what_if"], ["page"]):
        benchmarks = (import_module(f"benchmarks.bench_{sys.argv[1]}"),)
    met = [benchmark.run() for benchmark in benchmarks]
    sys.exit(0 if all(met) else 1)
