"""Each family's order, as a picture, and the numbers that the issue and the papers give for it."""

from fractions import Fraction
from textwrap import dedent

import pytest
from cases import over_every_schedule

from gpipe_sim import (
    Costs,
    GPipe,
    Interleaved1F1B,
    Naive,
    OneFOneB,
    bubble_fraction,
    peak_in_flight,
    problems,
    simulate,
)
from gpipe_sim.core import useful_time
from gpipe_sim.families import DualPipeV
from gpipe_sim.why import utilization

WHOLE = Costs()
EXACT = Costs(Fraction(1), Fraction(1), Fraction(1))


@over_every_schedule()
def test_every_family_says_into_how_many_stages_each_devices_share_of_the_model_is_cut(schedule):
    """2 in a V; 1 in Chimera, which holds two copies. So with ``Costs().per_stage(stages_per_device)`` a step
    is the same work for all."""
    assert schedule.stages == schedule.devices * schedule.stages_per_device
    timeline = simulate(schedule, EXACT.per_stage(schedule.stages_per_device))
    assert useful_time(timeline) == 3 * schedule.devices * schedule.microbatches


# Pictures


def test_naive_draws_its_own_picture():
    assert str(Naive(2, 2)) == dedent("""\
        device 0: 0F0 0B0 0F1 0B1
        device 1: 1F0 1B0 1F1 1B1""")
    assert Naive(devices=3) == Naive(devices=3, microbatches=1)


def test_gpipe_drains_in_reverse_as_in_the_papers_figure():
    assert str(GPipe(2, 3)) == dedent("""\
        device 0: 0F0 0F1 0F2 0B2 0B1 0B0
        device 1: 1F0 1F1 1F2 1B2 1B1 1B0""")


def test_gpipe_can_drain_in_order_as_in_pytorch():
    assert str(GPipe(2, 3, drain="in_order")) == dedent("""\
        device 0: 0F0 0F1 0F2 0B0 0B1 0B2
        device 1: 1F0 1F1 1F2 1B0 1B1 1B2""")


def test_one_f_one_b_draws_its_own_picture():
    assert str(OneFOneB(2, 3)) == dedent("""\
        device 0: 0F0 0F1 0B0 0F2 0B1 0B2
        device 1: 1F0 1B0 1F1 1B1 1F2 1B2""")


def test_one_f_one_b_warms_up_steadies_and_cools_down_on_four_devices():
    assert str(OneFOneB(4, 5)) == dedent("""\
        device 0: 0F0 0F1 0F2 0F3 0B0 0F4 0B1 0B2 0B3 0B4
        device 1: 1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1B3 1B4
        device 2: 2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2B4
        device 3: 3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4""")


def test_one_f_one_b_with_fewer_microbatches_than_devices_only_warms_up():
    assert str(OneFOneB(3, 1)) == dedent("""\
        device 0: 0F0 0B0
        device 1: 1F0 1B0
        device 2: 2F0 2B0""")


def test_interleaved_visits_its_stages_in_reverse_on_the_way_back():
    assert str(Interleaved1F1B(2, 4)) == dedent("""\
        device 0: 0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3
        device 1: 1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3""")


def test_interleaved_takes_ten_microbatches_on_four_devices_in_two_groups_of_five():
    schedule = Interleaved1F1B(4, 10)
    assert schedule.group == 5
    assert str(schedule).splitlines()[3].startswith("device 3: 3F0 3F1 3F2 3F3 3F4 7F0 7B0 7F1 7B1")


# The numbers of the issue: F = 1, B = 2, K = 4, M = 8


@pytest.mark.parametrize("costs", [WHOLE, EXACT], ids=["whole", "Fraction"])
@pytest.mark.parametrize(
    ("schedule", "makespan", "in_flight"),
    [
        (GPipe(4, 8), 33, (8, 8, 8, 8)),
        (GPipe(4, 8, drain="in_order"), 33, (8, 8, 8, 8)),
        (OneFOneB(4, 8), 33, (4, 3, 2, 1)),
        (Interleaved1F1B(4, 8), 57, (11, 9, 7, 5)),
        (Naive(4, 8), 96, (1, 1, 1, 1)),
    ],
    ids=repr,
)
def test_four_devices_and_eight_microbatches_take_this_long_and_hold_this_much(
    schedule, costs, makespan, in_flight
):
    timeline = simulate(schedule, costs)
    assert timeline.makespan == makespan
    assert type(timeline.makespan) is (int if costs is WHOLE else Fraction)
    assert peak_in_flight(schedule) == in_flight


@pytest.mark.parametrize("devices", [1, 2, 4, 7])
@pytest.mark.parametrize("microbatches", [1, 3])
def test_naive_idles_k_minus_1_of_k_however_many_microbatches(devices, microbatches):
    timeline = simulate(Naive(devices, microbatches), EXACT)
    assert bubble_fraction(timeline) == Fraction(devices - 1, devices)
    assert timeline.makespan == 3 * devices * microbatches


# One stage per device, interleaved


def test_one_stage_per_device_interleaved_warms_up_twice_as_far_and_is_not_1f1b():
    assert peak_in_flight(Interleaved1F1B(4, 8, 1)) == (7, 5, 3, 1)
    assert peak_in_flight(OneFOneB(4, 8)) == (4, 3, 2, 1)
    assert simulate(Interleaved1F1B(4, 8, 1)).makespan == simulate(OneFOneB(4, 8)).makespan == 33


# The clocks of the source documents, corrected


@pytest.mark.parametrize(
    ("layers", "percent"), [((2, 2, 2, 5), "47.8%"), ((3, 3, 3, 2), "68.8%")], ids=["11 // 4", "split"]
)
def test_eleven_layers_cut_3_3_3_2_keep_four_devices_busier_than_2_2_2_5(layers, percent):
    half = [Fraction(n, 2) for n in layers]
    timeline = simulate(GPipe(4, 8), Costs(forward=layers, input_grad=half, weight_grad=half))
    assert f"{float(utilization(timeline)):.1%}" == percent


# torchgpipe's clock cycles


@pytest.mark.parametrize(("devices", "microbatches"), [(3, 3), (4, 8), (3, 1), (1, 4), (5, 3)])
def test_microbatch_i_enters_stage_k_on_clock_i_plus_k(devices, microbatches):
    """The wavefront of Kim et al. 2020, arXiv:2004.09910, section 2.1."""
    starts = {
        (part.microbatch, part.stage): span.start
        for span in simulate(GPipe(devices, microbatches)).spans
        for part in span.action.parts
        if part.kind == "F"
    }
    assert starts == {(i, k): i + k for i in range(microbatches) for k in range(devices)}


# Sizes


@over_every_schedule()
def test_every_family_is_sound_in_every_size(schedule):
    assert problems(schedule) == []


@pytest.mark.parametrize("family", [Naive, GPipe, OneFOneB])
def test_these_families_take_any_number_of_microbatches(family):
    for devices in range(1, 6):
        for microbatches in range(1, 12):
            assert problems(family(devices, microbatches)) == []


def test_interleaved_takes_every_size_that_its_rule_allows_and_three_deep():
    made = 0
    for devices in range(1, 6):
        for microbatches in range(1, 13):
            if microbatches % max(1, microbatches // devices) == 0:
                made += 1
                assert problems(Interleaved1F1B(devices, microbatches, 3)) == []
    assert made == 50


# Bad input


def test_a_pair_that_overlaps_well_makes_dualpipe_v_shorter():
    schedule = DualPipeV(4, 8)
    assert [simulate(schedule, Costs(overlap=cost)).makespan for cost in (None, 3, 2)] == [54, 54, 44]
