"""Which schedule is this? Rows of actions are compared with those of every family, of the same size."""

from collections.abc import Iterator
from dataclasses import fields
from itertools import product, zip_longest

from gpipe_sim.families import (
    SCHEDULES,
    ZBH1,
    ZBH2,
    ZBV,
    Eager1F1B,
    Interleaved1F1B,
    LoopedBFS,
    Naive,
    OneFOneB,
    VHalf,
    VMin,
)
from gpipe_sim.families.gpipe import DRAINS
from gpipe_sim.schedule.actions import Kind
from gpipe_sim.schedule.base import Schedule, require_schedule
from gpipe_sim.schedule.remat import remat

#: How a family is called where its class is called otherwise.
NAMES = {
    Naive: "the naive order",
    OneFOneB: "1F1B",
    Eager1F1B: "eager 1F1B",
    Interleaved1F1B: "interleaved 1F1B",
    LoopedBFS: "looped BFS",
    ZBH1: "ZB-H1",
    ZBH2: "ZB-H2",
    ZBV: "ZB-V",
    VHalf: "V-Half",
    VMin: "V-Min",
}
RECOMPUTED = {
    "never": "",
    "always": " with recomputation of every microbatch",
    "except_last": " with recomputation of all but the last microbatch",
}
CHEAP = 5000  #: up to how many actions the nearest family is looked for


def recognize(schedule: Schedule) -> str:
    """A sentence that says which schedule here has this order: "this is 1F1B".

    Where several families have it at this size, all are named. An order that none has is yours; up to 5,000
    actions, the family that differs from it in the fewest places is named.
    """
    require_schedule("recognize", schedule)
    candidates = list(_candidates(schedule))
    if names := [name for name, other in candidates if schedule.program.same_order(other.program)]:
        return f"this is {names[0]}{_so_are(names[1:])}"
    yours = "this is yours: no family here has this order"
    if not candidates or sum(map(len, schedule.actions)) > CHEAP:
        return yours
    apart, name = min(
        ((_apart(schedule, other), name) for name, other in candidates), key=lambda pair: pair[0]
    )
    return f"{yours}; nearest is {name}, with {apart} {'places' if apart > 1 else 'place'} different"


def _candidates(schedule: Schedule) -> Iterator[tuple[str, Schedule]]:
    """Every family and variant of this size, by name; recomputing if the schedule does."""
    again = Kind.R in schedule.program.where
    for family in SCHEDULES:
        for options in _variants(family, schedule):
            try:
                plain = family(schedule.devices, schedule.microbatches, **options)
            except ValueError:  # the family is not defined at this size
                continue
            if plain.stages == schedule.stages:
                words = "".join(map(_in_words, options, options.values()))
                name = NAMES.get(family, family.__name__) + words
                for mode in ("always", "except_last") if again else ("never",):
                    yield name + RECOMPUTED[mode], remat(plain, mode)


def _variants(family: type[Schedule], schedule: Schedule) -> Iterator[dict]:
    """The options of a family that could give this schedule.

    With one stage per device a family of several is one of the others: eager 1F1B, or GPipe.
    """
    held = schedule.stages // schedule.devices
    choices = {"stages_per_device": (held,) if held > 1 else (), "drain": DRAINS}
    names = [field.name for field in fields(family) if field.name in choices]
    for values in product(*(choices[name] for name in names)):
        yield dict(zip(names, values, strict=True))


def _in_words(option: str, value: int | str) -> str:
    if option == "stages_per_device":
        return f" with {value} stages per device"
    return "" if value == DRAINS[0] else f" with {value.replace('_', '-')} {option}"


def _apart(schedule: Schedule, other: Schedule) -> int:
    """In how many places of their rows two schedules differ."""
    rows = zip(schedule.actions, other.actions, strict=True)
    return sum(mine != theirs for pair in rows for mine, theirs in zip_longest(*pair))


def _so_are(names: list[str]) -> str:
    if not names:
        return ""
    *first, last = names
    also = f"are {', '.join(first)} and {last}" if first else f"is {last}"
    return f"; at this size so {also}"
