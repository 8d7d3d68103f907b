from textwrap import dedent

import pytest
from cases import V_SHAPED, entrances, over_every_schedule, overlapped, parts, zero_bubble

from gpipe_sim.core.actions import Kind, R
from gpipe_sim.core.bubbles import peak_in_flight
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.gpipe import GPipe
from gpipe_sim.core.interleaved import Interleaved1F1B
from gpipe_sim.core.one_f_one_b import OneFOneB
from gpipe_sim.core.remat import remat
from gpipe_sim.core.simulate import simulate


def test_always_recomputes_right_before_each_backward():
    assert str(remat(OneFOneB(2, 2), "always")) == dedent("""\
        device 0: 0F0 0F1 0R0 0B0 0R1 0B1
        device 1: 1F0 1R0 1B0 1F1 1R1 1B1""")


def test_except_last_spares_the_last_microbatch_not_the_last_stage():
    assert str(remat(GPipe(2, 3), "except_last")) == dedent("""\
        device 0: 0F0 0F1 0F2 0B2 0R1 0B1 0R0 0B0
        device 1: 1F0 1F1 1F2 1B2 1R1 1B1 1R0 1B0""")


def test_never_is_the_same_schedule():
    schedule = GPipe(2, 3)
    assert remat(schedule, "never") is schedule


def test_a_split_backward_is_recomputed_before_its_input_half():
    assert str(remat(Explicit(["0F0 0I0 0W0"]), "always")) == "device 0: 0F0 0R0 0I0 0W0"


def test_an_overlapped_pair_is_recomputed_for_its_backward():
    row = str(remat(overlapped(2, 3), "always")).splitlines()[0]
    assert row == "device 0: 0F0 0F1 0R0 (0F2;0B0)OVERLAP_F_B 0R1 0B1 0R2 0B2"


@over_every_schedule([(1, 3), (2, 1), (3, 2), (4, 4), (4, 8)])
def test_each_mode_recomputes_all_all_but_the_last_of_each_direction_or_no_microbatch(schedule):
    every = set(range(schedule.microbatches))
    spared = {max(entered) for entered in entrances(schedule).values()}
    assert len(spared) == len(entrances(schedule)) and schedule.microbatches - 1 in spared
    for mode, microbatches in {"always": every, "except_last": every - spared, "never": set()}.items():
        found = remat(schedule, mode)
        recomputed = [part for part in parts(found) if part.kind is Kind.R]
        assert len(recomputed) == len(microbatches) * schedule.stages
        assert set(recomputed) == {R(s, m) for s in range(schedule.stages) for m in microbatches}
        plain = [[a for a in row if a.parts[0].kind is not Kind.R] for row in found.actions]
        assert plain == [list(row) for row in schedule.actions]


@pytest.mark.parametrize(
    "schedule", [V_SHAPED, zero_bubble(3, 4), Interleaved1F1B(2, 4, 3)], ids=["V", "split", "V=3"]
)
def test_recomputing_moves_nothing_and_holds_no_more_microbatches(schedule):
    recomputing = remat(schedule, "always")
    assert recomputing.placement == schedule.placement
    assert recomputing.stages == schedule.stages
    assert recomputing.stages_per_device == schedule.stages_per_device
    assert peak_in_flight(recomputing) == peak_in_flight(schedule)


def test_a_recomputing_schedule_introduces_itself():
    assert repr(remat(OneFOneB(2, 2), "always")) == "remat(OneFOneB(devices=2, microbatches=2), 'always')"
    assert remat(OneFOneB(2, 2), "always") == remat(OneFOneB(2, 2), "always")
    assert remat(OneFOneB(2, 2), "always") != remat(OneFOneB(2, 2), "except_last")


# What it costs in time


def test_gpipe_at_4_x_8_takes_33_and_a_forward_for_each_microbatch_that_it_recomputes():
    """The bubble does not grow, because recomputing may start before the gradient arrives."""
    for mode, makespan in (("always", 41), ("except_last", 40), ("never", 33)):
        assert simulate(remat(GPipe(4, 8), mode)).makespan == makespan


# Bad input


@pytest.mark.parametrize("mode", ["sometimes", "Always", "", None, True])
def test_an_unknown_mode_is_refused_with_the_three_there_are(mode):
    with pytest.raises(ValueError, match=r"one of \('always', 'except_last', 'never'\)") as error:
        remat(GPipe(2, 2), mode)
    assert f"(got {mode!r})" in str(error.value)


@pytest.mark.parametrize("mode", ["always", "never"])
def test_recomputing_twice_is_refused(mode):
    with pytest.raises(ValueError, match=r"remat\(GPipe\(.*\), 'always'\) recomputes already"):
        remat(remat(GPipe(2, 2), "always"), mode)


# Some stages only


def test_only_the_chosen_stages_recompute():
    some = remat(GPipe(3, 2), "always", stages=[0, 2])
    assert str(some) == (
        "device 0: 0F0 0F1 0R1 0B1 0R0 0B0\ndevice 1: 1F0 1F1 1B1 1B0\ndevice 2: 2F0 2F1 2R1 2B1 2R0 2B0"
    )
    assert repr(some) == "remat(GPipe(devices=3, microbatches=2), 'always', stages=[0, 2])"
    assert remat(GPipe(3, 2), "always", stages=[0, 1, 2]).actions == remat(GPipe(3, 2), "always").actions
    assert remat(GPipe(3, 2), "always", stages=[]) == GPipe(3, 2)
    assert remat(GPipe(3, 2), "always", stages={2, 0}) == some


@pytest.mark.parametrize("stages", [[3], [-1], [0.5], 1, "01"])
def test_stages_that_there_are_not_are_refused(stages):
    with pytest.raises((ValueError, TypeError), match=r"stage"):
        remat(GPipe(3, 2), "always", stages=stages)
