"""From files to timelines: ranks are put in order, clocks are aligned, and whole steps become timelines."""

import os
import re
from collections.abc import Iterable, Sequence
from statistics import median

from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.one_f_one_b import OneFOneB
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.errors import short
from gpipe_sim.traces.clocks import align, few, in_words
from gpipe_sim.traces.files import json_of, text_of, which
from gpipe_sim.traces.kineto import RECORD, RankTrace, rank_trace
from gpipe_sim.traces.own_files import is_own, own_timelines
from gpipe_sim.traces.ran import Run
from gpipe_sim.traces.ranks import LABEL, run_of_traces
from gpipe_sim.traces.tables import COLUMNS, Table, run_of_tables, table_of
from gpipe_sim.traces.timeline_of import Rows, crossings, named, order_of, timeline_of

FAR = 10_000.0  #: milliseconds between clocks, if all ranks number the same steps
LOOKED_AT = 100_000  #: characters, for a log
PART = 0.75  #: of a step between clocks, if steps are only counted
TIMERS = re.compile(
    r"^\s*(forward|backward)-(compute|recv|send)[-a-z]*\s*\.*:", re.MULTILINE
)  #: Megatron-LM's


def read_trace(paths: str | os.PathLike | Sequence[str | os.PathLike]) -> list[Timeline]:
    """The steps of a real run, each as a timeline in milliseconds that begins at 0 with its first action.

    >>> from pathlib import Path; from tempfile import mkdtemp
    >>> measured = Path(mkdtemp(), "spans.csv")
    >>> _ = measured.write_text(gp.export.to_csv(gp.export.recorded_run("1f1b")))
    >>> [step] = gp.read_trace(measured)  # or a folder with rank0.json.gz, rank1.json.gz, ...
    >>> step.schedule, round(step.makespan)
    (OneFOneB(devices=4, microbatches=8), 683)

    ``paths`` is a folder, a file, or a list of files. They are either of ``torch.profiler``, one for each
    rank, plain or gzip, of steps of ``torch.distributed.pipelining``; or a table of spans as CSV or JSON,
    with the columns rank (or device), stage, kind, microbatch, start, end in milliseconds, and perhaps step
    and pair, as ``gp.export.to_csv`` writes it; or what ``gp.to_chrome_trace`` wrote. What they are is seen
    from what is in them, not from their names.

    An action starts when the wait for its message has ended. Ranks' clocks are aligned by messages, which
    cannot come before they are sent. A step that is not whole is left out. ``notes`` of each timeline say all
    this, and what had to be assumed; ``began`` is when it began in epoch milliseconds on rank 0's clock.

    ValueError, in words that say what to record instead, for what would give a wrong timeline: a rank missing
    or there twice, ranks of different runs, clocks that cannot be aligned, no step that is whole, another
    kind of file, or more than 256 MB in one. TypeError for anything but paths. Nothing that is read is run.
    """
    traces: list[RankTrace] = []
    tables: list[Table] = []
    others: list[str] = []
    files, in_folder = which(paths)
    for path in files:
        text = text_of(path)
        timers = TIMERS.search(text[:LOOKED_AT])
        data = json_of(path, text) if text.lstrip()[:1] in ("{", "[") and not timers else None
        if is_own(data):
            if len(files) > 1 and not in_folder:
                raise ValueError(f"read_trace got {short(path.name)}, which holds all devices: give it alone")
            return own_timelines(path.name, data)
        if (table := table_of(path.name, text, data)) is not None:
            tables.append(table)
        elif (isinstance(data, dict) and "traceEvents" in data) or (isinstance(data, list) and not in_folder):
            traces.append(rank_trace(path.name, data))
        else:
            others.append(f"{path.name}, a log of Megatron's timers" if timers else path.name)
    if (others and not in_folder) or not (traces or tables):
        raise ValueError(_unknown(others))
    if tables and traces and not in_folder:
        raise ValueError("read_trace got traces and tables of spans: give either")
    others += [table.file for table in tables] if traces else []
    notes = (f"left aside, as it is no trace: {', '.join(others[:3])}{', ...' * (len(others) > 3)}",)
    run = run_of_traces(traces) if traces else run_of_tables(tables)
    return _timelines(run._replace(notes=(*run.notes, *notes[: len(others)])))


def _unknown(names: Sequence[str]) -> str:
    if any("timers" in name for name in names):
        return (
            f"read_trace cannot read {names[0]}: they are sums over a step, and do not say when an action "
            "ran. Record spans: gpipe_sim.traces.Recorder wraps forward_step and backward_step of Megatron's "
            "loop, and writes a table that read_trace takes"
        )
    return (
        f"read_trace cannot read {short(names[0])}: it is neither a trace of torch.profiler, a JSON with "
        f"traceEvents, nor a table of spans with {COLUMNS}. {RECORD}".replace(". record", ". Record")
    )


def _timelines(run: Run) -> list[Timeline]:
    """A timeline for each step that is whole, all on the clock of the first device."""
    whole: dict[str, tuple[Explicit, Rows]] = {}
    why = list(run.left_out)
    for name, rows in run.steps.items():
        try:
            whole[name] = order_of(rows), rows
        except ValueError as error:
            why.append(f"{name} is left out: {error}")
    if not whole:
        raise ValueError(
            f"read_trace found no step that is whole on {few(run.names)} "
            f"({'; '.join(why[:3]) or 'no action'}). Are all files there, of one run, and with whole steps? "
            "Record some steps more, the same ones on each rank, and stop all after the same step"
        )
    messages = [each for order, rows in whole.values() for each in crossings(order, rows)]
    took = median(
        max(each.end for row in rows for each in row) - min(each.start for row in rows for each in row)
        for _, rows in whole.values()
    )
    try:
        clocks = align(len(run.names), messages, FAR if run.numbered else PART * took, run.names)
    except ValueError as error:
        raise ValueError(f"read_trace: {error}") from None
    notes = (*run.notes, in_words(clocks, run.names), *why)
    families = {order: named(order) for order, _ in whole.values()}
    if not run.labels:
        _require_1f1b(schedule for schedule, _ in families.values())
    found = []
    for name, (order, by_own_clock) in whole.items():
        schedule, about = families[order]
        aligned: Rows = [
            [each.moved(by) for each in row] for row, by in zip(by_own_clock, clocks.shifts, strict=True)
        ]
        found.append(timeline_of(schedule, aligned, run.epoch, (f"{name} of {run.source}", *about, *notes)))
    return found


def _require_1f1b(schedules: Iterable[Schedule]) -> None:
    """ValueError unless what nobody labelled has the order in which microbatches were numbered."""
    for schedule in schedules:
        if schedule != OneFOneB(schedule.devices, schedule.microbatches):
            raise ValueError(
                "read_trace found no labels, and forwards and backwards in an order that is not 1F1B's, so "
                f"nobody knows which microbatch is which: {LABEL}"
            )
