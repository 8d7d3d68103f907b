"""What a finished board is worth: its order runs on real digits, and is held against par.

``puzzle`` replies as a check does: "correct" at par, "almost" for an order that runs and takes longer, and
"keep working", with what is wrong in one sentence, for all else.
"""

from itertools import accumulate
from typing import NamedTuple

import numpy as np

from gpipe_sim.core.explicit import Explicit, row_texts
from gpipe_sim.core.layers import mlp
from gpipe_sim.core.losses import cross_entropy
from gpipe_sim.core.rules import in_flight
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.split import split
from gpipe_sim.core.step import single_device_step, train_step
from gpipe_sim.core.timeline import Timeline, number
from gpipe_sim.course.build import exercise
from gpipe_sim.course.reply import Reply, almost, correct, keep_working, listed, quoted
from gpipe_sim.dataset import digits
from gpipe_sim.errors import Real, ScheduleError
from gpipe_sim.memory.limit import in_bytes
from gpipe_sim.viewer.puzzles import Puzzle, puzzles

SAMPLES = 4  #: of each microbatch


class Measured(NamedTuple):
    """What an order gave on digits; ``peak`` is the most bytes that each device held where actions end."""

    makespan: Real
    par: Real
    gradient_error: float
    peak: tuple[int, ...]


class Played(Reply):
    """A reply to an order that ran, with what was ``measured``."""

    measured: Measured


@exercise("fill the board, and paste the text that it gives")
def puzzle(name: str, text: str) -> Reply:
    """Run the order that fills a puzzle's board on real digits, and hold it against par.

    ``text`` has a row for each device, as the board gives it and ``gp.Explicit.parse`` reads it. The model
    has as many stages as the puzzle. The reply says how far the gradients are from those of one device, the
    bytes that each device held at its peak, and how far from par the order is.
    """
    if not isinstance(name, str) or name not in puzzles():
        raise keep_working(f"no puzzle is called {quoted(name)}; there are {listed(puzzles())}")
    board = puzzles()[name]
    timeline = _timed(board, _read(board, text))
    measured = _measured(board, timeline)
    longer = measured.makespan - board.par
    found = Played(*(almost if longer > 0 else correct)(_in_words(board, measured)).args)
    found.measured = measured
    return found


def _read(board: Puzzle, text: object) -> Schedule:
    """The rows as a schedule of the board's devices; a Reply if they are no rows, or are of another board."""
    if not isinstance(text, str):
        raise keep_working(f"the text has a row for each device, such as '0F0 0B0', and is not {quoted(text)}")
    try:
        rows, held = row_texts(text)
        found = Explicit(rows, placement=held)
    except (ValueError, TypeError) as error:
        raise keep_working(_on_one_line(error)) from None
    if (theirs := _sizes(found)) != (ours := _sizes(board.schedule())):
        raise keep_working(f"{board.name} has {ours}; this order has {theirs}")
    if held and [sorted(stages) for stages in held] != [sorted(stages) for stages in board.placement]:
        raise keep_working(f"{board.name} has stages {listed(board.placement)} on its devices, not {listed(held)}")
    if others := [str(a) for row in found.rows for a in row if str(getattr(a, "kind", "")) not in board.kinds]:
        raise keep_working(f"{board.name} is played with {listed(board.kinds)} alone, and not with {others[0]}")
    return board.schedule(found.rows)


def _sizes(order: Schedule) -> str:
    return f"{order.devices} devices, {order.stages} stages and {order.microbatches} microbatches"


def _on_one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _timed(board: Puzzle, order: Schedule) -> Timeline:
    """The order's timeline; a Reply if it cannot finish, or if a device would hold more than its room."""
    try:
        timeline = simulate(order, board.costs)
    except ScheduleError as error:
        raise keep_working(_on_one_line(error)) from None
    over = []
    for row, room in zip(timeline.rows, board.limits, strict=True):
        held = accumulate(in_flight(span.action.kind) for span in row)
        over += [span for span, count in zip(row, held, strict=True) if count > room][:1]
    if over:
        first = min(over, key=lambda span: span.start)
        room, at = board.limits[first.device], number(first.start)
        raise keep_working(
            f"device {first.device} has room for {room} stage-activations, and {first.action} at {at} "
            "would be one more: what could it give back before?"
        )
    return timeline


def _measured(board: Puzzle, timeline: Timeline) -> Measured:
    layers = mlp([64, *[16] * (board.stages - 1), 10])
    batch = digits()[:2]
    batch = tuple(each[: SAMPLES * board.microbatches] for each in batch)
    step = train_step(split(layers, stages=board.stages), timeline.schedule, batch, cross_entropy, costs=board.costs)
    alone = single_device_step(layers, batch, cross_entropy, microbatches=board.microbatches).gradients
    error = max(float(np.abs(step.gradients[name] - alone[name]).max()) for name in alone)
    return Measured(timeline.makespan, board.par, error, tuple(trace.peak() for trace in step.memory))


def _in_words(board: Puzzle, found: Measured) -> str:
    longer, least = found.makespan - board.par, board.bound.value
    known = f"of all orders known; none takes less than {number(least)}" if board.gap else "of all orders"
    takes = f"it takes {number(found.makespan)}"
    against = f"{number(longer)} more than par" if longer > 0 else f"the least {known}"
    held = listed(in_bytes(peak) for peak in found.peak)
    asks = " Which device waits, and for what?" if longer > 0 else ""
    return (
        f"{takes}, {against}. On {SAMPLES * board.microbatches} digits its gradients are within "
        f"{found.gradient_error:.0e} of those of one device, and the devices hold at most {held}.{asks}"
    )
