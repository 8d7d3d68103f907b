"""The later families: their pictures, how long they take, what they hold, and what they refuse."""

from collections import deque
from fractions import Fraction
from itertools import accumulate, product
from textwrap import dedent

import pytest
from cases import EQUAL

from gpipe_sim import (
    ZBH1,
    ZBV,
    Costs,
    OneFOneB,
    bubble_fraction,
    formulas,
    peak_in_flight,
    problems,
    simulate,
)
from gpipe_sim.core.actions import F, I, W
from gpipe_sim.families import ZBH2, Chimera, DualPipe, DualPipeV, Eager1F1B, LoopedBFS, VHalf, VMin
from gpipe_sim.families.controllable import _in_slot_order, block, choose
from gpipe_sim.why import idle_spans

EXACT = Costs(Fraction(1), Fraction(1), Fraction(1))


# Pictures


def test_eager_1f1b_warms_up_twice_as_far():
    assert str(Eager1F1B(3, 5)) == dedent("""\
        device 0: 0F0 0F1 0F2 0F3 0F4 0B0 0B1 0B2 0B3 0B4
        device 1: 1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1B3 1B4
        device 2: 2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3 2F4 2B4""")


def test_looped_bfs_is_gpipe_stage_by_stage():
    assert str(LoopedBFS(2, 2)) == dedent("""\
        device 0: 0F0 0F1 2F0 2F1 2B1 2B0 0B1 0B0
        device 1: 1F0 1F1 3F0 3F1 3B1 3B0 1B1 1B0""")


def test_zb_h1_puts_weight_gradients_off_by_as_many_microbatches_as_a_device_is_far_down():
    assert str(ZBH1(3, 3)) == dedent("""\
        device 0: 0F0 0F1 0F2 0I0 0W0 0I1 0W1 0I2 0W2
        device 1: 1F0 1F1 1I0 1F2 1I1 1W0 1I2 1W1 1W2
        device 2: 2F0 2I0 2F1 2I1 2F2 2I2 2W0 2W1 2W2""")


def test_zb_v_comes_back_to_the_device_where_it_began():
    assert ZBV(2, 3).placement == ((0, 3), (1, 2))
    assert str(ZBV(2, 3)) == dedent("""\
        device 0, stages 0 3: 0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 0W2
        device 1, stages 1 2: 1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2""")


def test_v_min_starts_another_microbatch_while_it_waits_for_the_first_to_come_back():
    assert str(VMin(2, 3)) == dedent("""\
        device 0, stages 0 3: 0F0 0F1 3F0 3I0 3F1 3W0 0I0 0F2 3I1 0W0 3W1 3F2 0I1 3I2 0W1 3W2 0I2 0W2
        device 1, stages 1 2: 1F0 2F0 1F1 2F1 2I0 1I0 2W0 1W0 1F2 2I1 2F2 1I1 2W1 1W1 2I2 1I2 2W2 1W2""")


def test_chimera_sends_half_of_each_unit_the_other_way():
    assert Chimera(4, 4).placement == ((0, 3), (1, 2), (2, 1), (3, 0))
    assert str(Chimera(4, 4)) == dedent("""\
        device 0, stages 0 3: 0F0 0F1 3F2 3B2 3F3 3B3 0B0 0B1
        device 1, stages 1 2: 1F0 2F2 1F1 2F3 2B2 1B0 2B3 1B1
        device 2, stages 2 1: 1F2 2F0 1F3 2F1 2B0 1B2 2B1 1B3
        device 3, stages 3 0: 0F2 0F3 3F0 3B0 3F1 3B1 0B2 0B3""")


def test_dualpipe_pairs_a_forward_of_one_direction_with_a_backward_of_the_other():
    assert str(DualPipe(2, 4)) == dedent("""\
        device 0, stages 0 1: 0F0 1F2 0F1 1B2 (1F3;0B0)OVERLAP_F_B 1B3 0I1 0W1
        device 1, stages 1 0: 0F2 1F0 0F3 1B0 (1F1;0B2)OVERLAP_F_B 1B1 0I3 0W3""")


def test_dualpipev_is_dualpipe_folded_in_the_middle():
    assert str(DualPipeV(1, 2)) == "device 0: 0F0 1F0 0F1 1B0 (1F1;0B0)OVERLAP_F_B 1B1 0I1 0W1"
    rename = {"1F2": "1F0", "1B2": "1B0", "(1F3;0B0)OVERLAP_F_B": "(1F1;0B0)OVERLAP_F_B", "1B3": "1B1"}
    top = list(map(str, DualPipe(2, 4).actions[0]))
    assert [rename.get(word, word) for word in top] == list(map(str, DualPipeV(1, 2).actions[0]))


# F = I = W = 1: how long it takes, and the most stage-activations that a device holds


@pytest.mark.parametrize("costs", [Costs(), EXACT], ids=["whole", "Fraction"])
@pytest.mark.parametrize(
    ("schedule", "makespan", "peak"),
    [
        (Eager1F1B(4, 8), 33, 7),
        (LoopedBFS(4, 8), 57, 16),
        (ZBH1(4, 8), 27, 4),
        (ZBH2(4, 8), 27, 7),
        (ZBV(4, 8), 51, 8),
        (VHalf(4, 8), 53, 6),
        (VMin(4, 8), 59, 4),
        (DualPipe(4, 8), 26, 5),
        (DualPipeV(4, 8), 54, 9),
        (Chimera(4, 8), 30, 4),
        (ZBH1(8, 64), 199, 8),
        (ZBH2(8, 64), 199, 15),
        (ZBV(8, 64), 391, 16),
        (VHalf(8, 64), 401, 10),
        (VMin(8, 64), 407, 8),
        (VHalf(16, 128), 809, 18),
        (VMin(16, 128), 827, 12),
        (VHalf(3, 4), 29, 4),
    ],
    ids=repr,
)
def test_with_equal_times_it_takes_this_long_and_holds_this_much(schedule, makespan, peak, costs):
    assert simulate(schedule, costs).makespan == makespan
    assert max(peak_in_flight(schedule)) == peak


@pytest.mark.parametrize("schedule", [ZBH2(4, 8), ZBV(4, 8), ZBH2(8, 64), ZBV(8, 64)], ids=repr)
def test_zb_h2_and_zb_v_have_no_idle_time_inside_any_devices_span(schedule):
    for row in simulate(schedule).rows:
        assert row[-1].end - row[0].start == sum(span.end - span.start for span in row)


def test_eager_1f1b_hides_messages_that_1f1b_waits_for():
    for devices, microbatches in ((2, 4), (4, 8), (8, 64)):
        plain, eager = OneFOneB(devices, microbatches), Eager1F1B(devices, microbatches)
        assert simulate(plain).makespan == simulate(eager).makespan
        assert simulate(plain, Costs(comm=1)).makespan > simulate(eager, Costs(comm=1)).makespan
        held = [min(2 * (devices - k) - 1, microbatches) for k in range(devices)]
        assert list(peak_in_flight(eager)) == held


def test_looped_bfs_idles_as_little_as_interleaved_1f1b_and_holds_everything():
    for devices, stages, more in product(range(1, 7), (1, 2, 3), range(4)):
        schedule = LoopedBFS(devices, devices + more, stages)
        bubble = bubble_fraction(simulate(schedule, EXACT))
        assert bubble == formulas.interleaved_bubble(devices, devices + more, stages)
        assert set(peak_in_flight(schedule)) == {stages * (devices + more)}


# Controllable memory, arXiv:2405.15362


@pytest.mark.parametrize(
    ("family", "limit"),
    [(VHalf, lambda p: 2 * ((p + 2) // 2)), (VMin, lambda p: 2 * ((p + 4) // 3))],
    ids=["V-Half", "V-Min"],
)
def test_v_half_and_v_min_stay_within_half_and_a_third_of_1f1bs_memory(family, limit):
    for devices in range(1, 10):
        assert family(devices, 1).limit == limit(devices)
        for microbatches in (1, devices // 2 + 1, devices, 2 * devices, 3 * devices + 1):
            schedule = family(devices, microbatches)
            assert problems(schedule) == []
            assert max(peak_in_flight(schedule)) <= limit(devices)
        assert max(peak_in_flight(family(devices, 4 * devices))) == limit(devices)


@pytest.mark.parametrize("family", [VHalf, VMin], ids=["V-Half", "V-Min"])
def test_no_block_can_get_stuck_for_want_of_room(family):
    """A device that has done its order up to here, with every W that is due, has room for the next F.

    Together with the room that an overtaking F leaves, that keeps every number of microbatches going.
    """
    for devices in range(1, 31):
        schedule = family(devices, devices + 6)
        slots = block(devices, schedule.hops, schedule.gaps)
        for k in range(devices):
            order = _in_slot_order((k, 2 * devices - 1 - k), slots[k], schedule.microbatches)
            held = accumulate(1 if action.kind == "F" else -1 for action in order)
            assert max(held) <= schedule.limit


def test_less_memory_costs_a_larger_bubble_up_to_two_thirds_of_1f1bs():
    """ZB-V, V-Half, V-Min, 1F1B: 0, 1/2, 2/3 and 1, and a little more; a device's time in stages of two."""
    for devices in (4, 6, 8, 10):
        microbatches = 6 * devices
        work, whole = 6 * microbatches, 6 * (devices - 1)
        bubbles = [simulate(family(devices, microbatches)).makespan - work for family in (ZBV, VHalf, VMin)]
        assert bubbles[0] == devices - 1
        assert bubbles == sorted(bubbles)
        assert bubbles[1] <= whole / 2
        assert bubbles[2] <= whole * 2 / 3


#: (K, M): V-Half and V-Min as they were when a device waited for the next F or I of its block, or did a W.
def test_v_half_takes_3k_minus_7_or_4_more_than_its_work_once_not_all_microbatches_fit():
    for devices in range(3, 13):
        idle = 3 * devices - (4 if devices % 2 else 7)
        fit = VHalf(devices, 1).limit // 2
        for microbatches in (fit + 1, devices + 2, 3 * devices):
            assert simulate(VHalf(devices, microbatches)).makespan == 6 * microbatches + idle


def test_v_min_takes_4k_minus_7_5_or_9_more_than_its_work_for_more_microbatches_than_devices():
    for devices in range(3, 13):
        idle = 4 * devices - (7, 5, 9)[devices % 3]
        for microbatches in (devices + 1, 2 * devices, 4 * devices + 1):
            assert simulate(VMin(devices, microbatches)).makespan == 6 * microbatches + idle


@pytest.mark.parametrize(
    ("schedule", "shortest"),
    [
        (VHalf(3, 4), 29),
        (VHalf(3, 8), 53),
        (VHalf(4, 4), 29),
        (VHalf(4, 8), 53),
        (VHalf(5, 5), 41),
        (VHalf(6, 6), 47),
        (VHalf(7, 7), 59),
        (VHalf(8, 4), 39),
        (VHalf(8, 8), 65),
        (VMin(3, 4), 29),
        (VMin(4, 4), 35),
        (VMin(4, 8), 59),
        (VMin(6, 6), 53),
        (VMin(7, 7), 65),
        (VMin(8, 8), 71),
        (VMin(9, 9), 83),
    ],
    ids=repr,
)
def test_no_order_within_their_memory_is_shorter_than_v_half_and_v_min_here(schedule, shortest):
    """CP-SAT (OR-Tools 9.15) proved that there is none of ``shortest - 1``."""
    assert simulate(schedule).makespan == shortest


def test_a_device_does_the_first_of_its_block_that_can_run_and_a_w_when_none_can():
    coming, due = [F(0, 2), F(3, 1), I(3, 0)], deque([W(3, 0), W(0, 0)])

    def chosen(room, *can_run):
        return choose(coming, due, room, can_run.__contains__)

    assert chosen(2, F(0, 2), F(3, 1)) == F(0, 2)
    assert chosen(2, F(3, 1), I(3, 0)) == F(3, 1)
    assert chosen(2, I(3, 0)) == I(3, 0)
    assert chosen(2) == W(3, 0)
    assert choose(coming, deque(), 2, lambda action: False) is None


def test_an_f_leaves_room_for_the_f_that_it_overtakes():
    coming = [F(0, 2), F(3, 1), I(3, 0)]
    for room, action in ((2, F(3, 1)), (1, W(3, 0)), (0, W(3, 0))):
        assert choose(coming, deque([W(3, 0)]), room, coming[1:].__contains__) == action


# ZB-V with few microbatches


def test_zb_v_takes_4k_plus_4m_minus_2_where_it_drops_many_of_its_microbatches():
    for devices, microbatches in product(range(2, 10), range(1, 20)):
        longest = max(4 * (devices + microbatches) - 2, 6 * microbatches + devices - 1)
        assert simulate(ZBV(devices, microbatches)).makespan == longest


# DualPipe, DeepSeek-V3 report, arXiv:2412.19437, table 2


def dualpipe_bubble_time(devices: int, pair, backward, weight_grad):
    """(K/2-1)(F&B + B - 3W), for T_F = T_B >= T_W: DualPipe's, and DualPipeV's on half as many devices."""
    return (devices // 2 - 1) * (pair + backward - 3 * weight_grad)


@pytest.mark.parametrize(
    ("forward", "weight_grad"), [(1, 1), (3, 2), (2, 1), (2, 0), (Fraction(5, 2), Fraction(1, 3))]
)
def test_dualpipe_waits_as_long_as_its_table_says_for_an_input_gradient_as_long_as_a_forward(
    forward, weight_grad
):
    costs = Costs(Fraction(forward), Fraction(forward), Fraction(weight_grad))
    backward = forward + weight_grad
    times = {"pair": forward + backward, "backward": backward, "weight_grad": weight_grad}
    for half, more in product(range(1, 5), (0, 1, 3)):
        work = 2 * (2 * half + more) * (forward + backward)
        both = simulate(DualPipe(2 * half, 2 * (2 * half + more)), costs).makespan - work
        folded = simulate(DualPipeV(half, 2 * half + more), costs).makespan - work
        assert both == folded == dualpipe_bubble_time(2 * half, **times)


@pytest.mark.parametrize("pair", [Fraction(2), Fraction(5, 2), Fraction(7, 2)], ids=["2/3", "5/6", "7/6"])
def test_a_pair_with_a_time_of_its_own_changes_the_wait_at_the_turn_as_the_table_says(pair):
    """What F&B is for; the pair's two halves take 3 one after the other."""
    costs = Costs(Fraction(1), Fraction(1), Fraction(1), overlap=pair)
    for half, more in product(range(1, 5), (0, 1, 3)):
        both = simulate(DualPipe(2 * half, 2 * (2 * half + more)), costs)
        folded = simulate(DualPipeV(half, 2 * half + more), costs)
        for timeline, device in ((both, half - 1), (both, half), (folded, half - 1)):
            waits = sum(end - start for start, end in idle_spans(timeline, device))
            assert waits == dualpipe_bubble_time(2 * half, pair, backward=2, weight_grad=1)


def test_dualpipe_holds_one_activation_more_than_there_are_stages():
    for half, more in product(range(1, 5), (0, 1, 3)):
        both, folded = DualPipe(2 * half, 2 * (2 * half + more)), DualPipeV(half, 2 * half + more)
        assert set(peak_in_flight(both)) == {2 * half + 1}
        assert set(peak_in_flight(folded)) == {2 * half + 1}


# Chimera, arXiv:2107.06925


def test_chimera_idles_d_minus_2_of_2n_plus_d_minus_2_for_equal_forward_and_backward():
    for devices, units in product((2, 4, 6, 8), (1, 2, 3)):
        bubble = bubble_fraction(simulate(Chimera(devices, units * devices), Costs(**EQUAL)))
        assert bubble == Fraction(devices - 2, 2 * units * devices + devices - 2)


def test_chimera_idles_a_quarter_to_a_third_if_a_backward_takes_two_forwards_and_n_is_d():
    for devices in (2, 4, 6, 8, 10):
        found = bubble_fraction(simulate(Chimera(devices, devices), EXACT))
        assert found == Fraction(2 * (devices - 2), 3 * devices + 2 * (devices - 2))


def test_chimera_holds_half_of_what_there_is_to_hold_outside_and_all_of_it_inside():
    for devices, units in product((2, 4, 6, 8), (1, 2, 3)):
        held = peak_in_flight(Chimera(devices, units * devices))
        assert list(held) == [devices // 2 + 1 + min(k, devices - 1 - k) for k in range(devices)]


# Sizes


@pytest.mark.parametrize("family", [Eager1F1B, LoopedBFS, ZBH1, ZBH2, ZBV, VHalf, VMin])
def test_these_families_take_any_number_of_devices_and_microbatches(family):
    for devices, microbatches in product(range(1, 6), range(1, 12)):
        assert problems(family(devices, microbatches)) == []


def test_chimera_takes_any_number_of_microbatches_on_evenly_many_devices():
    for devices, microbatches in product((2, 4, 6), range(1, 14)):
        assert problems(Chimera(devices, microbatches)) == []


def test_dualpipe_takes_every_size_that_fills_it():
    for devices, more in product((2, 4, 6), range(0, 6, 2)):
        assert problems(DualPipe(devices, 2 * devices + more)) == []
    for devices, more in product(range(1, 5), range(4)):
        assert problems(DualPipeV(devices, 2 * devices + more)) == []
