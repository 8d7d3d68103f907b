import random
from collections import Counter
from textwrap import dedent

import numpy as np
import pytest
from cases import BOTH_WAYS, V_SHAPED, over_every_schedule, overlapped, with_updates, zero_bubble

from gpipe_sim import (
    Action,
    B,
    DeadlockError,
    Explicit,
    F,
    GPipe,
    I,
    Interleaved1F1B,
    Naive,
    OneFOneB,
    OverlapFB,
    R,
    Schedule,
    ScheduleError,
    W,
    check,
    mlp,
    mse,
    problems,
    remat,
    simulate,
    split,
    train_step,
)
from gpipe_sim.validate import waiting


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


def test_the_problems_of_a_deadlock_are_one_sentence_per_stuck_device():
    stuck = Explicit(["0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"])
    assert [(p.rule, p.action) for p in problems(stuck)] == [("deadlock", B(0, 0)), ("deadlock", F(1, 1))]
    assert sentences(stuck)[0] == "device 0 is stuck at 0B0: it needs 1B0 (queued on device 1)"


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
        "0F0 0U0 0B0": "device 0 is stuck at 0U0: it needs 0B0 (queued on device 0)",
        str(pair): f"device 0 is stuck at {pair}: it needs 0F0 (queued on device 0)",
    }.items():
        assert sentences(Explicit([row])) == [sentence]


def test_devices_that_can_finish_are_not_called_stuck():
    stuck = Explicit(["0F0 0F1 0B0 0B1", "1F0 1F1 1B1 1B0", "2F0 2B1 2B0 2F1"])
    assert sentences(stuck) == [
        "device 0 is stuck at 0B0: it needs 1B0 (queued on device 1)",
        "device 1 is stuck at 1B1: it needs 2B1 (queued on device 2)",
        "device 2 is stuck at 2B1: it needs 2F1 (queued on device 2)",
    ]
    half = Explicit(["0F0 0B0", "1B0 1F0"], placement=[[0], [1]])
    assert [problem.action for problem in problems(half)] == [B(0, 0), B(1, 0)]


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


@over_every_schedule()
def test_every_family_is_sound_with_every_remat_mode(schedule):
    for mode in ("always", "except_last", "never"):
        assert problems(remat(schedule, mode)) == []


@pytest.mark.parametrize(
    "schedule",
    [V_SHAPED, BOTH_WAYS, zero_bubble(4, 8), overlapped(4, 8), with_updates(OneFOneB(4, 8))],
    ids=["V", "both ways", "split", "overlapped", "updates"],
)
def test_what_the_alphabet_can_say_beyond_the_families_is_sound(schedule):
    assert problems(schedule) == []
    check(schedule)


# A thousand wrong schedules


SOUND = [
    Naive(3, 2),
    GPipe(2, 3),
    OneFOneB(3, 4),
    Interleaved1F1B(2, 2),
    V_SHAPED,
    BOTH_WAYS,
    zero_bubble(3, 3),
    overlapped(2, 4),
    remat(OneFOneB(2, 3), "except_last"),
    with_updates(GPipe(2, 2)),
]


def mutated(schedule: Schedule, rng: random.Random) -> Explicit:
    """A schedule with one to three random changes to its rows; its placement stays."""
    rows = [list(row) for row in schedule.actions]
    for _ in range(rng.randint(1, 3)):
        row = rng.choice([row for row in rows if row])
        at, to = rng.randrange(len(row)), rng.randrange(len(row))
        match rng.choice(["swap", "move", "drop", "duplicate", "relabel", "send"]):
            case "swap":
                row[at], row[to] = row[to], row[at]
            case "move":
                row.insert(to, row.pop(at))
            case "drop" if len(row) > 1:
                del row[at]
            case "duplicate":
                row.insert(to, row[at])
            case "relabel":
                row[at] = relabelled(row[at], rng)
            case "send":
                rng.choice(rows).append(row[at])
                del row[at]
                if not any(rows):
                    return Explicit(schedule.actions, placement=schedule.placement)
    return Explicit(rows, placement=schedule.placement, microbatches=schedule.microbatches)


def relabelled(action, rng: random.Random):
    if isinstance(action, OverlapFB):
        return OverlapFB(relabelled(action.forward, rng)._replace(kind=action.forward.kind), action.backward)
    kind = rng.choice(list(type(action.kind)))
    changes = {"stage": action.stage + rng.choice([-1, 1, 9]), "microbatch": rng.randint(-1, 4), "kind": kind}
    name = rng.choice(list(changes))
    return action._replace(**{name: changes[name]})


def test_a_thousand_mutated_schedules_have_problems_exactly_when_simulate_refuses_them():
    rng, seen = random.Random(20240229), Counter()
    for trial in range(1000):
        schedule = mutated(SOUND[trial % len(SOUND)], rng)
        found = problems(schedule)
        assert all(problem.sentence for problem in found)
        try:
            timeline = simulate(schedule)
        except ScheduleError as error:
            assert found, str(schedule)
            assert (type(error) is DeadlockError) == all(problem.rule == "deadlock" for problem in found)
            with pytest.raises(type(error)) as again:
                check(schedule)
            assert str(again.value) == str(error)
        else:
            assert found == [], str(schedule)
            check(schedule)
            assert len(timeline.spans) == sum(map(len, schedule.actions))
        seen.update({problem.rule for problem in found} or {"sound"})
    assert set(seen) == {
        "sound",
        "deadlock",
        "missing",
        "duplicate",
        "out of range",
        "both",
        "elsewhere",
        "misplaced",
    }
    assert min(seen.values()) >= 10, seen
