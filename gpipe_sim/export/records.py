"""What a file of JSON holds of each thing, and the thing again: the types that classes state are the format.

So a class that gets a field makes a new version of the format, and tests keep files of the versions before.

A value is an object with the fields of its class, all of them and no others. Whole numbers and floats are
JSON's own, in as many digits as they need, and a fraction is a text such as "1/3". A schedule has its family
with the family's options, and beside them what these stand for: the stages of each device, and its row of
actions as text. Nothing that is read is run or looked up, except in the few tables below.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from functools import cache
from itertools import pairwise, starmap
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from gpipe_sim.core.costs import Costs
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.gpipe import GPipe
from gpipe_sim.core.remat import Remat, remat
from gpipe_sim.core.schedule import WEIGHTS, Schedule
from gpipe_sim.core.timeline import Timeline, Together, column_of
from gpipe_sim.errors import Real, got, one_of, short
from gpipe_sim.families import SCHEDULES, WITHOUT_FLUSH
from gpipe_sim.families.derived import Unpaired, unpaired
from gpipe_sim.links.collective import Collective
from gpipe_sim.memory.prediction import predict_memory
from gpipe_sim.memory.profile import LayerProfile, LossProfile, Profile, Selective, Size
from gpipe_sim.replicas.replicate import SideBySide, replicate, side_by_side
from gpipe_sim.why.fit_costs import FittedCosts, Latency, Line

Json = Any  #: what ``json.loads`` gives
Hints = Mapping[str, Any]  #: fields and their types
FAMILIES = {family.__name__: family for family in (*SCHEDULES, *WITHOUT_FLUSH, Remat, SideBySide, Unpaired)}
FITTED = {FittedCosts, Latency, Line}
RECORDS = {Costs, *FITTED, Timeline, Collective, Profile, LayerProfile, LossProfile, Selective, Size}
#: Of a schedule, and of an order written out.
SCHEDULE = {"family": str, "options": dict, "placement": tuple[tuple[int, ...], ...], "rows": tuple[str, ...]}
EXPLICIT = {"microbatches": int, "name": str, "weights": tuple[str, ...]}
PLAIN = (int, float, str, bool, NoneType)  #: what JSON has too
FRACTION = re.compile(r"[0-9]+/[1-9][0-9]*", re.ASCII)
LONGEST = 18  #: digits of a label that can be read back
ADDED: dict[str, Json] = {"notes": []}  #: fields that older files do not have, and what is not written


def written(value: Any) -> Json:
    """A value as JSON holds it; TypeError for what no file holds, ValueError for an action without text."""
    if isinstance(value, Schedule):
        return _written_schedule(value)
    kind: Any = type(value)
    if kind in RECORDS:
        found = {name: written(getattr(value, name)) for name in _hints(kind)}
        return {name: each for name, each in found.items() if name not in ADDED or each != ADDED[name]}
    if isinstance(value, np.ndarray | np.generic):
        plain = value.tolist()
        return plain if value.dtype != object else written(plain)
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    if isinstance(value, dict):
        return {name: written(each) for name, each in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple | list):
        return [written(each) for each in value]
    if isinstance(value, PLAIN):
        return value
    raise TypeError(f"no file holds a {type(value).__name__} {got(value)}")


def read(kind: Any, data: Json, where: str) -> Any:
    """The value of this type; ValueError, with its place, if that is not what the data are."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    kind = next((each for each in kinds if _looks(each) is type(data)), None)
    if kind is None:
        raise ValueError(f"{where} is of a wrong kind {got(data)}")
    kind, inner = get_origin(kind) or kind, get_args(kind)
    if kind in PLAIN:
        if kind in (int, float) and not data >= 0:
            raise ValueError(f"{where} needs to be >= 0 {got(data)}")
        return data
    if kind is Fraction:
        if not FRACTION.fullmatch(data):
            raise ValueError(f"{where} is no number and no fraction such as '1/3' (got {short(data)})")
        return Fraction(data)
    if kind is np.ndarray:
        return _column(data, where)
    if kind is dict and inner:
        return {name: read(inner[1], each, f"{where}.{name}") for name, each in data.items()}
    if kind is dict:  # whoever asked for it looks at its fields
        return data
    if kind is Schedule:
        return _schedule(data, where)
    if type(data) is list:
        listed = (read(inner[0], each, f"{where}[{i}]") for i, each in enumerate(data))
        return frozenset(listed) if kind is frozenset else tuple(listed)
    found = kind(**read_fields(_hints(kind), data, where))
    CHECKS.get(kind, _nothing)(found, where)
    return found


def read_fields(hints: Hints, data: dict[str, Json], where: str) -> dict[str, Any]:
    """The value of each field; ValueError for one that is missing or that nobody knows."""
    if unknown := sorted(data.keys() - hints):
        raise ValueError(f"{where} has a field that it cannot have: {short(unknown[0])}")
    data = {name: ADDED[name] for name in hints if name in ADDED} | data
    if missing := [name for name in hints if name not in data]:
        raise ValueError(f"{where} has no {missing[0]}")
    return {name: read(kind, data[name], f"{where}.{name}") for name, kind in hints.items()}


@cache
def _hints(kind: type) -> Hints:
    """The fields of a class, and what each is."""
    found = get_type_hints(kind)
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else found
    return {
        name: tuple[Collective, ...] if found[name] == tuple[Together, ...] else found[name] for name in names
    }


@cache
def _looks(kind: Any) -> type:
    """What JSON has for a type."""
    plain = get_origin(kind) or kind
    if plain in PLAIN:
        return plain
    if plain is Fraction:
        return str
    return dict if plain in (dict, Schedule) or plain in RECORDS else list


def _column(data: list[Json], where: str) -> np.ndarray:
    """Times as a timeline has them: 64-bit whole numbers where two of them add up, or floats, or objects."""
    times = data
    if not {*map(type, data)} <= {int, float}:
        times = [read(Real, each, f"{where}[{i}]") for i, each in enumerate(data)]
    if {*map(type, times)} <= {int} and max(times, default=0) < 1 << 62:
        return np.array(times, np.int64) if min(times, default=0) >= 0 else column_of(times)
    return column_of(times)


# Schedules


def _written_schedule(schedule: Schedule) -> dict[str, Json]:
    program, family = schedule.program, type(schedule)
    labels = np.concatenate([program.stage, program.microbatch])
    if labels.size and not (labels.min() >= 0 and labels.max() < 10**LONGEST):
        raise ValueError(f"{schedule!r} has an action with a label that has no text: negative, or too large")
    options = {
        "microbatches": schedule.microbatches,
        "name": schedule.name,
        "weights": list(schedule.weights),
    }
    if known := FAMILIES.get(family.__name__) is family:
        options = {name: written(getattr(schedule, name)) for name in _hints(family)}
    return {
        "family": family.__name__ if known else Explicit.__name__,
        "options": options,
        "placement": [list(held) for held in program.placement],
        "rows": _rows(schedule),
    }


def _rows(schedule: Schedule) -> list[str]:
    return [" ".join(map(str, row)) for row in schedule.actions]


def _schedule(data: dict[str, Json], where: str) -> Schedule:
    """The schedule, which has the rows that stand there; they also limit how large it may be."""
    family, options, placement, rows = read_fields(SCHEDULE, data, where).values()
    if family == Explicit.__name__:
        return _explicit(read_fields(EXPLICIT, options, f"{where}.options"), placement, rows)
    one_of(where, "family", family, [*FAMILIES, Explicit.__name__])
    hints = _hints(FAMILIES[family])
    options = read_fields(hints, options, f"{where}.options")
    found = _of_family(FAMILIES[family], options)
    same = isinstance(found, FAMILIES[family]) and all(
        getattr(found, name) == options[name] for name in hints
    )
    inside = FAMILIES[family] in (Remat, SideBySide)  # which have been read with rows of their own
    pairs = 0 if inside else found.devices * found.stages_per_device * found.microbatches
    small = found.devices == len(rows) and pairs <= sum(len(row.split()) for row in rows)
    if not (same and small and found.placement == placement and _rows(found) == list(rows)):
        raise ValueError(
            f"{where} says that it is of {family}, but that has other rows or another placement; "
            "Explicit([...]) takes any rows"
        )
    return found


def _of_family(family: type[Schedule], options: dict[str, Any]) -> Schedule:
    if family is Remat:
        return remat(options["inner"], options["mode"], options["only"])
    if family is Unpaired:
        return unpaired(options["inner"])
    if family is SideBySide:
        inners = options["inners"]
        alike = len(set(inners)) == 1
        return (
            replicate(inners[0], len(inners), adjacent=options["adjacent"]) if alike else side_by_side(inners)
        )
    return family(**options)


def _explicit(options: dict[str, Any], placement: Iterable, rows: Iterable[str]) -> Explicit:
    found = Explicit(list(rows), placement=list(placement), microbatches=options["microbatches"])
    weights = tuple(one_of("a schedule", "weights", each, WEIGHTS) for each in options["weights"])
    for name, value in (("weights", weights), ("name", options["name"])):
        if getattr(found, name) != value:
            object.__setattr__(found, name, value)
    return found


# What has to fit each other


def _nothing(value: object, where: str) -> None:
    """Its class has looked at it already."""


def _check_timeline(timeline: Timeline, where: str) -> None:
    """ValueError unless all has times, nothing ends before it starts, and rows are in order."""
    program, together = timeline.schedule.program, timeline.collectives
    _check_times(timeline.start, timeline.end, program.size, f"{where}: its actions")
    starts = timeline.start.tolist()
    for low, high in pairwise(program.rows.tolist()):
        if not all(starmap(_in_turn, pairwise(starts[low:high]))):
            raise ValueError(f"{where} has an action that begins before the one that stands before it")
    if (timeline.sent is None) != (timeline.arrived is None):
        raise ValueError(f"{where} needs both sent and arrived, or neither")
    if timeline.sent is not None and timeline.arrived is not None:
        _check_times(timeline.sent, timeline.arrived, int(program.crosses.sum()), f"{where}: its messages")
    begun, ended = (column_of([getattr(each, at) for each in together]) for at in ("start", "end"))
    _check_times(begun, ended, len(together), f"{where}: its collectives")
    for each in (each for each in together if isinstance(each, Collective)):
        if (
            not each.devices
            or max(each.devices) >= program.devices
            or (len(each.devices) != 2 and not each.in_ring)
        ):
            raise ValueError(f"{where} has a collective of devices {each.devices}, which cannot be")


def _check_times(start: np.ndarray, end: np.ndarray, count: int, what: str) -> None:
    if not len(start) == len(end) == count:
        raise ValueError(f"{what} need {count} starts and ends (got {len(start)} and {len(end)})")
    if not all(a >= 0 and _in_turn(a, b) for a, b in zip(start.tolist(), end.tolist(), strict=True)):
        raise ValueError(f"{what} need times from 0 on, each end not before its start")


def _in_turn(before: Real, after: Real) -> bool:
    """A fraction plus a float of 0 is the nearest float, which may be less than the fraction."""
    return before <= after or float(before) <= float(after)


def _check_profile(profile: Profile, where: str) -> None:
    """ValueError unless a step can be predicted from it."""
    try:
        predict_memory(GPipe(len(profile.stages), 1), profile)
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise ValueError(f"{where} is of arrays or stages that do not fit each other: {error}") from None


CHECKS: dict[type, Callable[[Any, str], None]] = {Timeline: _check_timeline, Profile: _check_profile}
