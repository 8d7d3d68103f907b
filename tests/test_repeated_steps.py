"""Seven steps in a row: how much of each step's corner the next one fills, with a flush and without."""

import pytest

import gpipe_sim as gp
from gpipe_sim.core import Schedule

STEPS, SIZE = 7, (4, 8)
#: By family at 4 x 8: one step; seven, each device beginning the next one when it is done; one step of 56.
TIMES = {
    gp.Naive: (96, 672, 672),
    gp.GPipe: (33, 231, 177),
    gp.OneFOneB: (33, 231, 177),
    gp.families.Eager1F1B: (33, 231, 177),
    gp.Interleaved1F1B: (57, 399, 345),
    gp.families.LoopedBFS: (57, 399, 345),
    gp.ZBH1: (27, 189, 171),
    gp.families.ZBH2: (27, 171, 171),
    gp.ZBV: (51, 339, 339),
    gp.families.VHalf: (53, 371, 341),
    gp.families.VMin: (59, 413, 347),
    gp.families.DualPipe: (26, 182, 170),
    gp.families.DualPipeV: (54, 378, 342),
    gp.families.Chimera: (30, 210, 198),
}


def seven(family: type[Schedule]) -> Schedule:
    return gp.repeat(gp.with_updates(family(*SIZE)), STEPS)


def test_every_family_is_in_the_table():
    assert tuple(TIMES) == gp.SCHEDULES


@pytest.mark.parametrize("family", gp.SCHEDULES)
def test_seven_steps_with_a_flush_after_each(family):
    devices, microbatches = SIZE
    one, several, large = TIMES[family]
    assert gp.simulate(family(*SIZE)).makespan == one
    assert gp.simulate(seven(family)).makespan == several
    assert gp.simulate(family(devices, STEPS * microbatches)).makespan == large
    assert large <= several <= STEPS * one


@pytest.mark.parametrize("family", gp.SCHEDULES)
def test_no_step_uses_weights_that_are_older_than_the_last_step(family):
    found = gp.staleness(seven(family))
    assert {late for row in found.delay for late in row} == {0}
    assert {*found.held} == {1}, "and none is set aside"


def test_without_a_flush_56_microbatches_take_as_long_as_in_one_large_step():
    streams = [gp.PipeDream(4, 56), gp.PipeDream(4, 56, every=8), gp.streams.PipeDream2BW(4, 56, every=8)]
    assert {gp.simulate(stream).makespan for stream in streams} == {TIMES[gp.OneFOneB][2]} == {177}
    assert [gp.staleness(stream).held for stream in streams] == [(4, 3, 2, 1), (2, 2, 2, 1), (2, 2, 2, 2)]
