"""Which schedule is this? Compare its rows with those of every family at the same size."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from difflib import SequenceMatcher
from itertools import product

from gpipe_sim.core.actions import Action, Kind, OverlapFB
from gpipe_sim.core.gpipe import DRAINS
from gpipe_sim.core.remat import remat
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.families import SCHEDULES, WITHOUT_FLUSH
from gpipe_sim.families.derived import unpaired
from gpipe_sim.streams.updates import updates_of


def recognize(schedule: Schedule) -> str:
    """A sentence that says which schedule has this order: "this is OneFOneB(devices=4, microbatches=8)".

    If several families have the same order at this size, the sentence names them all, with "or" between them.
    Of an order with updates it names the stream, such as PipeDream. Which version of the weights is used is
    not in the rows: PipeDream and pipelined backpropagation have the same. If nothing has this order, the
    sentence says that it is yours.
    """
    require_schedule("recognize", schedule)
    same = map(repr, same_order(schedule))
    return (
        f"this is {names}" if (names := " or ".join(same)) else "this is yours: no family here has this order"
    )


def same_order(schedule: Schedule) -> list[Schedule]:
    """Every schedule of the library with this order; of one with pairs, also run half by half (unpaired)."""
    paired = schedule.program.paired
    candidates = [each if paired else unpaired(each) for each in _candidates(schedule)]
    return [other for other in candidates if schedule.actions == other.actions]


def nearest(schedule: Schedule) -> str:
    """Which schedule of the library has most of this order, in words; W counts apart, and I as B."""
    rows = list(map(_core, schedule.actions))
    best, found = max(
        (
            (_alike(rows, list(map(_core, unpaired(each).actions))), repr(each))
            for each in _candidates(schedule)
        ),
        key=lambda scored: scored[0],
        default=(0.0, ""),
    )
    if best == 1:
        return f"but for W, and with I for B, it is the order of {found}"
    return f"nearest is {found}, which has {best:.0%} of it" if found else "none has its size"


def _core(row: Sequence[Action | OverlapFB]) -> list[str]:
    parts = [part for action in row for part in action.parts if part.kind is not Kind.W]
    return [str(part).replace("I", "B") for part in parts]


def _alike(rows: list[list[str]], others: list[list[str]]) -> float:
    """The share of actions that stand in the same order in both."""
    pairs = zip(rows, others, strict=True)
    same = sum(
        block.size for a, b in pairs for block in SequenceMatcher(None, a, b, False).get_matching_blocks()
    )
    return 2 * same / max(1, sum(map(len, rows)) + sum(map(len, others)))


def _candidates(schedule: Schedule) -> Iterator[Schedule]:
    """Every family at this size, with each of its options; with recompute if the schedule has any."""
    program, held = schedule.program, schedule.stages // schedule.devices
    streams = Kind.U in program.where and program.in_range
    # With one stage per device, interleaved 1F1B is eager 1F1B, and looped BFS is GPipe.
    choices: dict[str, Sequence] = {"stages_per_device": [held] if held > 1 else [], "drain": DRAINS}
    choices["every"] = [len(updates_of(program).members[0])] if streams else []
    for family in WITHOUT_FLUSH if streams else SCHEDULES:
        names = [field.name for field in fields(family) if field.name in choices]
        for values in product(*(choices[name] for name in names)):
            options = dict(zip(names, values, strict=True))
            try:
                plain = family(schedule.devices, schedule.microbatches, **options)
            except ValueError:  # the family is not defined at this size
                continue
            if plain.stages == schedule.stages:
                for mode in ("always", "except_last") if Kind.R in program.where else ("never",):
                    yield remat(plain, mode)
