from fractions import Fraction

import numpy as np
import pytest
from cases import EQUAL, every_schedule, over

from gpipe_sim.core.actions import B, F, I, OverlapFB, R, U, W
from gpipe_sim.core.bubbles import busy_time
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.gpipe import GPipe
from gpipe_sim.core.interleaved import Interleaved1F1B
from gpipe_sim.core.one_f_one_b import OneFOneB
from gpipe_sim.core.simulate import simulate


def test_a_full_backward_takes_2_and_everything_else_1_unless_given():
    costs = Costs()
    times = {
        str(action): costs.duration(action, 0) for action in (F(0, 0), B(0, 0), I(0, 0), W(0, 0), R(0, 0))
    }
    assert times == {"0F0": 1, "0B0": 2, "0I0": 1, "0W0": 1, "0R0": 1}
    assert costs.duration(U(0, 0), 0) == 0
    assert costs.transfer(F(0, 0), 0, 1) == 0


def test_a_recompute_takes_as_long_as_its_forward_unless_given():
    assert Costs(forward=3, recompute=0).duration(R(0, 0), 0) == 0
    assert Costs.from_forward([3, 5]).duration(R(1, 0), 0) == 5


def test_a_cost_may_be_listed_per_stage():
    costs = Costs(forward=[1, 2], input_grad=[10, 20], weight_grad=5, update=(0, 100))
    assert [costs.duration(kind(stage, 0), 0) for kind in (F, B, I, W, U) for stage in (0, 1)] == [
        *(1, 2),
        *(15, 25),
        *(10, 20),
        *(5, 5),
        *(0, 100),
    ]
    assert Costs(input_grad=1, weight_grad=[2, 3]).duration(B(1, 0), 0) == 4
    assert Costs(input_grad=[1, 2], weight_grad=[2, 3]).duration(B(1, 0), 0) == 5


def test_a_message_takes_comm_between_devices_and_nothing_within_one():
    costs = Costs(comm=Fraction(1, 3))
    assert costs.transfer(F(0, 0), 0, 1) == costs.transfer(B(1, 0), 1, 0) == Fraction(1, 3)
    assert costs.transfer(F(0, 0), 1, 1) == 0


def test_fractions_stay_fractions_and_numpy_numbers_are_numbers():
    assert type(Costs(**EQUAL).duration(B(0, 0), 0)) is Fraction
    assert Costs(forward=np.float64(1.5), comm=np.int64(2)).duration(F(0, 0), 0) == 1.5


def test_the_stages_of_a_device_share_its_work_exactly_and_messages_stay_as_long():
    shared = Costs(1, 2, Fraction(1, 3), recompute=5, update=0, overlap=2.5, comm=7).per_stage(2)
    assert shared == Costs(Fraction(1, 2), 1, Fraction(1, 6), Fraction(5, 2), 0, 1.25, comm=7)
    assert [type(time) for time in (shared.forward, shared.input_grad, shared.comm)] == [Fraction, int, int]
    assert Costs([1, 4], 1, 1, recompute=None).per_stage(2) == Costs(
        (Fraction(1, 2), 2), Fraction(1, 2), Fraction(1, 2)
    )
    assert Costs(3, comm=2).per_stage(1) == Costs(3, comm=2)


def test_a_model_is_no_more_work_when_it_is_cut_into_more_stages():
    whole = simulate(OneFOneB(4, 8))
    for stages_per_device, makespan in ((2, Fraction(57, 2)), (4, Fraction(105, 4))):
        cut = simulate(Interleaved1F1B(4, 8, stages_per_device), Costs().per_stage(stages_per_device))
        assert busy_time(cut) == busy_time(whole) == 4 * 24
        assert cut.makespan == makespan < whole.makespan == 33


def test_costs_are_values():
    assert Costs([1, 2], 1, 1) == Costs((1, 2), 1, 1) == Costs(np.array([1, 2]), 1, 1)
    assert hash(Costs([1, 2], 1, 1)) == hash(Costs((1, 2), 1, 1))
    listed = [1, 2]
    costs = Costs(listed, 1, 1)
    listed[0] = 99
    assert costs.duration(F(0, 0), 0) == 1
    with pytest.raises(AttributeError):
        costs.forward = 3


# Bad input


def test_one_bad_number_in_a_list_is_refused():
    with pytest.raises(ValueError, match=r"forward to be finite and >= 0 \(got nan\)"):
        Costs([1, float("nan")], 1, 1)
    with pytest.raises(TypeError, match=r"comm to be a number \(got \[1, 2\]\)"):
        Costs(comm=[1, 2])


@pytest.mark.parametrize("listed", [[1, 2, 3], np.array([1, 2.5, 3])])
def test_a_list_of_forwards_does_not_hide_what_the_backwards_take(listed):
    for other in ({}, {"input_grad": 1}, {"weight_grad": [1, 2, 3]}):
        with pytest.raises(
            ValueError,
            match=r"lists forward, but no (input|weight)_grad.*Costs.from_forward\(forward, backwa",
        ):
            Costs(listed, **other)
    assert Costs.from_forward(listed) == Costs(listed, listed, listed)
    exact = Costs.from_forward([1, 2], Fraction(3, 2), comm=4)
    assert exact == Costs([1, 2], [Fraction(3, 4), Fraction(3, 2)], [Fraction(3, 4), Fraction(3, 2)], comm=4)
    assert Costs.from_forward(3, 0) == Costs(3, 0, 0) and Costs.from_forward(1) == Costs()
    with pytest.raises(ValueError, match="from_forward needs backward to be finite and >= 0"):
        Costs.from_forward(listed, -1)


@pytest.mark.parametrize("half", [{"input_grad": 100}, {"weight_grad": 0}, {"input_grad": [1, 2]}])
def test_one_half_of_a_backward_does_not_stand_for_both(half):
    """Costs(48, 100) was a backward of 101."""
    with pytest.raises(
        ValueError, match=r"says one half of the backward, but no (input|weight)_grad; give it"
    ):
        Costs(48, **half)


def test_no_cost_is_an_empty_list_or_a_text():
    with pytest.raises(ValueError, match="Costs lists update for 0 stages"):
        Costs(update=[])
    for text in ("4", b"4", {1, 2}, {1: 2}):
        with pytest.raises(TypeError, match="forward to be a number or a list of numbers"):
            Costs(text, 1, 1)


@pytest.mark.parametrize("listed", [[1, 2, 3], [1]])
def test_a_list_must_have_one_cost_per_stage(listed):
    with pytest.raises(
        ValueError, match=rf"lists forward for {len(listed)} stages, but the schedule has 2"
    ) as error:
        simulate(GPipe(2, 2), Costs(listed, 1, 1))
    assert "give one number, or 2" in str(error.value)
    with pytest.raises(ValueError, match="but the schedule has 4"):
        simulate(Interleaved1F1B(2, 2), Costs(update=[1, 2]))


def test_an_overlapped_pair_takes_as_long_as_its_halves_unless_it_has_a_cost_of_its_own():
    pair = OverlapFB(F(1, 3), B(0, 2))
    assert Costs(2, 3, 4).duration(pair, 0) == 2 + 3 + 4
    assert Costs([7, 2], [3, 5], 4).duration(pair, 0) == 2 + 3 + 4
    assert Costs(overlap=2).duration(pair, 0) == 2
    assert Costs(overlap=(2, Fraction(5, 2))).duration(pair, 0) == Fraction(5, 2)


@pytest.mark.parametrize("large", [2**52 + 1, 2**61, 2**62 + 1, 2**63, 10**30])
@over(every_schedule([(1, 4), (2, 4)]))
def test_whole_numbers_are_exact_whatever_their_size(schedule, large):
    """Four times 2**61 do not fit in 64 bits, though each of them does."""
    one, found = simulate(schedule), simulate(schedule, Costs(large, large, large))
    assert found.end.tolist() == [large * time for time in one.end.tolist()]
    assert found.makespan == large * one.makespan


@pytest.mark.parametrize("large", [2**53 + 1, 2**61 + 1, 10**30])
def test_what_only_whole_numbers_add_up_to_is_exact_beside_floats(large):
    """No float is 2**53 + 1."""
    one, found = simulate(GPipe(2, 4)), simulate(GPipe(2, 4), Costs(large, 0.5, 0.5))
    forwards = [action for action in one.ends if action.kind == "F"]
    assert [found.ends[each] for each in forwards] == [large * one.ends[each] for each in forwards]
