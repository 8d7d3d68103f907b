"""Why a device waits, in sentences that are true of the timeline."""

from fractions import Fraction
from itertools import pairwise

import pytest
from cases import over_every_order, over_every_schedule
from engine_cases import legal_orders, ordered
from hypothesis import example, given
from hypothesis import strategies as st
from measured import measured

from gpipe_sim import Costs, Explicit, GPipe, Link, OneFOneB, draw, repeat, simulate, with_updates
from gpipe_sim.core import B, F, Kind, Span, needs
from gpipe_sim.core.timeline import Message
from gpipe_sim.export.spans import from_spans
from gpipe_sim.families import DualPipeV
from gpipe_sim.why import critical_path, idle_spans, why_idle

HALF = Fraction(1, 2)


def test_at_the_turn_of_1f1b_a_device_waits_for_the_last_one():
    timeline = simulate(OneFOneB(4, 8))
    assert str(why_idle(timeline, 2, 5)) == (
        "device 2 waits from 4 to 6 for 3B0, which device 3 runs from 4 to 6"
    )
    assert str(why_idle(timeline, 1, 5)) == (
        "device 1 waits from 4 to 8 for 2B0, which device 2 runs from 6 to 8; "
        "2B0 itself waits for 3B0, which device 3 runs from 4 to 6"
    )


def test_the_chain_ends_after_two_links():
    said = str(why_idle(simulate(OneFOneB(4, 8)), 0, 4))
    assert said == (
        "device 0 waits from 4 to 10 for 1B0, which device 1 runs from 8 to 10; "
        "1B0 itself waits for 2B0, which device 2 runs from 6 to 8"
    )


def test_what_it_waits_for_came_late_because_its_device_was_busy():
    """Device 1 is slow, and in GPipe its four forwards come first."""
    explanation = why_idle(simulate(GPipe(2, 4), Costs([1, 3], 1, 1)), 0, 4)
    assert str(explanation) == (
        "device 0 waits from 4 to 15 for 1B3, which device 1 runs from 13 to 15; "
        "device 1 is busy with 1F3 until 13"
    )
    assert [str(span.action) for span in explanation.links] == ["1B3", "1F3"]
    assert (explanation.device, explanation.start, explanation.end) == (0, 4, 15)


def test_a_message_says_when_it_arrives():
    timeline = simulate(OneFOneB(2, 2), Costs(comm=Fraction(3, 2)))
    assert str(why_idle(timeline, 1, 1)) == (
        "device 1 waits from 0 to 2.5, before its first action, for 0F0, "
        "which device 0 runs from 0 to 1 and which arrives at 2.5"
    )


def test_waiting_before_the_first_action_runs_down_the_devices():
    assert str(why_idle(simulate(GPipe(4, 2)), 3, HALF)) == (
        "device 3 waits from 0 to 3, before its first action, for 2F0, which device 2 runs from 2 to 3; "
        "2F0 itself waits for 1F0, which device 1 runs from 1 to 2"
    )


def test_an_update_keeps_a_device_busy_if_it_takes_time():
    """A device was said to be busy with an update that had taken no time."""
    two_steps = repeat(with_updates(OneFOneB(3, 3)), 2)
    says = "device 1 waits from {} to {} for 0F3, which device 0 runs from {} to {}; "
    says += "device 0 is busy with {} until {}"
    assert str(why_idle(simulate(two_steps), 1, 14)) == says.format(13, 16, 15, 16, "0B2", 15)
    assert str(why_idle(simulate(two_steps, Costs(update=1)), 1, 15)) == says.format(
        14, 17, 16, 17, "0U2", 16
    )


def test_an_overlapped_pair_is_waited_for_by_the_half_that_is_needed():
    assert str(why_idle(simulate(DualPipeV(2, 4)), 0, 10)) == (
        "device 0 waits from 10 to 11 for 2F2, which device 1 runs from 8 to 11"
    )


def test_a_busy_device_is_said_to_be_busy():
    explanation = why_idle(simulate(GPipe(2, 2)), 0, 1)
    assert str(explanation) == "device 0 is busy with 0F1 from 1 to 2"
    assert [span.start for span in explanation.links] == [1]


def test_a_device_that_is_done_waits_for_nothing():
    timeline = simulate(GPipe(2, 2))
    assert str(why_idle(timeline, 1, 7)) == "device 1 is done at 7; the step ends at 9"
    assert str(why_idle(timeline, 0, 9)) == "device 0 is done at 9; with it the step ends"
    assert why_idle(timeline, 1, 8).links == ()
    spare = Explicit(["0F0 0B0", ""], placement=[[0], [0]])
    assert str(why_idle(simulate(spare), 1, 0)) == "device 1 has no actions"


@over_every_order([(2, 1), (2, 4), (3, 4)])
@pytest.mark.parametrize(
    "costs", [Costs(), Costs(Fraction(3, 2), 2, 1, comm=HALF), Costs(0.1, 0.3, 0.2, comm=0.7)]
)
def test_every_gap_ends_with_what_it_is_said_to_wait_for(schedule, costs):
    """And each further link lets the one before it start, or keeps its device busy until then."""
    timeline = simulate(schedule, costs)
    for device in range(schedule.devices):
        for start, end in idle_spans(timeline, device):
            explanation = why_idle(timeline, device, start)
            assert (explanation.start, explanation.end) == (start, end)
            held = next((span for span in timeline.on(device) if span.start == end), None)
            assert (held is None) == (explanation.links == ()) == (" is done at " in str(explanation))
            for span in explanation.links:
                sent = costs.comm if span.device != held.device else 0
                assert span.end + sent == held.start
                assert span.device == held.device or set(span.action.parts) & set(
                    needs(held.action, schedule)
                )
                held = span


@over_every_order([(3, 4)])
def test_every_span_is_busy_from_its_start_until_before_its_end(schedule):
    timeline = simulate(schedule, Costs(update=1))
    for span in timeline.spans:
        for time in (span.start, span.start + HALF):
            assert why_idle(timeline, span.device, time).links == (span,)


@over_every_schedule([(1, 3), (2, 1), (2, 4), (3, 4)])
def test_the_critical_path_of_a_measured_step_follows_what_ended_last(schedule):
    """From an action that waits for nothing to the last end of all; nothing that a link needs ends later."""
    timeline = measured(schedule, seed=1)
    path = critical_path(timeline)
    assert path[-1].end == timeline.makespan
    assert path[0] == timeline.on(path[0].device)[0] and needs(path[0].action, schedule) == ()
    for cause, span in pairwise(path):
        waited_for = [timeline.ends[need] for need in needs(span.action, schedule)]
        before = [other.end for other in timeline.on(span.device) if other.end <= span.start]
        assert cause.end == max(waited_for + before) < span.start


def test_without_noise_or_lateness_the_measured_path_is_the_simulated_one():
    """In floats, and with nearly nothing between actions: one stage is slow, so there is only one path."""
    costs = Costs([20, 23, 21, 22], [20, 20.5, 29, 19], 21)
    for schedule in (GPipe(4, 8), OneFOneB(4, 8)):
        step = measured(schedule, costs, noise=0, late=(1e-7, 2e-7))
        simulated = critical_path(simulate(schedule, costs))
        assert [span.action for span in critical_path(step)] == [span.action for span in simulated]


def test_a_measured_path_is_framed():
    timeline = measured(OneFOneB(2, 2))
    assert str(draw(timeline, critical_path=True)).count("critical path") == 1


ASSUMED = "; messages were not measured: what another device made counts as there when it ends"


@st.composite
def orders_with_copies(draw) -> Explicit:
    """Stages that several devices hold, and updates that wait for the gradients of every copy."""
    whole = with_updates(draw(legal_orders(least=2, copies=True)))
    actions = {action for row in whole.actions for action in row}
    updates = {action for action in actions if action.kind is Kind.U}
    after = {each: {other for other in actions - updates if other.stage == each.stage} for each in updates}
    return ordered(whole, draw(st.randoms(use_true_random=False)), after)


#: Device 1 holds stage 0 and a copy of stage 1: 1U0 needs the gradient of 1B1, and 0B1 its message.
COPY_AND_NEIGHBOUR = Explicit(["1F1 1B1 1U1", "0F0 0F1 1F0 1B0 1U0 0B0 0B1 0U1"], placement=[[1], [0, 1]])


@example(COPY_AND_NEIGHBOUR, 3, 0, 1)
@given(orders_with_copies(), st.integers(0, 3), st.integers(0, 2), st.integers(0, 2))
def test_every_link_of_a_path_ends_as_the_next_starts_and_brings_what_that_needs(
    schedule, late, busy, update
):
    """An update was held back by what the gradient of another copy had sent to its device."""
    links = Link(bandwidth=Fraction(1, busy)) if busy else None
    costs = Costs(1, 2, 1, update=update, comm=0 if busy else late)
    timeline = simulate(schedule, costs, links=links, message_bytes=1 if busy else None)
    path = critical_path(timeline)
    assert path[0].start == 0 and path[-1].end == timeline.makespan
    for before, after in pairwise(path):
        assert before.end == after.start
        made, wanted = (set(each.action.parts) for each in (before, after))
        if isinstance(after, Message):
            on_its_link = isinstance(before, Message) and before[1:3] == after[1:3]
            assert on_its_link or made >= wanted
        elif isinstance(before, Message):
            assert after.action.kind is not Kind.U and before.target == after.device
            assert made <= set(needs(after.action, schedule))
        else:
            assert before.device == after.device or made & set(needs(after.action, schedule))
    for device, row in enumerate(timeline.rows):
        for start, end in idle_spans(timeline, device):
            says, held = why_idle(timeline, device, start), next((s for s in row if s.start == end), None)
            if held and held.action.kind is Kind.U:
                assert says.links[0].end == end and "arrives" not in str(says).split(";")[0]


LATE = from_spans(
    OneFOneB(2, 2),
    (
        Span(F(0, 0), 0, 0.0, 20.25),
        Span(F(1, 0), 1, 20.5, 41.0),
        Span(F(0, 1), 0, 20.5, 40.0),
        Span(B(1, 0), 1, 41.25, 81.0),
        Span(F(1, 1), 1, 81.5, 101.0),
        Span(B(0, 0), 0, 81.75, 121.0),
        Span(B(1, 1), 1, 101.5, 141.0),
        Span(B(0, 1), 0, 141.5, 181.0),
    ),
)  #: 1F1B in milliseconds, each action a quarter or half of one late


@pytest.mark.parametrize(
    ("device", "time", "said"),
    [
        (0, 20.25, "device 0 waits from 20.25 to 20.5 for nothing that the schedule knows of: "
                   "0F1 could start at 20.25"),
        (1, 41, "device 1 waits from 41 to 41.25 for nothing that the schedule knows of: "
                "1B0 could start at 41"),
        (1, 10, "device 1 waits from 0 to 20.5, before its first action, for 0F0, "
                f"which device 0 runs from 0 to 20.25{ASSUMED}"),
        (0, 81.5, "device 0 waits from 40 to 81.75 for 1B0, which device 1 runs from 41.25 to 81; "
                  f"device 1 is busy with 1F0 until 41{ASSUMED}"),
        (0, 130, "device 0 waits from 121 to 141.5 for 1B1, which device 1 runs from 101.5 to 141"
                   f"{ASSUMED}"),
        (0, 100, "device 0 is busy with 0B0 from 81.75 to 121"),
        (1, 150, "device 1 is done at 141; the step ends at 181"),
    ],
)  # fmt: skip
def test_a_measured_gap_is_explained_by_what_ended_last(device, time, said):
    assert str(why_idle(LATE, device, time)) == said


def test_a_gap_that_the_schedule_does_not_explain_has_no_links():
    explanation = why_idle(LATE, 1, 101.25)
    assert (explanation.start, explanation.end, explanation.links) == (101, 101.5, ())
    copies = simulate(Explicit(["0F0 0B0", "0F1 0B1"], placement=[[0], [0]])).spans
    spans = [span._replace(start=span.start + span.device / 2, end=span.end + 1) for span in copies]
    moved = from_spans(Explicit(["0F0 0B0", "0F1 0B1"], placement=[[0], [0]]), spans)
    assert str(why_idle(moved, 1, 0)) == (
        "device 1 waits from 0 to 0.5, before its first action, for nothing that the schedule knows of: "
        "0F1 could start at 0"
    )


def test_the_path_of_a_measured_step():
    assert [str(span.action) for span in critical_path(LATE)] == ["0F0", "1F0", "1B0", "1F1", "1B1", "0B1"]


@over_every_order([(2, 1), (2, 4), (3, 4)])
def test_every_measured_gap_has_a_reason_or_is_said_to_have_none(schedule):
    timeline = measured(schedule)
    for device in range(schedule.devices):
        for start, end in idle_spans(timeline, device):
            explanation = why_idle(timeline, device, (start + end) / 2)
            assert (explanation.start, explanation.end) == (start, end)
            after = next((span for span in timeline.on(device) if span.start == end), None)
            wanted = needs(after.action, schedule) if after else ()
            arrived = max((timeline.ends[need] for need in wanted), default=0)
            assert ("nothing that the schedule knows of" in str(explanation)) == (
                after is not None and arrived <= start
            )
            assert [span.end for span in explanation.links][:1] == ([arrived] if arrived > start else [])
