"""Two thousand wrong schedules: each is refused with a reason, or is none."""

import random
from collections import Counter
from collections.abc import Callable
from itertools import cycle, islice

from cases import BOTH_WAYS, V_SHAPED, every_order, overlapped

from gpipe_sim import ZBH1, Explicit, GPipe, OneFOneB, check, problems, remat, simulate, with_updates
from gpipe_sim.core import Kind, OverlapFB, Schedule
from gpipe_sim.errors import DeadlockError, ScheduleError

SOUND = [
    *every_order([(1, 2), (2, 2), (2, 3), (2, 4), (3, 2), (4, 2)]),
    V_SHAPED,
    BOTH_WAYS,
    overlapped(2, 4),
    remat(OneFOneB(2, 3), "except_last"),
    with_updates(GPipe(2, 2)),
]
TRIALS = 1_000
#: What can be wrong although every action is there, once, in its place
STUCK = {"order", "deadlock", "stuck"}


def mutated(schedule: Schedule, rng: random.Random) -> Explicit:
    """A schedule with one to three random changes to its rows; its placement stays."""
    rows = [list(row) for row in schedule.actions]
    for _ in range(rng.randint(1, 3)):
        if any(rows):
            row = rng.choice([row for row in rows if row])
            change(row, rng, relabelled, send=rng.choice(rows).append)
    if not any(rows):
        rows = schedule.actions
    return Explicit(rows, placement=schedule.placement, microbatches=schedule.microbatches)


def change(row: list, rng: random.Random, relabelled: Callable, send: Callable | None = None) -> None:
    """One random change to a row; with ``send``, what it drops may be given to that."""
    at, to = rng.randrange(len(row)), rng.randrange(len(row))
    ways = ["swap", "swap", "move", "move", "drop", "duplicate", "relabel"]
    match rng.choice([*ways, "send"] if send else ways):
        case "swap":
            row[at], row[to] = row[to], row[at]
        case "move":
            row.insert(to, row.pop(at))
        case "drop":
            del row[at]
        case "duplicate":
            row.insert(to, row[at])
        case "relabel":
            row[at] = relabelled(row[at], rng)
        case "send":
            send(row.pop(at))


def relabelled(action, rng: random.Random):
    if isinstance(action, OverlapFB):
        return OverlapFB(relabelled(action.forward, rng)._replace(kind=Kind.F), action.backward)
    changes = {
        "stage": action.stage + rng.choice([-1, 1, 9]),
        "microbatch": rng.randint(-1, 4),
        "kind": rng.choice(list(Kind)),
    }
    name = rng.choice(list(changes))
    return action._replace(**{name: changes[name]})


def refusal(function, schedule: Schedule) -> ScheduleError | None:
    try:
        function(schedule)
    except ScheduleError as error:
        return error


def test_a_thousand_mutated_schedules_are_sound_or_reported_and_simulate_agrees():
    rng, seen = random.Random(20240229), Counter()
    for schedule in islice(cycle(SOUND), TRIALS):
        schedule = mutated(schedule, rng)
        found, error = problems(schedule), refusal(simulate, schedule)
        rules = {problem.rule for problem in found}
        assert all(problem.sentence for problem in found)
        assert bool(found) == bool(error), str(schedule)
        if error:
            assert isinstance(error, DeadlockError) == (rules <= STUCK), str(schedule)
            assert str(refusal(check, schedule)) == str(error)
        else:
            hung = {problem.rule for problem in problems(schedule, sends="blocking")}
            assert hung <= {"blocking"}
            rules = hung or {"sound"}
        seen.update(rules)
    assert set(seen) == {
        "sound", "blocking", "deadlock", "stuck", "order",
        "missing", "duplicate", "out of range", "both", "elsewhere", "misplaced", "update",
    }  # fmt: skip
    assert min(seen.values()) >= TRIALS / 200, seen


def test_a_copy_of_any_action_is_a_duplicate_and_any_dropped_one_but_r_and_u_is_missing():
    """Where both `problems` and `simulate` overlook a copy, they agree, and nothing above would notice."""
    schedule = with_updates(remat(ZBH1(2, 2), "always"))
    for device, row in enumerate(schedule.actions):
        for at, action in enumerate(row):
            copied = rules(schedule, device, [*row[: at + 1], *row[at:]])
            dropped = rules(schedule, device, [*row[:at], *row[at + 1 :]])
            assert "duplicate" in copied, action
            assert ("missing" in dropped) == (action.kind not in (Kind.R, Kind.U)), action


def test_whatever_reads_what_a_forward_saved_is_elsewhere_on_another_device():
    schedule = remat(ZBH1(2, 2), "always")
    both = Explicit(schedule.actions, placement=[[0, 1], [0, 1]])
    for action in (action for action in both.actions[1] if action.kind is not Kind.F):
        moved = [[*both.actions[0], action], [other for other in both.actions[1] if other != action]]
        found = problems(Explicit(moved, placement=both.placement, microbatches=2))
        assert ("elsewhere", action) in {(problem.rule, problem.action) for problem in found}, action


def rules(schedule: Schedule, device: int, row: list) -> set[str]:
    """What is wrong with a schedule once a device has this row."""
    rows = [row if k == device else kept for k, kept in enumerate(schedule.actions)]
    changed = Explicit(rows, placement=schedule.placement, microbatches=schedule.microbatches)
    return {problem.rule for problem in problems(changed)}
