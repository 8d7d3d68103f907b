"""Complete a schedule as text: some actions of each row are left out, and the devices have little room."""

from itertools import accumulate
from typing import NamedTuple

from gpipe_sim.core.bubbles import peak_in_flight
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.course.exercises.seeded import drawn_by, seeded
from gpipe_sim.course.lesson_05 import sound
from gpipe_sim.course.own_rows import drawn
from gpipe_sim.course.reply import Reply, almost, correct, keep_working, listed
from gpipe_sim.course.rows import rows_of, spelled
from gpipe_sim.course.waits import first_wait
from gpipe_sim.memory.greedy import greedy

K = 4
CAPS = ((2, 2, 2, 1), (3, 2, 2, 1), (2, 3, 2, 1), (4, 2, 2, 1), (3, 3, 1, 1), (2, 2, 1, 1), (3, 2, 1, 1))
BLANK, BLANKS = "___", 14


class Puzzle(NamedTuple):
    """The rows with blanks, the room of each device, and how long the whole may take."""

    rows: list[list[str]]
    caps: tuple[int, ...]
    longest: int

    def __str__(self) -> str:
        rows = [f"device {k}: {' '.join(row)}" for k, row in enumerate(self.rows)]
        return "\n".join([*rows, f"room for {listed(self.caps)}, and at most {self.longest} long"])


def task(seed: object = 0) -> Puzzle:
    rng = drawn_by(seed, "complete")
    M, caps = rng.randint(4, 5), rng.choice(CAPS)
    best = greedy(K, M, memory_limit=caps)
    rows = [[*map(str, row)] for row in best.actions]
    for place in rng.sample(range(2 * K * M), BLANKS):
        rows[place % K][place // K] = BLANK
    return Puzzle(rows, caps, int(simulate(best).makespan))


@seeded("write the rows as text, without a blank")
def check(answer: object, seed: object) -> Reply:
    """Check the rows: the given actions in their places, within the room, and not too long."""
    puzzle = task(seed)
    schedule = sound(answer, devices=K, microbatches=len(puzzle.rows[0]) // 2)
    _has_what_was_given(schedule, puzzle)
    _has_room(schedule, puzzle)
    timeline = simulate(schedule)
    if timeline.makespan > puzzle.longest:
        says = f"it runs within the room, and takes {timeline.makespan}; {puzzle.longest} is possible"
        waits = [(wait, k) for k in range(K) if (wait := first_wait(timeline, k))]
        if waits:
            (start, end, late), k = min(waits, key=lambda each: each[0][:2])
            says += f". Device {k} waits from {start} to {end} for {late}"
        return drawn(almost(f"{says}. What else could be done then?"), rows_of(schedule))
    held = listed(peak_in_flight(schedule))
    says = f"{timeline.makespan} long, and the devices hold at most {held}"
    return drawn(correct(f"{says}. On which device would room for one more help?"), rows_of(schedule))


def _has_what_was_given(schedule: Schedule, puzzle: Puzzle) -> None:
    for k, (row, given) in enumerate(zip(rows_of(schedule), puzzle.rows, strict=True)):
        for i, (own, wanted) in enumerate(zip(row, given, strict=True)):
            if wanted not in (BLANK, spelled(own)):
                says = f"the text has {wanted} at place {i} of device {k}, counted from 0, and you have {own}"
                reply = keep_working(f"{says}. Which places are yours to fill?")
                raise drawn(reply, rows_of(schedule), (k, i))


def _has_room(schedule: Schedule, puzzle: Puzzle) -> None:
    for k, (row, room) in enumerate(zip(rows_of(schedule), puzzle.caps, strict=True)):
        held = [*accumulate(1 if kind == "F" else -1 for _, kind, _ in row)]
        if max(held) > room:
            at = k, held.index(room + 1)
            says = f"it runs, but device {k} has room for {room} and holds {room + 1} with {row[at[1]]}"
            raise drawn(almost(f"{says}. What would make room before that?"), rows_of(schedule), at)
