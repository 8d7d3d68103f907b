"""The list scheduler: the classics are special cases, it never gets stuck, it says what it cannot do."""

import random
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpipe_sim import (
    ZBH1,
    Costs,
    GPipe,
    OneFOneB,
    bubble_fraction,
    check,
    peak_in_flight,
    simulate,
    span_bubble,
)
from gpipe_sim.core.placement import looped
from gpipe_sim.core.schedule import needs
from gpipe_sim.errors import ScheduleError
from gpipe_sim.families.placements import bidirectional, v_shaped
from gpipe_sim.memory import greedy

GRID = [(1, 3), (2, 1), (2, 5), (3, 2), (4, 3), (4, 8), (5, 16), (8, 15)]
over_the_grid = pytest.mark.parametrize(("devices", "microbatches"), GRID)


def makespan(schedule, costs=None):
    return simulate(schedule, costs).makespan


# The classics


@over_the_grid
def test_forwards_first_is_gpipe(devices, microbatches):
    plan = greedy(devices, microbatches, priority=("F", "B"))
    assert plan.actions == GPipe(devices, microbatches, drain="in_order").actions


@over_the_grid
def test_backwards_first_with_room_for_one_microbatch_per_device_to_go_is_1f1b(devices, microbatches):
    plan = greedy(devices, microbatches, memory_limit=range(devices, 0, -1))
    assert plan.actions == OneFOneB(devices, microbatches).actions
    assert plan == greedy(devices, microbatches, None, "BF", list(range(devices, 0, -1)), Costs())


@over_the_grid
def test_weight_gradients_last_fill_every_bubble_that_zero_bubble_fills(devices, microbatches):
    """With 2K-1 microbatches of room, as ZB-H2: for M >= 2K-1 no device pauses."""
    plan = greedy(devices, microbatches, priority=("I", "F", "W"), memory_limit=2 * devices - 1)
    if microbatches >= 2 * devices - 1:
        assert makespan(plan) == 3 * microbatches + devices - 1
        assert span_bubble(simulate(plan)) == 0


def test_at_4_x_8_room_for_7_microbatches_leaves_no_bubble_and_room_for_4_leaves_5_units():
    by_limit = {n: greedy(4, 8, priority="IFW", memory_limit=n) for n in (4, 5, 7)}
    assert {n: makespan(plan) for n, plan in by_limit.items()} == {4: 29, 5: 27, 7: 27}
    assert {n: peak_in_flight(plan) for n, plan in by_limit.items()} == {n: (n,) * 4 for n in by_limit}
    assert span_bubble(simulate(by_limit[7])) == 0 < span_bubble(simulate(by_limit[5]))


def test_a_v_within_8_stage_activations_takes_51_as_zb_v_does():
    plan = greedy(4, 8, v_shaped(4), priority="IFW", memory_limit=8)
    assert makespan(plan) == 51
    assert max(peak_in_flight(plan)) == 8
    assert plan.placement == ((0, 7), (1, 6), (2, 5), (3, 4))


def test_a_plan_draws_its_own_picture():
    assert str(greedy(2, 3, memory_limit=[2, 1])) == str(OneFOneB(2, 3))
    assert str(greedy(2, 2, v_shaped(2), memory_limit=2)) == dedent("""\
        device 0, stages 0 3: 0F0 3F0 3B0 0F1 0B0 3F1 3B1 0B1
        device 1, stages 1 2: 1F0 2F0 2B0 1B0 1F1 2F1 2B1 1B1""")


# Where no pattern fits

SLOW_LINKS = Costs(comm=1)
ONE_SLOW_STAGE = [Costs(*[[1 + (s == slow) for s in range(4)]] * 3) for slow in range(4)]


def test_one_stage_twice_as_slow_costs_a_plan_less_than_1f1b():
    """Each within a peak of 4. The slow stage alone is busy for 48."""
    fixed = [makespan(OneFOneB(4, 8), costs) for costs in ONE_SLOW_STAGE]
    zero_bubble = [makespan(ZBH1(4, 8), costs) for costs in ONE_SLOW_STAGE]
    plans = [greedy(4, 8, priority="IFW", memory_limit=4, costs=costs) for costs in ONE_SLOW_STAGE]
    planned = [makespan(plan, costs) for plan, costs in zip(plans, ONE_SLOW_STAGE, strict=True)]
    assert (fixed, zero_bubble, planned) == ([51, 53, 55, 57], [48, 49, 50, 51], [48, 49, 50, 51])


def test_one_stage_twice_as_slow_costs_forwards_first_less_than_gpipe():
    fixed = [makespan(GPipe(4, 8), costs) for costs in ONE_SLOW_STAGE]
    plans = [greedy(4, 8, priority="FB", costs=costs) for costs in ONE_SLOW_STAGE]
    planned = [makespan(plan, costs) for plan, costs in zip(plans, ONE_SLOW_STAGE, strict=True)]
    assert (fixed, planned) == ([57, 57, 57, 57], [48, 51, 54, 57])


def test_slow_links_want_more_microbatches_in_flight_or_split_backwards():
    """comm = 1 at 4 x 8: 1F1B 49, ZB-H1 41 and the plan 39, all three within a peak of 4."""
    assert makespan(OneFOneB(4, 8), SLOW_LINKS) == 49
    assert makespan(ZBH1(4, 8), SLOW_LINKS) == 41
    assert makespan(greedy(4, 8, priority="IFW", memory_limit=4, costs=SLOW_LINKS), SLOW_LINKS) == 39
    assert makespan(greedy(4, 8, memory_limit=[4, 3, 2, 1], costs=SLOW_LINKS), SLOW_LINKS) == 49
    assert makespan(greedy(4, 8, memory_limit=[7, 5, 3, 1], costs=SLOW_LINKS), SLOW_LINKS) == 39


def test_no_priority_is_best_everywhere():
    """Never waiting can be wrong: B first under K-k takes 54 where 1F1B, which waits, takes 51."""
    costs = ONE_SLOW_STAGE[0]
    assert makespan(greedy(4, 8, memory_limit=[4, 3, 2, 1], costs=costs), costs) == 54
    assert makespan(OneFOneB(4, 8), costs) == 51


def unequal(seed: int) -> tuple[int, int, Costs]:
    """2 to 6 devices, 1 to 16 microbatches, stages up to three times as slow as others, slow links."""
    rng = random.Random(seed)
    devices, microbatches = rng.randint(2, 6), rng.randint(1, 16)
    times = [rng.randint(2, 6) for _ in range(devices)]
    return devices, microbatches, Costs(times, times, times, comm=rng.randint(0, 3))


@pytest.mark.parametrize("limited", [False, True])
def test_i_before_f_before_w_is_a_tenth_shorter_on_average(limited):
    """Without a limit never longer than 1F1B or GPipe; within the memory of 1F1B hardly ever longer."""
    ratios = []
    for devices, microbatches, costs in map(unequal, range(40)):
        limit = devices if limited else None
        plan = greedy(devices, microbatches, priority="IFW", memory_limit=limit, costs=costs)
        others = [OneFOneB(devices, microbatches), *([] if limited else [GPipe(devices, microbatches)])]
        ratios.append(makespan(plan, costs) / min(makespan(other, costs) for other in others))
    assert sum(ratios) / len(ratios) < 0.9
    assert max(ratios) < 1.05 if limited else max(ratios) <= 1


# What holds for every plan


@st.composite
def plans(draw, limited=True):
    """A plan with all that went into it: placements that loop, turn, or are shuffled."""
    devices, microbatches = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    shuffled = draw(st.permutations(range(2 * devices)))
    placements = looped(devices, devices), looped(devices, 2 * devices), v_shaped(devices)
    placement = draw(st.sampled_from([*placements, list(zip(*[iter(shuffled)] * 2, strict=True))]))
    stages = sum(map(len, placement))
    per_stage = st.lists(st.integers(0, 5), min_size=stages, max_size=stages)
    costs = draw(st.builds(Costs, per_stage, per_stage, per_stage, comm=st.integers(0, 4)))
    room = [len(held) + draw(st.integers(0, 3)) for held in placement] if limited else None
    priority = draw(st.sampled_from(["FB", "BF", "IFW", "WIF", "FIW"]))
    return greedy(devices, microbatches, placement, priority, room, costs), costs, room, priority


@given(plans())
def test_no_plan_deadlocks_or_exceeds_its_limit(drawn):
    plan, _, limits, _ = drawn
    check(plan)
    assert all(peak <= limit for peak, limit in zip(peak_in_flight(plan), limits, strict=True))


@given(plans(limited=False))
def test_without_a_limit_what_starts_is_the_first_by_priority_and_nothing_that_is_ready_waits(drawn):
    """Ties go to the lower microbatch, then to the lower stage."""
    plan, costs, _, priority = drawn
    timeline = simulate(plan, costs)
    came = {(message.action, message.target): message.end for message in timeline.messages}
    for device, row in enumerate(timeline.rows):
        arrival = {}
        for action in (span.action for span in row):
            needed = needs(action, plan)
            arrival[action] = max(
                (came.get((each, device), timeline.ends[each]) for each in needed), default=-1
            )
        for i, span in enumerate(row):
            free = row[i - 1].end if i else 0
            assert span.start == max(free, min(arrival[later.action] for later in row[i:]))
            rivals = [each.action for each in row[i:] if arrival[each.action] < span.start]
            first = min([*rivals, span.action], key=lambda a: (priority.index(a.kind), a.microbatch, a.stage))
            assert first == span.action


# Refusals


def test_where_no_order_exists_it_says_who_is_stuck_with_what_and_what_would_do():
    says = "may hold 1 stage-activations, and has to hold 2 before it can free one: those of"
    with pytest.raises(ScheduleError) as refused:
        greedy(2, 3, v_shaped(2), memory_limit=1)
    assert str(refused.value) == (
        "greedy finds no order within memory_limit, because there is none:\n"
        f"  device 0 {says} 0F0 3F0\n  device 1 {says} 1F0 2F0\n"
        "memory_limit=2 would do"
    )
    assert max(peak_in_flight(greedy(2, 3, v_shaped(2), memory_limit=2))) == 2


def test_only_the_devices_that_are_stuck_are_named_and_only_their_limits_raised():
    with pytest.raises(ScheduleError) as refused:
        greedy(3, 4, v_shaped(3), memory_limit=[5, 0, 2])
    assert str(refused.value).splitlines()[1:] == [
        "  device 1 may hold 0 stage-activations, and has to hold 2 before it can free one: those of 1F0 4F0",
        "memory_limit=[5, 2, 2] would do",
    ]
    assert peak_in_flight(greedy(3, 4, v_shaped(3), memory_limit=[5, 2, 2]))[1] == 2


def test_a_limit_between_two_numbers_of_activations_is_the_lower_one():
    assert greedy(2, 3, memory_limit=[2.5, 1]) == greedy(2, 3, memory_limit=[2, 1])
    with pytest.raises(ScheduleError, match=r"device 0 may hold 1 .*: those of 0F0 5F0\n"):
        greedy(3, 1, [[5, 0], [4, 1], [3, 2]], memory_limit=1.5)


def test_two_copies_of_a_stage_are_refused_with_the_reason():
    reason = "which microbatch takes which copy is a pattern of its own, as in Chimera and DualPipe"
    with pytest.raises(ValueError, match=f"stage 0 is on devices 0 and 1: {reason}"):
        greedy(2, 4, bidirectional(2))
    with pytest.raises(ValueError, match=r"to list a stage once on device 1 \(got \(1, 1\)\)"):
        greedy(2, 4, [[0], [1, 1]])


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"devices": 0}, ValueError, r"greedy needs devices >= 1 \(got 0\)"),
        ({"microbatches": 2.0}, TypeError, r"greedy needs microbatches to be a whole number \(got 2.0\)"),
        ({"placement": [[0, 1]]}, ValueError, r"placement to list 2 devices \(got 1\)"),
        ({"placement": [[0], [2]]}, ValueError, r"stages 0, 1, 2, ... without a gap \(got \[0, 2\]\)"),
        ({"placement": [[0.0], [1.0]]}, TypeError, r"such as \[\[0, 3\], \[1, 2\]\]"),
        ({"placement": 2}, TypeError, r"list the stages of each device, .* \(got 2\)"),
        ({"placement": [[], []]}, ValueError, r"without a gap \(got \[\]\)"),
        ({"priority": ("F",)}, ValueError, r"list F and B, or F, I and W, .* \(got \('F',\)\)"),
        ({"priority": "FBB"}, ValueError, "list F and B, or F, I and W"),
        ({"priority": "fb"}, ValueError, r"the most urgent first \(got 'fb'\)"),
        ({"priority": 7}, ValueError, r"the most urgent first \(got 7\)"),
        ({"costs": Costs([1, 2, 3], 1, 1)}, ValueError, "forward for 3 stages, but the schedule has 2"),
    ],
)
def test_bad_input_is_told_what_would_work(options, error, says):
    with pytest.raises(error, match=says):
        greedy(**{"devices": 2, "microbatches": 2, **options})


def test_limits_may_be_infinite_and_numbers_from_numpy():
    free = greedy(3, 6)
    assert greedy(3, 6, memory_limit=float("inf")) == free
    assert greedy(3, 6, memory_limit=np.array([3, 2, 1])) == greedy(3, 6, memory_limit=[3, 2, 1]) != free


# Speed


def test_planning_asks_for_each_duration_once():
    """No search: 8 x 64 with split backwards is 3 * 8 * 64 actions."""
    asked = []

    class Counted(Costs):
        def duration(self, action, device):
            asked.append(action)
            return super().duration(action, device)

    plan = greedy(8, 64, priority="IFW", memory_limit=32, costs=Counted())
    assert len(asked) == len(set(asked)) == 3 * 8 * 64
    assert bubble_fraction(simulate(plan)) == pytest.approx(7 / (3 * 64 + 7))
