"""Schedules, costs, timelines and profiles as JSON, exact both ways.

{"format": "gpipe_sim", "version": 1, "kind": "costs", "value": {"forward": 1, ...}}
"""

import json
from math import isfinite
from typing import Any

from gpipe_sim.core.cost_model import CostModel
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.errors import got, one_of, require, short
from gpipe_sim.export.records import Json, read, read_fields, written
from gpipe_sim.memory.profile import Profile
from gpipe_sim.why.fit_costs import FittedCosts

FORMAT, VERSION = "gpipe_sim", 1
KINDS = {
    "schedule": Schedule,
    "costs": Costs,
    "timeline": Timeline,
    "profile": Profile,
    "fitted costs": FittedCosts,
}
SUCH_AS = "a schedule, Costs, a timeline or the profile of a model"
ENVELOPE = {"format": str, "version": int, "kind": str, "value": dict}


def to_json(thing: "Schedule | Costs | Timeline | Profile") -> str:
    """A schedule, its costs, a timeline or a profile as a text that ``from_json`` reads back, exactly.

    >>> import gpipe_sim as gp
    >>> costs = gp.Costs(forward=2, comm=1)
    >>> gp.export.from_json(gp.export.to_json(costs)) == costs
    True

    Numbers stay what they are: whole ones whole, fractions exact, floats the same to the last bit. A timeline
    has its schedule, messages and collectives with it; two are compared by their ``spans`` and ``messages``,
    since no timeline equals another one. The makespans of ``simulate_many`` are an array, and
    ``json.dumps(makespans.tolist())`` is exact.

    A schedule of a family comes back as one of that family. One of your own class comes back as an
    ``Explicit`` with the same rows, placement, weights and name.

    TypeError for anything else, such as a cost model of your own class, whose rules no file can hold;
    ValueError for what cannot be read back: a time that is infinite, an action with a negative label, or a
    whole number of more than 4,300 digits.
    """
    kind = "schedule" if issubclass(type(thing), Schedule) else None
    kind = kind or next((name for name, each in KINDS.items() if type(thing) is each), None)
    if kind is None and issubclass(type(thing), CostModel):
        what = f"to_json writes Costs, and {type(thing).__name__} is a cost model of another class"
        raise TypeError(
            f"{what}, whose rules no file can hold: write the timeline that simulate makes with it"
        )
    if kind is None:
        raise TypeError(f"to_json needs {SUCH_AS} {got(thing)}")
    try:
        value = written(thing)
        read(KINDS[kind], value, kind)  # so that whatever is written can be read
        envelope = {"format": FORMAT, "version": VERSION, "kind": kind, "value": value}
        return json.dumps(envelope, allow_nan=False) + "\n"
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        wrong = TypeError if isinstance(error, TypeError) else ValueError
        raise wrong(f"to_json cannot write this {kind}: {error}") from None


def from_json(text: str) -> Any:
    """What ``to_json`` wrote: a schedule, ``Costs``, a timeline or a profile.

    Nothing in the text is run. All of it is looked at before anything is returned: a family's rows have to be
    those that stand there, times have to fit the schedule, and sizes each other.

    ValueError, in one sentence, for a text of another kind or version, with a field too many, too few or
    twice, cut off, too deep, or with a value that cannot be; TypeError for anything but a text.
    """
    require("from_json", text, str, "a text, such as Path('timeline.json').read_text()")
    try:
        found = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number, parse_float=_finite)
        return _opened(found)
    except RecursionError:
        raise ValueError("from_json cannot read this text: it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"from_json cannot read this text: it is no JSON, or cut off: {error}") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"from_json cannot read this text: {error}") from None


def _opened(data: Json) -> Any:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"it does not say that its format is {FORMAT!r}, as what to_json writes does")
    if type(data.get("version")) is not int or data["version"] != VERSION:
        raise ValueError(f"this gpipe_sim reads version {VERSION} of the format {got(data.get('version'))}")
    envelope = read_fields(ENVELOPE, data, "it")
    kind = one_of("it", "kind", envelope["kind"], KINDS)
    return read(KINDS[kind], envelope["value"], kind)


def _once(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for i, (name, _) in enumerate(pairs) if name in dict(pairs[:i]))
        raise ValueError(f"it has {short(twice)} twice in one object")
    return found


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _finite(digits: str) -> float:
    if not isfinite(number := float(digits)):
        raise ValueError(f"{short(digits)} is larger than the largest float")
    return number
