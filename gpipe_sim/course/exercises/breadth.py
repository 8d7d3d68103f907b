"""Write a family of schedules: breadth first, wherever the stages are."""

from collections.abc import Callable
from typing import NamedTuple

from gpipe_sim.core.simulate import simulate
from gpipe_sim.course.exercises.seeded import drawn_by, hidden, seeded
from gpipe_sim.course.own_rows import drawn
from gpipe_sim.course.reply import Reply, correct, keep_working
from gpipe_sim.course.rows import Rows, Step, as_schedule, first_other, in_a_row, rows_from, spelled


class Size(NamedTuple):
    """Which stages each device holds, and how many microbatches there are."""

    placement: list[list[int]]
    M: int

    def __str__(self) -> str:
        held = [f"device {k} holds the stages {stages}" for k, stages in enumerate(self.placement)]
        return "\n".join([*held, f"{self.M} microbatches"])

    def rows(self) -> Rows:
        found: Rows = []
        for held in map(sorted, self.placement):
            forwards = [(s, "F", m) for s in held for m in range(self.M)]
            found.append(forwards + [(s, "B", m) for s, _, m in reversed(forwards)])
        return found


def task(seed: object = 0) -> Size:
    rng = drawn_by(seed, "breadth")
    K, V = rng.randint(2, 4), rng.randint(2, 3)
    rounds = [range(v * K, v * K + K) for v in range(V)]
    dealt = [[*one] if v % 2 == 0 else [*reversed(one)] for v, one in enumerate(rounds)]  # to and fro
    if rng.random() < 0.5:
        dealt = [rng.sample(one, K) for one in rounds]
    return Size([*map(list, zip(*dealt, strict=True))], rng.randint(2, 5))


EDGES = (
    Size([[0]], 3),
    Size([[3, 0], [2, 1]], 2),
    Size([[1], [5, 0, 3], [2, 4]], 3),
    Size([[0], [1], [2]], 1),
)


@seeded("write breadth_first in this cell, and run it again")
def check(answer: Callable, seed: object) -> Reply:
    """Check ``answer(placement, M)``: forwards stage by stage, then backwards stage by stage."""
    sizes = [*map(task, hidden(seed)), *EDGES]
    for size in sizes:
        wanted, where = size.rows(), f"for the placement {size.placement} and M = {size.M}"
        rows = rows_from(answer, *size, wanted=wanted, where=where, whole=("placement",))
        for k, (row, right) in enumerate(zip(rows, wanted, strict=True)):
            if row != right:
                at = first_other(row, right)
                says = f"{where}, device {k} does {in_a_row(row, most=at + 1, end='.')}"
                return drawn(keep_working(f"{says} {_asks(row, right, at, size.M)}"), rows, (k, at))
    rows = sizes[0].rows()
    long = simulate(as_schedule(rows, sizes[0].placement)).makespan
    says = f"breadth first at {len(sizes)} sizes; yours, drawn here, takes {long} if each stage takes 1 and 2"
    return drawn(correct(f"{says}. What does a device hold at its turn?"), rows)


def _asks(row: list[Step], right: list[Step], at: int, M: int) -> str:
    (s, kind, m), due = row[at], right[at]
    if kind != due[1]:
        return "Which of these come first in a row that is breadth first?"
    if s != due[0] and at % M == 0:
        return f"At which of its stages is a microbatch {'first' if kind == 'F' else 'back first'}?"
    if s != due[0]:
        return f"How many of the {M} microbatches has it done at that stage before {spelled((s, kind, m))}?"
    return "Which microbatch comes next on the way " + ("there?" if kind == "F" else "back?")
