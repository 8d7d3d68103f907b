"""Bubbles where messages take time: the closed forms, and up to which message each of them holds."""

from fractions import Fraction
from itertools import product
from random import Random

import closed_forms as formulas
import pytest
from test_zero_bubble import bubble_time

from gpipe_sim import ZBH1, Costs, GPipe, Interleaved1F1B, OneFOneB, simulate
from gpipe_sim.families import ZBH2

HAIR = Fraction(1, 1000)
#: (T_F, T_B, T_W), none with T_W above the others.
TIMES = [(1, 1, 1), (3, 4, 2), (4, 3, 2), (9, 2, 1), (2, 9, 1), (Fraction(7, 3), Fraction(5, 2), 2)]


def drawn(chance: Random) -> tuple[int, int, list[Fraction], Fraction]:
    """Devices, microbatches, times and a message, of any size; times may be 0."""
    times = [Fraction(chance.randint(0, 9), chance.choice([1, 2, 3])) for _ in range(3)]
    comm = Fraction(chance.randint(0, 40), chance.choice([1, 3, 7]))
    return chance.randint(1, 7), chance.randint(1, 16), times, comm


def test_gpipe_and_1f1b_wait_as_the_formulas_say_for_any_sizes_times_and_messages():
    chance = Random(0)
    for _ in range(200):
        devices, microbatches, times, comm = drawn(chance)
        costs = Costs(*times, comm=comm)
        found = bubble_time(GPipe(devices, microbatches), costs)
        assert found == formulas.gpipe_bubble_time(devices, *times, comm)
        found = bubble_time(OneFOneB(devices, microbatches), costs)
        assert found == formulas.one_f_one_b_bubble_time(devices, microbatches, *times, comm)


def test_where_k_divides_m_1f1b_waits_for_2_k_minus_1_times_m_over_k_plus_1_less_2_messages():
    for devices, groups in product(range(2, 9), range(1, 6)):
        found = formulas.one_f_one_b_bubble_time(devices, groups * devices, 0, 0, 0, 1)
        assert found == 2 * (devices - 1) * (groups + 1) - 2


def test_more_microbatches_do_not_hide_messages_in_1f1b():
    """Messages of length 1: what 1F1B loses grows with M, and what GPipe loses does not."""
    lost = {
        family: [
            simulate(family(4, m), Costs(comm=1)).makespan - simulate(family(4, m)).makespan
            for m in (4, 8, 16, 32, 64)
        ]
        for family in (OneFOneB, GPipe)
    }
    assert lost == {OneFOneB: [10, 16, 28, 52, 100], GPipe: [6] * 5}


def holds_just_up_to(edge: Fraction, schedule, times, formula, *given) -> bool:
    """The formula gives the bubble up to this message, and right after it the bubble grows faster."""
    for comm in (edge / 3, edge - HAIR, edge):
        if bubble_time(schedule, Costs(*times, comm=comm)) != formula(*given, comm):
            return False
    start, end = formula(*given, 0), formula(*given, edge)
    return bubble_time(schedule, Costs(*times, comm=edge + HAIR)) > end + (end - start) / edge * HAIR


@pytest.mark.parametrize("times", TIMES, ids=str)
def test_zero_bubble_formulas_hold_up_to_the_message_that_they_name_and_no_further(times):
    """ZB-H1's up to half a W, and ZB-H2's up to half of F and I together."""
    forward, input_grad, weight_grad = map(Fraction, times)
    for devices, more in product((4, 5, 8), (0, 1, 7)):
        size = devices, 2 * devices - 1 + more
        small, large = weight_grad / 2, (forward + input_grad) / 2
        assert holds_just_up_to(small, ZBH1(*size), times, formulas.zbh1_bubble_time, devices, *times)
        assert holds_just_up_to(large, ZBH2(*size), times, formulas.zbh2_bubble_time, devices, *times)


@pytest.mark.parametrize("times", [*TIMES, (9, 1, 0), (5, 1, 3)], ids=str)
def test_the_interleaved_formula_holds_while_a_message_is_no_longer_than_a_forward_or_a_backward(times):
    """From M = 2K on; times are those of one stage, of which a device has V."""
    edge, formula = Fraction(min(times[0], times[1] + times[2])), formulas.interleaved_bubble_time
    for devices, groups, stages in product((2, 3, 6), (2, 3), (2, 3)):
        schedule = Interleaved1F1B(devices, groups * devices, stages)
        given = devices, stages, *(stages * time for time in times)
        assert holds_just_up_to(edge, schedule, times, formula, *given)


def test_one_device_sends_no_messages():
    """(2VK-2)c was its bubble."""
    assert bubble_time(Interleaved1F1B(1, 3, 2), Costs(comm=1)) == 0
    assert formulas.interleaved_bubble_time(1, 2, c=1) == 0
