"""Train the digits with a flush and without one, at four depths, and store the losses: 15 minutes.

Run ``OPENBLAS_NUM_THREADS=1 python -m benchmarks.staleness``, then `make figures lessons`. A method's own
rate is the one of ``RATES`` with the lowest final loss, averaged over seeds that are not reported; a rate at
which one of these trainings diverges does not count.
"""

import json
from collections.abc import Iterable
from itertools import product
from multiprocessing import Pool
from pathlib import Path

import numpy as np

from gpipe_sim.course.stale import (
    COMMON,
    DEPTHS,
    FILE,
    HIGH,
    METHODS,
    OWN,
    RATES,
    SEEDS,
    TUNING_SEEDS,
    Trained,
    blocks,
    train_stale,
)

PROCESSES = 2
HUGE = 1e9  #: the largest mean loss that is stored, of a training that diverges
Job = tuple[str, int, float, int]  #: method, devices, rate, seed


def main() -> None:
    with Pool(PROCESSES) as pool:
        tuned = run(pool, product(METHODS, DEPTHS, RATES, TUNING_SEEDS))
        tables = {(m, k): tuning_table(tuned, m, k) for m, k in product(METHODS, DEPTHS)}
        own = {key: best(table) for key, table in tables.items()}
        wanted = {
            (m, k, rate, seed) for (m, k) in own for rate in (COMMON, HIGH, own[m, k]) for seed in SEEDS
        }
        found = run(pool, sorted(wanted))
    trained = {
        k: {
            m: {
                name: gathered(found, m, k, rate)
                for name, rate in ((COMMON, COMMON), (HIGH, HIGH), (OWN, own[m, k]))
            }
            for m in METHODS
        }
        for k in DEPTHS
    }
    tuning = {k: {m: tables[m, k] for m in METHODS} for k in DEPTHS}
    Path(str(FILE)).write_text(to_text({"tuning": tuning, "trained": trained}), encoding="utf-8")


def run(pool: Pool, jobs: Iterable[Job]) -> dict[Job, tuple[list[float], int | None]]:
    """Each training's mean loss of each block, and where it diverged."""
    jobs = sorted(jobs, key=lambda job: -job[1])  # the deepest take longest
    found = {}
    for job, one in zip(jobs, pool.imap(trained_in_blocks, jobs), strict=True):
        found[job] = one
        print(*job, f"diverged at {one[1]}" if one[1] else f"{one[0][-1]:.3f}", flush=True)
    return found


def trained_in_blocks(job: Job) -> tuple[list[float], int | None]:
    method, devices, rate, seed = job
    losses, diverged = train_stale(method, devices, rate, seed)
    return [float(f"{min(mean, HUGE):.4g}") for mean in blocks(losses, method, devices)], diverged


def gathered(found: dict, method: str, devices: int, rate: float) -> dict:
    curves = [found[method, devices, rate, seed] for seed in SEEDS]
    return Trained(rate, [losses for losses, _ in curves], [end for _, end in curves])._asdict()


def tuning_table(tuned: dict, method: str, devices: int) -> dict[float, float | None]:
    """By rate the mean final loss of the tuning seeds; None where one of them diverged."""
    table = {}
    for rate in RATES:
        curves = [tuned[method, devices, rate, seed] for seed in TUNING_SEEDS]
        whole = Trained(rate, [losses for losses, _ in curves], [end for _, end in curves])
        table[rate] = None if any(whole.diverged) else float(f"{np.mean(whole.final):.4g}")
    return table


def best(table: dict[float, float | None]) -> float:
    return min((loss, rate) for rate, loss in table.items() if loss is not None)[1]


def to_text(value: object, indent: int = 0) -> str:
    """JSON with a line for each training, so that the file can be read and compared."""
    if isinstance(value, dict) and any(isinstance(inner, dict) for inner in value.values()):
        gap = "\n" + " " * (indent + 1)
        inside = f",{gap}".join(f"{json.dumps(str(k))}: {to_text(v, indent + 1)}" for k, v in value.items())
        return f"{{{gap}{inside}\n{' ' * indent}}}" + ("" if indent else "\n")
    return json.dumps(value, allow_nan=False)


if __name__ == "__main__":
    main()
