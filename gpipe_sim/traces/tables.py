"""A table of measured spans, as CSV or JSON: who measured them is not asked."""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import isfinite
from typing import Any, NamedTuple

from gpipe_sim.core.actions import Action, OverlapFB
from gpipe_sim.errors import got, require_few, short
from gpipe_sim.traces.files import Json
from gpipe_sim.traces.ran import Ran, Run

COLUMNS = (
    "the columns rank (or device), stage, kind, microbatch, start, end in milliseconds, and perhaps step"
)
NEEDED = {"stage", "kind", "microbatch", "start", "end"}
MOST_ROWS, MOST_RANKS = 2_000_000, 100_000
_NUMBER = re.compile(r"[-+]?[0-9]{1,300}(/[0-9]{1,300})?")


class Table(NamedTuple):
    """A file's rows, each by the names of its columns."""

    file: str
    rows: Sequence[Mapping[str, Json]]


def table_of(file: str, text: str, data: Json) -> Table | None:
    """The spans in a file, if that is what it holds; ValueError for a broken one."""
    if isinstance(data, dict) and isinstance(data.get("spans"), list):
        data = data["spans"]
    if isinstance(data, list):
        if not (data and all(isinstance(row, dict) for row in data) and set(data[0]) >= NEEDED):
            return None
        return Table(file, data)
    if data is not None or not set(_head(text)) >= NEEDED:
        return None
    try:
        lines = csv.reader(text.splitlines(), strict=True)
        names = [name.strip().lower() for name in next(lines)]
        rows = [dict(zip(names, map(str.strip, line), strict=True)) for line in lines if line]
    except (csv.Error, ValueError) as error:
        raise ValueError(
            f"read_trace cannot read {short(file)}: not every line has all columns: {error}"
        ) from None
    return Table(file, rows)


def _head(text: str) -> list[str]:
    return [name.strip().lower() for name in text[:1000].splitlines()[0].split(",")] if text.strip() else []


def run_of_tables(tables: Sequence[Table]) -> Run:
    """What the tables say, all of them together; ValueError for a row that is no span."""
    require_few("read_trace", sum(len(table.rows) for table in tables), "spans", MOST_ROWS)
    found: dict[tuple, dict[int, list[Ran]]] = {}
    for table in tables:
        for line, row in enumerate(table.rows):
            try:
                step, rank, ran = _read(row)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"read_trace cannot read span {line + 1} of {short(table.file)}: {error}"
                ) from None
            if ran:
                found.setdefault(step, {}).setdefault(rank, []).append(ran)
    ranks = {rank for step in found.values() for rank in step}
    if not ranks:
        raise ValueError(f"read_trace found no span in {short(tables[0].file)}")
    if missing := sorted(set(range(max(ranks) + 1)) - ranks)[:8]:
        raise ValueError(
            f"read_trace has no span of rank {', '.join(map(str, missing))}, and one of rank {max(ranks)}: "
            "give the spans of all ranks, numbered 0, 1, 2, ..."
        )
    steps = {f"step {name}": list(in_rows(step, max(ranks) + 1)) for (_, name), step in sorted(found.items())}
    return Run("measured spans", tuple(f"rank {rank}" for rank in sorted(ranks)), steps, 0, False)


def in_rows(step: Mapping[int, list[Ran]], ranks: int) -> Iterator[list[Ran]]:
    """For each rank what it ran, in order; ValueError for an action twice."""
    for rank in range(ranks):
        ran = sorted(step.get(rank, []), key=lambda each: (each.start, each.end))
        counts = Counter(each.action for each in ran)
        if twice := next((action for action, times in counts.items() if times > 1), None):
            raise ValueError(f"read_trace has {twice} twice in a step: add a column that says the step")
        yield ran


def _read(row: Mapping[str, Json]) -> tuple[tuple, int, Ran | None]:
    """(the step, the rank, what ran): an overlapped pair at the line of its forward, None at the other."""
    rank = whole_of("rank", row.get("rank", row.get("device")), MOST_RANKS)
    stage, microbatch = (whole_of(name, row.get(name), 1 << 31) for name in ("stage", "microbatch"))
    action: Action | OverlapFB = Action.parse(f"{stage}{str(row.get('kind')).strip()}{microbatch}")
    if pair := row.get("pair"):
        halves = [*action.parts, *Action.parse(str(pair)).parts]
        action = OverlapFB(*sorted(halves, key=lambda half: half.kind != "F")[:2])
    start, end = (time_of(name, row.get(name)) for name in ("start", "end"))
    if end < start:
        raise ValueError(f"{action} ends at {end}, before it starts at {start}")
    ran = None if pair and halves[0].kind != "F" else Ran(action, start, end, start)
    return _step(row.get("step", "")), rank, ran


def _step(given: Json) -> tuple:
    text = str(given).strip()
    return (int(text) if text.isdecimal() and len(text) < 18 else -1), short(text).strip("'") or "0"


def whole_of(name: str, given: Json, most: int) -> int:
    """The value, perhaps as text, as a whole number below ``most``; ValueError if it is none."""
    text = str(given).strip()
    if (
        isinstance(given, bool)
        or not (text.isascii() and text.isdecimal() and len(text) < 18)
        or int(text) >= most
    ):
        raise ValueError(f"it needs {name} to be a whole number from 0 {got(given)}; a table has {COLUMNS}")
    return int(text)


def time_of(name: str, given: Json) -> Any:
    """The value, perhaps as text, as a time, whole or a fraction if it is one; ValueError if it is none."""
    text = str(given).strip()
    try:
        if isinstance(given, bool) or len(text) > 600:
            raise ValueError
        if _NUMBER.fullmatch(text):
            return Fraction(text) if "/" in text else int(text)
        time = float(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"it needs {name} to be a time in milliseconds {got(given)}") from None
    if not isfinite(time):
        raise ValueError(f"it needs {name} to be finite {got(given)}")
    return time
