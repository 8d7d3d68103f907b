from textwrap import dedent

import numpy as np
import pytest
from cases import BOTH_WAYS, UPDATED, V_SHAPED, over_every_order, overlapped, zero_bubble

from gpipe_sim.core.actions import Action, B, F, I, OverlapFB, R, W
from gpipe_sim.core.deadlock import Wait, all_waits, cycle, waiting
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.gpipe import GPipe
from gpipe_sim.core.layers import mlp
from gpipe_sim.core.losses import mse
from gpipe_sim.core.placement import looped
from gpipe_sim.core.problems import REASONS, check, problems
from gpipe_sim.core.remat import remat
from gpipe_sim.core.rules import NEEDS
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.split import split
from gpipe_sim.core.step import train_step
from gpipe_sim.errors import DeadlockError, ScheduleError


def sentences(schedule: Schedule) -> list[str]:
    return [problem.sentence for problem in problems(schedule)]


# Deadlock


def test_a_deadlock_says_who_is_stuck_on_what_and_where_it_is_queued():
    stuck = Explicit.parse("""
        0F0 0B0 0F1 0B1
        1F0 1F1 1B0 1B1
    """)
    message = dedent("""\
        Explicit(devices=2, microbatches=2) cannot finish:
          device 0 is stuck at 0B0: it needs 1B0 (queued on device 1)
          device 1 is stuck at 1F1: it needs 0F1 (queued on device 0)""")
    for refuses in (check, simulate):
        with pytest.raises(DeadlockError) as error:
            refuses(stuck)
        assert str(error.value) == message


def test_the_problems_of_a_deadlock_are_its_circle_and_one_sentence_per_stuck_device():
    stuck = Explicit(["0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"])
    assert [tuple(problem) for problem in problems(stuck)] == [
        ("deadlock", B(0, 0), "0B0 needs 1B0, queued behind 1F1, which needs 0F1, queued behind 0B0"),
        ("stuck", B(0, 0), "device 0 is stuck at 0B0: it needs 1B0 (queued on device 1)"),
        ("stuck", F(1, 1), "device 1 is stuck at 1F1: it needs 0F1 (queued on device 0)"),
    ]


def test_who_waits_for_whom_is_data_too():
    stuck = Explicit(["0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"])
    assert waiting(stuck) == [(0, B(0, 0), B(1, 0), 1, 2), (1, F(1, 1), F(0, 1), 0, 2)]
    assert waiting(GPipe(2, 2)) == []


def test_a_device_can_deadlock_with_itself():
    pair = OverlapFB(F(0, 0), B(0, 0))
    for row, sentence in {
        "0B0 0F0": "device 0 is stuck at 0B0: it needs 0F0 (queued on device 0)",
        "0F0 0W0 0I0": "device 0 is stuck at 0W0: it needs 0I0 (queued on device 0)",
        "0F0 0B0 0R0": "device 0 is stuck at 0B0: it needs 0R0 (queued on device 0)",
        "0R0 0F0 0B0": "device 0 is stuck at 0R0: it needs 0F0 (queued on device 0)",
        str(pair): f"device 0 is stuck at {pair}: it needs 0F0 (queued on device 0)",
    }.items():
        assert sentences(Explicit([row]))[1:] == [sentence]


def test_devices_that_can_finish_are_not_called_stuck():
    stuck = Explicit(["0F0 0F1 0B0 0B1", "1F0 1F1 1B1 1B0", "2F0 2B1 2B0 2F1"])
    assert sentences(stuck) == [
        "2B1 stands before 2F1 on device 2, but reads what it saves",
        "device 0 is stuck at 0B0: it needs 1B0 (queued on device 1)",
        "device 1 is stuck at 1B1: it needs 2B1 (queued on device 2)",
        "device 2 is stuck at 2B1: it needs 2F1 (queued on device 2)",
    ]
    half = Explicit(["0F0 0B0", "1B0 1F0"], placement=[[0], [1]])
    assert [(p.rule, p.action) for p in problems(half)] == [
        ("order", B(1, 0)),
        ("stuck", B(0, 0)),
        ("stuck", B(1, 0)),
    ]


def test_a_deadlock_error_is_a_schedule_error_is_a_value_error():
    assert issubclass(DeadlockError, ScheduleError)
    assert issubclass(ScheduleError, ValueError)
    with pytest.raises(ValueError, match="is missing") as error:
        check(Explicit(["0F0"]))
    assert type(error.value) is ScheduleError


# Actions that cannot mean a training step


@pytest.mark.parametrize(
    ("rows", "rule", "action", "sentence"),
    [
        (["0B0"], "missing", F(0, 0), "0F0 is missing"),
        (["0F0"], "missing", B(0, 0), "0B0 is missing"),
        (["0F0 0F0 0B0"], "duplicate", F(0, 0), "0F0 stands 2 times; it must run once"),
        (["0F0 0B0 0B0 0B0"], "duplicate", B(0, 0), "0B0 stands 3 times; it must run once"),
        (["0F0 0R0 0R0 0B0"], "duplicate", R(0, 0), "0R0 stands 2 times; it must run once"),
        (["0F0 0I0"], "missing", W(0, 0), "0W0 is missing; 0I0 leaves it to do"),
        (["0F0 0B0 0I0 0W0"], "both", B(0, 0), "0B0 and 0I0 both stand; B is I and W in one"),
        (["0F0 0B0 0W0"], "missing", I(0, 0), "0I0 is missing; 0W0 finishes what it starts"),
        (["0F0 (0F0;0B0)OVERLAP_F_B"], "duplicate", F(0, 0), "0F0 stands 2 times; it must run once"),
    ],
)  # fmt: skip
def test_one_thing_wrong_is_one_sentence(rows, rule, action, sentence):
    assert [tuple(problem) for problem in problems(Explicit(rows))] == [(rule, action, sentence)]


def test_a_weight_gradient_on_its_own_lacks_both_halves_of_a_backward():
    assert sentences(Explicit(["0F0 0W0"])) == [
        "0B0 is missing",
        "0I0 is missing; 0W0 finishes what it starts",
    ]


def test_labels_out_of_range_are_named_with_the_range():
    over = Explicit(["0F0 0B0 0F1 0B1 2F0"], placement=[[0]], microbatches=1)
    assert sentences(over) == [
        f"{label} is out of range: stages are 0 to 0, microbatches 0 to 0" for label in ("0F1", "0B1", "2F0")
    ]
    below = Explicit([[Action(-1, F(0, 0).kind, 0), F(0, -1), F(0, 0), B(0, 0)]])
    assert {problem.rule for problem in problems(below)} == {"out of range"}
    assert [str(problem.action) for problem in problems(below)] == ["-1F0", "0F-1"]


def test_an_action_on_a_device_that_does_not_hold_its_stage_is_misplaced():
    swapped = Explicit(["1F0 1B0", "0F0 0B0"], placement=[[0], [1]])
    assert sentences(swapped) == [
        "0F0 is on device 1, but stage 0 is on device 0",
        "1F0 is on device 0, but stage 1 is on device 1",
        "0B0 is on device 1, but stage 0 is on device 0",
        "1B0 is on device 0, but stage 1 is on device 1",
    ]
    third = Explicit(["0F0 0B0", "", "0F1 0B1"], placement=[[0], [0], []])
    assert sentences(third)[0] == "0F1 is on device 2, but stage 0 is on device 0 and 1"


def test_a_backward_must_run_where_its_forward_saved():
    apart = Explicit(["0F0 1B0", "1F0 0B0"], placement=[[0, 1], [0, 1]])
    assert [tuple(problem) for problem in problems(apart)] == [
        ("elsewhere", B(0, 0), "0B0 is on device 1, but what 0F0 saved is on device 0"),
        ("elsewhere", B(1, 0), "1B0 is on device 0, but what 1F0 saved is on device 1"),
    ]
    halves = Explicit(["0F0 0I0", "0R0 0W0"], placement=[[0], [0]])
    assert [str(problem.action) for problem in problems(halves)] == ["0R0", "0W0"]


def test_the_first_eight_problems_are_listed_and_the_rest_counted():
    with pytest.raises(ScheduleError) as error:
        check(Explicit(["0F0 0B0"], microbatches=6))
    lines = str(error.value).splitlines()
    assert lines[0] == "Explicit(devices=1, microbatches=6) is not a training step:"
    assert lines[1:3] == ["  0F1 is missing", "  0B1 is missing"]
    assert lines[9:] == ["  ... and 2 more"]
    assert len(problems(Explicit(["0F0 0B0"], microbatches=6))) == 10


def test_a_wrong_schedule_is_refused_before_anything_runs():
    partitions = split(mlp([2, 2, 2]), stages=1)
    before = {key: array.copy() for key, array in partitions[0].parameters.items()}
    x = np.ones((1, 2))
    for row, error in {"0F0 0B0 0B0": ScheduleError, "0B0 0F0": DeadlockError}.items():
        with pytest.raises(error):
            train_step(partitions, Explicit([row]), (x, x), loss=mse)
    assert all((partitions[0].parameters[key] == array).all() for key, array in before.items())


# Sound schedules


@over_every_order()
def test_every_family_is_sound_with_every_remat_mode(schedule):
    for mode in ("always", "except_last", "never"):
        assert problems(remat(schedule, mode)) == []


@pytest.mark.parametrize(
    "schedule",
    [V_SHAPED, BOTH_WAYS, zero_bubble(4, 8), overlapped(4, 8), *UPDATED],
    ids=repr,
)
def test_what_the_alphabet_can_say_beyond_the_families_is_sound(schedule):
    assert problems(schedule) == []
    check(schedule)


# An order that cannot be, on one device


@pytest.mark.parametrize(
    ("rows", "action", "sentence"),
    [
        (["0F0 0W0 0I0"], W(0, 0), "0W0 stands before 0I0 on device 0, but finishes what it starts"),
        (["0F0 0B0 0R0"], B(0, 0), "0B0 stands before 0R0 on device 0, but reads what it restores"),
        (["0R0 0F0 0B0"], R(0, 0), "0R0 stands before 0F0 on device 0, but does it again"),
        (["0I0 0F0 0W0"], I(0, 0), "0I0 stands before 0F0 on device 0, but reads what it saves"),
        (["(0F0;0B0)OVERLAP_F_B"], B(0, 0),
         "0B0 stands in one block with 0F0 on device 0, but reads what it saves"),
    ],
)  # fmt: skip
def test_an_action_before_what_it_needs_on_its_own_device_is_named_first(rows, action, sentence):
    assert tuple(problems(Explicit(rows))[0]) == ("order", action, sentence)


def test_two_stages_on_one_device_can_stand_the_wrong_way_round():
    held = {"placement": [[0, 1]]}
    assert sentences(Explicit(["1F0 0F0 1B0 0B0"], **held))[0] == (
        "1F0 stands before 0F0 on device 0, but reads its output"
    )
    assert sentences(Explicit(["0F0 1F0 0B0 1I0 1W0"], **held))[0] == (
        "0B0 stands before 1I0 on device 0, but reads its gradient"
    )


def test_every_such_pair_is_told_with_the_actions_that_are_missing():
    assert sentences(Explicit(["0B0 0F0 0W1 0I1 0F1", "1F0 1B0 1F1"])) == [
        "1B1 is missing",
        "0B0 stands before 0F0 on device 0, but reads what it saves",
        "0W1 stands before 0I1 on device 0, but finishes what it starts",
        "0I1 stands before 0F1 on device 0, but reads what it saves",
    ]


def test_a_circle_of_three_devices():
    """Each of them puts its later stage first, which needs the earlier stage of the next device round."""
    stuck = Explicit.parse("0F0 3F0 0B0 3B0\n4F0 4B0 1F0 1B0\n2F0 2B0 5F0 5B0", placement=looped(3, 6))
    assert sentences(stuck)[0] == ("3F0 needs 2F0, which needs 1F0, queued behind 4F0, which needs 3F0")


def test_of_several_circles_the_shortest_is_told():
    """0, 1 and 2 wait for each other, and so do 3 and 4; 0 waits for 3 as well."""
    around = [(0, 1), (0, 3), (1, 2), (2, 0), (4, 3), (3, 4)]
    waits = [Wait(device, F(device, 0), B(other, 0), other, 9) for device, other in around]
    assert [(wait.device, wait.other) for wait in cycle(waits)] == [(3, 4), (4, 3)]
    assert [(wait.device, wait.other) for wait in cycle(waits[:4])] == [(0, 1), (1, 2), (2, 0)]


def test_a_device_can_wait_for_two_things():
    """The pair needs 0F1, which can run, and 2B0, which stands behind 2F1, which needs the pair."""
    rows = ["0F0 0F1 0B0 0B1", "1F0 (1F1;1B0)OVERLAP_F_B 1B1", "2F0 2F1 2B0 2B1"]
    assert sentences(Explicit(rows))[0] == (
        "(1F1;1B0)OVERLAP_F_B needs 2B0, queued behind 2F1, which needs 1F1"
    )
    both = Explicit(["0F0 0B0 0F1 0B1", *rows[1:]])
    assert [(wait.device, wait.other) for wait in all_waits(both)] == [(0, 1), (1, 0), (1, 2), (2, 1)]
    assert [(wait.device, wait.other) for wait in waiting(both)] == [(0, 1), (1, 0), (2, 1)]


# Updates


def test_each_half_of_a_pair_is_told_what_it_stands_before():
    found = problems(Explicit(["(1F0;0B0)OVERLAP_F_B 0F0 1B0"], placement=[[0, 1]]))
    said = [problem.sentence for problem in found if problem.rule == "order"]
    assert said == [
        "1F0 stands before 0F0 on device 0, but reads its output",
        "0B0 stands before 0F0 on device 0, but reads what it saves",
        "0B0 stands before 1B0 on device 0, but reads its gradient",
    ]


def test_there_is_a_reason_for_every_need():
    assert set(REASONS) == {(kind, need) for kind, wanted in NEEDS.items() for need, _ in wanted}


def test_a_recompute_away_from_what_its_forward_kept_is_told():
    elsewhere = Explicit(["0F0 0B0", "0R0 1F0 1B0"], placement=[[0], [0, 1]])
    assert "0R0 is on device 1, but what 0F0 saved is on device 0" in [
        p.sentence for p in problems(elsewhere)
    ]
