"""What would help: every offer is a schedule and costs that simulate to what it claims."""

import random
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
from by_pair import ByPair
from measured import measured

import gpipe_sim as gp
from gpipe_sim.core.actions import Kind
from gpipe_sim.planning.choices import Choice, WhatIf
from gpipe_sim.planning.layers_known import read_layers, work_of

SLOW = gp.Costs.from_forward([4, 4, 8, 4])  #: stage 2 of four is twice as slow
LAYERS = [4, 4, 4, 4]
ONE = gp.OneFOneB(4, 8)
HEADS = "", "time", "gain", "in flight", "code", "sure", "if"


def named(found: WhatIf, start: str) -> Choice:
    [choice] = [each for each in found if each.name.startswith(start)]
    return choice


def names(found: WhatIf) -> list[str]:
    return [choice.name for choice in found]


@pytest.mark.parametrize(("seed", "family"), enumerate(each for each in gp.SCHEDULES if each is not gp.Naive))
def test_every_offer_takes_what_simulating_it_takes_and_less_than_the_run(seed, family):
    schedule, draw = family(4, 8), random.Random(seed)
    cost = [[draw.randint(1, 9) for _ in range(schedule.stages)] for _ in range(3)]
    costs = gp.Costs(*cost, comm=draw.randint(0, 3), overhead=draw.randint(0, 1))
    layers = [draw.randint(1, 4) for _ in range(schedule.stages)]
    found = gp.what_if(costs, schedule, layers=layers)
    run = gp.simulate(schedule, costs).makespan
    assert found.now.makespan == run
    assert [each.makespan for each in found] == sorted(each.makespan for each in found)
    for choice in found:
        assert gp.simulate(choice.schedule, choice.costs).makespan == choice.makespan < run
        assert choice.gain == pytest.approx(1 - float(choice.makespan) / run, abs=1e-12)
        if choice.schedule.microbatches == 8 and not choice.name.startswith("head"):
            work = sum(work_of(choice.costs, choice.schedule.stages))
            assert work == sum(map(sum, cost)), "the same layers, wherever they are"
        if choice.balance:
            assert sum(choice.balance) == sum(layers) and len(choice.balance) == choice.schedule.stages


def test_for_a_slow_stage_the_first_choice_is_the_best_cut_and_gains_what_running_it_gains():
    run = gp.simulate(ONE, SLOW)
    found = gp.what_if(run, layers=LAYERS, schedules=[])
    each = gp.Costs.from_forward([1] * 8 + [2] * 4 + [1] * 4)  # what the layers are
    all_cuts = [[b - a for a, b in pairwise((0, *ends, 16))] for ends in combinations(range(1, 16), 3)]
    best = min(gp.simulate(ONE, gp.balance.merged(each, cut)).makespan for cut in all_cuts)
    assert found[0].name == "cut 6 4 2 4" and found[0].makespan == best == 174
    again = gp.simulate(ONE, gp.balance.merged(each, found[0].balance)).makespan
    assert found[0].gain == 1 - again / run.makespan == 1 - 174 / 220
    assert not found[0].code and found[0].assumes == ("layers of one stage cost the same",)
    both = gp.what_if(run, layers=LAYERS)
    assert both[0].balance and both[0].makespan == 133, "with another schedule it gains more"


def test_the_table_of_a_slow_stage_is_that_of_the_docstring():
    run = gp.simulate(ONE, SLOW)
    shown = str(gp.what_if(run, layers=LAYERS, schedules=[gp.ZBH1])).splitlines()
    assert shown[0].split() == [head for word in HEADS for head in word.split()]
    assert shown[1].split() == ["as", "it", "is", "220", "4", "exact"]
    assert shown[2].startswith("ZB-H1, cut 6 4 2 4   154  30.0%") and shown[2].endswith("supposed  1 2")


def test_a_heavy_head_stays_in_one_piece_when_layers_move_away_from_it():
    """Twelve layers of 1 and a head of 4 in the last stage: equal layers there would be wrong by 2."""
    each = gp.Costs.from_forward([1] * 11 + [1 + 4])
    run = gp.simulate(ONE, gp.balance.merged(each, [3, 3, 3, 3]))
    counted, listed = (gp.what_if(run, layers=said, schedules=[]) for said in ([3] * 4, each))
    assert named(counted, "cut").balance == named(listed, "cut").balance == (4, 4, 3, 1)
    truth = gp.simulate(ONE, gp.balance.merged(each, [4, 4, 3, 1])).makespan
    assert named(counted, "cut").makespan == named(listed, "cut").makespan == truth
    assert "its outermost layer's, such as a head's" in named(counted, "cut").assumes[1]
    assert named(listed, "cut").assumes == () and named(listed, "cut").sure == "exact"


def test_a_head_is_split_over_the_devices_where_it_makes_the_last_stage_heavy():
    costs = gp.Costs.from_forward([3, 3, 3, 7])
    split = named(gp.what_if(costs, ONE, layers=[3] * 4), "head split over 4 devices")
    assert split.costs.forward == (4, 4, 4, 4) and split.code
    assert split.makespan == gp.simulate(ONE, gp.Costs.from_forward([4] * 4)).makespan
    assert not any(name.startswith("head") for name in names(gp.what_if(SLOW, ONE, layers=LAYERS)))


def test_a_slow_link_is_offered_to_be_as_fast_as_the_others_and_only_that_one():
    pairs = {(0, 1): 1, (1, 0): 1, (1, 2): 9, (2, 1): 9, (2, 3): 1, (3, 2): 1}
    found = gp.what_if(ByPair(2, 2, 2, by_pair=tuple(pairs.items())), ONE)
    faster = named(found, "link 1 to 2: 1 instead of 9")
    assert faster.makespan == gp.simulate(ONE, gp.Costs(2, 2, 2, comm=1)).makespan
    assert dict(faster.costs.by_pair) == dict.fromkeys(pairs, 1)
    for alike in (gp.Costs(comm=3), ByPair(by_pair=tuple(dict.fromkeys(pairs, 3).items()))):
        assert not any(name.startswith("link") for name in names(gp.what_if(alike, ONE)))


def test_messages_by_pair_are_in_every_cut_and_schedule():
    """Whatever is offered: a plain cost model that gives each message its pair's time agrees."""
    pairs = {(0, 1): 1, (1, 0): 2, (1, 2): 9, (2, 1): 7, (2, 3): 1, (3, 2): 0}
    found = gp.what_if(ByPair([4, 4, 8, 4], 2, 3, by_pair=tuple(pairs.items())), ONE, layers=LAYERS)
    plan = gp.balance_by_makespan(ONE, read_layers(found.now.costs, ONE, LAYERS, None).costs)
    assert named(found, "cut").makespan == plan.makespan >= plan.bound
    assert {type(choice.costs) for choice in found} == {ByPair}
    assert any("V=2" in name for name in names(found))


def test_more_microbatches_compute_less_each_and_send_and_start_as_long():
    costs = gp.Costs(8, 8, 8, comm=1, overhead=0.25)
    found = gp.what_if(costs, gp.OneFOneB(4, 4))
    for count, part in ((8, 4), (16, 2)):
        more = named(found, f"{count} microbatches")
        smaller = gp.Costs(part, part, part, comm=1, overhead=0.25)
        assert more.makespan == gp.simulate(gp.OneFOneB(4, count), smaller).makespan
        assert more.peak == Fraction(4 * 4, count), "of today's microbatches"


def test_a_slow_device_is_told_from_heavy_layers_where_all_its_stages_are_slow():
    two = gp.Interleaved1F1B(4, 8)
    slow = gp.Costs.from_forward([2, 2, 4, 2, 2, 2, 4, 2])
    assert not any(name.startswith("device") for name in names(gp.what_if(slow, two))), "costs said so"
    found = gp.what_if(gp.simulate(two, slow), layers=[2] * 8)
    replaced = named(found, "device 2 as fast as the others")
    assert replaced.makespan == gp.simulate(two, gp.Costs.from_forward(2)).makespan
    assert named(found, "cut").costs.speed == (1, 1, Fraction(1, 2), 1)
    assert sum(named(found, "cut").balance[stage] for stage in (2, 6)) < 4
    said = gp.what_if(gp.Costs(speed=[1, 1, 0.5, 1]), ONE, layers=LAYERS)
    assert named(said, "cut").balance == (5, 5, 2, 4)
    assert named(said, "device 2").makespan == gp.simulate(ONE).makespan
    assert not any(name.startswith("device") for name in names(gp.what_if(SLOW, ONE, layers=LAYERS)))


def test_where_nobody_says_what_layers_there_are_no_cut_is_offered_and_it_says_what_to_say():
    found = gp.what_if(SLOW, ONE)
    assert all(choice.balance is None for choice in found)
    assert found.notes[-1] == "no cut: say how many layers each stage has, such as layers=[4, 4, 4, 4]"
    assert "say what layers they have" in named(found, "ZB-V").assumes[0]


def test_halves_of_a_backward_are_supposed_only_where_nobody_measured_or_said_them():
    for schedule, supposed in ((ONE, True), (gp.ZBH1(4, 8), False)):
        found = gp.what_if(gp.simulate(schedule, gp.Costs(4, 1, 3)))
        vee = named(found, "ZB-V")
        assert any("halves" in said for said in vee.assumes) is supposed
    assert named(gp.what_if(SLOW, ONE), "ZB-H1").sure == "exact"


def test_of_a_measured_run_it_says_how_far_off_the_fit_is_and_keeps_stage_0_as_torch_has_it():
    costs = gp.Costs(20, [0.1, 20, 20, 20], [40, 20, 20, 20])
    run = measured(gp.ZBH1(4, 8), costs)
    found = gp.what_if(run, layers=LAYERS)
    off = float(found.now.makespan) / run.makespan - 1
    assert found.now.sure == f"to {abs(off):.1%}" and found.notes[0].startswith("the run took ")
    vee = named(found, "ZB-V")
    assert vee.costs.input_grad[0] == 0 and vee.costs.input_grad[1] == pytest.approx(10, rel=0.1)
    assert vee.costs.weight_grad[0] == pytest.approx(20, rel=0.1), "of half of the layers"
    assert sum(vee.costs.weight_grad) == pytest.approx(20 * 4 + 10, rel=0.1)


def test_with_several_stages_every_device_has_the_overhead_of_those_between_the_ends(monkeypatch):
    """Fitted to 1F1B it was 0.2 ms at the ends and 1.2 ms between; interleaved, much the same everywhere."""
    costs = gp.Costs(20, 20, 20, overhead=[0.2, 1, 1.2, 0.2])
    monkeypatch.setattr("gpipe_sim.planning.what_if.fit_costs", lambda run: costs)
    found = gp.what_if(measured(ONE), layers=LAYERS)
    assert named(found, "Interleaved 1F1B V=2").costs.overhead == 1.2
    assert named(found, "ZB-H1").costs.overhead == named(found, "32 microbatches").costs.overhead
    assert named(found, "ZB-H1").costs.overhead == costs.overhead


def test_with_a_profile_the_peak_is_in_bytes_and_a_limit_leaves_out_what_does_not_fit():
    layers, data = gp.mlp([64, 48, 48, 32, 32, 24, 24, 10]), gp.digits()
    batch = data.x[:16], data.y[:16]
    profile = gp.profile(gp.split(layers, balance=[6, 3, 2, 2]), batch, gp.cross_entropy)
    found = gp.what_if(SLOW, ONE, profile=profile)
    cut = named(found, "cut")
    again = gp.profile(gp.split(layers, balance=list(cut.balance)), batch, gp.cross_entropy)
    assert cut.peak == max(each.peak_inside.bytes for each in gp.predict_memory(ONE, again))
    assert "16 microbatches" in names(found) and "32 microbatches" not in names(found)
    limit = cut.peak - 1
    less = gp.what_if(SLOW, ONE, profile=profile, limit=limit)
    assert max(each.peak for each in less) <= limit < max(each.peak for each in found)
    left_out = [each.name for each in found if each.peak > limit]
    assert all(name in less.notes[0] for name in left_out) and less.notes[0].startswith("over the limit")
    assert "kB" in str(found).splitlines()[1]


def test_without_a_profile_the_limit_is_of_microbatches_in_flight():
    found = gp.what_if(SLOW, ONE, layers=LAYERS, limit=4)
    assert max(choice.peak for choice in found) <= 4 and "ZB-H2" in found.notes[0]


def test_a_run_that_recomputes_is_compared_with_what_recomputes():
    found = gp.what_if(SLOW, gp.remat(ONE, "always"), layers=LAYERS)
    assert all(Kind.R in choice.schedule.program.where for choice in found) and len(found) > 3
    assert named(found, "16 microbatches").schedule == gp.remat(gp.OneFOneB(4, 16), "always")


def test_what_updates_on_the_way_has_no_other_schedule_and_no_more_microbatches():
    found = gp.what_if(SLOW, gp.with_updates(ONE), layers=LAYERS)
    assert names(found) == ["cut 6 4 2 4"]
    assert "without updates" in " ".join(found.notes)


def test_where_nothing_helps_it_says_so():
    found = gp.what_if(gp.Costs(), gp.OneFOneB(1, 4), layers=[3])
    assert len(found) == 0 and repr(found).endswith("nothing makes it shorter>")
    assert found.notes[0].startswith("no gain: ")


def test_two_copies_of_the_weights_are_offered_only_to_who_asks():
    copies = gp.families.Chimera
    assert not any("Chimera" in name for name in names(gp.what_if(SLOW, ONE)))
    asked = named(gp.what_if(SLOW, ONE, schedules=[copies]), "Chimera")
    assert "two copies" in " ".join(asked.assumes)


def test_choices_are_listed_by_place_and_shown_as_a_table_in_a_notebook():
    found = gp.what_if(SLOW, ONE, layers=LAYERS)
    assert found[0] is next(iter(found)) and len(found) == len(list(found))
    rows = found._repr_html_().count("<tr>")
    assert rows == 2 + len(found)
    assert repr(found[0]) == f"<Choice {found[0].name}: makespan 133, {found[0].gain:.1%} less>"


def test_layers_add_up_to_their_stages_exactly():
    costs = gp.Costs([5, 4, 9, 7], [3, 3, 2, 8], 1, recompute=[1, 2, 3, 4])
    layers = read_layers(costs, ONE, [3, 4, 2, 3], None)
    again = gp.balance.merged(layers.costs, layers.balance)
    assert (again.forward, again.input_grad, again.recompute) == ((5, 4, 9, 7), (3, 3, 2, 8), (1, 2, 3, 4))


def test_a_long_cut_is_short_and_a_large_run_is_answered_in_seconds():
    costs = gp.Costs.from_forward(np.arange(1, 17).tolist())
    found = gp.what_if(costs, gp.OneFOneB(16, 32), layers=[4] * 16, schedules=[gp.ZBH1])
    assert any("x" in choice.name for choice in found)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: gp.what_if(ONE), "what_if needs a timeline, or costs and their schedule"),
        (lambda: gp.what_if(SLOW), "what_if needs a schedule"),
        (lambda: gp.what_if(gp.simulate(ONE), ONE), "takes the schedule from the timeline"),
        (lambda: gp.what_if(SLOW, ONE, layers="4444"), "how many layers each stage has"),
        (lambda: gp.what_if(SLOW, ONE, schedules=[gp.PipeDream]), "families of gp.SCHEDULES"),
        (lambda: gp.what_if(SLOW, ONE, schedules=[ONE]), "families of gp.SCHEDULES"),
        (lambda: gp.what_if(SLOW, ONE, profile=3), "needs a profile"),
        (lambda: gp.what_if(SLOW, gp.OneFOneB(3, 8)), "Costs lists forward for 4 stages"),
        (lambda: gp.what_if(SLOW, ONE, limit="1 GB"), "limit, for each device, to be a number"),
    ],
)
def test_what_is_no_run_is_refused(call, says):
    with pytest.raises((TypeError, ValueError), match=says):
        call()
