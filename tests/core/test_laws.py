"""What no choice of costs can break. Fixed orders on unshared links only: there, faster is never slower."""

from collections import Counter
from fractions import Fraction
from itertools import product

from cases import (
    BOTH_WAYS,
    V_SHAPED,
    every_order,
    over,
    over_every_order,
    overlapped,
    parts,
    splits,
    zero_bubble,
)
from hypothesis import given
from hypothesis import strategies as st

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.bubbles import busy_time, useful_time
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.gpipe import GPipe
from gpipe_sim.core.naive import Naive
from gpipe_sim.core.one_f_one_b import OneFOneB
from gpipe_sim.core.remat import remat
from gpipe_sim.core.schedule import needs
from gpipe_sim.core.simulate import simulate

FAMILIES = list(every_order([(1, 3), (2, 3), (3, 2), (4, 8)]))
WHOLE = [schedule for schedule in FAMILIES if not splits(schedule)]  # backwards that are not split
SCHEDULES = [
    *FAMILIES,
    remat(OneFOneB(3, 4), "except_last"),
    zero_bubble(3, 4),
    overlapped(3, 4),
    V_SHAPED,
    BOTH_WAYS,
]

schedules = st.sampled_from(SCHEDULES)
#: Whole numbers first, to which a failure shrinks. A list is drawn from in less time than ``st.fractions``.
TIMES = sorted(
    {Fraction(n, d) for d in range(1, 7) for n in range(9 * d + 1)}, key=lambda each: (each.denominator, each)
)
times, some_times = st.sampled_from(TIMES), st.sampled_from(TIMES[1:])


@st.composite
def schedules_and_costs(draw):
    """A schedule, and costs for each of its stages."""
    schedule = draw(schedules)
    per_stage = st.lists(times, min_size=schedule.stages, max_size=schedule.stages)
    return schedule, draw(st.builds(Costs, per_stage, per_stage, per_stage, per_stage, comm=times))


def longest_chain(schedule, costs) -> Fraction:
    """The longest chain of needed actions and messages, were there a device for every action."""
    ends = {}
    for span in simulate(schedule).spans:
        arrivals = [
            ends[need] + costs.transfer(need, schedule.device_of(need), span.device)
            for need in needs(span.action, schedule)
        ]
        end = max(arrivals, default=0) + costs.duration(span.action, span.device)
        ends |= dict.fromkeys(span.action.parts, end)
    return max(ends.values())


@over_every_order()
def test_every_stage_and_microbatch_runs_f_once_and_b_once_or_its_two_halves(schedule):
    runs = Counter((part.stage, part.microbatch, part.kind) for part in parts(schedule))
    assert set(runs.values()) == {1}
    for stage, m in product(range(schedule.stages), range(schedule.microbatches)):
        kinds = {kind for kind in Kind if (stage, m, kind) in runs and kind is not Kind.U}
        assert kinds in ({Kind.F, Kind.B}, {Kind.F, Kind.I, Kind.W})


@given(schedules_and_costs())
def test_every_order_keeps_its_devices_busy_for_as_long_as_the_work_takes(drawn):
    """Each stage's F, I and W for every microbatch, however they are ordered, split or paired."""
    schedule, costs = drawn
    once = sum(map(sum, (costs.forward, costs.input_grad, costs.weight_grad)))
    again = sum(costs.recompute[part.stage] for part in parts(schedule) if part.kind is Kind.R)
    timeline = simulate(schedule, costs)
    assert busy_time(timeline) == schedule.microbatches * once + again
    assert useful_time(timeline) == schedule.microbatches * once


@given(schedules_and_costs())
def test_no_step_is_shorter_than_its_longest_chain_or_its_busiest_device(drawn):
    schedule, costs = drawn
    timeline = simulate(schedule, costs)
    busiest = max(sum(span.end - span.start for span in row) for row in timeline.rows)
    assert timeline.makespan >= longest_chain(schedule, costs)
    assert timeline.makespan >= busiest
    assert timeline.makespan <= busy_time(timeline) + sum(m.end - m.start for m in timeline.messages)


@given(schedules_and_costs(), some_times)
def test_measuring_in_another_unit_scales_every_time(drawn, unit):
    schedule, costs = drawn
    scaled = Costs(
        *(
            [unit * t for t in cost]
            for cost in (costs.forward, costs.input_grad, costs.weight_grad, costs.recompute)
        ),
        comm=unit * costs.comm,
    )
    for span, larger in zip(simulate(schedule, costs).spans, simulate(schedule, scaled).spans, strict=True):
        assert (larger.start, larger.end) == (unit * span.start, unit * span.end)


@given(schedules_and_costs(), st.data(), some_times)
def test_making_one_thing_slower_ends_nothing_sooner(drawn, data, more):
    schedule, costs = drawn
    name = data.draw(st.sampled_from(["forward", "input_grad", "weight_grad", "recompute", "comm"]))
    changed = {f: getattr(costs, f) for f in ("forward", "input_grad", "weight_grad", "recompute", "comm")}
    if name == "comm":
        changed["comm"] += more
    else:
        at = data.draw(st.integers(0, schedule.stages - 1))
        changed[name] = [t + more * (stage == at) for stage, t in enumerate(changed[name])]
    before, after = simulate(schedule, costs).ends, simulate(schedule, Costs(**changed)).ends
    assert all(after[action] >= end for action, end in before.items())


@given(st.integers(1, 6), st.integers(1, 9), times, times, times)
def test_gpipe_and_1f1b_take_equally_long_for_equal_stages_without_messages(devices, microbatches, f, i, w):
    costs = Costs(f, i, w)
    expected = (microbatches + devices - 1) * (f + i + w)
    for schedule in (
        OneFOneB(devices, microbatches),
        *(GPipe(devices, microbatches, d) for d in ("reversed", "in_order")),
    ):
        assert simulate(schedule, costs).makespan == expected
    assert simulate(Naive(devices, microbatches), costs).makespan == microbatches * devices * (f + i + w)


def test_with_messages_1f1b_is_slower_than_gpipe():
    """Its steady state waits for every message there and back; GPipe only at the turn."""
    costs = Costs(comm=1)
    assert simulate(GPipe(4, 8), costs).makespan == 33 + 2 * 3
    assert simulate(OneFOneB(4, 8), costs).makespan > simulate(GPipe(4, 8), costs).makespan


@given(st.sampled_from(WHOLE), times)
def test_a_whole_backward_takes_as_long_however_its_halves_share_the_time(schedule, share):
    assert simulate(schedule, Costs(1, share, 9 - share)).spans == simulate(schedule, Costs(1, 9, 0)).spans


@over(FAMILIES)
def test_recomputing_never_ends_sooner_and_never_later_than_folded_into_the_backward(schedule):
    """Folded into the input gradient, which it stands before; into W it would come later than it does."""
    plain, early = simulate(schedule).makespan, simulate(remat(schedule, "always")).makespan
    folded = simulate(schedule, Costs(1, 2, 1)).makespan
    assert plain < early <= folded
