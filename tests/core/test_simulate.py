from dataclasses import dataclass
from fractions import Fraction

import pytest
from cases import BOTH_WAYS, UPDATED, V_SHAPED, over_every_order, overlapped, zero_bubble

from gpipe_sim.core.actions import B, F
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.gpipe import GPipe
from gpipe_sim.core.interleaved import Interleaved1F1B
from gpipe_sim.core.one_f_one_b import OneFOneB
from gpipe_sim.core.remat import remat
from gpipe_sim.core.schedule import Schedule, needs
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import Timeline

UNEVEN = Costs(Fraction(3, 2), Fraction(2), Fraction(1, 3), comm=Fraction(1, 4))


def times(timeline: Timeline, device: int) -> str:
    """A device's row with its times: `0F0 0-1  0B0 4-6`."""
    return "  ".join(f"{span.action} {span.start}-{span.end}" for span in timeline.on(device))


def test_one_microbatch_goes_down_and_back():
    timeline = simulate(GPipe(2, 1))
    assert times(timeline, 0) == "0F0 0-1  0B0 4-6"
    assert times(timeline, 1) == "1F0 1-2  1B0 2-4"
    assert timeline.makespan == 6


def test_one_f_one_b_is_timed_by_hand():
    timeline = simulate(OneFOneB(2, 3))
    assert times(timeline, 0) == "0F0 0-1  0F1 1-2  0B0 4-6  0F2 6-7  0B1 7-9  0B2 10-12"
    assert times(timeline, 1) == "1F0 1-2  1B0 2-4  1F1 4-5  1B1 5-7  1F2 7-8  1B2 8-10"


def test_a_message_delays_the_receiver_but_not_the_sender():
    timeline = simulate(GPipe(2, 2), Costs(comm=10))
    assert times(timeline, 0) == "0F0 0-1  0F1 1-2  0B1 25-27  0B0 27-29"
    assert times(timeline, 1) == "1F0 11-12  1F1 12-13  1B1 13-15  1B0 15-17"


@dataclass(frozen=True)
class SlowFirst(Costs):
    """The link from device 0 to device 1 is slow, every other fast."""

    def transfer(self, action, from_device, to_device):
        return 3 if (from_device, to_device) == (0, 1) else 1


def test_links_may_differ_and_messages_stand_in_order_of_arrival():
    messages = simulate(GPipe(3, 4), SlowFirst()).messages
    assert " ".join(f"{m.action}:{m.start}-{m.end}" for m in messages[:8]) == (
        "0F0:1-4 0F1:2-5 0F2:3-6 1F0:5-6 0F3:4-7 1F1:6-7 1F2:7-8 1F3:8-9"
    )


def test_messages_say_what_crossed_when():
    messages = simulate(GPipe(2, 1), Costs(comm=3)).messages
    assert [(str(m.action), m.source, m.target, m.start, m.end) for m in messages] == [
        ("0F0", 0, 1, 1, 4),
        ("1B0", 1, 0, 7, 10),
    ]


def test_neighbouring_stages_on_one_device_send_no_message():
    timeline = simulate(V_SHAPED, Costs(comm=5))
    assert {(m.source, m.target) for m in timeline.messages} == {(0, 1), (1, 0)}
    assert len(timeline.messages) == 2 * 2 * 2  # into stages 1 and 3, and back, for two microbatches
    assert simulate(Explicit(["0F0 1F0 1B0 0B0"]), Costs(comm=5)).messages == ()


def test_a_gradient_crosses_when_its_input_half_ends():
    timeline = simulate(Explicit(["0F0 0I0 0W0", "1F0 1I0 1W0"]), Costs(input_grad=1, weight_grad=7, comm=1))
    assert times(timeline, 0) == "0F0 0-1  0I0 5-6  0W0 6-13"
    assert times(timeline, 1) == "1F0 2-3  1I0 3-4  1W0 4-11"


def test_both_halves_of_an_overlapped_pair_start_and_end_together():
    timeline = simulate(overlapped(2, 3))
    assert times(timeline, 0) == "0F0 0-1  0F1 1-2  (0F2;0B0)OVERLAP_F_B 5-8  0B1 11-13  0B2 13-15"
    assert times(timeline, 1) == "1F0 1-2  (1F1;1B0)OVERLAP_F_B 2-5  (1F2;1B1)OVERLAP_F_B 8-11  1B2 11-13"
    assert timeline.ends[F(1, 1)] == timeline.ends[B(1, 0)] == 5


def test_recompute_starts_before_the_gradient_arrives():
    timeline = simulate(remat(GPipe(2, 1), "always"))
    assert times(timeline, 0) == "0F0 0-1  0R0 1-2  0B0 5-7"
    assert times(timeline, 1) == "1F0 1-2  1R0 2-3  1B0 3-5"


def test_a_stage_may_be_held_twice_and_the_microbatch_fixes_the_copy():
    timeline = simulate(BOTH_WAYS)
    assert times(timeline, 0) == "0F0 0-1  1F1 1-2  1B1 2-4  0B0 4-6"
    assert times(timeline, 1) == "0F1 0-1  1F0 1-2  1B0 2-4  0B1 4-6"


def test_devices_of_unequal_speed_are_costs_per_stage():
    timeline = simulate(GPipe(2, 2), Costs(forward=[1, 5], input_grad=[1, 5], weight_grad=[0, 5]))
    assert times(timeline, 0) == "0F0 0-1  0F1 1-2  0B1 21-22  0B0 31-32"


# What holds for every schedule


@over_every_order([(1, 3), (2, 1), (3, 2), (4, 4), (4, 8)])
def test_each_action_once_in_the_order_of_its_row_spans_in_one_that_runs_a_message_for_each_need(schedule):
    """When everything happens, test_clocks.py compares with a plain simulator."""
    timeline, done, crossing = simulate(schedule, UNEVEN), set(), set()
    for span in simulate(schedule, Costs(0, 0, 0)).spans:  # all at 0, and only the levels say what is first
        assert done.issuperset(needs(span.action, schedule)) and (span.start, span.end) == (0, 0)
        done.update(span.action.parts)
    done.clear()
    assert tuple(tuple(span.action for span in row) for row in timeline.rows) == schedule.actions
    assert all(span.device == device for device, row in enumerate(timeline.rows) for span in row)
    assert timeline.makespan == max(timeline.ends.values())
    for span in timeline.spans:
        needed = needs(span.action, schedule)
        assert done.issuperset(needed)
        done.update(span.action.parts)
        crossing |= {(need, span.device) for need in needed if schedule.device_of(need) != span.device}
    messages = timeline.messages
    assert {(m.action, m.target) for m in messages} == crossing and len(messages) == len(crossing)
    assert [m.end for m in messages] == sorted(m.end for m in messages)
    assert all(m.end - m.start == UNEVEN.comm for m in messages)


@over_every_order([(1, 3), (4, 4)])
def test_whole_costs_give_whole_times_and_fractions_give_fractions(schedule):
    assert {type(span.end) for span in simulate(schedule).spans} == {int}
    exact = simulate(schedule, Costs(Fraction(1), Fraction(1), Fraction(1)))
    assert {type(span.end) for span in exact.spans} == {Fraction}
    assert [tuple(span) for span in exact.spans] == [tuple(span) for span in simulate(schedule).spans]


def test_fractions_that_floats_cannot_add_stay_exact():
    tenth = Fraction(1, 10)
    assert simulate(GPipe(4, 8), Costs(tenth, tenth, tenth)).makespan == Fraction(33, 10)
    assert simulate(GPipe(4, 8), Costs(0.1, 0.1, 0.1)).makespan != 3.3


@pytest.mark.parametrize(
    "schedule",
    [
        zero_bubble(3, 4),
        overlapped(3, 4),
        *UPDATED,
        remat(Interleaved1F1B(2, 4), "except_last"),
    ],
    ids=repr,
)
def test_simulating_changes_nothing_and_says_the_same_again(schedule: Schedule):
    before = str(schedule)
    assert simulate(schedule, UNEVEN).spans == simulate(schedule, UNEVEN).spans
    assert str(schedule) == before


def test_a_timeline_introduces_itself():
    assert repr(simulate(GPipe(4, 8))) == ("<Timeline of GPipe(devices=4, microbatches=8): makespan 33>")
    halves = Costs(Fraction(1, 2), Fraction(1, 2), Fraction(1, 2))
    assert repr(simulate(GPipe(4, 8), halves)).endswith("makespan 16.5>")
    assert repr(simulate(GPipe(4, 8), Costs(0.1, 0.1, 0.1))).endswith("makespan 3.3>")


def test_a_timeline_stays_as_it_was_measured():
    timeline = simulate(GPipe(2, 2))
    with pytest.raises(AttributeError):
        timeline.took_turns = True
    assert not timeline.took_turns
    assert timeline in {timeline} and timeline != simulate(GPipe(2, 2)), "it is itself, and can be a key"
