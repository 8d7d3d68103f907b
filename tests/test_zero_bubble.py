"""The zero-bubble paper against the simulator: bubble, memory, and its table 5 from its table 9.

Qi, Wan, Huang and Lin 2024, arXiv:2401.10241. Its B is our I; times are T_F, T_B, T_W and c for a message.
"""

from fractions import Fraction
from functools import cache
from itertools import product

import closed_forms as formulas
import pytest
from cases import zero_bubble

from gpipe_sim import ZBH1, ZBV, Costs, Interleaved1F1B, OneFOneB, peak_in_flight, simulate, span_bubble
from gpipe_sim.core import Kind
from gpipe_sim.families import ZBH2

CENT = Fraction(1, 100)
#: (T_F, T_B, T_W), none with T_W above the others: equal, all different, and the extremes.
TIMES = (
    (1, 1, 1),
    (3, 4, 2),
    (4, 3, 2),
    (2, 5, 1),
    (5, 2, 2),
    (3, 3, Fraction(1, 2)),
    (Fraction(7, 3), Fraction(5, 2), 2),
)


@cache
def laid_out(schedule):
    """The first of the schedules that are equal: its order is laid out once for all costs."""
    return schedule


def bubble_time(schedule, costs) -> Fraction:
    """How much longer the longest span of a device is than its work."""
    timeline = simulate(laid_out(schedule), costs)
    longest = max(row[-1].end - row[0].start for row in timeline.rows)
    return longest - max(sum(span.end - span.start for span in row) for row in timeline.rows)


def memory(schedule, before_input_grad, before_weight_grad) -> list:
    """Per device, the most that is held: M_B from F until I or B, M_W from I until W."""
    change = {
        Kind.F: before_input_grad,
        Kind.I: before_weight_grad - before_input_grad,
        Kind.W: -before_weight_grad,
        Kind.B: -before_input_grad,
    }
    peaks = []
    for row in laid_out(schedule).actions:
        held, most = 0, 0
        for action in row:
            held += change[action.kind]
            most = max(most, held)
        peaks.append(most)
    return peaks


# Table 2


@pytest.mark.parametrize("comm", [0, CENT], ids=["no messages", "slow messages"])
@pytest.mark.parametrize("times", TIMES, ids=str)
def test_1f1b_and_zero_bubble_wait_as_long_as_table_2_says(times, comm):
    for devices, groups in product((1, 2, 3, 5, 8), (1, 2, 3)):
        microbatches, costs = groups * devices, Costs(*times, comm=comm)
        found = bubble_time(OneFOneB(devices, microbatches), costs)
        assert found == formulas.one_f_one_b_bubble_time(devices, microbatches, *times, comm)
        if microbatches >= 2 * devices - 1:
            found = bubble_time(ZBH1(devices, microbatches), costs)
            assert found == formulas.zbh1_bubble_time(devices, *times, comm)
            found = bubble_time(ZBH2(devices, microbatches), costs)
            assert found == formulas.zbh2_bubble_time(devices, *times, comm)


@pytest.mark.parametrize("times", TIMES, ids=str)
def test_without_messages_zb_h1_needs_no_more_than_k_microbatches_for_it_and_zb_h2_needs_2k_minus_1(times):
    for devices in range(1, 8):
        for microbatches in {devices, max(devices, 2 * devices - 2), 2 * devices - 1, 3 * devices - 1}:
            found = bubble_time(ZBH1(devices, microbatches), Costs(*times))
            assert found == formulas.zbh1_bubble_time(devices, *times)
            found = bubble_time(ZBH2(devices, microbatches), Costs(*times))
            assert (found == formulas.zbh2_bubble_time(devices, *times)) == (microbatches >= 2 * devices - 1)


def test_weight_gradients_that_outlast_forwards_fill_no_more_than_there_is_to_fill():
    """(K-1)(T_F + T_B - T_W) would be 0 for T_W = T_F + T_B, and 1F1B's bubble does not go away."""
    assert bubble_time(ZBH1(4, 8), Costs(1, 1, 2)) > 0


@pytest.mark.parametrize("comm", [0, CENT], ids=["no messages", "slow messages"])
@pytest.mark.parametrize("times", TIMES, ids=str)
def test_interleaving_waits_one_vth_of_the_time_and_for_v_times_the_messages(times, comm):
    for devices, groups, stages in product((2, 3, 6), (1, 3), (1, 2, 3, 4)):
        costs = Costs(*(Fraction(time, stages) for time in times), comm=comm)
        found = bubble_time(Interleaved1F1B(devices, groups * devices, stages), costs)
        assert found == formulas.interleaved_bubble_time(devices, stages, *times, comm)


@pytest.mark.parametrize("units", [(1, 1), (1, Fraction(2, 5)), (34, 32), (1, 0)], ids=str)
def test_zero_bubble_holds_what_table_2_says_on_every_device(units):
    """Whole microbatches, two fifths for W, a transformer layer of table 1, and nothing for W."""
    for devices in range(1, 9):
        for microbatches in range(devices, 3 * devices):
            found = memory(ZBH1(devices, microbatches), *units)
            assert found == [formulas.zbh1_memory(devices, k, *units) for k in range(devices)]
            if microbatches >= 2 * devices - 1:
                found = memory(ZBH2(devices, microbatches), *units)
                assert found == [formulas.zbh2_memory(devices, k, *units) for k in range(devices)]


def test_zb_h1_is_1f1b_with_weight_gradients_put_off_and_holds_no_more_than_its_first_device():
    assert ZBH1(4, 8).actions == zero_bubble(4, 8).actions
    for devices, microbatches in product(range(1, 9), range(1, 17)):
        whole = [[a for a in row if a.kind is Kind.F] for row in OneFOneB(devices, microbatches).actions]
        split = [[a for a in row if a.kind is Kind.F] for row in ZBH1(devices, microbatches).actions]
        assert whole == split
        assert max(peak_in_flight(ZBH1(devices, microbatches))) == min(devices, microbatches)


# ZB-V, section 5


def test_zb_v_never_pauses_with_equal_times_and_from_2k_minus_1_microbatches_on():
    for devices in range(1, 8):
        for microbatches in (2 * devices - 1, 2 * devices, 3 * devices + 1):
            schedule = ZBV(devices, microbatches)
            assert bubble_time(schedule, Costs()) == 0
            assert simulate(schedule).makespan == 6 * microbatches + devices - 1
            assert max(peak_in_flight(schedule)) == min(2 * devices, 2 * microbatches)
        if devices > 1:
            assert bubble_time(ZBV(devices, 2 * devices - 2), Costs()) > 0


def test_zb_v_warms_up_with_2k_minus_1_forwards_on_every_device():
    """Worker i, from 1, runs 2p-i of its first stage and i-1 of its second before anything goes back."""
    for devices in range(1, 7):
        for i, row in enumerate(ZBV(devices, 4 * devices).actions, start=1):
            first_back = next(at for at, action in enumerate(row) if action.kind is not Kind.F)
            warmup = [action.stage for action in row[: first_back - 1]]  # the last F goes back at once
            assert len(warmup) == 2 * devices - 1
            assert (warmup.count(i - 1), warmup.count(2 * devices - i)) == (2 * devices - i, i - 1)


# Table 5 from table 9


@pytest.mark.parametrize(
    ("size", "times", "rates"),
    [
        ((8, 24, 3), ("18.522", "18.086", "9.337", "0.601"), ("0.2431", "0.1585", "0.1083", "0.1090")),
        ((8, 32, 3), ("18.513", "18.086", "9.331", "0.626"), ("0.1985", "0.1242", "0.0837", "0.0847")),
        ((8, 64, 3), ("18.546", "18.097", "9.321", "0.762"), ("0.1240", "0.0674", "0.0444", "0.0461")),
        ((16, 48, 3), ("11.347", "11.248", "8.132", "0.377"), ("0.2552", "0.1397", "0.0672", "0.1136")),
        ((16, 64, 3), ("11.307", "11.254", "8.101", "0.379"), ("0.2082", "0.1088", "0.0516", "0.0878")),
        ((16, 128, 3), ("11.325", "11.308", "8.109", "0.378"), ("0.1251", "0.0576", "0.0266", "0.0459")),
    ],
    ids=[f"{model}, M={m}" for model, ms in (("1.5B", (24, 32, 64)), ("14.6B", (48, 64, 128))) for m in ms],
)
def test_table_9_gives_the_bubble_rates_of_table_5_to_all_four_digits(size, times, rates):
    """1F1B, ZB-H1, ZB-H2; and interleaved, which the paper prints lower: 0.1055, 0.0818, 0.0443 for 1.5B.

    There a stage waits for its device's previous stage only once in each group of K microbatches; with every
    dependency enforced the bubble is Kc longer.
    """
    devices, microbatches, stages = size
    *work, comm = (int(1000 * stages * Fraction(time)) for time in times)  # exact, and quicker than Fractions
    costs, thin = Costs(*work, comm=comm), Costs(*(time // stages for time in work), comm=comm)
    timelines = [simulate(family(devices, microbatches), costs) for family in (OneFOneB, ZBH1, ZBH2)]
    timelines.append(simulate(Interleaved1F1B(devices, microbatches, stages), thin))
    assert tuple(f"{float(span_bubble(timeline)):.4f}" for timeline in timelines) == rates
