"""How long things take: plain numbers, in one unit of your choice."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from numbers import Rational, Real

from gpipe_sim.errors import require_count
from gpipe_sim.schedule.actions import Action, Kind, OverlapFB

Cost = Real | Sequence[Real]


@dataclass(frozen=True)
class Costs:
    """The time that each kind of action takes, for one microbatch at one stage.

    A cost is one number, or one number per stage. A full backward takes ``input_grad + weight_grad``,
    a recompute as long as the forward unless given. ``overlap`` is an overlapped pair's time, at the stage of
    its forward; unless given, a pair takes as long as its two halves.
    ``comm`` is how long a message is on its way; sending does not keep a device busy. With whole
    numbers or ``Fraction`` every time stays exact. NaN, infinite or negative costs are a ValueError.
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
            if isinstance(value, Sequence) and not isinstance(value, str) and field.name != "comm":
                object.__setattr__(self, field.name, value := tuple(value))
            _require_times(field.name, value)
            plain = tuple(map(_plain, value)) if isinstance(value, tuple) else _plain(value)
            object.__setattr__(self, field.name, plain)

    def duration(self, action: Action | OverlapFB, device: int) -> Real:
        """How long this device is busy with the action."""
        if action.__class__ is OverlapFB:
            return self._of_pair(action, device)
        cost = self._of_kind[action.kind]
        return cost[action.stage] if cost.__class__ is tuple else cost

    def _of_pair(self, pair: OverlapFB, device: int) -> Real:
        if self.overlap is None:
            return self.duration(pair.forward, device) + self.duration(pair.backward, device)
        return self.overlap[pair.forward.stage] if isinstance(self.overlap, tuple) else self.overlap

    def transfer(self, action: Action, from_device: int, to_device: int) -> Real:
        """How long what the action made takes from one device to another; 0 within a device."""
        return 0 if from_device == to_device else self.comm

    def per_stage(self, stages_per_device: int) -> "Costs":
        """These costs as those of a device's whole share of the model, shared evenly by its stages.

        Two stages on a device are its layers cut in two, so each takes half as long; at the price of whole
        ones the same model would be twice as much work. Every cost of computing is divided, exactly: of 1
        each of two stages takes ``Fraction(1, 2)``, of 2 it takes 1. A message takes as long as before, since
        what crosses from stage to stage is as large wherever the model is cut. Costs that are listed per
        stage are divided one by one.
        """
        require_count("per_stage", "stages_per_device", stages_per_device)
        computing = {field.name for field in fields(self)} - {"comm"}
        return replace(self, **{name: _divided(getattr(self, name), stages_per_device) for name in computing})

    def require_stages(self, stages: int) -> None:
        """Raise ValueError if a cost is listed for another number of stages."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, tuple) and len(value) != stages:
                raise ValueError(
                    f"Costs lists {field.name} for {len(value)} stages, "
                    f"but the schedule has {stages}; give one number, or {stages}"
                )

    @cached_property
    def _of_kind(self) -> dict[Kind, Cost]:
        return {
            Kind.F: self.forward,
            Kind.R: self.forward if self.recompute is None else self.recompute,
            Kind.B: _plus(self.input_grad, self.weight_grad),
            Kind.I: self.input_grad,
            Kind.W: self.weight_grad,
            Kind.U: self.update,
        }


def _plus(a: Cost, b: Cost) -> Cost:
    if isinstance(a, tuple) or isinstance(b, tuple):
        pairs = zip(*(c if isinstance(c, tuple) else _Endless(c) for c in (a, b)), strict=False)
        return tuple(x + y for x, y in pairs)
    return a + b


def _divided(cost: Cost | None, by: int) -> Cost | None:
    if cost is None:
        return None
    if isinstance(cost, tuple):
        return tuple(_divided(time, by) for time in cost)
    if isinstance(cost, int):
        return Fraction(cost, by) if cost % by else cost // by
    return cost / by


class _Endless:
    """One cost for every stage."""

    def __init__(self, cost: Real):
        self.cost = cost

    def __iter__(self):
        while True:
            yield self.cost


def _plain(time: Real) -> Real:
    """A NumPy number as Python's, which neither overflows nor rounds to its width."""
    return time.item() if hasattr(time, "item") else time


def _require_times(name: str, value: Cost) -> None:
    for time in value if isinstance(value, tuple) else (value,):
        if isinstance(time, bool) or not isinstance(time, Real):
            raise TypeError(f"Costs needs {name} to be a number (got {time!r})")
        if time < 0 or not (isinstance(time, Rational) or math.isfinite(time)):
            raise ValueError(f"Costs needs {name} to be finite and >= 0 (got {time!r})")
