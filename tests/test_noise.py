"""Many runs of one order whose actions take more or less time than planned."""

from fractions import Fraction

import numpy as np
import pytest
from cases import every_order, over

import gpipe_sim as gp
from gpipe_sim import Costs
from gpipe_sim.links.noise import log_normal

SIZES = [(1, 3), (3, 2), (4, 8)]


class Drawn(Costs):
    """Costs times the factors that a run has drawn, one for each action of the rows."""

    def of(self, schedule: gp.core.Schedule, factors: np.ndarray) -> "Drawn":
        actions = [action for row in schedule.actions for action in row]
        object.__setattr__(self, "factor", dict(zip(actions, factors.tolist(), strict=True)))
        return self

    def duration(self, action, device=0):
        return super().duration(action, device) * self.factor[action]


@over(every_order(SIZES))
def test_each_run_is_the_order_timed_with_the_durations_that_it_drew(schedule):
    rng, costs = np.random.default_rng(0), {"forward": 2, "input_grad": 3, "weight_grad": 1, "comm": 1}
    found = gp.simulate_many(schedule, Costs(**costs), noise=0.5, runs=3)
    drawn = [log_normal(0.5)(rng, schedule.program.size) for _ in found]
    alone = [gp.simulate(schedule, Drawn(**costs).of(schedule, factors)) for factors in drawn]
    assert found == pytest.approx([timeline.makespan for timeline in alone], rel=1e-14)
    assert len(set(found)) == 3


@over(every_order(SIZES))
def test_without_noise_every_run_is_the_plain_one(schedule):
    for costs in (Costs(2, 3, 1), Costs(0.1, 0.2, 0.3, comm=0.7), Costs(comm=1)):
        found = gp.simulate_many(schedule, costs, noise=0, runs=2)
        assert found.tolist() == [gp.simulate(schedule, costs).makespan] * 2
    thirds = Costs(Fraction(1, 3), 1, 1)
    plain = float(gp.simulate(schedule, thirds).makespan)
    assert gp.simulate_many(schedule, thirds, noise=0, runs=2) == pytest.approx(plain, rel=1e-14)


def test_same_seed_same_numbers_and_more_runs_begin_with_those_of_fewer():
    """Runs are timed some at a time; how many there are together must not show."""
    few, many, other = (
        gp.simulate_many(gp.OneFOneB(4, 8), noise=0.2, runs=runs, seed=seed)
        for runs, seed in ((3, 7), (1000, 7), (3, 8))
    )
    assert few.tolist() == many[:3].tolist() and not set(few) & set(other)
    assert (few.shape, few.dtype, many.shape) == ((3,), np.float64, (1000,))


@pytest.mark.parametrize("noise", [0.05, 0.3, 2])
def test_factors_have_mean_1_and_the_deviation_that_was_asked_for(noise):
    factors = log_normal(noise)(np.random.default_rng(0), 200_000)
    assert factors.min() > 0
    assert factors.mean() == pytest.approx(1, rel=0.02)
    assert factors.std() == pytest.approx(noise, rel=0.1)


def test_noise_makes_a_step_longer_on_average_because_devices_wait_for_the_slowest():
    """1F1B, 4 x 8, which takes 33: one device alone would take 24 on average, whatever the noise."""
    schedule = gp.OneFOneB(4, 8)
    means = [gp.simulate_many(schedule, noise=noise).mean() for noise in (0, 0.05, 0.1, 0.2, 0.4)]
    assert means == pytest.approx([33, 33.55, 34.12, 35.35, 38.1], abs=0.02)
    alone = gp.simulate_many(gp.GPipe(1, 8), noise=0.4, runs=4_000)
    assert alone.mean() == pytest.approx(24, rel=0.01)
