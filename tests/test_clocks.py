"""Two clocks, and a plain one beside them: they give the same times, for every order and any numbers."""

from fractions import Fraction

import numpy as np
import pytest
from cases import BOTH_WAYS, V_SHAPED, every_order, over_every_order, overlapped, zero_bubble
from engine_cases import legal_orders, legal_streams
from hypothesis import given
from hypothesis import strategies as st
from plain_simulator import simulated

import gpipe_sim as gp
from gpipe_sim.core.cost_model import CostModel
from gpipe_sim.machine.machine import Machine

SCHEDULES = [
    *every_order([(1, 1), (1, 3), (3, 2), (4, 3), (4, 8)]),
    *(gp.remat(gp.GPipe(3, 4), mode) for mode in ("always", "except_last")),
    gp.remat(gp.ZBV(2, 4), "always"),
    gp.with_updates(gp.OneFOneB(3, 4)),
    gp.with_updates(gp.Chimera(4, 4)),
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


def by_columns(schedule: gp.Schedule, costs, **links) -> dict:
    return {span.action: (span.start, span.end) for span in gp.simulate(schedule, costs, **links).spans}


def by_machine(schedule: gp.Schedule, costs, **links) -> dict:
    """Told at each step what could start first, or just run."""
    machine = Machine(schedule.program, costs, **links)
    while (entry := machine.earliest()) is not None:
        machine.apply(entry)
    names = [action for row in schedule.actions for action in row]
    return dict(zip(names, zip(machine.starts, machine.ends, strict=True), strict=True))


@given(st.sampled_from(SCHEDULES) | legal_orders() | legal_streams(), st.data())
def test_both_clocks_give_the_times_of_the_plain_one(schedule, data):
    costs = data.draw(costs_of_any_kind(schedule.stages, schedule.devices))
    plain = simulated(schedule, costs)
    assert by_columns(schedule, costs) == plain
    assert by_machine(schedule, costs) == plain


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_they_agree_over_every_family(schedule):
    costs = gp.Costs(2, 3, 1, recompute=2, update=1, comm=1)
    assert by_columns(schedule, costs) == by_machine(schedule, costs) == simulated(schedule, costs)


LINK = st.builds(gp.Link, st.integers(0, 3), st.sampled_from([Fraction(1, 3), Fraction(1, 2), 1, 2, 5]))


@given(st.sampled_from(SCHEDULES) | legal_orders() | legal_streams(), st.booleans(), st.data())
def test_both_clocks_agree_on_links(schedule, overlap, data):
    costs = data.draw(costs_of_any_kind(schedule.stages, schedule.devices))
    devices = range(schedule.devices)
    links = {(a, b): data.draw(LINK) for a in devices for b in devices if a != b}
    found = by_machine(schedule, costs, links=links, overlap=overlap)
    wanted = by_columns(schedule, costs, links=links, overlap=overlap)
    assert found.keys() == wanted.keys()
    for action, times in wanted.items():  # sums of floats depend on their order, those of others do not
        assert found[action] == (
            pytest.approx(times, rel=1e-12, abs=1e-12) if float in map(type, times) else times
        )


def test_a_machine_sends_what_a_profile_says():
    layers, data = gp.mlp([6, 5, 4, 3]), (np.ones((7, 6)), np.zeros(7, int))
    profile = gp.profile(gp.split(layers, stages=2), data, gp.cross_entropy)
    schedule, link = gp.OneFOneB(2, 3), gp.Link(1, 10)
    found = by_machine(schedule, None, links=link, sizes=profile.message_bytes(schedule))
    assert found == by_columns(schedule, None, links=link, profile=profile)


@given(st.sampled_from(SCHEDULES), st.data())
def test_times_are_pythons_own_numbers_and_exact_where_the_costs_are(schedule, data):
    costs = data.draw(costs_of_any_kind(schedule.stages, schedule.devices))
    timeline = gp.simulate(schedule, costs)
    kinds = {type(time) for span in timeline.spans for time in (span.start, span.end)}
    assert kinds <= {int, float, Fraction}
    assert type(timeline.makespan) in kinds
    assert timeline.makespan == max(span.end for span in timeline.spans)


@given(st.sampled_from(SCHEDULES), st.randoms(use_true_random=False))
def test_a_machine_that_takes_steps_back_ends_where_one_ends_that_never_did(schedule, chance):
    links = {"links": gp.Link(1, Fraction(1, 2)), "overlap": chance.random() < 0.5}
    straight, wandering = (Machine(schedule.program, gp.Costs(comm=1), **links) for _ in range(2))
    straight.run()
    while ready := wandering.ready():
        wandering.apply(chance.choice(ready))
        for _ in range(chance.randrange(3) if chance.random() < 0.3 else 0):
            if wandering.done:
                wandering.undo()
    assert (wandering.starts, wandering.ends) == (straight.starts, straight.ends)
    assert wandering.held == straight.held == [0] * schedule.devices
    assert wandering.arrived == straight.arrived and wandering.link_free == straight.link_free


def test_undoing_everything_is_the_beginning():
    machine, fresh = (Machine(gp.DualPipe(4, 8).program, links=gp.Link(1, 1)) for _ in range(2))
    machine.run()
    undone = [machine.undo() for _ in range(len(machine.done))]
    assert sorted(undone) == list(range(len(machine.ends)))
    for name in ("missing", "starts", "ends", "free", "held", "done", "arrived", "received", "link_free"):
        assert getattr(machine, name) == getattr(fresh, name), name
    assert machine.ready() == fresh.ready()


def test_a_machine_says_what_is_ready_what_it_would_cost_and_what_blocks_the_rest():
    schedule = gp.GPipe(2, 2)
    machine, (f0, f1, b1, b0) = Machine(schedule.program, gp.Costs(comm=1)), range(4)
    assert machine.ready() == [f0]
    assert machine.blockers(b1) == [f1, schedule.program.part_of(gp.B(1, 1))]
    assert machine.price(f0) == (0, 1, 1)
    assert machine.apply(f0) == [4, f1]  # 1F0 on the other device, then the next here
    assert machine.price(4).start == 2, "its message arrives at 2"
    with pytest.raises(ValueError, match="entry 0 has been done"):
        machine.apply(f0)
    with pytest.raises(ValueError, match="entry 3 is not ready: it needs"):
        machine.apply(b0)
    with pytest.raises(ValueError, match="entry 5 is not ready"):
        machine.apply(5)


def test_without_an_order_whatever_is_ready_may_come_next():
    free = Machine(gp.GPipe(1, 2).program, ordered=False)
    free.apply(1)
    assert sorted(free.ready()) == [0, 2]
    with pytest.raises(ValueError, match="entry 1 is not the next of device 0: 0 is"):
        Machine(gp.GPipe(1, 2).program).apply(1)


class HalfSpeed(CostModel):
    """One device is half as fast, and messages to it take 2."""

    def duration(self, action, device):
        return gp.Costs().duration(action) * (2 if device == 0 else 1)

    def transfer(self, action, source, target):
        return 2 if target == 0 else 0


@pytest.mark.parametrize("schedule", [gp.OneFOneB(4, 8), gp.DualPipe(2, 4), gp.ZBV(3, 5)], ids=repr)
def test_a_cost_model_of_ones_own_is_asked_for_every_action_and_message(schedule):
    model = HalfSpeed()
    assert by_columns(schedule, model) == by_machine(schedule, model) == simulated(schedule, model)
    assert {m.end - m.start for m in gp.simulate(schedule, model).messages} == {0, 2}


def test_costs_that_a_subclass_overrides_are_its_own():
    class Slow(gp.Costs):
        def duration(self, action, device):
            return 10 * super().duration(action, device)

    assert gp.simulate(gp.OneFOneB(4, 8), Slow()).makespan == 330


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
        gp.simulate(gp.GPipe(2, 2), gp.Costs(10**400, 0.5))


def test_a_subclass_scales_pairs_as_it_scales_everything_else():
    class Slow(gp.Costs):
        def duration(self, action, device):
            return 10 * super().duration(action, device)

    for schedule in (gp.DualPipe(2, 4), gp.OneFOneB(4, 8)):
        assert gp.simulate(schedule, Slow()).makespan == 10 * gp.simulate(schedule).makespan


@over_every_order([(2, 3), (4, 8)])
def test_what_could_start_first_is_named_first_and_of_several_that_of_the_lowest_device(schedule):
    machine, told = Machine(schedule.program), []
    while (entry := machine.earliest()) is not None:
        machine.apply(entry)
        told.append((machine.starts[entry], entry))
    assert told == sorted(told) and len(told) == schedule.program.size


@pytest.mark.parametrize("schedule", [gp.DualPipe(4, 8), gp.DualPipeV(4, 8), gp.OneFOneB(4, 8)], ids=repr)
def test_the_room_that_an_entry_asks_for_is_the_most_that_its_device_holds_meanwhile(schedule):
    machine, most = Machine(schedule.program), [0] * schedule.devices
    while (entry := machine.earliest()) is not None:
        device = machine.home[entry]
        most[device] = max(most[device], machine.price(entry).held)
        machine.apply(entry)
    assert tuple(most) == gp.peak_in_flight(schedule)
    assert machine.held == [0] * schedule.devices


def test_there_is_nothing_to_undo_at_first():
    with pytest.raises(ValueError, match="nothing has run that could be undone"):
        Machine(gp.GPipe(1, 1).program).undo()
