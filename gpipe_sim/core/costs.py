"""How long things take: plain numbers, in one unit of your choice."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from gpipe_sim.core.actions import Action, Kind, OverlapFB
from gpipe_sim.core.cost_model import CostModel
from gpipe_sim.core.hooks import Hook
from gpipe_sim.core.numbers import CostColumn, quotient
from gpipe_sim.core.program import CODE, KINDS, Program
from gpipe_sim.core.rows import read_action
from gpipe_sim.core.timeline import rounded
from gpipe_sim.errors import Real, duration, got, listed, whole

Cost = Real | Sequence[Real]
#: The median seconds of F, I and W of each stage: (partitions, batch, microbatches, runs, warmup).
STOPWATCH: Hook[Callable[..., tuple[Cost, Cost, Cost]]] = Hook("stopwatch", "Costs.measured")
UNSAID: Any = None  #: 1, unless the other half of the backward is said, or the forward listed
PER_DEVICE = {"speed", "overhead"}  #: these are listed per device, all other costs per stage


@rounded
@dataclass(frozen=True)
class Costs(CostModel):
    """The time that each kind of action takes, for one microbatch at one stage.

    >>> slow_second = gp.Costs(forward=[1, 3], input_grad=[1, 3], weight_grad=[1, 3], comm=1)
    >>> gp.simulate(gp.OneFOneB(2, 4), slow_second).makespan
    41
    >>> gp.simulate(gp.OneFOneB(2, 4), gp.Costs(speed=[1, 0.5])).makespan  # device 1 at half speed
    27.0

    A cost is one number, or a sequence with one number per stage; ``comm`` is always one number. A full
    backward takes ``input_grad + weight_grad``. A recompute takes as long as the forward unless ``recompute``
    is given. An overlapped pair takes as long as its two halves unless ``overlap`` is given; per stage, that
    of its forward counts. ``comm`` is how long a message is on its way; sending does not keep a device busy.

    ``speed`` and ``overhead`` belong to devices: one number, or a sequence with one number per device. A
    device of speed 2 takes half as long for everything. ``overhead`` is what each action takes in addition,
    however little it computes, such as launching it; an overlapped pair is two actions.

    F, I and W take 1 each unless given. One half of a backward needs the other, and a list of forwards, which
    says that stages differ, needs both, or ``Costs.from_forward``: what is taken for 1 would hide it.

    With whole numbers or ``Fraction`` every time stays exact. ValueError for NaN, infinite or negative costs
    and for a speed that is not above 0, TypeError for anything but numbers.
    """

    forward: "Cost" = 1
    input_grad: "Cost" = UNSAID
    weight_grad: "Cost" = UNSAID
    recompute: "Cost | None" = None
    update: "Cost" = 0
    overlap: "Cost | None" = None
    comm: Real = 0
    speed: "Cost" = 1
    overhead: "Cost" = 0

    def __post_init__(self):
        unsaid = [name for name in ("input_grad", "weight_grad") if getattr(self, name) is UNSAID]
        if len(unsaid) == 1 or (unsaid and isinstance(self.forward, Iterable)):
            says = "lists forward" if isinstance(self.forward, Iterable) else "says one half of the backward"
            other = "write Costs.from_forward(forward, backward=2) if backwards take twice as long"
            raise ValueError(f"Costs {says}, but no {unsaid[0]}; give it too, or {other}")
        for field in fields(Costs):
            value = getattr(self, field.name)
            if value is field.default is None:
                if field.name in ("recompute", "overlap"):
                    continue
                value = 1
            if field.name != "comm" and isinstance(value, Iterable):
                numbers = listed("Costs", f"{field.name} to be a number or a list of numbers", value)
                plain: Cost = tuple(duration("Costs", field.name, time) for time in numbers)
            else:
                plain = duration("Costs", field.name, value)
            object.__setattr__(self, field.name, plain)
        for what, names in (("stages", {*vars(self)} - PER_DEVICE), ("devices", PER_DEVICE)):
            lengths = self._lengths(names)
            if len({*lengths.values()}) > 1 or 0 in lengths.values():
                said = " and ".join(f"{name} for {length}" for name, length in lengths.items())
                raise ValueError(f"Costs lists {said} {what}; a schedule has one number of them")
        if 0 in (self.speed if isinstance(self.speed, tuple) else (self.speed,)):
            raise ValueError(f"Costs needs speed > 0 {got(self.speed)}")

    def _lengths(self, names: set[str]) -> dict[str, int]:
        """How many numbers there are of each cost that is listed."""
        return {name: len(cost) for name, cost in vars(self).items() if name in names and type(cost) is tuple}

    def duration(self, action: Action | OverlapFB, device: int = 0) -> Real:
        """How long this device is busy with the action."""
        action = read_action("duration", action)
        return self._on(whole("duration", "device", device, low=0), self._work(action), len(action.parts))

    def _work(self, action: Action | OverlapFB) -> Real:
        """How long it takes a device of speed 1, apart from overhead."""
        if isinstance(action, Action):
            return _at(self._of_kind(action.kind), action.stage)
        if self.overlap is not None:
            return _at(self.overlap, action.parts[0].stage)
        return sum(self._work(part) for part in action.parts)

    def _on(self, device: int, work: Real, actions: int) -> Real:
        speed, overhead = (_at(each, device, "devices") for each in (self.speed, self.overhead))
        return (work if speed == 1 else quotient(work, speed)) + actions * overhead

    def transfer(self, action: Action, source: int, target: int) -> Real:
        """``comm``, or 0 if source and target are the same device."""
        return 0 if source == target else self.comm

    @classmethod
    def from_forward(cls, forward: Cost, backward: Real = 2, **others: Any) -> "Costs":
        """Each backward takes ``backward`` times as long as its forward: half of that in I, half in W.

        ``others`` are the arguments of ``Costs`` that are left, such as ``comm``.
        """
        given, backward = cls(forward, 0, 0, **others), duration("from_forward", "backward", backward)
        half = _scaled(given.forward, backward, 2)
        return replace(given, input_grad=half, weight_grad=half)

    @classmethod
    def measured(
        cls, partitions: Sequence, batch: tuple, *, microbatches: int = 1, runs: int = 5, warmup: int = 1
    ) -> "Costs":
        """What F, I and W of each stage take on this computer, in seconds: the median of ``runs``.

        ``warmup`` runs before those are not counted: the first one pays for memory that the others find
        there. Each run takes the largest of ``microbatches`` pieces of the batch through all partitions and
        back. The gradient of the last output is of ones, so a loss costs nothing; nor do messages.
        """
        return cls(*STOPWATCH.filled(partitions, batch, microbatches, runs, warmup))

    def per_stage(self, stages_per_device: int) -> "Costs":
        """Read these costs as those of all that a device holds, and divide them evenly among its stages.

        Two stages on a device are its layers cut in two, so each stage takes half as long. If each were given
        the full cost, the same model would be twice as much work. Every cost of a stage is divided, and
        exactly: with two stages, 1 becomes ``Fraction(1, 2)`` and 2 becomes 1. A message takes as long as
        before, because what crosses from stage to stage is as large wherever the model is cut, and so does
        the overhead of an action. Costs listed per stage are divided one by one.
        """
        stages_per_device = whole("per_stage", "stages_per_device", stages_per_device)
        computing = {field.name for field in fields(Costs)} - {"comm"} - PER_DEVICE
        said = {name: getattr(self, name) for name in computing if getattr(self, name) is not None}
        costs: dict[str, Any] = {name: _scaled(cost, 1, stages_per_device) for name, cost in said.items()}
        return replace(self, **costs)

    def require_fit(self, stages: int, devices: int) -> None:
        """Raise ValueError if a cost is listed for another number of stages, or of devices."""
        self.require_length("stages", whole("require_fit", "stages", stages), {*vars(self)} - PER_DEVICE)
        self.require_length("devices", whole("require_fit", "devices", devices), PER_DEVICE)

    def require_length(self, what: str, count: int, names: set[str], who: str = "the schedule") -> None:
        """Raise ValueError if one of the named costs is listed for another number of something."""
        for name, length in self._lengths(names).items():
            if length != count:
                raise ValueError(
                    f"Costs lists {name} for {length} {what}, but {who} has {count}; "
                    f"give one number, or {count}, as gp.balance.merged makes of layers"
                )

    def durations(self, program: Program) -> CostColumn:
        """One price for each stage and each kind that occurs, and one for each overlapped pair."""
        if type(self).duration is not Costs.duration:  # a subclass overrides it: ask it about each entry
            return super().durations(program)
        work = self._works(program)
        if self.speed == 1 and self.overhead == 0:
            return work
        device, count = program.device[program.first], np.diff(program.parts)
        what = work.index * np.int64(program.devices) + device
        _, first, index = np.unique(what, return_index=True, return_inverse=True)
        prices = [self._on(int(device[e]), work.values[work.index[e]], int(count[e])) for e in first.tolist()]
        return CostColumn(prices, index.reshape(-1))

    def _works(self, program: Program) -> CostColumn:
        """What each entry takes a device of speed 1, apart from overhead."""
        index, pairs = program.once(_sorts)
        values = list[Real]()
        for kind in program.where:
            cost = self._of_kind(kind)
            values += cost if isinstance(cost, Sequence) else [cost] * program.stages
        return CostColumn(values + [self._work(program.entry_of(entry)) for entry in pairs], index)

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


def _at(cost: Cost, number: int, of_what: str = "stages") -> Real:
    if not isinstance(cost, Sequence):
        return cost
    if not 0 <= number < len(cost):
        raise ValueError(f"Costs lists {len(cost)} {of_what}, from 0, and {number} is none of them")
    return cost[number]


def _sorts(program: Program) -> tuple[np.ndarray, list[int]]:
    """(which kind on which stage an entry is, or which sort of pair; the first pair of each sort)."""
    kind, stage = program.kind[program.first], program.stage[program.first]
    index = np.zeros(program.size, np.int32)
    for place, code in enumerate(CODE[kind] for kind in program.where):
        np.copyto(index, stage + place * program.stages, where=kind == code)
    pairs = np.flatnonzero(np.diff(program.parts) > 1)
    first, alike = _alike(program, program.parts[pairs])
    index[pairs] = len(program.where) * program.stages + alike
    return index, pairs[first].tolist()


def _alike(program: Program, forwards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the first pair of each sort, of which sort each is): stages and kinds of both halves are the same."""
    kind, stage, stages = program.kind.astype(np.int64), program.stage.astype(np.int64), program.stages
    sort = kind * stages + stage
    _, first, alike = np.unique(
        sort[forwards] * len(KINDS) * stages + sort[forwards + 1], return_index=True, return_inverse=True
    )
    return first, alike.reshape(-1)


def _plus(a: Cost, b: Cost) -> Cost:
    if not isinstance(a, Sequence) and not isinstance(b, Sequence):
        return a + b
    stages = max(len(cost) for cost in (a, b) if isinstance(cost, Sequence))
    return tuple(_at(a, stage) + _at(b, stage) for stage in range(stages))


def _scaled(cost: Cost, times: Real, by: int) -> Cost:
    if isinstance(cost, Sequence):
        return tuple(quotient(time * times, by) for time in cost)
    return quotient(cost * times, by)


UNIT = Costs()  #: unit costs, the default everywhere: 1 for F, I and W each; messages take no time
