"""A wire that several pairs share, and its anomaly."""

from fractions import Fraction
from itertools import pairwise

import pytest
from cases import every_order, over

import gpipe_sim as gp
from gpipe_sim import Costs, Link

HELD = Link(bandwidth=Fraction(1, 2))


@over(every_order([(1, 3), (2, 3), (3, 2), (4, 8)]))
def test_with_a_wire_for_each_pair_the_times_are_those_of_links(schedule):
    for link in (Link(), Link(3), HELD, Link(1, Fraction(1, 3))):
        for costs in (Costs(), Costs(2, 1, 3, comm=1), Costs(0, 1, 0)):
            shared = gp.simulate_shared(schedule, link, lambda a, b: (a, b), costs)
            linked = gp.simulate(schedule, costs, links=link)
            assert shared.spans == linked.spans
            assert sorted(shared.messages) == sorted(linked.messages)


def test_a_wire_carries_one_message_at_a_time():
    timeline = gp.simulate_shared(gp.GPipe(4, 8), HELD)
    busy = sorted((each.start, each.end) for each in timeline.messages)
    assert all(end <= start for (_, end), (start, _) in pairwise(busy))
    assert timeline.makespan > gp.simulate(gp.GPipe(4, 8), links=HELD).makespan


def test_on_a_shared_wire_a_faster_stage_can_make_the_step_longer():
    """Stage 1's forward takes 3 instead of 4, and the step 109 instead of 108."""

    def length(forward: int) -> int:
        costs = Costs((2, forward, 1, 3), (1, 1, 1, 1), (1, 2, 4, 1))
        return gp.simulate_shared(gp.GPipe(4, 8), HELD, costs=costs).makespan

    assert (length(4), length(3)) == (108, 109)


@over(every_order([(2, 3), (3, 3), (4, 8)]))
def test_the_critical_path_runs_through_messages_between_other_devices(schedule):
    timeline = gp.simulate_shared(schedule, HELD, costs=Costs(2, 1, 3))
    path = gp.critical_path(timeline)
    assert path[0].start == 0 and path[-1].end == timeline.makespan
    assert all(before.end == after.start for before, after in pairwise(path))


def test_why_a_device_waits_names_the_message_on_the_shared_wire():
    timeline = gp.simulate_shared(gp.GPipe(3, 3), HELD)
    assert str(gp.why_idle(timeline, 0, 25)) == (
        "device 0 waits from 24 to 26 for 1B1, which device 1 runs from 20 to 22 and which waits until 24 "
        "while what 2B0 made is sent, and arrives at 26"
    )


@pytest.mark.parametrize("arguments", [(3,), (gp.GPipe(2, 2), 3), (gp.GPipe(2, 2), HELD, 3)])
def test_what_is_no_wire_is_refused(arguments):
    with pytest.raises(TypeError, match="needs"):
        gp.simulate_shared(*arguments, *([HELD] if len(arguments) == 1 else []))


@pytest.mark.parametrize(
    ("link", "wire", "costs", "error", "says"),
    [
        (HELD, lambda a, b: [a, b], None, TypeError, r"needs wire to give names, .* \(got \[0, 1\]\)"),
        (Link(1e308), None, None, ValueError, r"GPipe\(.*\) lasts longer than the largest float"),
        (Link(), None, Costs(1e308), ValueError, "lasts longer than the largest float"),
        (Link(bandwidth=Fraction(1, 10**400)), None, Costs(1.0), ValueError, "lasts longer"),
    ],
)
def test_wires_without_a_name_and_times_without_an_end(link, wire, costs, error, says):
    """They were errors of Python's, about hashes and ratios."""
    with pytest.raises(error, match=says):
        gp.simulate_shared(gp.GPipe(2, 2), link, wire, costs)
