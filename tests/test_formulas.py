"""The closed forms of the papers against simulated timelines, and their own numbers."""

import re
from fractions import Fraction
from itertools import product

import pytest
from closed_forms import gpipe_speedup

from gpipe_sim import (
    Costs,
    GPipe,
    Interleaved1F1B,
    OneFOneB,
    bubble_fraction,
    bubble_overhead,
    formulas,
    peak_in_flight,
    remat,
    simulate,
)
from gpipe_sim.errors import got
from gpipe_sim.why import speedup

EXACT = Costs(Fraction(1), Fraction(1), Fraction(1))
TO_TWELVE = range(1, 13)
MICROBATCHES = 1, 2, 3, 5, 8, 12


# All K up to 12, with fewer and with more microbatches: the timeline gives the formula


@pytest.mark.parametrize("devices", TO_TWELVE)
@pytest.mark.parametrize("family", [GPipe, OneFOneB])
def test_gpipe_and_1f1b_idle_k_minus_1_of_k_minus_1_plus_m(family, devices):
    for microbatches in MICROBATCHES:
        timeline = simulate(family(devices, microbatches), EXACT)
        bubble = bubble_fraction(timeline)
        assert bubble == Fraction(devices - 1, devices - 1 + microbatches)
        assert bubble == formulas.gpipe_bubble(devices, microbatches)
        assert bubble_overhead(timeline) == Fraction(devices - 1, microbatches)
        assert speedup(timeline) == gpipe_speedup(devices, microbatches)
        assert timeline.makespan == formulas.gpipe_makespan(devices, microbatches)
        assert len(timeline.messages) == formulas.gpipe_messages(devices, microbatches)


@pytest.mark.parametrize("devices", TO_TWELVE)
@pytest.mark.parametrize("stages_per_device", [2, 3])
def test_interleaved_idles_k_minus_1_of_k_minus_1_plus_vm_when_k_divides_m(devices, stages_per_device):
    for microbatches in range(devices, 13, devices):
        schedule = Interleaved1F1B(devices, microbatches, stages_per_device)
        timeline = simulate(schedule, EXACT)
        bubble = bubble_fraction(timeline)
        assert bubble == Fraction(devices - 1, devices - 1 + stages_per_device * microbatches)
        assert bubble == formulas.interleaved_bubble(devices, microbatches, stages_per_device)
        assert len(timeline.messages) == formulas.gpipe_messages(devices, microbatches, stages_per_device)
        warmup = [2 * (devices - k - 1) + (stages_per_device - 1) * devices for k in range(devices)]
        most = stages_per_device * microbatches
        assert list(peak_in_flight(schedule)) == [min(each + 1, most) for each in warmup]


def test_1f1b_holds_at_most_k_minus_k_microbatches():
    for devices, microbatches in product(TO_TWELVE, TO_TWELVE):
        assert list(peak_in_flight(OneFOneB(devices, microbatches))) == [
            min(devices - k, microbatches) for k in range(devices)
        ]


@pytest.mark.parametrize("devices", TO_TWELVE)
def test_recomputing_early_costs_m_forwards_and_no_more_bubble(devices):
    for microbatches in MICROBATCHES:
        recomputed = simulate(remat(GPipe(devices, microbatches), "always")).makespan
        assert recomputed == formulas.gpipe_remat_makespan(devices, microbatches)


def test_the_formulas_hold_for_other_times_than_1_and_2():
    third = Fraction(1, 3)
    for forward, backward in ((third, 2), (5, 1), (Fraction(2), Fraction(7, 2))):
        costs = Costs(forward, backward, 0)
        assert simulate(GPipe(3, 5), costs).makespan == formulas.gpipe_makespan(3, 5, forward, backward)
    assert simulate(remat(GPipe(3, 5), "always"), Costs(1, 4, 0)).makespan == formulas.gpipe_remat_makespan(
        3, 5, 1, 4
    )


# Numbers by name


@pytest.mark.parametrize(
    "read", [str, Fraction, lambda target: float(Fraction(target))], ids=["text", "exact", "float"]
)
def test_microbatches_for_bubble_is_the_smallest_that_reaches_the_target_however_it_is_given(read):
    for devices, percent in product((1, 2, 3, 4, 7, 8, 16, 64), range(1, 100)):
        target = Fraction(percent, 100)
        microbatches = formulas.microbatches_for_bubble(devices, read(f"0.{percent:02}"))
        assert formulas.gpipe_bubble(devices, microbatches) <= target
        assert microbatches == 1 or formulas.gpipe_bubble(devices, microbatches - 1) > target


@pytest.mark.parametrize("stages_per_device", [2, 3, 4])
def test_interleaving_needs_fewer_microbatches_and_a_multiple_of_the_devices(stages_per_device):
    for devices, percent in product((2, 3, 4), (5, 10, 15, 30, 60)):
        target = Fraction(percent, 100)
        found = formulas.microbatches_for_bubble(devices, target, stages_per_device)
        bubbles = [
            bubble_fraction(
                simulate(Interleaved1F1B(devices, m, stages_per_device), Costs(*[Fraction(1)] * 3))
            )
            for m in (found, found - devices)
            if m
        ]
        assert bubbles[0] <= target and all(bubble > target for bubble in bubbles[1:])
        assert found - devices < formulas.microbatches_for_bubble(devices, target)
    assert formulas.microbatches_for_bubble(1, "0.1", stages_per_device) == 1


def test_keeping_8_inputs_of_10_mb_and_working_on_30_mb_holds_110_mb_not_80():
    """S1 leaves out the working set: 240 -> 110 is 2.18 times less, not 3."""
    held = formulas.remat_activation_units(8, boundary_input=10, working_set=30)
    assert held == 110
    assert round(8 * 30 / held, 2) == 2.18


def test_formulas_are_exact():
    for value in (formulas.interleaved_bubble(3, 6, 2), formulas.gpipe_bubble(3, 5)):
        assert type(value) is Fraction


# Bad input: counts and times are in test_misuse


@pytest.mark.parametrize("target", [0, 1, "1.5", -0.1, Fraction(1), float("nan"), float("inf"), "a tenth"])
def test_a_target_that_no_or_every_pipeline_meets_or_that_is_no_number_is_refused_by_name(target):
    says = f"microbatches_for_bubble needs a bubble between 0 and 1 {got(target)}"
    with pytest.raises(ValueError, match=re.escape(says)):
        formulas.microbatches_for_bubble(4, target)
