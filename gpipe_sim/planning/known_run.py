"""What is known of a run: what its stages and layers cost, and what a choice would take and hold."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np

from gpipe_sim.balance.costs_of_stages import merged
from gpipe_sim.core.actions import Kind
from gpipe_sim.core.bubbles import most_held
from gpipe_sim.core.costs import Cost, Costs
from gpipe_sim.core.numbers import quotient
from gpipe_sim.core.remat import remat
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.drawing.compare import Comparison, compare
from gpipe_sim.errors import Real
from gpipe_sim.memory.prediction import predict_memory
from gpipe_sim.memory.profile import Profile
from gpipe_sim.planning.choices import Choice
from gpipe_sim.planning.layers_known import Layers, each_of, read_layers
from gpipe_sim.planning.space import stages_of
from gpipe_sim.pricing.layout import of_size

Cut = tuple[int, ...]  #: the layers of each stage
SAME = 1e-9  #: a share that is rounding
HALVES = "the two halves of a backward take as long as taken here: nobody measured them apart"


@dataclass(frozen=True)
class KnownRun:
    """A run, what its costs were fitted to, and what was said of it."""

    schedule: Schedule
    costs: Costs
    timeline: Timeline | None
    simulated: Timeline
    asked: Sequence[int] | Costs | None
    profile: Profile | None
    families: tuple[type[Schedule], ...]

    @cached_property
    def error(self) -> float:
        """By which share the run, simulated with its own costs, ends later than it did."""
        if self.timeline is None:
            return 0.0
        return float(self.simulated.end.max()) / float(self.timeline.end.max() or 1) - 1

    @property
    def measured(self) -> bool:
        return self.timeline is not None and self.timeline.measured

    @cached_property
    def kinds(self) -> set[Kind]:
        return {*self.schedule.program.where}

    @cached_property
    def left(self) -> Real:
        """The share of stage 0's backward that is I at the others, if it leaves all to W, as torch does."""
        i, w = (list(each_of(cost, self.schedule.stages)) for cost in _backward(self.costs))
        if not self.measured or 20 * i[0] >= w[0] or 20 * sum(i) <= sum(w):
            return 0
        return sum(i[1:]) / (sum(i[1:]) + sum(w[1:]))

    @cached_property
    def layers(self) -> Layers:
        costs = _stage_0(self.costs, self.schedule.stages, self.left) if self.left else self.costs
        return read_layers(costs, self.schedule, self.asked, self.profile, self.timeline is not None)

    @cached_property
    def stages(self) -> Costs:
        """What the stages cost, with a slow device told from heavy stages where that can be told."""
        found = self.layers.stages
        return _stage_0(found, self.schedule.stages, 0) if self.left else found

    def cut(self, balance: Cut) -> Costs:
        """What the stages of another cut cost.

        The overhead that was measured on the devices at the ends of a chain is less than on those between,
        which have messages to handle on both sides, as all have with several stages.
        """
        found = merged(self.layers.costs, balance)
        if self.measured and len(balance) > self.schedule.stages:
            found = replace(found, overhead=max(each_of(found.overhead, self.schedule.devices)))
        return _stage_0(found, len(balance), 0) if self.left else found

    @cached_property
    def others(self) -> tuple[list[Schedule], list[str]]:
        """(the other schedules of this size, why families have none)."""
        found, refused = list[Schedule](), list[str]()
        if Kind.U in self.kinds or not self.kinds & {Kind.B, Kind.I}:
            return found, ["other schedules are compared for one step, forward and back, without updates"]
        for family in self.families:
            for several in stages_of(family, (2, 4)):
                try:
                    made = of_size(family, self.schedule.devices, self.schedule.microbatches, several)
                except ValueError as error:
                    refused.append(str(error))
                    continue
                mode = getattr(self.schedule, "mode", "always") if Kind.R in self.kinds else "never"
                found.append(remat(made, mode))
        return [each for each in found if each.actions != self.schedule.actions], refused

    @cached_property
    def compared(self) -> Comparison | tuple[()]:
        """The other schedules on equal layers."""
        finer = [each for each in self.others[0] if each.stages <= sum(self.layers.balance)]
        return compare(finer, costs=self.layers.costs) if finer else ()

    def choice(
        self,
        name: str,
        schedule: Schedule,
        costs: Costs,
        balance: Cut | None = None,
        assumes: tuple[str, ...] = (),
        code: bool = False,
    ) -> Choice:
        known = self.timeline is None or Kind.W in self.kinds or Kind.W not in schedule.program.where
        assumes += () if known else (HALVES,)
        makespan = simulate(schedule, costs).makespan
        sure = "supposed" if assumes else f"to {abs(self.error):.1%}" if abs(self.error) > SAME else "exact"
        gain = 1 - float(quotient(makespan, self.simulated.makespan or 1))
        held = self.held(schedule, balance or self.layers.balance)
        shown = balance if self.layers.said else None
        return Choice(name, schedule, costs, shown, makespan, gain, held, assumes, sure, code)

    def held(self, schedule: Schedule, balance: Cut) -> Real:
        """What the fullest device holds: bytes, or microbatches of today's size if there is no profile."""
        if self.profile is not None:
            ends = pairwise([0, *accumulate(balance)])
            stages = tuple(self.profile.layers[start:end] for start, end in ends)
            traces = predict_memory(schedule, replace(self.profile, stages=stages))
            return max(trace.peak_inside.bytes for trace in traces)
        layers = max(most_held(schedule.program, np.array(balance)[schedule.program.stage]))
        size = quotient(self.schedule.microbatches, schedule.microbatches)
        return quotient(layers * schedule.devices * size, sum(balance))


def _backward(costs: Costs) -> tuple[Cost, Cost]:
    return costs.input_grad, costs.weight_grad


def _stage_0(costs: Costs, stages: int, share: Real) -> Costs:
    """Stage 0's backward with this share of it in I. PyTorch's engine has none there, and all in W."""
    i, w = (list(each_of(cost, stages)) for cost in _backward(costs))
    both = i[0] + w[0]
    i[0], w[0] = both * share, both * (1 - share)
    return replace(costs, input_grad=i, weight_grad=w)
