"""Measure the steps that ``gp.export.recorded_run`` returns, and store them. Needs torch and a quiet machine.

Run ``python -m benchmarks.record``, then `make lessons-torch`: lesson 20 prints numbers of these steps.
"""

import json
import os
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import numpy as np
import torch
from torch import nn

import gpipe_sim as gp
from benchmarks.bench_torch import linear_stages, sleeping_stages
from gpipe_sim import torch_backend as tb
from gpipe_sim.core import Timeline
from gpipe_sim.export.recorded import FILE

STEPS = 45  #: measured after a first one for warming up; the fastest is kept
WIDTHS = {"narrow": (16, 64), "wide": (1024, 512)}  #: (features, samples)

Batch = tuple[np.ndarray, np.ndarray]


def runs() -> Iterator[tuple[str, gp.core.Schedule, list[nn.Module], Batch]]:
    """(name, schedule, modules, batch)"""
    zeros = np.zeros((16, 1), np.float32), np.zeros((16, 1), np.float32)
    yield "1f1b", gp.OneFOneB(4, 8), sleeping_stages(4), zeros
    yield "zbh1", gp.ZBH1(4, 8), sleeping_stages(4), zeros
    yield "gpipe16", gp.GPipe(4, 16), sleeping_stages(4), zeros
    for name, (width, samples) in WIDTHS.items():
        rng = np.random.default_rng(0)
        batch = rng.normal(size=(samples, width)), rng.normal(size=(samples, width))
        yield name, gp.OneFOneB(2, 8), linear_stages(2, width), batch
        yield f"{name}_alone", gp.OneFOneB(1, 8), linear_stages(1, width), batch


def fastest(pipeline: tb.Pipeline, batch: Batch) -> Timeline:
    steps = [pipeline.step(batch).timeline for _ in range(1 + STEPS)]
    return min(steps[1:], key=lambda timeline: timeline.makespan)


def stored(timeline: Timeline) -> dict:
    schedule = timeline.schedule
    return {
        "schedule": [type(schedule).__name__, schedule.devices, schedule.microbatches],
        "spans": {str(span.action): [round(span.start, 3), round(span.end, 3)] for span in timeline.spans},
    }


def main() -> None:
    found = {}
    with tb.LocalProcesses(4) as processes:
        for name, schedule, modules, batch in runs():
            timeline = fastest(tb.Pipeline(modules, schedule, gp.mse, devices=processes), batch)
            found[name] = stored(timeline)
            print(f"{name:<13} {timeline.makespan:8.1f} ms, fitted {gp.fit_costs(timeline)}")
    where = (
        f"CPU processes on a machine with {os.cpu_count()} cores, torch {torch.__version__.split('+')[0]}, "
        f"{date.today()}"
    )
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(run)}" for name, run in found.items())
    Path(str(FILE)).write_text(f'{{"where": {json.dumps(where)},\n "runs": {{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    main()
