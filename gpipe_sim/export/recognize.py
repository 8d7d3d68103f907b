"""Which schedule is this? Compare its rows with those of every family at the same size."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import product

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.gpipe import DRAINS
from gpipe_sim.core.remat import remat
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.families import SCHEDULES, WITHOUT_FLUSH
from gpipe_sim.streams.updates import updates_of


def recognize(schedule: Schedule) -> str:
    """A sentence that says which schedule has this order: "this is OneFOneB(devices=4, microbatches=8)".

    If several families have the same order at this size, the sentence names them all, with "or" between them.
    Of an order with updates it names the stream, such as PipeDream. Which version of the weights is used is
    not in the rows: PipeDream and pipelined backpropagation have the same. If nothing has this order, the
    sentence says that it is yours.
    """
    require_schedule("recognize", schedule)
    same = [repr(other) for other in _candidates(schedule) if schedule.actions == other.actions]
    return f"this is {' or '.join(same)}" if same else "this is yours: no family here has this order"


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
