"""One rank's file of ``torch.profiler`` (Kineto) as columns: labels, waits, operators, launches and kernels.

Times become milliseconds after the file's base, which is in epoch nanoseconds. Only complete events
(``ph: X``) count. What each kind of event says stands where it is used.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import NamedTuple

from gpipe_sim.errors import got, short
from gpipe_sim.traces.files import Json

AUTOGRAD = "autograd::engine::evaluate_function"
LONGEST = 1e16  #: microseconds; of the epoch it is the year 2286
NUMBERS, NAMES = (int, float), (int, str)  #: of times, and of threads
RECORD = (
    "record each rank with torch.profiler.profile(activities=[ProfilerActivity.CPU, and CUDA on a GPU]) and "
    "prof.export_chrome_trace(f'rank{rank}.json.gz')"
)


class Timed(NamedTuple):
    """An event, in milliseconds after the base of its file."""

    start: float
    end: float
    name: str
    thread: tuple


@dataclass
class RankTrace:
    """What one file says, each column sorted by start.

    ``labels`` are annotations that could name an action, ``marks`` are (number, start, end) of each
    ``ProfilerStep``, ``optimizer`` its annotations; ``waits`` are ``gloo:recv`` and ``sends`` ``gloo:send``,
    which last from the post to the end of wait(); ``posts`` are ``c10d::send`` and ``c10d::recv_``, and
    ``engine`` and ``operators`` all others, within autograd's engine and outside, on all threads;
    ``launches`` are (start, correlation), and ``kernels`` go by correlation.
    """

    file: str
    rank: int | None
    world: int | None
    groups: dict[str, tuple[int, ...]]
    backends: str
    base: int
    labels: list[Timed] = field(default_factory=list)
    marks: list[tuple[int, float, float]] = field(default_factory=list)
    optimizer: list[Timed] = field(default_factory=list)
    waits: list[Timed] = field(default_factory=list)
    sends: list[Timed] = field(default_factory=list)
    posts: list[Timed] = field(default_factory=list)
    operators: list[Timed] = field(default_factory=list)
    engine: list[Timed] = field(default_factory=list)
    launches: list[tuple[float, int]] = field(default_factory=list)
    kernels: dict[int, list[Timed]] = field(default_factory=dict)

    @cached_property
    def main(self) -> tuple | None:
        """The thread that runs the schedule: of the labels or posts, else of most operators."""
        for column in (self.labels, self.posts, self.optimizer, self.operators):
            threads = [event.thread for event in column]
            if threads:
                return max(set(threads), key=threads.count)
        return None

    def fail(self, why: str) -> ValueError:
        return ValueError(f"read_trace cannot read {short(self.file)}: {why}")


def rank_trace(file: str, data: Json) -> RankTrace:
    """The columns of a file; ValueError for one that is no trace, or that holds what no trace has."""
    if isinstance(data, list):
        data = {"traceEvents": data}  # which Chrome's format allows
    trace = _head(file, data)
    events = data.get("traceEvents")
    if not isinstance(events, list):
        raise trace.fail(f"it has no list of traceEvents, so it is no trace of torch.profiler: {RECORD}")
    for event in events:
        if isinstance(event, dict) and event.get("ph") == "X":
            _sort_in(trace, event)
    for column in (
        trace.labels,
        trace.optimizer,
        trace.waits,
        trace.sends,
        trace.posts,
        trace.operators,
        trace.engine,
    ):
        column.sort(key=lambda event: (event.start, -event.end))
    trace.marks.sort(key=lambda mark: mark[1])
    trace.launches.sort()
    if not (trace.labels or trace.operators):
        raise trace.fail(f"it has neither labels nor operators: {RECORD}")
    return trace


def _head(file: str, data: dict) -> RankTrace:
    about = data.get("distributedInfo")
    about = about if isinstance(about, dict) else {}
    rank, world = (_count(about.get(name)) for name in ("rank", "world_size"))
    base = data.get("baseTimeNanoseconds", 0)
    trace = RankTrace(file, rank, world, {}, str(about.get("backend", "")), 0)
    if type(base) is not int or not 0 <= base < 1 << 63:
        raise trace.fail(f"its baseTimeNanoseconds is no time {got(base)}")
    trace.base = base
    configs = about.get("pg_config")
    for config in configs if isinstance(configs, list) else ():
        if isinstance(config, dict) and isinstance(config.get("ranks"), list):
            ranks = tuple(each for each in config["ranks"] if _count(each) is not None)
            # an empty list stands for everybody
            trace.groups.setdefault(str(config.get("pg_desc")), ranks or tuple(range(world or 0)))
    return trace


def _count(value: Json) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 31 else None


def _sort_in(trace: RankTrace, event: dict[str, Json]) -> None:
    name, kind = event.get("name"), event.get("cat")
    if not (isinstance(name, str) and isinstance(kind, str) and kind in KINDS):
        return
    start: Json = event.get("ts")
    took: Json = event.get("dur", 0)
    for word, value in (("ts", start), ("dur", took)):
        if type(value) not in NUMBERS or not -LONGEST < value < LONGEST:  # as NaN is not
            raise trace.fail(f"{word} of {short(name)} is no time in microseconds {got(value)}")
    if took < 0:
        raise trace.fail(f"{short(name)} has a negative duration {got(took)}")
    process, thread = event.get("pid"), event.get("tid")
    where = process if type(process) in NAMES else None, thread if type(thread) in NAMES else None
    KINDS[kind](trace, Timed(start / 1000, (start + took) / 1000, name, where), event.get("args"))


def _annotation(trace: RankTrace, event: Timed, args: Json) -> None:
    name = event.name
    if name.startswith("ProfilerStep#"):
        number = name.removeprefix("ProfilerStep#")
        if number.isdecimal() and len(number) < 10:
            trace.marks.append((int(number), event.start, event.end))
    elif name.startswith("Optimizer."):
        trace.optimizer.append(event)
    elif name.startswith("gloo:recv"):
        trace.waits.append(event)
    elif name.startswith("gloo:send"):
        trace.sends.append(event)
    elif name.startswith(("PP:", "Forward ", "Backward ")):
        trace.labels.append(event)


def _operator(trace: RankTrace, event: Timed, args: Json) -> None:
    if event.name.startswith(AUTOGRAD):
        trace.engine.append(event)
    elif event.name in ("c10d::send", "c10d::recv_"):
        trace.posts.append(event)
    elif not event.name.startswith("c10d::"):
        trace.operators.append(event)


def _launch(trace: RankTrace, event: Timed, args: Json) -> None:
    if isinstance(args, dict) and type(correlation := args.get("correlation")) is int:
        trace.launches.append((event.start, correlation))


def _kernel(trace: RankTrace, event: Timed, args: Json) -> None:
    if isinstance(args, dict) and type(correlation := args.get("correlation")) is int:
        trace.kernels.setdefault(correlation, []).append(event)


KINDS = {
    "user_annotation": _annotation,
    "cpu_op": _operator,
    "cuda_runtime": _launch,
    "cuda_driver": _launch,
    "kernel": _kernel,
    "gpu_memcpy": _kernel,
    "gpu_memset": _kernel,
}


def began_in(column: list, low: float, high: float) -> Iterator:
    """The events of a sorted column that start in [low, high)."""
    yield from column[bisect_left(column, (low,)) : bisect_left(column, (high,))]


def outermost(events: Iterable[Timed]) -> Iterator[Timed]:
    """Those of one thread that lie within no other; they come sorted by start."""
    until = -inf
    for event in events:
        if event.start >= until - 1e-3:  # which times are rounded to
            yield event
            until = event.end
