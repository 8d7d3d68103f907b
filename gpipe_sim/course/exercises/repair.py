"""Repair a broken order: one action was moved along its row, and now devices wait for each other."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.course.exercises.seeded import drawn_by, seeded
from gpipe_sim.course.own_rows import drawn
from gpipe_sim.course.reply import Reply, almost, correct, keep_working, listed
from gpipe_sim.course.rows import (
    Rows,
    Step,
    as_schedule,
    check_row,
    parsed,
    read_rows,
    rows_of,
    spelled,
    who_is_stuck,
)
from gpipe_sim.course.waits import first_wait
from gpipe_sim.families import ZBH1, ZBH2

WHOLE: Sequence[Schedule] = (*(ZBH1(K, M) for K in (3, 4) for M in (4, 5)), ZBH2(3, 5))


class Broken(NamedTuple):
    """Rows that hang, how long they take at most once they are repaired, and what was moved in them."""

    rows: Rows
    longest: int
    moved: Step

    def __str__(self) -> str:
        rows = [f"device {k}: {' '.join(map(spelled, row))}" for k, row in enumerate(self.rows)]
        return "\n".join([*rows, f"at most {self.longest} long"])


def moves(row: Sequence[Step]) -> Iterator[tuple[Step, list[Step]]]:
    """(action, the row with it at another place) for every action and place."""
    for at, action in enumerate(row):
        rest = [each for each in row if each != action]
        for place in range(len(row)):
            if place != at:
                yield action, [*rest[:place], action, *rest[place:]]


def task(seed: object = 0) -> Broken:
    rng = drawn_by(seed, "repair")
    whole = rng.choice(WHOLE)
    rows: Rows = [[(s, str(kind), m) for s, kind, m in row] for row in rows_of(whole)]
    longest, moved = int(simulate(whole).makespan), [[*moves(row)] for row in rows]
    while True:
        k = rng.randrange(len(rows))
        action, row = rng.choice(moved[k])
        broken = Broken([*rows[:k], row, *rows[k + 1 :]], longest, action)
        if _waits_for_others(broken, row):
            return broken


def _waits_for_others(broken: Broken, row: list[Step]) -> bool:
    """Whether it hangs, and the row does not show why: F before I before W, microbatches in order."""
    own = all(row.index((s, a, m)) < row.index((s, b, m)) for s, _, m in row for a, b in ("FI", "IW"))
    in_order = all(
        [*of] == sorted(of) for of in ([m for _, kind, m in row if kind == each] for each in "FIW")
    )
    return own and in_order and bool(who_is_stuck(as_schedule(broken.rows)))


@seeded("write the repaired rows as text")
def check(answer: object, seed: object) -> Reply:
    """Check the rows: one action moved along its row, so that they run and are as short as before."""
    broken = task(seed)
    rows = _read(answer, broken)
    action = _moved(rows, broken)
    schedule = as_schedule(rows)
    if stuck := who_is_stuck(schedule):
        asks = "Which 'queued behind' of these should be the other way round?"
        raise drawn(keep_working(f"with {action} moved, {stuck}. {asks}"), rows)
    timeline = simulate(schedule)
    if timeline.makespan > broken.longest:
        says = f"with {action} moved it runs, and takes {timeline.makespan}; {broken.longest} is possible"
        waits = [(wait, k) for k in range(len(rows)) if (wait := first_wait(timeline, k))]
        if waits:
            (start, end, late), k = max(waits, key=lambda each: (each[0][1] - each[0][0], each[0][0]))
            says += f". Device {k} waits from {start} to {end} for {late}"
        raise drawn(almost(f"{says}. What could be moved instead, or how much further?"), rows)
    says = f"with {action} moved they run, {timeline.makespan} long"
    return drawn(correct(f"{says}. In which of the waits that you were told was it?"), rows)


def _read(answer: object, broken: Broken) -> Rows:
    """The rows, each with the actions that it had; raises a Reply if it is anything else."""
    K = len(broken.rows)
    if isinstance(answer, str):
        lines = [line for line in answer.upper().splitlines() if any(parsed(line))]
        rows = parsed("\n".join(lines))
        if len(rows) != K:
            raise keep_working(f"one row for each of the {K} devices, please (got {len(rows)})")
    elif isinstance(answer, list):
        rows = read_rows(answer, K, "as you wrote it", "FIW")
    else:
        raise keep_working(f"write the rows as one text, such as '0F0 0I0' (got {type(answer).__name__})")
    for k, given in enumerate(broken.rows):
        check_row(rows, k, given, f"your row {k} is")
    return rows


def _moved(rows: Rows, broken: Broken) -> str:
    """What was moved along its row; raises a Reply if that is nothing, or more than one action."""
    changed = [k for k, row in enumerate(rows) if row != broken.rows[k]]
    if not changed:
        stuck = f"{who_is_stuck(as_schedule(rows))}. Which of these waits is only a matter of order?"
        raise drawn(keep_working(f"nothing is moved yet. {stuck}"), rows)
    if len(changed) > 1:
        says = f"you changed the rows of the devices {listed(changed)}, and one action has to move"
        raise keep_working(f"{says}. On which row could that be enough?")
    [k] = changed
    one = [spelled(action) for action, row in moves(broken.rows[k]) if row == rows[k]]
    if not one:
        raise drawn(keep_working(f"on device {k} you moved more than one action. Which would do?"), rows)
    return " or ".join(one)
