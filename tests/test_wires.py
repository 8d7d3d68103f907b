"""A wire that several pairs share, and its anomaly."""

from fractions import Fraction
from itertools import pairwise

import pytest
from cases import every_order, over

import gpipe_sim as gp
from gpipe_sim import Costs, Link
from gpipe_sim.links import simulate_shared

HELD = Link(bandwidth=Fraction(1, 2))


@over(every_order([(1, 3), (3, 2), (4, 8)]))
def test_what_is_ready_first_is_sent_first_and_nothing_waits_for_anything_else(schedule):
    """Which leaves no time open: messages and actions start as soon as what is before them allows."""
    for link in (Link(), Link(3), HELD, Link(1, Fraction(1, 3))):
        for costs in (Costs(), Costs(2, 1, 3, comm=1), Costs(0, 1, 0)):
            timeline = simulate_shared(schedule, link, costs, message_bytes=1)
            sent, ends, free = sorted({*timeline.messages}, key=lambda each: each.start), timeline.ends, 0
            for each in sent:
                assert each.start == max(ends[each.action], free)
                free = each.start + link.busy(1)
                assert each.end == free + link.latency + costs.comm
            if link.busy(1) and costs.forward:  # or several go at one time
                ready = [(ends[each.action], each.source) for each in sent]
                assert ready == sorted(ready)
            arrivals = {(each.action, each.target): each.end for each in sent}
            for device, row in enumerate(timeline.rows):
                free = 0
                for span in row:
                    there = (arrivals.get((n, device), ends[n]) for n in gp.core.needs(span.action, schedule))
                    assert span.start == max([free, *there])
                    free = span.end


def test_on_a_shared_wire_a_faster_stage_can_make_the_step_longer():
    """Stage 1's forward takes 3 instead of 4, and the step 109 instead of 108."""

    def length(forward: int) -> int:
        costs = Costs((2, forward, 1, 3), (1, 1, 1, 1), (1, 2, 4, 1))
        return simulate_shared(gp.GPipe(4, 8), HELD, costs=costs, message_bytes=1).makespan

    assert (length(4), length(3)) == (108, 109)


@over(every_order([(2, 3), (3, 3), (4, 8)]))
def test_the_critical_path_runs_through_messages_between_other_devices(schedule):
    timeline = simulate_shared(schedule, HELD, costs=Costs(2, 1, 3), message_bytes=1)
    path = gp.why.critical_path(timeline)
    assert path[0].start == 0 and path[-1].end == timeline.makespan
    assert all(before.end == after.start for before, after in pairwise(path))


def test_why_a_device_waits_names_the_message_on_the_shared_wire():
    timeline = simulate_shared(gp.GPipe(3, 3), HELD, message_bytes=1)
    assert str(gp.why.why_idle(timeline, 0, 25)) == (
        "device 0 waits from 24 to 26 for 1B1, which device 1 runs from 20 to 22 and which waits until 24 "
        "while what 2B0 made is sent, and arrives at 26"
    )


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: simulate_shared(3, HELD), TypeError, "simulate_shared needs a schedule"),
        (lambda: simulate_shared(gp.GPipe(2, 2), 3), TypeError, "needs links to be a Link"),
        (lambda: simulate_shared(gp.GPipe(2, 2), HELD, 3), TypeError, "simulate_shared needs costs"),
        (
            lambda: simulate_shared(gp.GPipe(2, 2), Link(1e308)),
            ValueError,
            r"GPipe\(.*\) lasts longer than",
        ),
        (lambda: simulate_shared(gp.GPipe(2, 2), Link(), Costs(1e308)), ValueError, "lasts longer than"),
        (
            lambda: simulate_shared(
                gp.GPipe(2, 2), Link(bandwidth=Fraction(1, 10**400)), Costs(1.0), message_bytes=1
            ),
            ValueError,
            "lasts longer than the largest float",  # it was an error of Python's, about ratios
        ),
    ],
)
def test_what_is_no_wire_and_times_without_an_end_are_refused(call, error, says):
    with pytest.raises(error, match=says):
        call()
