"""Real traces (``data/traces``) beside what is true of them, and ways to spoil them."""

import gzip
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

import gpipe_sim as gp
from gpipe_sim.core import Action, Timeline

TRACES = Path(__file__).parent / "data" / "traces"
SETS = {
    "interleaved": "Interleaved1F1B(devices=4, microbatches=8, stages_per_device=2)",
    "gpipe": "GPipe(devices=4, microbatches=6, drain='in_order')",
    "1f1b_link": "OneFOneB(devices=4, microbatches=8)",
    "zbv_skewed": "ZBV(devices=4, microbatches=8)",
    "dualpipev": "unpaired(DualPipeV(devices=2, microbatches=4))",
    "interleaved_zero_bubble": "Explicit(devices=2, microbatches=4)",
    "1f1b_bare": "OneFOneB(devices=2, microbatches=4)",
    "1f1b_labelled": "OneFOneB(devices=2, microbatches=4)",
}


class Truth(NamedTuple):
    """Of one step: (start, end) of each action in milliseconds after the first start."""

    times: dict[Action, tuple[float, float]]
    devices: int

    @property
    def makespan(self) -> float:
        return max(end for _, end in self.times.values())

    @property
    def bubble_fraction(self) -> float:
        return 1 - sum(end - start for start, end in self.times.values()) / self.devices / self.makespan


@cache
def truths(name: str) -> list[Truth]:
    steps: dict[int, dict[Action, tuple[float, float]]] = {}
    ranks = json.loads((TRACES / name / "truth.json").read_text())["ranks"]
    for step, stage, kind, microbatch, start, end in (row for rows in ranks.values() for row in rows):
        action = Action.parse(f"{stage}{kind}{microbatch}")
        steps.setdefault(step, {})[action] = (start / 1000, end / 1000)
    found = []
    for _, times in sorted(steps.items()):
        first = min(start for start, _ in times.values())
        moved = {action: (start - first, end - first) for action, (start, end) in times.items()}
        found.append(Truth(moved, len(ranks)))
    return found


@cache
def read(name: str) -> list[Timeline]:
    return gp.read_trace(TRACES / name)


def late(timeline: Timeline, truth: Truth) -> dict[int, list[float]]:
    """For each device, by how much the trace's starts are later than the true ones, in milliseconds."""
    found: dict[int, list[float]] = {}
    for span in timeline.spans:
        found.setdefault(span.device, []).append(span.start - truth.times[span.action][0])
    return found


def clock_error(timeline: Timeline, truth: Truth) -> float:
    """How far a device's clock is at most from the first one's, in milliseconds."""
    usual = [median(found) for _, found in sorted(late(timeline, truth).items())]
    return max(abs(each - usual[0]) for each in usual)


@cache
def document(name: str, rank: int) -> str:
    return gzip.decompress((TRACES / name / f"rank{rank}.json.gz").read_bytes()).decode()


Edit = Callable[[dict], object]


def spoiled(folder: Path, name: str, edits: dict[int, Edit]) -> Path:
    """A copy of a set in which some ranks' files are edited; an edit that returns a text is the file."""
    ranks = len(list((TRACES / name).glob("rank*.json.gz")))
    for rank in range(ranks):
        text = document(name, rank)
        if rank in edits:
            data = json.loads(text)
            made = edits[rank](data)
            text = made if isinstance(made, str) else json.dumps(data)
        (folder / f"rank{rank}.json").write_text(text)
    return folder


def without(data: dict, *prefixes: str) -> None:
    """Leave out the events whose names begin so."""
    data["traceEvents"] = [e for e in data["traceEvents"] if not str(e.get("name")).startswith(prefixes)]


def later(data: dict, milliseconds: float) -> None:
    for event in data["traceEvents"]:
        if "ts" in event:
            event["ts"] += milliseconds * 1000
