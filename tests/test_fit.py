"""Costs read off a timeline: exactly the ones it was simulated with, as far as they can be seen in it."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest
from cases import every_order, every_schedule, over, over_every_order, overlapped, zero_bubble
from measured import measured

from gpipe_sim import Costs, Explicit, GPipe, OneFOneB, fit_costs, remat, simulate, with_updates
from gpipe_sim.core import Span, Timeline
from gpipe_sim.export.spans import from_spans
from gpipe_sim.families import DualPipe, VHalf

FEW = ((1, 3), (2, 1), (3, 2), (4, 8))
MORE = [
    *(remat(schedule, "always") for schedule in every_order([(3, 4), (2, 1)])),
    *(with_updates(schedule) for schedule in every_schedule([(3, 4)])),
    *(overlapped(k, m) for k, m in FEW),
    *(zero_bubble(k, m) for k, m in FEW),
]


def random_costs(schedule, seed: int, comm=None) -> Costs:
    """Whole numbers or Fractions, each cost one for all stages or one per stage."""
    chance = random.Random(seed)
    unit = chance.choice([1, Fraction(1, 7)])

    def cost(smallest: int):
        many = [chance.randint(smallest, 9) * unit for _ in range(schedule.stages)]
        return many if chance.random() < 0.7 else many[0]

    recompute, overlap = (cost(1) if chance.random() < 0.5 else None for _ in range(2))
    comm = chance.choice([0, 1, 5, 40]) * unit if comm is None else comm
    return Costs(cost(1), cost(0), cost(0), recompute, cost(0), overlap, comm)


@over([*every_order(FEW), *MORE])
def test_a_simulation_with_the_fitted_costs_is_the_same(schedule):
    for seed in range(3):
        costs = random_costs(schedule, seed)
        timeline = simulate(schedule, costs)
        fitted = fit_costs(timeline)
        assert simulate(schedule, fitted).spans == timeline.spans, (costs, fitted)
        assert fitted.comm == (costs.comm if schedule.devices > 1 else 0)


@over_every_order(FEW)
def test_unit_costs_come_back_as_they_were_given(schedule):
    assert fit_costs(simulate(schedule)) == Costs()


def test_costs_per_stage_and_exact_ones_stay_so():
    costs = Costs([3, 1, 2, 2], Fraction(1, 3), [0, 1, 2, 3], update=4, comm=Fraction(1, 2))
    fitted = fit_costs(simulate(with_updates(zero_bubble(4, 8)), costs))
    assert fitted == costs
    assert [type(cost) for cost in (*fitted.forward, *fitted.weight_grad, fitted.update)] == [int] * 9
    assert type(fitted.input_grad) is type(fitted.comm) is Fraction


def test_a_full_backward_is_halved_and_stays_exact():
    fitted = fit_costs(simulate(GPipe(2, 3), Costs(2, [1, 3], [5, 2])))
    assert fitted == Costs(2, [3, Fraction(5, 2)], [3, Fraction(5, 2)])
    assert type(fitted.input_grad[0]) is int
    assert fit_costs(simulate(GPipe(2, 3), Costs(2.5, 0.25, 1.25))) == Costs(2.5, 0.75, 0.75)


def test_where_a_stage_has_both_its_halves_win():
    times = [("0F0", 0, 2), ("0F1", 2, 4), ("0B0", 4, 14), ("0I1", 14, 17), ("0W1", 17, 18)]
    assert fit_costs(spelled(times)) == Costs(2, 3, 1)


def test_a_recompute_is_read_off_where_there_is_one():
    schedule = remat(OneFOneB(3, 4), "always")
    assert fit_costs(simulate(schedule, Costs(2, recompute=[3, 1, 1]))).recompute == (3, 1, 1)
    assert fit_costs(simulate(schedule, Costs([4, 5, 6], 1, 1))).recompute == (4, 5, 6)
    assert fit_costs(simulate(OneFOneB(3, 4), Costs(recompute=3))).recompute is None
    half = Explicit(["0F0 0R0 0B0", "1F0 1B0"])
    assert fit_costs(simulate(half, Costs([4, 5], 1, 1, recompute=3))).recompute == (3, 5)


def test_a_pair_that_is_quicker_than_its_halves_is_a_cost_of_its_own():
    assert fit_costs(simulate(DualPipe(4, 8), Costs(2, 2, 3, overlap=6))).overlap == 6
    assert fit_costs(simulate(overlapped(3, 6), Costs(2, 1, 3, overlap=[4, 5, 1]))).overlap == (4, 5, 1)
    assert fit_costs(simulate(overlapped(3, 2), Costs(2, 1, [3, 3, 2], overlap=4))).overlap == (6, 6, 4)
    assert fit_costs(simulate(overlapped(3, 6), Costs(2, 1, 3, overlap=6))).overlap is None


def test_a_forward_and_a_backward_that_run_in_pairs_only_share_its_time_one_to_two():
    pair = "(0F1;1B0)OVERLAP_F_B"
    times = [("1F0", 0, 2), (pair, 2, 9), ("0F0", 9, 12), ("0B0", 12, 14), ("0B1", 14, 16)]
    assert fit_costs(spelled(times)) == Costs(
        (3, 2), (0, Fraction(7, 3)), (2, Fraction(7, 3)), overlap=(7, Fraction(20, 3))
    )


def test_a_message_is_timed_only_where_a_device_waited_for_it():
    """1F1's had arrived long before; 1F0 and 0B0 waited 3 and 5, 0B1 8."""
    rows = [("0F0", 0, 1), ("0F1", 1, 5), ("0B0", 23, 24), ("0B1", 40, 41)]
    last = [("1F0", 4, 14), ("1B0", 14, 18), ("1F1", 30, 31), ("1B1", 31, 32)]
    assert fit_costs(spelled(rows, last)).comm == 5


def test_a_device_free_at_the_moment_at_which_the_other_ended_waited_for_the_message():
    """Device 1 is free at 5, when 0F1 ends: 1F1 waited 4. 1F0 waited 2, 0B0 4, and 0B1 for 0B0."""
    rows = [("0F0", 0, 1), ("0F1", 1, 5), ("0B0", 17, 21), ("0B1", 21, 25)]
    last = [("1F0", 3, 5), ("1F1", 9, 11), ("1B0", 11, 13), ("1B1", 13, 15)]
    assert fit_costs(spelled(rows, last)).comm == 4


def test_where_devices_take_turns_waiting_for_the_other_to_finish_is_no_message():
    """1F0 waited 7 while 0F1 ran, and 0B0 10 while 1F1 ran; only 0B1 waited 5 for nothing but its message."""
    rows = [("0F0", 0, 5), ("0F1", 5, 12), ("0B0", 30, 35), ("0B1", 45, 50)]
    last = [("1F0", 12, 15), ("1B0", 15, 20), ("1F1", 20, 25), ("1B1", 35, 40)]
    assert fit_costs(replace(spelled(rows, last), took_turns=True)).comm == 5
    assert fit_costs(spelled(rows, last)).comm == 7, "the median of 7, 10 and 5"
    assert fit_costs(simulate(GPipe(1, 4), Costs(comm=3))).comm == 0


def test_messages_so_slow_that_no_two_actions_overlap_are_messages():
    for schedule, costs in [
        (GPipe(2, 2), Costs(comm=2)),
        (GPipe(2, 3), Costs(comm=9)),
        (OneFOneB(2, 2), Costs(comm=4)),
        (VHalf(2, 4), Costs(0.5, 0, 0.5, comm=4)),
    ]:
        assert fit_costs(simulate(schedule, costs)) == costs


def test_an_outlier_moves_nothing():
    timeline = simulate(OneFOneB(4, 8), Costs(20, 20, 20, comm=2))
    for slow in (3, 20, 40):
        spans = list(timeline.spans)
        spans[slow] = spans[slow]._replace(end=spans[slow].end + 1000)
        fitted = fit_costs(from_spans(timeline.schedule, spans))
        assert fitted == Costs(20, [0, 20, 20, 20], [40, 20, 20, 20], comm=2)


@over_every_order([(4, 8)])
def test_a_measured_step_is_predicted_but_for_what_passes_between_actions(schedule):
    """Actions take 0 to 10% more than 20 ms or 40 ms, and start 0.05 to 1 ms late."""
    step = measured(schedule, seed=0)
    fitted = fit_costs(step)
    whole = [i + w for i, w in zip(fitted.input_grad, fitted.weight_grad, strict=True)]
    assert all(20 <= cost <= 22 for cost in fitted.forward) and all(40 <= cost <= 44 for cost in whole)
    assert 0.05 <= fitted.comm <= 1
    assert abs(fitted.error) < 0.02
    assert fitted.error == simulate(step.schedule, fitted).makespan / step.makespan - 1


def test_noise_that_is_symmetric_leaves_the_costs():
    step = measured(OneFOneB(2, 400), Costs([20, 30], [10, 5], [10, 15]), noise=0.1)
    fitted = fit_costs(step)
    assert fitted.forward == pytest.approx((21, 31.5), rel=0.01)
    assert fitted.input_grad == (0, pytest.approx(10.5, rel=0.01)), "stage 0 leaves all of it to W"
    assert fitted.weight_grad == pytest.approx((21, 10.5), rel=0.01)
    assert fitted.overhead == pytest.approx((0.525, 0.525), rel=0.05), "0.05 to 1 between actions"


@pytest.mark.parametrize("value", [GPipe(4, 8), "GPipe", None, Costs()], ids=repr)
def test_anything_but_a_timeline_is_refused(value):
    with pytest.raises(TypeError, match="fit_costs needs a timeline, such as simulate") as error:
        fit_costs(value)
    assert repr(value) in str(error.value)


def spelled(*rows) -> Timeline:
    """A timeline of (action, start, end), one list per device."""
    labels = [[action for action, _, _ in row] for row in rows]
    schedule = Explicit(labels, placement=[[0, 1]] if len(rows) == 1 and "1F0" in labels[0] else None)
    spans = [
        Span(action, device, start, end)
        for device, row in enumerate(rows)
        for action, (_, start, end) in zip(schedule.actions[device], row, strict=True)
    ]
    return from_spans(schedule, spans)
