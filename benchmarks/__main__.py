"""Run every benchmark. A target that a busy machine misses is marked SLOW; that is no failure."""

from benchmarks import bench_growth, bench_plan, bench_simulate, bench_step, bench_svg

if __name__ == "__main__":
    for benchmark in (bench_simulate, bench_growth, bench_plan, bench_step, bench_svg):
        benchmark.run()
