from collections import Counter
from itertools import pairwise
from textwrap import dedent

import pytest
from cases import V_SHAPED, entrances, every_order, over_every_order, overlapped, zero_bubble

from gpipe_sim import (
    SCHEDULES,
    Explicit,
    GPipe,
    Interleaved1F1B,
    OneFOneB,
    peak_in_flight,
    problems,
    remat,
    repeat,
    simulate,
)
from gpipe_sim.core import Action, B, F, I, Kind, OverlapFB, R, Schedule, U, W, needs
from gpipe_sim.families import ZBH2


def test_a_schedule_is_one_class_with_one_method():
    class DepthFirst(Schedule):
        def order(self, device):
            for m in range(self.microbatches):
                yield F(device, m)
                yield B(device, m)

    schedule = DepthFirst(devices=2, microbatches=2)
    assert repr(schedule).endswith("DepthFirst(devices=2, microbatches=2)")
    assert schedule.placement == ((0,), (1,))
    assert simulate(schedule).makespan == 2 * 2 * 3


# What an action needs


def test_a_forward_needs_the_stage_before_and_the_first_stage_needs_nothing():
    schedule = GPipe(3, 2)
    assert needs(F(0, 1), schedule) == ()
    assert needs(F(2, 1), schedule) == (F(1, 1),)


def test_a_backward_needs_its_own_forward_and_the_stage_after():
    schedule = GPipe(3, 2)
    assert needs(B(1, 0), schedule) == (F(1, 0), B(2, 0))
    assert needs(B(2, 0), schedule) == (F(2, 0),)


def test_a_split_backward_sends_its_gradient_with_the_input_half():
    schedule = zero_bubble(3, 2)
    assert needs(I(1, 0), schedule) == (F(1, 0), I(2, 0))
    assert needs(W(1, 0), schedule) == (I(1, 0),)


def test_a_full_backward_may_follow_a_split_one_and_the_other_way_round():
    schedule = Explicit(["0F0 0B0", "1F0 1I0 1W0", "2F0 2B0"])
    assert needs(B(0, 0), schedule) == (F(0, 0), I(1, 0))
    assert needs(I(1, 0), schedule) == (F(1, 0), B(2, 0))


def test_recompute_needs_its_forward_but_not_the_gradient():
    schedule = remat(GPipe(3, 2), "always")
    assert needs(R(1, 0), schedule) == (F(1, 0),)
    assert needs(B(1, 0), schedule) == (F(1, 0), R(1, 0), B(2, 0))


def test_an_update_needs_the_weight_gradient():
    assert needs(U(0, 0), Explicit(["0F0 0B0 0U0"])) == (B(0, 0),)
    assert needs(U(0, 0), Explicit(["0F0 0I0 0W0 0U0"])) == (W(0, 0),)


def test_an_overlapped_pair_needs_what_both_halves_need():
    schedule = overlapped(2, 4)
    assert needs(OverlapFB(F(1, 2), B(1, 1)), schedule) == (F(0, 2), F(1, 1))
    assert needs(OverlapFB(F(0, 2), B(0, 0)), schedule) == (F(0, 0), B(1, 0))


# Where things are


def test_stages_go_round_the_devices_unless_a_placement_says_otherwise():
    schedule = Interleaved1F1B(4, 8)
    assert schedule.stages == 8
    assert schedule.placement == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert schedule.device_of(B(6, 3)) == 2
    assert V_SHAPED.stages == 4
    assert V_SHAPED.device_of(F(3, 1)) == 0


def test_an_action_that_the_schedule_lacks_is_on_no_device():
    schedule = GPipe(2, 2)
    for absent in (I(0, 0), F(2, 0), F(0, 2), F(-1, 0), F(0, -1)):
        assert schedule.program.find(absent) < 0
        with pytest.raises(ValueError, match=f"{absent} is not in GPipe"):
            schedule.device_of(absent)


def test_of_an_action_that_stands_twice_the_first_counts():
    twice = Explicit(["0B0", "0F0 0F0 0B0"], placement=[[0], [0]])
    assert (twice.device_of(F(0, 0)), twice.device_of(B(0, 0))) == (1, 0)


@over_every_order()
def test_every_action_is_where_the_placement_says(schedule):
    """And every stage that a device holds is used, unless a lone microbatch leaves one direction idle."""
    copies = max(Counter(stage for held in schedule.placement for stage in held).values())
    assert copies == len(entrances(schedule)) or schedule.microbatches == 1
    for device, row in enumerate(schedule.actions):
        parts = [part for action in row for part in action.parts]
        used, held = {part.stage for part in parts}, set(schedule.placement[device])
        assert used == held or (used < held and copies > len(entrances(schedule)))
        assert all(schedule.device_of(part) == device for part in parts)


# Equal schedules


def test_equal_parameters_make_equal_schedules_of_the_same_family():
    assert GPipe(4, 8) == GPipe(4, 8)
    assert hash(GPipe(4, 8)) == hash(GPipe(4, 8))
    assert GPipe(4, 8) != GPipe(4, 8, drain="in_order")
    assert len(set(every_order())) == len(list(every_order()))
    assert Explicit(["0F0 0B0"]) == Explicit.parse("device 0: 0F0 0B0")
    assert Explicit(["0F0 0B0"]) != Explicit(["0F0 0B0"], placement=[[0, 1]])


def test_a_schedule_cannot_be_changed():
    with pytest.raises(AttributeError):
        GPipe(4, 8).devices = 2
    with pytest.raises(AttributeError):
        Explicit(["0F0 0B0"]).rows = ()


# Text, there and back


def test_a_student_writes_one_row_per_device():
    schedule = Explicit.parse("""
        0F0 0F1 0B0 0B1
        1F0 1B0 1F1 1B1
    """)
    assert (schedule.devices, schedule.microbatches, schedule.stages) == (2, 2, 2)
    assert str(schedule) == dedent("""\
        device 0: 0F0 0F1 0B0 0B1
        device 1: 1F0 1B0 1F1 1B1""")
    assert simulate(schedule).makespan == 9


def test_rows_may_be_text_lists_of_text_or_actions():
    rows = (["0F0 0B0"], [["0F0", "0B0"]], [(F(0, 0), B(0, 0))], [iter(["0F0", B(0, 0)])])
    assert len({Explicit(row) for row in rows}) == 1


def test_a_device_may_have_nothing_to_do():
    schedule = Explicit.parse("0F0 0B0\ndevice 1:")
    assert schedule.devices == 2
    assert schedule.placement == ((0,), ())
    assert str(schedule) == "device 0: 0F0 0B0\ndevice 1:"
    assert simulate(schedule).makespan == 3


@over_every_order()
def test_the_text_of_a_schedule_reads_back_as_the_same_actions(schedule):
    again = Explicit.parse(str(schedule))
    assert again.actions == schedule.actions
    assert again.placement == schedule.placement
    assert (again.devices, again.microbatches) == (schedule.devices, schedule.microbatches)


def test_the_text_says_which_stages_a_device_holds_only_where_they_do_not_go_round():
    assert str(V_SHAPED).splitlines()[1].startswith("device 1, stages 1 2: 1F0 2F0")
    assert str(Interleaved1F1B(2, 2)).startswith("device 0: 0F0")
    spread = Explicit(["0F0 1F0 1B0 0B0", ""], placement=[[1, 0], []])
    assert str(spread) == "device 0, stages 1 0: 0F0 1F0 1B0 0B0\ndevice 1, no stage:"
    unused = Explicit(["0F0 0B0"], placement=[[0, 1]])
    assert str(unused) == "device 0, stages 0 1: 0F0 0B0"
    for schedule in (spread, unused, Explicit(["0F0 1F0 1B0 0B0", "2F0 2B0"], placement=[[0, 1], [2]])):
        assert Explicit.parse(str(schedule)) == schedule


def test_a_text_that_says_it_for_some_rows_only_is_refused():
    with pytest.raises(ValueError, match="row 1 does not say which stages it holds; others do"):
        Explicit.parse("device 0, stage 0: 0F0 0B0\n1F0 1B0")
    with pytest.raises(ValueError, match="'device' is not an action"):
        Explicit.parse("device 0, stages: 0F0 0B0")


@pytest.mark.parametrize("schedule", [zero_bubble(3, 4), overlapped(3, 4), remat(OneFOneB(2, 3), "always")])
def test_split_backwards_pairs_and_recomputes_read_back_too(schedule):
    assert Explicit.parse(str(schedule)).actions == schedule.actions


# In flight


def test_a_split_backward_frees_at_its_weight_half():
    assert peak_in_flight(Explicit(["0F0 0I0 0F1 0I1 0W0 0W1"])) == (2,)
    assert peak_in_flight(Explicit(["0F0 0I0 0W0 0F1 0I1 0W1"])) == (1,)


def test_recompute_and_update_hold_nothing_more():
    assert peak_in_flight(Explicit(["0F0 0R0 0B0 0F1 0R1 0B1 0U1"])) == (1,)


def test_an_overlapped_pair_holds_both_of_its_microbatches():
    """DualPipe holds PP+1 for this reason: DeepSeek-V3 report, arXiv:2412.19437, table 2."""
    assert peak_in_flight(Explicit(["0F0 (0F1;0B0)OVERLAP_F_B 0B1"])) == (2,)


# Bad input


@pytest.mark.parametrize("make", [*SCHEDULES, Explicit, Schedule])
def test_chunks_are_explained(make):
    with pytest.raises(TypeError, match=rf"{make.__name__} takes no chunks=") as error:
        make(2, chunks=4)
    assert "torchgpipe's chunks are microbatches=" in str(error.value)
    assert "Megatron's model chunks are stages_per_device=" in str(error.value)


def test_more_microbatches_than_one_needs_are_counted():
    assert Explicit(["0F0 0B0"], microbatches=3).microbatches == 3


def test_a_kind_may_be_given_as_its_letter():
    spelled = Explicit([[Action(0, "F", 0), Action(0, "B", 0)]])
    assert peak_in_flight(spelled) == (1,)
    assert [type(action.kind) for action in spelled.actions[0]] == [Kind, Kind]


@over_every_order([(1, 2), (2, 4), (4, 8)])
def test_a_repeated_step_is_the_rows_again_with_later_microbatches(schedule):
    thrice = repeat(schedule, 3)
    assert thrice.microbatches == 3 * schedule.microbatches
    assert thrice.placement == schedule.placement
    assert repeat(schedule, 1).actions == schedule.actions
    for row, once in zip(thrice.actions, schedule.actions, strict=True):
        for step in range(3):
            again = row[step * len(once) : (step + 1) * len(once)]
            by = step * schedule.microbatches
            assert [
                [(part.stage, part.kind, part.microbatch - by) for part in cell.parts] for cell in again
            ] == [list(cell.parts) for cell in once]
    assert not problems(thrice)


@over_every_order([(2, 4), (4, 8)])
def test_a_further_step_takes_no_longer_than_the_step_by_itself(schedule):
    lengths = [simulate(repeat(schedule, steps)).makespan for steps in (1, 2, 3)]
    busiest = max(sum(span.end - span.start for span in row) for row in simulate(schedule).rows)
    assert all(busiest <= later - earlier <= lengths[0] for earlier, later in pairwise(lengths))


def test_steps_close_up_where_no_device_waits_between_its_first_and_last_action():
    assert [simulate(repeat(ZBH2(4, 8), steps)).makespan for steps in (1, 2, 10)] == [27, 51, 243]
    assert [simulate(repeat(OneFOneB(4, 8), steps)).makespan for steps in (1, 2, 10)] == [33, 66, 330]
