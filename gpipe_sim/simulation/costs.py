"""How long things take: plain numbers, in one unit of your choice."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from numbers import Real

import numpy as np

from gpipe_sim.errors import duration, got, require, whole
from gpipe_sim.schedule.actions import Action, Kind, OverlapFB
from gpipe_sim.schedule.program import CODE, KINDS, Program
from gpipe_sim.schedule.rows import read
from gpipe_sim.simulation.numbers import CostColumn

Cost = Real | Sequence[Real]


class CostModel(ABC):
    """How long each action and each message takes. Use ``Costs``, or write a subclass of your own.

    Times are finite numbers of at least 0, all in one unit of your choice; anything else is a ValueError or
    TypeError.
    """

    @abstractmethod
    def duration(self, action: Action | OverlapFB, device: int) -> Real:
        """How long this device is busy with the action."""

    def transfer(self, action: Action, source: int, target: int) -> Real:
        """How long what the action made is on its way from device ``source`` to device ``target``."""
        return 0

    def require_stages(self, stages: int) -> None:  # noqa: B027
        """Raise ValueError if the costs are not for this number of stages. By default they are for any."""

    def durations(self, program: Program) -> CostColumn:
        """``duration`` for every entry of a program."""
        rows = ((action, device) for device, row in enumerate(program.actions) for action in row)
        return CostColumn([self.duration(*entry) for entry in rows], np.arange(program.size))

    def transfers(self, program: Program) -> CostColumn:
        """``transfer`` for every need that is a message, in the order of ``program.needs``."""
        needed = program.needs[program.crosses]
        targets = program.target[program.crosses].tolist()
        ways = zip(map(program.action_of, needed), program.device[needed].tolist(), targets, strict=True)
        return CostColumn([self.transfer(*way) for way in ways], np.arange(len(needed)))


@dataclass(frozen=True)
class Costs(CostModel):
    """The time that each kind of action takes, for one microbatch at one stage.

    A cost is one number, or a sequence with one number per stage; ``comm`` is always one number. A full
    backward takes ``input_grad + weight_grad``. A recompute takes as long as the forward unless ``recompute``
    is given. An overlapped pair takes as long as its two halves unless ``overlap`` is given; per stage, that
    of its forward counts. ``comm`` is how long a message is on its way; sending does not keep a device busy.
    With whole numbers or ``Fraction`` every time stays exact. ValueError for NaN, infinite or negative costs,
    TypeError for anything but numbers.
    """

    forward: Cost = 1
    input_grad: Cost = 1
    weight_grad: Cost = 1
    recompute: Cost | None = None
    update: Cost = 0
    overlap: Cost | None = None
    comm: Real = 0

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name in ("recompute", "overlap"):
                continue
            if field.name == "comm":
                plain = duration("Costs", "comm", value)
            elif isinstance(value, Sequence) and not isinstance(value, str):
                plain = tuple(duration("Costs", field.name, time) for time in value)
            else:
                plain = duration("Costs", field.name, value)
            object.__setattr__(self, field.name, plain)
        lengths = {name: len(cost) for name, cost in vars(self).items() if isinstance(cost, tuple)}
        if len({*lengths.values()}) > 1:
            said = " and ".join(f"{name} for {stages}" for name, stages in lengths.items())
            raise ValueError(f"Costs lists {said} stages; a schedule has one number of them")

    def duration(self, action: Action | OverlapFB, device: int = 0) -> Real:
        """How long a device is busy with the action; the same on every device."""
        action = read("duration", action)
        if len(action.parts) == 1:
            return _at(self._of_kind(action.kind), action.stage)
        if self.overlap is not None:
            return _at(self.overlap, action.parts[0].stage)
        return sum(Costs.duration(self, part, device) for part in action.parts)

    def transfer(self, action: Action, source: int, target: int) -> Real:
        """``comm``, or 0 if source and target are the same device."""
        return 0 if source == target else self.comm

    def per_stage(self, stages_per_device: int) -> "Costs":
        """Read these costs as those of all that a device holds, and divide them evenly among its stages.

        Two stages on a device are its layers cut in two, so each stage takes half as long. If each were given
        the full cost, the same model would be twice as much work. Every cost except ``comm`` is divided, and
        exactly: with two stages, 1 becomes ``Fraction(1, 2)`` and 2 becomes 1. A message takes as long as
        before, because what crosses from stage to stage is as large wherever the model is cut. Costs listed
        per stage are divided one by one.
        """
        stages_per_device = whole("per_stage", "stages_per_device", stages_per_device)
        computing = {field.name for field in fields(self)} - {"comm"}
        return replace(self, **{name: _divided(getattr(self, name), stages_per_device) for name in computing})

    def require_stages(self, stages: int) -> None:
        """Raise ValueError if a cost is listed for another number of stages."""
        stages = whole("require_stages", "stages", stages)
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, tuple) and len(value) != stages:
                raise ValueError(
                    f"Costs lists {field.name} for {len(value)} stages, "
                    f"but the schedule has {stages}; give one number, or {stages}"
                )

    def durations(self, program: Program) -> CostColumn:
        """One price for each stage and each kind that occurs, and one for each overlapped pair."""
        if type(self).duration is not Costs.duration:  # a subclass overrides it: ask it about each entry
            return super().durations(program)
        kind, stage = program.kind[program.first], program.stage[program.first]
        index, values = np.zeros(program.size, np.int32), []
        for code in (CODE[kind] for kind in program.where):
            here = kind == code
            index[here] = stage[here] + len(values)
            cost = self._of_kind(KINDS[code])
            values += cost if isinstance(cost, tuple) else [cost] * program.stages
        if program.paired:
            pairs = np.flatnonzero(np.diff(program.parts) > 1)
            of_pair = [self.duration(program.entry_of(entry)) for entry in pairs.tolist()]
            index[pairs] = len(values) + np.arange(len(pairs))
            values += of_pair
        return CostColumn(values, index)

    def transfers(self, program: Program) -> CostColumn:
        """The same price for every message."""
        if type(self).transfer is not Costs.transfer:
            return super().transfers(program)
        return CostColumn([self.comm], np.zeros(np.count_nonzero(program.crosses), np.int8))

    def _of_kind(self, kind: Kind) -> Cost:
        match kind:
            case Kind.F:
                return self.forward
            case Kind.B:
                return _plus(self.input_grad, self.weight_grad)
            case Kind.I:
                return self.input_grad
            case Kind.W:
                return self.weight_grad
            case Kind.R:
                return self.forward if self.recompute is None else self.recompute
            case Kind.U:
                return self.update


def _at(cost: Cost, stage: int) -> Real:
    if not isinstance(cost, tuple):
        return cost
    if not 0 <= stage < len(cost):
        raise ValueError(f"Costs lists {len(cost)} stages, from 0, and {stage} is none of them")
    return cost[stage]


def _plus(a: Cost, b: Cost) -> Cost:
    if not (isinstance(a, tuple) or isinstance(b, tuple)):
        return a + b
    stages = len(a) if isinstance(a, tuple) else len(b)
    return tuple(_at(a, stage) + _at(b, stage) for stage in range(stages))


def _divided(cost: Cost | None, by: int) -> Cost | None:
    if cost is None:
        return None
    if isinstance(cost, tuple):
        return tuple(_divided(time, by) for time in cost)
    if isinstance(cost, int):
        return Fraction(cost, by) if cost % by else cost // by
    return cost / by


def require_costs(owner: str, value) -> CostModel:
    """The value; TypeError unless it is a cost model."""
    return require(owner, value, CostModel, "costs, such as Costs(comm=1)")


def priced(costs: CostModel, program: Program) -> tuple[CostColumn, CostColumn]:
    """What entries and messages cost; TypeError or ValueError, by model and action, for what is no time."""
    needed, owner = program.needs[program.crosses], type(costs).__name__
    return (
        _read(owner, "duration", costs.durations(program), program.size, program.entry_of),
        _read(
            owner, "transfer", costs.transfers(program), len(needed), lambda i: program.action_of(needed[i])
        ),
    )


def _read(owner: str, name: str, column: CostColumn, count: int, action_of: Callable) -> CostColumn:
    """The column in Python's own numbers; what nothing pays may be of any kind."""
    if not isinstance(column, CostColumn) or len(column.index) != count:
        raise TypeError(f"{owner}.{name}s needs to give a CostColumn of {count} prices {got(column)}")
    values = list(column.values)
    for place, value in enumerate(values):
        try:
            values[place] = duration(owner, name, value)
        except (TypeError, ValueError):
            for payer in np.flatnonzero(column.index == place)[:1]:
                duration(owner, f"{name} of {action_of(int(payer))}", value)
    return CostColumn(values, column.index)


UNIT = Costs()  #: unit costs, the default everywhere: 1 for F, I and W each; messages take no time
