"""The puzzles of the page as exercises: a check for each, such as ``play_fill_the_wait``.

The texts, the limits and par are those of the page; ``slow`` is the order that a notebook begins with.
"""

from collections.abc import Callable, Mapping
from functools import cache

from gpipe_sim.core.timeline import number
from gpipe_sim.course.build import exercise
from gpipe_sim.course.puzzle import puzzle
from gpipe_sim.course.reply import Reply
from gpipe_sim.viewer.bound import simple_bound
from gpipe_sim.viewer.puzzles import Puzzle, puzzles

TASK = "write the order in this cell, a row for each device, and run it again"
PLAY = "play_"


def names() -> dict[str, Puzzle]:
    """The puzzles, by what their orders are called."""
    return {name.replace("-", "_"): board for name, board in puzzles().items()}


def __getattr__(name: str) -> Callable[[object], Reply]:
    if name not in map(f"{PLAY}{{}}".format, names()):
        raise AttributeError(f"no puzzle has a check {name!r}")
    return _check(name)


@cache
def _check(name: str) -> Callable[[object], Reply]:
    board = names()[name.removeprefix(PLAY)].name

    def check(answer: object) -> Reply:
        return puzzle(board, answer)

    check.__name__ = check.__qualname__ = name
    return exercise(TASK)(check)


def slow(board: Puzzle) -> str:
    """One microbatch at a time: through all stages, and all the way back, before the next one starts."""
    rows: list[list[str]] = [[] for _ in board.placement]
    home = {stage: row for row, held in zip(rows, board.placement, strict=True) for stage in held}
    for m in range(board.microbatches):
        for stage in range(board.stages):
            home[stage].append(f"{stage}F{m}")
        for stage in reversed(range(board.stages)):
            home[stage] += [f"{stage}{kind}{m}" for kind in board.kinds[1:]]
    return "\n".join(map(" ".join, rows))


def scores(orders: Mapping[str, object]) -> str:
    """A line for each puzzle: what the order of its name takes, par, and what counting shows to be needed."""
    lines = [f"{'':<22}{'yours':>9}{'par':>6}{'counted':>9}"]
    reached = shown = 0
    for name, board in names().items():
        yours, par, counted = _time(board, orders.get(name)), number(board.par), simple_bound(board).value
        reached, shown = reached + (yours == par), shown + (counted == board.par)
        lines.append(f"{board.title:<22}{yours:>9}{par:>6}{number(counted):>9}")
    end = f"at par in {reached} of {len(names())}; counting alone shows par of {shown}"
    return "\n".join([*lines, end])


def _time(board: Puzzle, order: object) -> str:
    try:
        return number(board.timed(board.read(order)).makespan) if isinstance(order, str) else "none"
    except (ValueError, TypeError):
        return "no order"
