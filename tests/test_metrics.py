from fractions import Fraction
from itertools import pairwise

import pytest
from cases import over_every_order, overlapped, zero_bubble

from gpipe_sim import (
    Costs,
    Explicit,
    GPipe,
    OneFOneB,
    bubble_fraction,
    bubble_overhead,
    peak_in_flight,
    remat,
    simulate,
    span_bubble,
)
from gpipe_sim.core import Span, busy_time, idle_time, needs, useful_time
from gpipe_sim.core.timeline import Message
from gpipe_sim.export.spans import from_spans
from gpipe_sim.why import critical_path, idle_spans, in_flight, phases, speedup, utilization

EXACT = Costs(Fraction(1), Fraction(1), Fraction(1))
WITH_COMM = Costs(Fraction(3, 2), Fraction(2), Fraction(1, 3), comm=Fraction(1, 4))
SOME = [(1, 3), (2, 1), (3, 2), (4, 4), (4, 8)]


# Three things called a bubble


def test_measured_spans_that_overlap_are_busy_once():
    """A GPU's streams overlap. Their bubble was once -75%."""
    schedule = Explicit(["0F0 0F1 0B0 0B1"])
    times = (0, 4), (1, 3), (2, 6), (8, 10)  # the second within the first, the third half behind it
    spans = [Span(action, 0, *time) for action, time in zip(schedule.actions[0], times, strict=True)]
    timeline = from_spans(schedule, spans)
    assert (busy_time(timeline), idle_time(timeline), bubble_fraction(timeline)) == (8, 2, 0.2)


def test_the_fraction_of_1f1b_at_4_x_8_is_3_11_and_the_overhead_3_8():
    """The span bubble equals the fraction, because device 0 works from 0 to the end."""
    timeline = simulate(OneFOneB(4, 8), EXACT)
    assert bubble_fraction(timeline) == Fraction(3, 11)
    assert bubble_overhead(timeline) == Fraction(3, 8)
    assert span_bubble(timeline) == Fraction(3, 11)


def test_the_span_bubble_leaves_out_waiting_before_the_first_and_after_the_last_action():
    """Of 12 the devices span 5 and 11 and work 3 and 11: idle 10 of 24, but 7 of 11 is useful."""
    timeline = simulate(Explicit(["0F0 0I0 0W0", "1F0 1I0 1W0"]), Costs(1, 1, [Fraction(1), Fraction(9)]))
    assert [(row[0].start, row[-1].end) for row in timeline.rows] == [(0, 5), (1, 12)]
    assert bubble_fraction(timeline) == Fraction(10, 24)
    assert span_bubble(timeline) == Fraction(4, 11)


def test_recomputing_is_busy_but_not_useful():
    timeline = simulate(remat(GPipe(4, 8), "always"), EXACT)
    assert timeline.makespan == 41
    assert (busy_time(timeline), useful_time(timeline)) == (4 * 32, 4 * 24)
    assert idle_time(timeline) == 4 * 9
    assert bubble_fraction(timeline) == Fraction(9, 41)
    assert utilization(timeline) == Fraction(32, 41)
    assert bubble_overhead(timeline) == Fraction(9, 24)
    assert span_bubble(timeline) == 1 - Fraction(24, 41)
    assert speedup(timeline) == Fraction(4 * 24, 41)


@over_every_order(SOME)
def test_busy_and_idle_time_fill_every_device(schedule):
    for costs in (EXACT, WITH_COMM):
        timeline = simulate(schedule, costs)
        assert busy_time(timeline) + idle_time(timeline) == schedule.devices * timeline.makespan
        assert bubble_fraction(timeline) + utilization(timeline) == 1
        overhead, fraction = bubble_overhead(timeline), bubble_fraction(timeline)
        assert fraction == overhead / (1 + overhead)
        assert speedup(timeline) == schedule.devices * utilization(timeline)
        assert span_bubble(timeline) <= fraction
        gaps = [gap for device in range(schedule.devices) for gap in idle_spans(timeline, device)]
        assert sum(end - start for start, end in gaps) == idle_time(timeline)
        assert all(start < end for start, end in gaps)


@over_every_order([(1, 3), (4, 4)])
def test_fractions_give_fractions_and_whole_numbers_give_floats(schedule):
    for costs, kind in ((EXACT, Fraction), (Costs(), float)):
        timeline = simulate(schedule, costs)
        for metric in (bubble_fraction, bubble_overhead, span_bubble, utilization, speedup):
            assert type(metric(timeline)) is kind, metric


def test_everything_free_wastes_nothing():
    timeline = simulate(GPipe(2, 2), Costs(0, 0, 0))
    assert [m(timeline) for m in (bubble_fraction, span_bubble, bubble_overhead, speedup)] == [0] * 4


# Idle spans


def test_idle_spans_are_the_white_gaps():
    timeline = simulate(OneFOneB(2, 3))
    assert idle_spans(timeline, 0) == [(2, 4), (9, 10)]
    assert idle_spans(timeline, 1) == [(0, 1), (10, 12)]
    assert idle_spans(simulate(Explicit(["0F0 0B0", ""], placement=[[0], []])), 1) == [(0, 3)]
    assert idle_spans(simulate(GPipe(1, 4)), 0) == []


# Critical path


def test_the_critical_path_of_one_microbatch_is_everything():
    path = critical_path(simulate(GPipe(3, 1)))
    assert [str(span.action) for span in path] == ["0F0", "1F0", "2F0", "2B0", "1B0", "0B0"]


def test_the_critical_path_of_1f1b_runs_down_along_the_last_device_and_back():
    path = critical_path(simulate(OneFOneB(2, 3)))
    assert " ".join(str(span.action) for span in path) == "0F0 1F0 1B0 1F1 1B1 1F2 1B2 0B2"


@pytest.mark.parametrize(
    "costs", [EXACT, WITH_COMM, Costs(0.1, 0.3, 0.2, comm=0.7)], ids=["whole", "comm", "float"]
)
@over_every_order(SOME)
def test_the_critical_path_adds_up_to_the_makespan(schedule, costs):
    timeline = simulate(schedule, costs)
    path = critical_path(timeline)
    assert path[0].start == 0
    assert path[-1].end == timeline.makespan
    for before, after in pairwise(path):
        assert before.end == after.start
        if isinstance(after, Message):
            assert after.action in before.action.parts and after.end == after.start + costs.comm
        elif isinstance(before, Message) or before.device != after.device:
            assert set(before.action.parts) & set(needs(after.action, schedule))
    assert sum(each.end - each.start for each in path) == pytest.approx(float(timeline.makespan))


def test_the_critical_path_stays_on_a_slow_device():
    def path(*forward):
        timeline = simulate(GPipe(2, 3), Costs(forward, forward, 0))
        return " ".join(str(span.action) for span in critical_path(timeline))

    assert path(1, 5) == "0F0 1F0 1F1 1F2 1B2 1B1 1B0 0B0"
    assert path(5, 1) == "0F0 0F1 0F2 1F2 1B2 0B2 0B1 0B0"


# Phases


def test_phases_are_warm_up_until_the_first_backward_and_drain_after_the_last_forward():
    timeline = simulate(OneFOneB(4, 8))
    assert [phases(timeline, device) for device in range(4)] == [(10, 22), (8, 23), (6, 24), (4, 25)]


def test_gpipe_waits_between_its_last_forward_and_its_first_backward():
    timeline = simulate(GPipe(4, 8))
    assert [phases(timeline, device) for device in range(4)] == [(8, 17), (9, 15), (10, 13), (11, 11)]


def test_phases_of_split_and_overlapped_backwards():
    assert phases(simulate(zero_bubble(2, 3)), 0) == (3, 6)
    assert phases(simulate(overlapped(2, 3)), 0) == (5, 8)


def test_a_device_without_work_has_no_phases():
    timeline = simulate(Explicit(["0F0 0B0", ""], placement=[[0], []]))
    with pytest.raises(ValueError, match="device 1 has no phases: it runs no forward or no backward"):
        phases(timeline, 1)


# In flight


def test_in_flight_steps_up_with_forwards_and_down_with_backwards():
    assert in_flight(simulate(OneFOneB(2, 3)), 0) == [(0, 0), (1, 1), (2, 2), (6, 1), (7, 2), (9, 1), (12, 0)]
    assert in_flight(simulate(Explicit(["0F0 0I0 0W0"])), 0) == [(0, 0), (1, 1), (2, 1), (3, 0)]
    paired = simulate(Explicit(["0F0 (0F1;0B0)OVERLAP_F_B 0B1"]))
    assert in_flight(paired, 0) == [(0, 0), (1, 1), (1, 2), (4, 1), (6, 0)]


@over_every_order(SOME)
def test_in_flight_peaks_where_the_schedule_says_and_ends_empty(schedule):
    timeline = simulate(schedule)
    for device, peak in enumerate(peak_in_flight(schedule)):
        steps = in_flight(timeline, device)
        assert max(count for _, count in steps) == peak
        assert (steps[0], steps[-1][1]) == ((0, 0), 0)
        assert all(count >= 0 for _, count in steps)
