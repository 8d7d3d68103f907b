"""Two clocks, and a plain one beside them: they give the same times, for every order and any numbers."""

from fractions import Fraction

import pytest
from cases import BOTH_WAYS, V_SHAPED, every_order, overlapped, zero_bubble
from engine_cases import legal_orders, legal_streams
from hypothesis import given
from hypothesis import strategies as st
from plain_links import linked
from plain_simulator import simulated

import gpipe_sim as gp
from gpipe_sim.core import Schedule
from gpipe_sim.core.cost_model import CostModel
from gpipe_sim.families import DualPipe
from gpipe_sim.machine.machine import Machine

SCHEDULES = [
    *every_order([(1, 1), (1, 3), (3, 2), (4, 3), (4, 8)]),
    *(gp.remat(gp.GPipe(3, 4), mode) for mode in ("always", "except_last")),
    gp.remat(gp.ZBV(2, 4), "always"),
    gp.with_updates(gp.OneFOneB(3, 4)),
    gp.with_updates(gp.families.Chimera(4, 4)),
    gp.with_updates(gp.replicate(gp.ZBH1(2, 2), 3)),
    zero_bubble(3, 4),
    overlapped(3, 4),
    V_SHAPED,
    BOTH_WAYS,
]
NUMBERS = {
    "whole": st.integers(0, 9),
    "huge": st.integers(10**25, 10**26),
    "around 64 bits": st.integers(2**61, 2**63),
    "fractions": st.fractions(min_value=0, max_value=9, max_denominator=6),
    "coprime": st.sampled_from([Fraction(1, p) for p in (10**9 + 7, 998244353, 2**61 - 1, 10**9 + 9)]),
    "floats": st.floats(0, 9),
    "mixed": st.integers(0, 2**60) | st.floats(0, 9) | st.fractions(0, 9, max_denominator=6),
}


@st.composite
def costs_of_any_kind(draw, stages: int, devices: int) -> gp.Costs:
    """One number or one per stage or device, all of one kind of number but for the speeds."""
    number = NUMBERS[draw(st.sampled_from(list(NUMBERS)))]
    cost = number | st.lists(number, min_size=stages, max_size=stages)
    options = {name: draw(cost) for name in ("forward", "input_grad", "weight_grad", "recompute", "update")}
    speed = st.sampled_from([1, Fraction(1, 2), 2, Fraction(3)])
    options["speed"] = draw(speed | st.lists(speed, min_size=devices, max_size=devices))
    options["overhead"] = draw(number | st.lists(number, min_size=devices, max_size=devices))
    return gp.Costs(**options, comm=draw(number), overlap=draw(st.none() | cost))


def by_columns(schedule: Schedule, costs, **links) -> dict:
    return {span.action: (span.start, span.end) for span in gp.simulate(schedule, costs, **links).spans}


def by_machine(schedule: Schedule, costs) -> dict:
    """Told at each step what could start first: of several that of the lowest device."""
    machine, told = Machine(schedule.program, costs), []
    while (entry := machine.earliest()) is not None:
        machine.apply(entry)
        told.append((machine.starts[entry], entry))
    assert len(told) == schedule.program.size and machine.held == [0] * schedule.devices
    lengths = zip(machine.starts, machine.ends, strict=True)
    if all(start < end for start, end in lengths):  # an action that takes no time, or less than a float so
        assert told == sorted(told)  # late can tell, may make one ready on a lower device
    names = [action for row in schedule.actions for action in row]
    return dict(zip(names, zip(machine.starts, machine.ends, strict=True), strict=True))


@given(st.sampled_from(SCHEDULES) | legal_orders() | legal_streams(), st.data())
def test_both_clocks_give_the_times_of_the_plain_one_in_pythons_own_numbers(schedule, data):
    costs = data.draw(costs_of_any_kind(schedule.stages, schedule.devices))
    plain = simulated(schedule, costs)
    assert by_columns(schedule, costs) == plain
    assert by_machine(schedule, costs) == plain
    timeline = gp.simulate(schedule, costs)
    kinds = {type(time) for span in timeline.spans for time in (span.start, span.end)}
    assert kinds <= {int, float, Fraction} and type(timeline.makespan) in kinds
    assert timeline.makespan == max(span.end for span in timeline.spans)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_they_agree_over_every_family(schedule):
    costs = gp.Costs(2, 3, 1, recompute=2, update=1, comm=1)
    assert by_columns(schedule, costs) == by_machine(schedule, costs) == simulated(schedule, costs)


LINK = st.builds(gp.Link, st.integers(0, 3), st.sampled_from([Fraction(1, 3), Fraction(1, 2), 1, 2, 5]))


@given(st.sampled_from(SCHEDULES) | legal_orders() | legal_streams(), st.booleans(), st.data())
def test_links_give_the_times_of_a_plain_clock_for_each(schedule, overlap, data):
    costs = data.draw(costs_of_any_kind(schedule.stages, schedule.devices))
    devices = range(schedule.devices)
    links = {(a, b): data.draw(LINK) for a in devices for b in devices if a != b}
    found = by_columns(schedule, costs, links=links, overlap=overlap, message_bytes=1)
    wanted, _ = linked(schedule, costs, lambda a, b: links[a, b], overlap=overlap)
    assert found.keys() == wanted.keys()
    for action, times in wanted.items():  # sums of floats depend on their order, those of others do not
        assert found[action] == (
            pytest.approx(times, rel=1e-12, abs=1e-12) if float in map(type, times) else times
        )


def test_a_machine_says_what_is_ready_and_when_it_could_start():
    schedule = gp.GPipe(2, 2)
    machine, (f0, f1, _, b0) = Machine(schedule.program, gp.Costs(comm=1)), range(4)
    assert machine.ready == {f0} and machine.start(f0) == 0
    assert machine.apply(f0) == [f1, 4]  # the next here, and 1F0 on the other device
    assert machine.start(4) == 2, "its message arrives at 2"
    with pytest.raises(KeyError):
        machine.apply(f0)
    for entry in (b0, 5):
        with pytest.raises(KeyError):
            machine.apply(entry)


def test_without_an_order_whatever_is_ready_may_come_next_and_not_before_it_is_told_to():
    free = Machine(gp.GPipe(1, 2).program, ordered=False)
    free.apply(1, at=5)
    assert free.ready == {0, 2} and (free.starts[1], free.free) == (5, [6])
    with pytest.raises(KeyError):
        Machine(gp.GPipe(1, 2).program).apply(1)


class HalfSpeed(CostModel):
    """One device is half as fast, and messages to it take 2."""

    def duration(self, action, device):
        return gp.Costs().duration(action) * (2 if device == 0 else 1)

    def transfer(self, action, source, target):
        return 2 if target == 0 else 0


@pytest.mark.parametrize("schedule", [gp.OneFOneB(4, 8), DualPipe(2, 4), gp.ZBV(3, 5)], ids=repr)
def test_a_cost_model_of_ones_own_is_asked_for_every_action_and_message(schedule):
    model = HalfSpeed()
    assert by_columns(schedule, model) == by_machine(schedule, model) == simulated(schedule, model)
    assert {m.end - m.start for m in gp.simulate(schedule, model).messages} == {0, 2}


def test_what_a_subclass_overrides_is_its_own_of_pairs_too():
    class Slow(gp.Costs):
        def duration(self, action, device):
            return 10 * super().duration(action, device)

    for schedule in (DualPipe(2, 4), gp.OneFOneB(4, 8)):
        assert gp.simulate(schedule, Slow()).makespan == 10 * gp.simulate(schedule).makespan


@pytest.mark.parametrize("time", [-1, float("nan"), float("inf"), "1", None, True])
def test_a_cost_model_that_gives_no_time_is_refused_by_the_action(time):
    class Odd(CostModel):
        def duration(self, action, device):
            return time

    with pytest.raises((ValueError, TypeError), match=r"^Odd needs duration of 0F0 to be "):
        gp.simulate(gp.GPipe(2, 2), Odd())


@pytest.mark.parametrize("huge", [2**70, 1e300, 10**400, Fraction(1, 10**400)])
def test_a_price_that_nothing_pays_may_be_anything(huge):
    assert gp.simulate(gp.GPipe(1, 4), gp.Costs(comm=huge)).makespan == 12
    assert gp.simulate(gp.GPipe(1, 4), gp.Costs(Fraction(1, 3), comm=huge)).makespan == Fraction(28, 3)
    assert gp.simulate(gp.GPipe(1, 4), gp.Costs(0.5, comm=huge)).makespan == 10
    again = gp.Explicit(["0F0 0R0 0B0", "1F0 1B0"])
    assert gp.simulate(again, gp.Costs(recompute=[1, huge])).makespan == 6


def test_fractions_without_a_handy_common_denominator_stay_exact_and_quick():
    class Odd(CostModel):
        def duration(self, action, device):
            return Fraction(1, 10**9 + 2 * action.microbatch + action.stage)

    schedule = gp.OneFOneB(4, 60)
    assert by_columns(schedule, Odd()) == simulated(schedule, Odd())


def test_a_whole_number_too_large_for_a_float_beside_it_is_refused_in_words():
    with pytest.raises(ValueError, match="lasts longer than the largest float; whole numbers"):
        gp.simulate(gp.GPipe(2, 2), gp.Costs(10**400, 0.5, 1))
