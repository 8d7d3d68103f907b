"""Read the trace of a large run: 64 ranks, and a megabyte of JSON for each.

The files are made here, in the form that PyTorch's profiler writes for classes that label their actions: a
simulated step gives the times, and every label holds as many operators as it takes to fill the megabyte.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import gpipe_sim as gp
from benchmarks.timing import report

RANKS, MICROBATCHES, OPERATORS = 64, 128, 21
BASE = 1_790_000_000_000_000_000  #: nanoseconds of the epoch
COSTS = gp.Costs(8, 8, 8, comm=1)  #: milliseconds


def event(name: str, cat: str, start: float, took: float) -> dict:
    """One that is complete; times are in milliseconds."""
    where = {
        "ph": "X",
        "cat": cat,
        "pid": 1,
        "tid": 1,
        "ts": round(start * 1000, 3),
        "dur": round(took * 1000, 3),
    }
    return {**where, "name": name, "args": {"External id": 1, "Record function id": 0, "Ev Idx": 1}}


def events(timeline: gp.core.Timeline, rank: int) -> Iterator[dict]:
    yield event("ProfilerStep#2", "user_annotation", 0, timeline.makespan + 1)
    arrived = {(each.target, each.action): each for each in timeline.messages}
    free = 0.0
    for action, _, start, end in timeline.on(rank):
        letter = "F" if action.kind == "F" else "B"
        for need in gp.core.needs(action, timeline.schedule):
            if message := arrived.get((rank, need)):
                post = f"PP:{action.stage}RECV_{letter}{action.microbatch}"
                yield event(post, "user_annotation", free, 0.02)
                yield event(
                    "gloo:recv", "user_annotation", free + 0.01, max(message.end, free + 0.02) - free - 0.01
                )
        yield event(f"PP:{action}", "user_annotation", free + 0.03, end - free - 0.03)
        width = (end - start) / OPERATORS
        for at in range(OPERATORS):
            yield event("aten::addmm", "cpu_op", start + 0.1 + at * width, width / 2)
        yield event(f"PP:{action.stage}SEND_{letter}{action.microbatch}", "user_annotation", end, 0.01)
        free = float(end) + 0.02


def write(folder: Path) -> float:
    """The files, and how many megabytes they have on average."""
    timeline = gp.simulate(gp.OneFOneB(RANKS, MICROBATCHES), COSTS)
    for rank in range(RANKS):
        about = {"distributedInfo": {"backend": "gloo", "rank": rank, "world_size": RANKS}}
        trace = {**about, "baseTimeNanoseconds": BASE, "traceEvents": list(events(timeline, rank))}
        (folder / f"rank{rank}.json").write_text(json.dumps(trace))
    return sum(path.stat().st_size for path in folder.iterdir()) / RANKS / 1e6


def run() -> bool:
    with TemporaryDirectory() as name:
        megabytes = write(Path(name))
        began = time.perf_counter()
        [step] = gp.read_trace(name)
        took = time.perf_counter() - began
    assert step.schedule == gp.OneFOneB(RANKS, MICROBATCHES)
    return report(f"a trace of {RANKS} ranks x {megabytes:.2f} MB is read", took, "s", 20)


if __name__ == "__main__":
    run()
