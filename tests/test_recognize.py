"""Which schedule is this?"""

import pytest
from cases import of_size, over_every_schedule

from gpipe_sim import SCHEDULES, Explicit, GPipe, Interleaved1F1B, OneFOneB, PipeDream, remat
from gpipe_sim.export import recognize
from gpipe_sim.families import Eager1F1B, LoopedBFS
from gpipe_sim.streams import PipeDream2BW, PipelinedBackprop

YOURS = "this is yours: no family here has this order"


def rows_of(schedule) -> Explicit:
    """The same rows, nameless."""
    return Explicit(schedule.actions, placement=schedule.placement)


@pytest.mark.parametrize("family", SCHEDULES)
def test_every_family_is_recognized_by_its_rows_at_4_x_8_with_recomputation_too(family):
    for mode in ("never", "always", "except_last"):
        schedule = remat(family(4, 8), mode)
        assert recognize(rows_of(schedule)) == f"this is {schedule!r}"


@pytest.mark.parametrize(
    "schedule",
    [
        GPipe(4, 8, drain="in_order"),
        Interleaved1F1B(4, 8, 3),
        LoopedBFS(2, 5, 4),
        PipeDream(4, 11, every=3),
        remat(PipeDream(4, 12, every=2), "always"),
    ],
    ids=repr,
)
def test_options_are_recognized_too(schedule):
    assert recognize(rows_of(schedule)) == f"this is {schedule!r}"


@over_every_schedule()
def test_every_schedule_of_every_size_is_one_of_ours(schedule):
    assert repr(schedule) in recognize(schedule)


def test_where_several_families_agree_all_are_named():
    """Which weights a stream uses is not in its rows."""
    assert recognize(OneFOneB(2, 2)).startswith(f"this is {OneFOneB(2, 2)!r} or {Eager1F1B(2, 2)!r}")
    both = f"this is {PipeDream(4, 12, every=1)!r} or {PipelinedBackprop(4, 12)!r}"
    assert recognize(rows_of(PipelinedBackprop(4, 12))) == both
    both = f"this is {PipeDream(4, 12, every=4)!r} or {PipeDream2BW(4, 12, every=4)!r}"
    assert recognize(rows_of(PipeDream2BW(4, 12))) == both


def test_several_stages_per_device_with_one_are_other_families():
    for k in range(1, 6):
        for m in range(1, 12):
            assert LoopedBFS(k, m, 1).actions == GPipe(k, m).actions
            for interleaved in of_size(Interleaved1F1B, k, m, 1):
                assert interleaved.actions == Eager1F1B(k, m).actions


def test_an_order_of_nobody_is_yours():
    rows = [list(row) for row in OneFOneB(4, 8).actions]
    rows[3][0], rows[3][2] = rows[3][2], rows[3][0]
    late = [list(row) for row in PipeDream(3, 8).actions]
    late[2][2], late[2][3] = late[2][3], late[2][2]  # one update a little later
    three_stages_on_two_devices = ["0F0 2F0 2B0 0B0", "1F0 1B0"]
    for order in (rows, late, three_stages_on_two_devices):
        assert recognize(Explicit(order)) == YOURS
