"""Run each device's own program on real arrays, with the sends and receives that it has."""

from collections.abc import Iterable, Mapping, Sequence, Set
from inspect import GEN_CLOSED, getgeneratorstate, isgenerator
from typing import NamedTuple

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.cost_model import CostModel, require_costs
from gpipe_sim.core.costs import UNIT
from gpipe_sim.core.device import Batch, StepInputs, as_batch, pieces
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.layers import Context
from gpipe_sim.core.losses import Loss
from gpipe_sim.core.memory import Memory
from gpipe_sim.core.partition import Partition, require_partitions
from gpipe_sim.core.placement import looped, read_placement, require_gapless
from gpipe_sim.core.problems import SENDS, check_actions
from gpipe_sim.core.step import StepResult, collect, dealt, require_loss, require_one_model
from gpipe_sim.core.timeline import Timeline, column_of
from gpipe_sim.errors import ScheduleError, got, listed, one_of, require_flags, whole
from gpipe_sim.export.spans import from_spans
from gpipe_sim.programs.device_programs import DevicePrograms
from gpipe_sim.programs.program_device import ProgramDevice
from gpipe_sim.programs.take_turns import Program, Rules, Turns
from gpipe_sim.programs.transfers import actions_of, read_step

SUCH_AS = "a program per device, such as device_programs(GPipe(2, 4)), or a list of lists and generators"


def run_programs(
    programs: DevicePrograms | Sequence[Program],
    partitions: Sequence[Partition],
    batch: Batch,
    loss: Loss,
    *,
    sends: str = "buffered",
    microbatches: int | None = None,
    placement: Sequence[Sequence[int]] | None = None,
    costs: CostModel | None = None,
    check_buffers: bool = True,
    seed: int = 0,
    step: int = 0,
) -> StepResult:
    """Run one training step in which every device follows a program of its own.

    A program is a list, or a generator, of actions, ``Send`` and ``Recv``; the first is that of device 0.
    With ``sends="blocking"`` a send ends only when the other device receives; "buffered", it ends at once.
    ``microbatches`` is one more than the largest label in the programs; with generators it has to be given.
    ``placement`` lists each device's stages; unless given, device s mod K holds stage s.
    ``check_buffers=False`` lets a receive write over a buffer that is still needed, as real devices do.

    The result has loss, gradients and outputs as from ``train_step``, and no memory. Its timeline is in the
    unit of ``costs``, unit costs unless given. The weights do not change.

    DeadlockError if devices wait for each other for ever; ScheduleError if the programs do not fit each
    other, or are no training step; TypeError or ValueError for what is no program, or does not fit the model.
    """
    team = _read(programs, partitions, microbatches, placement)
    one_of("run_programs", "sends", sends, SENDS)
    require_flags("run_programs", check_buffers=check_buffers)
    costs = UNIT if costs is None else costs
    require_costs("run_programs", costs, len(partitions), len(team.programs))
    batch = as_batch(batch)
    require_loss(loss)
    seed, step = (whole("run_programs", n, v, low=0) for n, v in (("seed", seed), ("step", step)))
    inputs = _told(team, len(partitions), batch, loss, seed, step)
    devices = list(_devices(team, partitions, inputs))
    turns = Turns(team.programs, devices, Rules(sends == "blocking", check_buffers, costs))
    turns.run()
    timeline = _timeline(team, turns)
    return collect(devices, inputs, timeline=timeline)


class _Team(NamedTuple):
    programs: list[Program]
    placement: tuple[tuple[int, ...], ...]
    microbatches: int


def _read(
    programs: DevicePrograms | Sequence[Program],
    partitions: Sequence[Partition],
    microbatches: int | None,
    placement: Sequence[Sequence[int]] | None,
) -> _Team:
    if isinstance(programs, DevicePrograms):
        placement = programs.placement if placement is None else placement
        microbatches = programs.microbatches if microbatches is None else microbatches
        programs = programs.rows
    rows = [_row(k, row) for k, row in enumerate(_listed(programs))]
    require_partitions("run_programs", partitions, len(rows), runnable=True)
    require_one_model(partitions)
    held = looped(len(rows), len(partitions)) if placement is None else placement
    held = read_placement("run_programs", held, len(rows))
    require_gapless(held)
    if (stages := 1 + max(stage for own in held for stage in own)) != len(partitions):
        raise ValueError(
            f"the programs are for {stages} stages, but there are {len(partitions)} partitions; "
            f"split(layers, stages={stages}) would fit"
        )
    count = _count(rows) if microbatches is None else microbatches
    return _Team(rows, held, whole("run_programs", "microbatches", count))


def _listed(programs: Sequence[Program]) -> list[Program]:
    if not isinstance(programs, Sequence) or isinstance(programs, str) or not programs:
        raise TypeError(f"run_programs needs {SUCH_AS} {got(programs)}")
    return listed("run_programs", SUCH_AS, programs)


def _row(device: int, program: Program) -> Program:
    """A list's steps are looked at right away; a generator's when it yields them."""
    owner = f"the program of device {device}"
    if isinstance(program, str):
        raise TypeError(f"{owner} is a text; device_programs reads one, with a row per device {got(program)}")
    if not isinstance(program, Iterable) or isinstance(program, Set | Mapping):
        raise TypeError(f"{owner} needs to be a list of steps, or a generator {got(program)}")
    if isgenerator(program) and getgeneratorstate(program) == GEN_CLOSED:
        raise ValueError(f"{owner} is a generator that has ended; make a new one for every run")
    return [read_step(owner, each) for each in program] if isinstance(program, Sequence) else program


def _count(rows: list[Program]) -> int:
    if not all(isinstance(row, list) for row in rows):
        raise TypeError("run_programs needs microbatches=, how many: it does not look ahead into generators")
    actions = (action for row in rows for action in actions_of(row))
    return 1 + max((part.microbatch for action in actions for part in action.parts), default=0)


def _told(team: _Team, stages: int, batch: Batch, loss: Loss, seed: int, step: int) -> StepInputs:
    """What every device is told. Whether a forward is run again, only a list says beforehand."""
    count = team.microbatches
    cut = pieces(len(batch[0]), count)
    recomputed = [[False] * count for _ in range(stages)]
    for action in (each for row in team.programs if isinstance(row, list) for each in actions_of(row)):
        stage, kind, m = action.parts[0]
        if kind is Kind.R and 0 <= stage < stages and 0 <= m < count:
            recomputed[stage][m] = True
    contexts = [Context(True, seed, step, m) for m in range(count)]
    return StepInputs(stages, batch, cut, loss, None, contexts, [], recomputed)


def _devices(team: _Team, partitions: Sequence[Partition], inputs: StepInputs) -> Iterable[ProgramDevice]:
    ran = {}
    for number, (own, optimizers) in enumerate(dealt(partitions, team.placement, None)):
        yield ProgramDevice(number, ran, inputs, own, optimizers, Memory(), [])


def _timeline(team: _Team, turns: Turns) -> Timeline:
    """What the devices did and when. ScheduleError if it is not a whole training step."""
    rows = [[span.action for span in row] for row in turns.spans]
    if not any(rows):
        raise ScheduleError("the programs have run no action, such as F(0, 0)")
    schedule = Explicit(rows, placement=team.placement, microbatches=team.microbatches)
    check_actions(schedule)
    timeline = from_spans(schedule, [span for row in turns.spans for span in row])
    program = schedule.program
    needed = program.needs[program.crosses]
    ways = zip(needed.tolist(), program.target[program.crosses].tolist(), strict=True)
    crossed = [
        turns.crossed[program.action_of(part), int(program.device[part]), target] for part, target in ways
    ]
    sent, arrived = ([getattr(each, name) for each in crossed] for name in ("start", "end"))
    return Timeline(schedule, timeline.start, timeline.end, column_of(sent), column_of(arrived))
