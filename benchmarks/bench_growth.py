"""Generate, check and simulate a thousand to eight million actions: time and memory grow in proportion.

The curve is written to ``results/growth.json``. Each size runs in its own process, to measure peak memory.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import gpipe_sim as gp
from benchmarks.timing import report

RESULTS = Path(__file__).parent / "results" / "growth.json"
SIZES = ((8, 64), (16, 256), (32, 512), (64, 1024), (128, 2048), (256, 2048), (512, 4000), (1000, 4000))
MEASURE = """
import resource, sys, time
import gpipe_sim as gp
devices, microbatches = map(int, sys.argv[1:])
gp.simulate(gp.OneFOneB(2, 2))
began = time.process_time()
schedule = gp.OneFOneB(devices, microbatches)
assert gp.problems(schedule) == []
timeline = gp.simulate(schedule)
assert timeline.makespan == 3 * (devices + microbatches - 1)
print(time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def measured(devices: int, microbatches: int) -> dict:
    """CPU seconds and peak megabytes for 1F1B, generated, checked and simulated in a fresh process."""
    command = [sys.executable, "-c", MEASURE, str(devices), str(microbatches)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    seconds, megabytes = map(float, printed.split())
    actions = 2 * devices * microbatches
    size = f"1F1B {devices:>4} x {microbatches:<5} {actions:>9,} actions"
    print(f"      {size} {seconds:8.3f} s {megabytes:7.0f} MB")
    return {"actions": actions, "seconds": round(seconds, 3), "megabytes": round(megabytes)}


def checked(schedule: gp.core.Schedule) -> float:
    """CPU seconds to lay out a schedule, check it and time it."""
    began = time.process_time()
    gp.check(schedule)
    gp.simulate(schedule)
    return time.process_time() - began


def run() -> bool:
    curve = [measured(*size) for size in SIZES]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(curve, indent=1) + "\n")
    middle, last = curve[3], curve[-1]
    per_action = (last["seconds"] / last["actions"]) / (middle["seconds"] / middle["actions"])
    met = report(f"per action, {last['actions']:,} actions / {middle['actions']:,}", per_action, "x", 2)
    met &= report("1000 x 4000, generate, check and simulate, CPU", last["seconds"], "s", 30)
    stream, plain = (checked(family(4, 50_000)) for family in (gp.PipeDream, gp.OneFOneB))
    met &= report("50,000 updates of each stage on the way / 1F1B without", stream / plain, "x", 4)
    return met & report("1000 x 4000, peak memory", last["megabytes"], "MB", 1500)


if __name__ == "__main__":
    run()
