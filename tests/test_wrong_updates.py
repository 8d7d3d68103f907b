"""What can be wrong with the updates that stand in an order."""

from fractions import Fraction

import numpy as np
import pytest
from cases import over_every_schedule
from test_problems import sentences

from gpipe_sim.core.actions import U
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.layers import mlp
from gpipe_sim.core.losses import mse
from gpipe_sim.core.optimizers import SGD
from gpipe_sim.core.problems import check, problems
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.split import split
from gpipe_sim.core.step import train_step
from gpipe_sim.errors import DeadlockError, ScheduleError


def test_an_update_can_deadlock_with_what_it_applies():
    sentence = "device 0 is stuck at 0U0: it needs 0B0 (queued on device 0)"
    assert sentences(Explicit(["0F0 0U0 0B0"]))[1:] == [sentence]


@pytest.mark.parametrize(
    ("rows", "part"),
    [(["0F0 0U0 0B0"], "0B0"), (["0F0 0U0 0I0 0W0"], "0W0")],
)
def test_an_update_before_what_it_applies_is_named_first(rows, part):
    sentence = f"0U0 stands before {part} on device 0, but applies its gradient"
    assert tuple(problems(Explicit(rows))[0]) == ("order", U(0, 0), sentence)


@pytest.mark.parametrize(
    ("rows", "placement", "action", "says"),
    [
        (["0F0 0F1 0B0 0U0 0B1"], None, "0B1", "0B1 is behind the last update of stage 0 on device 0, which"),
        (["0F0 0B0 0U0 0U0"], None, "0U0", "0U0 stands 2 times; it must run once"),
        (
            ["0F0 0F1 0B0 0B1 0U0 0U1"],
            None,
            "0U1",
            "0U1 has no gradient of microbatch 1 to apply on device 0: an earlier update of stage 0 did it",
        ),
        (["0F0 0B0 0U0 0F1 0F2 0B1 0U1 0B2"], None, "0B2", "0B2 is behind the last update of stage 0"),
        (["0F0 0B0 1U0", "1F0 1B0"], None, "1U0", "1U0 is on device 0, but stage 1 is on device 1"),
        (
            ["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1 1U1 0U1"],
            [[0], [0, 1]],
            "0U1",
            "0U1 has no gradient of microbatch 1 to apply on device 1",
        ),
        (["0F0 0B0 1U0", "1F0 1B0"], [[0, 1], [1]], "1U0", "1U0 has no gradient of microbatch 0 to apply"),
        (["0F0 0B0 0U0", "1F0 1B0"], None, "1U0", "stage 1 is never updated, but stage 0 is: all stages"),
        (
            ["0F0 0F1 0B0 0U0 0B1 0U1", "1F0 1B0 1F1 1B1 1U1"],
            None,
            "1U1",
            "the gradient of microbatch 1 goes into update 0 of stage 1, but into update 1 of stage 0: all",
        ),
        (
            ["0F0 1F1 1B1 0B0 0U0", "0F1 1F0 1B0 0B1"],
            [[0, 1], [1, 0]],
            "0U0",
            "0U0 is update 0 of stage 0 on device 0, but its copy on",
        ),
    ],
)
def test_a_wrong_update_is_refused_by_all_alike(rows, placement, action, says):
    """By ``problems``, ``check``, ``simulate``, and (in test_refusals.py) ``train_step``: one rule."""
    schedule = Explicit(rows, placement=placement)
    first = problems(schedule)[0]
    assert str(first.action) == action and first.sentence.startswith(says)
    for judge in (check, simulate):
        with pytest.raises(ScheduleError) as refused:
            judge(schedule)
        assert first.sentence in str(refused.value)


@over_every_schedule([(2, 3), (4, 8)])
def test_an_update_on_a_device_that_does_not_hold_its_stage_is_refused_by_all_alike(schedule):
    """Wherever it stands there, first or last: nothing on that device keeps it from running."""
    for stage, device in ((0, schedule.devices - 1), (schedule.stages - 1, 1)):
        if stage in schedule.placement[device]:
            continue
        for place in (0, len(schedule.actions[device])):
            rows = [list(row) for row in schedule.actions]
            rows[device].insert(place, U(stage, 0))
            wrong = Explicit(rows, placement=schedule.placement)
            names = " and ".join(str(k) for k, held in enumerate(schedule.placement) if stage in held)
            said = f"{stage}U0 is on device {device}, but stage {stage} is on device {names}"
            assert ("misplaced", U(stage, 0), said) in problems(wrong)
            for judge in (check, simulate, trained):
                with pytest.raises(ScheduleError, match=said):
                    judge(wrong)


def trained(schedule: Schedule) -> None:
    partitions = split(mlp([2] * (schedule.stages + 1)), stages=schedule.stages)
    batch = np.ones((schedule.microbatches, 2)), np.ones((schedule.microbatches, 2))
    train_step(partitions, schedule, batch, mse, optimizer=SGD(0.1))


def test_an_update_that_stands_before_its_own_backward_is_a_deadlock():
    schedule = Explicit(["0F0 0U0 0B0"])
    assert next(problem.rule for problem in problems(schedule)) == "order"
    with pytest.raises(DeadlockError, match="device 0 is stuck at 0U0: it needs 0B0"):
        simulate(schedule)


def test_nothing_is_said_of_an_update_whose_trouble_is_another():
    for rows in (["0F0 0B0", "1F0 1B0 0U0"], ["0U0"], ["0F0 0B0 0U0 0U0"]):
        assert "update" not in {problem.rule for problem in problems(Explicit(rows))}, rows


def test_an_update_of_what_was_applied_long_ago_is_told_so():
    late = Explicit(["0F0 0B0 0F1 0B1 0U1 0F2 0B2 0U2 0F3 0B3 0U0"])
    assert [problem.sentence for problem in problems(late)] == [
        "0U0 has no gradient of microbatch 0 to apply on device 0: an earlier update of stage 0 did it"
    ]


def test_an_update_takes_its_own_time_after_the_backward():
    timeline = simulate(Explicit(["0F0 0B0 0U0"]), Costs(update=Fraction(1, 2)))
    assert (timeline.makespan, timeline.ends[U(0, 0)]) == (Fraction(7, 2), Fraction(7, 2))
