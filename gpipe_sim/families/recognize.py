"""Which schedule is this? Compare its rows with those of every family at the same size."""

from collections.abc import Iterable, Iterator
from dataclasses import fields
from itertools import product, zip_longest

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.gpipe import DRAINS
from gpipe_sim.core.remat import remat
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.families import (
    SCHEDULES,
    WITHOUT_FLUSH,
    ZBH1,
    ZBH2,
    ZBV,
    Eager1F1B,
    Interleaved1F1B,
    LoopedBFS,
    Naive,
    OneFOneB,
    PipeDream2BW,
    PipelinedBackprop,
    VHalf,
    VMin,
)
from gpipe_sim.families.derived import repeat, with_updates
from gpipe_sim.streams.updates import updates_of

#: What a family is called, if that is not the name of its class.
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
    PipeDream2BW: "PipeDream-2BW",
    PipelinedBackprop: "pipelined backpropagation",
}
RECOMPUTED = {
    "never": "",
    "always": " with recomputation of every microbatch",
    "except_last": " with recomputation of all but the last microbatch",
}
CHEAP = 5000  #: for orders of up to this many actions, the nearest family is named


def recognize(schedule: Schedule) -> str:
    """A sentence that says which schedule has this order: "this is 1F1B".

    If several families have the same order at this size, the sentence names them all. Of an order with
    updates it names the stream, such as PipeDream, or how many steps of which family it is. Which version of
    the weights is used is not in the rows: PipeDream and pipelined backpropagation have the same. If nothing
    has this order, the sentence says that it is yours; and, up to 5,000 actions, what differs in the fewest
    places.
    """
    require_schedule("recognize", schedule)
    candidates = list(_candidates(schedule))
    if names := [name for name, other in candidates if schedule.actions == other.actions]:
        where = "with another choice of weights" if names[0].startswith("PipeDream") else "at this size"
        return f"this is {names[0]}{_so_are(names[1:], where)}"
    yours = "this is yours: no family here has this order"
    if not candidates or sum(map(len, schedule.actions)) > CHEAP:
        return yours
    apart, name = min(
        ((_apart(schedule, other), name) for name, other in candidates), key=lambda pair: pair[0]
    )
    return f"{yours}; nearest is {name}, with {apart} {'places' if apart > 1 else 'place'} different"


def _candidates(schedule: Schedule) -> Iterator[tuple[str, Schedule]]:
    """(name, schedule) for every family and variant at this size; with recompute if the schedule has any."""
    program = schedule.program
    if Kind.U not in program.where or not program.in_range:
        yield from _of(SCHEDULES, schedule, schedule.microbatches)
        return
    steps = updates_of(program).count
    if steps > 1:
        yield from _of(WITHOUT_FLUSH, schedule, schedule.microbatches)
    if not schedule.microbatches % steps:
        for name, step in _of(SCHEDULES, schedule, schedule.microbatches // steps):
            many = f"{steps} steps of {name}, each" if steps > 1 else name
            yield f"{many} with an update at its end", repeat(with_updates(step), steps)


def _of(
    families: Iterable[type[Schedule]], schedule: Schedule, microbatches: int
) -> Iterator[tuple[str, Schedule]]:
    again = Kind.R in schedule.program.where
    for family in families:
        for options in _variants(family, schedule):
            try:
                plain = family(schedule.devices, microbatches, **options)
            except ValueError:  # the family is not defined at this size
                continue
            if plain.stages == schedule.stages:
                words = "".join(_in_words(plain, *option) for option in options.items())
                name = NAMES.get(family, family.__name__) + words
                for mode in ("always", "except_last") if again else ("never",):
                    yield name + RECOMPUTED[mode], remat(plain, mode)


def _variants(family: type[Schedule], schedule: Schedule) -> Iterator[dict]:
    """The options with which a family could give this schedule.

    Families that take ``stages_per_device`` are left out for one stage per device: there, interleaved 1F1B is
    eager 1F1B, and looped BFS is GPipe.
    """
    held = schedule.stages // schedule.devices
    choices = {"stages_per_device": (held,) if held > 1 else (), "drain": DRAINS}
    if "every" in [field.name for field in fields(family)]:
        choices["every"] = (len(updates_of(schedule.program).members[0]),)
    names = [field.name for field in fields(family) if field.name in choices]
    for values in product(*(choices[name] for name in names)):
        yield dict(zip(names, values, strict=True))


def _in_words(schedule: Schedule, option: str, value: int | str) -> str:
    if option == "every":
        usual = schedule == type(schedule)(schedule.devices, schedule.microbatches)
        return "" if usual else f" with an update after every {value} microbatches"
    if option == "stages_per_device":
        return f" with {value} stages per device"
    return "" if value == DRAINS[0] else f" with {value.replace('_', '-')} {option}"


def _apart(schedule: Schedule, other: Schedule) -> int:
    """In how many places of their rows two schedules differ."""
    rows = zip(schedule.actions, other.actions, strict=True)
    return sum(mine != theirs for pair in rows for mine, theirs in zip_longest(*pair))


def _so_are(names: list[str], where: str) -> str:
    if not names:
        return ""
    *first, last = names
    also = f"are {', '.join(first)} and {last}" if first else f"is {last}"
    return f"; {where} so {also}"
