"""Activation memory as the zero-bubble papers count it: M_B from F until I or B, M_W from I until W."""

from fractions import Fraction

import pytest
from cases import over_every_schedule

from gpipe_sim import ZBH1, ZBH2, OneFOneB, activation_memory, in_flight, remat, simulate

M_W = Fraction(2, 5)  #: of M_B = 1


def peaks(schedule, saved=1, pending=M_W):
    timeline = simulate(schedule)
    rows = [activation_memory(timeline, device, saved, pending) for device in range(schedule.devices)]
    return [max(held for _, held in row) for row in rows]


def test_the_peaks_of_zb_h1_and_zb_h2_for_four_devices():
    """Qi et al. 2024, table 2: (p-i+1) M_B + (i-1) M_W, and (2p-2i+1) M_B + (2i-2) M_W."""
    assert peaks(ZBH1(4, 8)) == [Fraction(40, 10), Fraction(34, 10), Fraction(28, 10), Fraction(22, 10)]
    assert peaks(ZBH2(4, 8)) == [Fraction(70, 10), Fraction(58, 10), Fraction(46, 10), Fraction(34, 10)]
    assert peaks(OneFOneB(4, 8)) == [4, 3, 2, 1]


@pytest.mark.parametrize("devices", range(1, 8))
def test_the_papers_formula_holds_for_every_number_of_devices(devices):
    numbers = range(1, devices + 1)
    assert peaks(ZBH1(devices, 3 * devices)) == [devices - i + 1 + (i - 1) * M_W for i in numbers]
    assert peaks(ZBH2(devices, 3 * devices)) == [2 * (devices - i) + 1 + (2 * i - 2) * M_W for i in numbers]


def test_one_microbatch_on_one_device_step_by_step():
    steps = activation_memory(simulate(ZBH1(1, 1)), 0, saved=10, pending=4)
    assert steps == [(0, 0), (1, 10), (2, 4), (3, 0)]
    assert activation_memory(simulate(OneFOneB(1, 1)), 0, saved=10, pending=4) == [(0, 0), (1, 10), (3, 0)]


@over_every_schedule([(1, 2), (3, 4), (4, 8)])
def test_with_both_1_it_is_what_is_in_flight_and_nothing_is_left(schedule):
    timeline = simulate(schedule)
    for device in range(schedule.devices):
        assert activation_memory(timeline, device) == in_flight(timeline, device)
        assert activation_memory(timeline, device, 1, 0.4)[-1][1] == 0


def test_recomputation_changes_nothing_that_is_counted():
    plain, again = OneFOneB(3, 4), remat(OneFOneB(3, 4), "always")
    assert peaks(again) == peaks(plain)
