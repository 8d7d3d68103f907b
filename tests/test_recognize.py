"""Which schedule is this?"""

import pytest
from cases import of_size, over_every_schedule

from gpipe_sim import (
    SCHEDULES,
    Chimera,
    Eager1F1B,
    Explicit,
    GPipe,
    Interleaved1F1B,
    LoopedBFS,
    Naive,
    OneFOneB,
    PipeDream,
    PipeDream2BW,
    PipelinedBackprop,
    recognize,
    remat,
    repeat,
    with_updates,
)

NAMED = {
    "Naive": "the naive order",
    "OneFOneB": "1F1B",
    "Eager1F1B": "eager 1F1B",
    "Interleaved1F1B": "interleaved 1F1B with 2 stages per device",
    "LoopedBFS": "looped BFS with 2 stages per device",
    "ZBH1": "ZB-H1",
    "ZBH2": "ZB-H2",
    "ZBV": "ZB-V",
    "VHalf": "V-Half",
    "VMin": "V-Min",
}


def rows_of(schedule) -> Explicit:
    """The same rows, nameless."""
    return Explicit(schedule.actions, placement=schedule.placement)


@pytest.mark.parametrize("family", SCHEDULES)
def test_every_family_is_recognized_by_its_rows_at_4_x_8(family):
    name = NAMED.get(family.__name__, family.__name__)
    assert recognize(rows_of(family(4, 8))) == f"this is {name}"


@pytest.mark.parametrize("family", SCHEDULES)
def test_recomputation_is_recognized_too(family):
    name = NAMED.get(family.__name__, family.__name__)
    said = [recognize(rows_of(remat(family(4, 8), mode))) for mode in ("always", "except_last")]
    assert said == [
        f"this is {name} with recomputation of every microbatch",
        f"this is {name} with recomputation of all but the last microbatch",
    ]


def test_options_are_part_of_the_name():
    assert recognize(GPipe(4, 8, drain="in_order")) == "this is GPipe with in-order drain"
    assert recognize(Interleaved1F1B(4, 8, 3)) == "this is interleaved 1F1B with 3 stages per device"
    assert recognize(LoopedBFS(2, 5, 4)) == "this is looped BFS with 4 stages per device"


@over_every_schedule()
def test_every_schedule_of_every_size_is_one_of_ours(schedule):
    said = recognize(schedule)
    assert said.startswith("this is ") and "yours" not in said


def test_where_several_families_agree_all_are_named():
    assert recognize(OneFOneB(2, 2)) == "this is 1F1B; at this size so is eager 1F1B"
    assert recognize(OneFOneB(2, 1)) == (
        "this is the naive order; at this size so are "
        "GPipe, GPipe with in-order drain, 1F1B, eager 1F1B and Chimera"
    )


def test_several_stages_per_device_with_one_are_other_families():
    """Why ``recognize`` does not try them."""
    for k in range(1, 6):
        for m in range(1, 12):
            assert LoopedBFS(k, m, 1).actions == GPipe(k, m).actions
            for interleaved in of_size(Interleaved1F1B, k, m, 1):
                assert interleaved.actions == Eager1F1B(k, m).actions


def test_an_order_of_nobody_is_yours_and_the_nearest_family_is_named():
    rows = [list(row) for row in OneFOneB(4, 8).actions]
    rows[3][0], rows[3][2] = rows[3][2], rows[3][0]
    assert recognize(Explicit(rows)) == (
        "this is yours: no family here has this order; nearest is 1F1B, with 2 places different"
    )
    rows = [row[:-1] if device == 2 else row for device, row in enumerate(Chimera(4, 8).actions)]
    shorter = Explicit(rows, placement=Chimera(4, 8).placement)
    assert recognize(shorter).endswith("; nearest is Chimera, with 1 place different")


def test_of_a_large_order_of_nobody_no_nearest_is_looked_for():
    assert recognize(nobodys(700)) == "this is yours: no family here has this order"
    assert recognize(nobodys(500)).endswith("nearest is the naive order, with 2 places different")


def nobodys(microbatches: int) -> Explicit:
    """The naive order, in which the last device looks ahead once."""
    *rows, (first, backward, ahead, *rest) = Naive(4, microbatches).actions
    return Explicit([*rows, (first, ahead, backward, *rest)])


@pytest.mark.parametrize("family", SCHEDULES)
def test_steps_with_an_update_at_their_end_are_recognized(family):
    name = NAMED.get(family.__name__, family.__name__)
    once = with_updates(family(4, 8))
    assert recognize(rows_of(once)) == f"this is {name} with an update at its end"
    assert recognize(repeat(once, 3)) == f"this is 3 steps of {name}, each with an update at its end"
    again = repeat(with_updates(remat(family(4, 8), "except_last")), 2)
    recomputed = f"{name} with recomputation of all but the last microbatch"
    assert recognize(again) == f"this is 2 steps of {recomputed}, each with an update at its end"


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        (
            PipeDream(4, 12),
            "this is PipeDream; with another choice of weights so is pipelined backpropagation",
        ),
        (
            PipelinedBackprop(4, 12),
            "this is PipeDream; with another choice of weights so is pipelined backpropagation",
        ),
        (PipeDream(4, 12, every=3), "this is PipeDream with an update after every 3 microbatches"),
        (PipeDream(4, 11, every=3), "this is PipeDream with an update after every 3 microbatches"),
        (
            PipeDream2BW(4, 12),
            "this is PipeDream with an update after every 4 microbatches; "
            "with another choice of weights so is "
            "PipeDream-2BW",
        ),
        (
            remat(PipeDream(4, 12, every=2), "always"),
            "this is PipeDream with an update after every 2 microbatches with recomputation of every "
            "microbatch",
        ),
    ],
    ids=repr,
)
def test_streams_are_recognized_and_which_weights_they_use_is_not_in_their_rows(schedule, says):
    assert recognize(rows_of(schedule)) == says


def test_a_stream_that_is_nearly_one_has_it_as_its_nearest():
    rows = [list(row) for row in PipeDream(3, 8).actions]
    rows[2][2], rows[2][3] = rows[2][3], rows[2][2]  # one update a little later
    assert recognize(Explicit(rows)).endswith("nearest is PipeDream, with 2 places different")


def test_a_number_of_stages_that_no_family_has_is_yours():
    """Three stages on two devices."""
    schedule = Explicit(["0F0 2F0 2B0 0B0", "1F0 1B0"])
    assert recognize(schedule) == "this is yours: no family here has this order"
