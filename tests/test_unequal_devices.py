"""Devices that differ in speed, actions that cost an overhead, and costs from FLOPs and from a stopwatch."""

from fractions import Fraction
from itertools import accumulate, count

import numpy as np
import pytest
from cases import every_order, over
from planned import toy

import gpipe_sim as gp
from gpipe_sim import Costs
from gpipe_sim.balance import stopwatch
from gpipe_sim.core import B, F, Linear
from gpipe_sim.memory.profile import Profile
from gpipe_sim.planning import costs_from_flops

HALF = Fraction(1, 2)


def one_slow(position: int, devices: int = 4) -> Costs:
    return Costs(speed=[HALF if k == position else 1 for k in range(devices)])


def test_where_a_half_speed_device_is_matters_to_1f1b_and_not_to_gpipe():
    lengths = {
        family: [gp.simulate(family(4, 8), one_slow(k)).makespan for k in range(4)]
        for family in (gp.OneFOneB, gp.GPipe)
    }
    assert lengths == {gp.OneFOneB: [51, 53, 55, 57], gp.GPipe: [57] * 4}


@over(every_order([(2, 3), (3, 3), (4, 8)]))
def test_each_entry_takes_what_duration_says_of_its_device(schedule):
    speeds = [Fraction(1, 1 + k) for k in range(schedule.devices)]
    costs = Costs(2, 3, 1, overlap=4, update=1, speed=speeds, overhead=range(schedule.devices))
    all_at_once = costs.durations(schedule.program)
    one_by_one = gp.core.CostModel.durations(costs, schedule.program)
    assert [all_at_once.values[i] for i in all_at_once.index] == one_by_one.values
    timeline = gp.simulate(schedule, costs)
    assert all(span.end - span.start == costs.duration(span.action, span.device) for span in timeline.spans)


def test_a_pair_is_two_actions_and_has_two_overheads():
    pair = gp.core.OverlapFB(F(1, 3), B(0, 2))
    assert Costs(overhead=5).duration(pair) == 3 + 2 * 5
    assert Costs(overlap=2, overhead=5, speed=2).duration(pair) == 1 + 2 * 5


def test_speeds_are_exact_and_a_speed_of_one_changes_nothing():
    assert Costs(speed=[1, HALF]).duration(F(1, 0), 1) == 2
    assert type(Costs(3, speed=[1, 3]).duration(F(1, 0), 1)) is int
    assert Costs(speed=3).duration(F(0, 0), 0) == Fraction(1, 3)
    assert gp.simulate(gp.GPipe(4, 8), Costs(speed=1.0)).makespan == 33


def test_the_stages_of_a_device_share_neither_its_speed_nor_the_overhead_of_an_action():
    costs = Costs(2, 4, 6, speed=[1, 2], overhead=3)
    assert costs.per_stage(2) == Costs(1, 2, 3, speed=[1, 2], overhead=3)


# From FLOPs


def model() -> list[gp.core.Partition]:
    return gp.split(gp.mlp([4, 6, 2]), stages=2)


def batch() -> tuple:
    return np.ones((8, 4)), np.arange(8) % 2


def profiled() -> tuple[Profile, Costs]:
    profile = gp.profile(model(), batch(), gp.cross_entropy)
    return profile, profile.costs(4)


def test_costs_from_flops_divide_what_the_profile_counts():
    profile, flops = profiled()
    costs = costs_from_flops(profile, toy(10, overhead=1), microbatches=4)
    for action in (F(0, 0), B(1, 0), gp.core.I(0, 0), gp.core.W(1, 0)):
        assert costs.duration(action, 0) == Fraction(flops.duration(action), 10) + 1


# Measured


class Slow(gp.core.ReLU):
    """A layer whose forward and backward take so many ticks of a clock that only they move."""

    def __init__(self, clock: list, forward: int, backward: int):
        super().__init__()
        self.clock, self.ticks = clock, (forward, backward)

    def forward(self, x, ctx):
        self.clock[0] += self.ticks[0]
        return super().forward(x, ctx)

    def backward_input(self, saved, dy):
        self.clock[0] += self.ticks[1]
        return super().backward_input(saved, dy)


class SlowWeights(Linear):
    def __init__(self, clock: list, inputs: int, outputs: int, rng: np.random.Generator):
        super().__init__(inputs, outputs, rng=rng)
        self.clock, self.ticks = clock, count()

    def backward_weight(self, pending):
        self.clock[0] += 100 if next(self.ticks) == 3 else 7
        return super().backward_weight(pending)


def test_each_stage_is_timed_and_a_slow_run_does_not_move_a_median(monkeypatch):
    clock = [0]
    monkeypatch.setattr(stopwatch, "perf_counter", lambda: clock[0])
    rng = np.random.default_rng(0)
    layers = [Slow(clock, 2, 3), SlowWeights(clock, 4, 2, rng), Slow(clock, 5, 11)]
    partitions = gp.split(layers, balance=[2, 1])
    found = stopwatch.seconds(partitions, np.ones((3, 4)), runs=5, warmup=1)
    assert found == ([2, 5], [3, 11], [7, 0])
    assert next(layers[1].ticks) == 6, "a warm-up and five runs"


def test_a_speed_that_no_float_holds_is_refused_beside_floats():
    """It was a division by zero."""
    costs = Costs(1.0, speed=Fraction(1, 10**400))
    with pytest.raises(ValueError, match="Costs needs duration of 0F0 to be finite"):
        gp.simulate(gp.GPipe(2, 2), costs)


def test_what_counts_is_the_middle_of_the_runs_after_the_warm_up(monkeypatch):
    """The smallest of them, or the middle of all, would have done too."""
    taken = [300, 1, 1, 6, 2, 100]  # by run, of which the first three warm up
    events = [tick for run in taken for tick in (0, run, 0, 2 * run, 3 * run)]  # F; then I and W together
    clock = accumulate(events)
    monkeypatch.setattr(stopwatch, "perf_counter", lambda: next(clock))
    layers = [Linear(4, 4, rng=np.random.default_rng(0))]
    found = stopwatch.seconds(gp.split(layers, stages=1), np.ones((3, 4)), 3, 3)
    assert found == ([6], [12], [18])


def test_measured_costs_are_seconds_for_each_stage_of_the_largest_microbatch(monkeypatch):
    seen = []
    forward = Linear.forward
    monkeypatch.setattr(Linear, "forward", lambda self, x, ctx: seen.append(len(x)) or forward(self, x, ctx))
    costs = Costs.measured(model(), batch(), microbatches=3, runs=2)
    assert set(seen) == {3} and len(seen) == 2 * 3
    for times in (costs.forward, costs.input_grad, costs.weight_grad):
        assert len(times) == 2 and all(0 < time < 1 for time in times)
    assert gp.simulate(gp.OneFOneB(2, 3), costs).makespan > 0


def test_layers_with_something_travelling_along_are_timed_too():
    layers = [
        gp.transformers.PaddingMask(),
        gp.transformers.Embedding(9, 4, rng=np.random.default_rng(0)),
        gp.transformers.SequenceMean(),
    ]
    text = np.ones((4, 5), int)
    costs = Costs.measured(gp.split(layers, stages=3), (text, text[:, 0]))
    assert len(costs.forward) == 3
