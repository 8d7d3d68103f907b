"""What a finished board is worth: its order runs on real digits, and is held against par."""

from typing import NamedTuple

import numpy as np

from gpipe_sim.core.layers import mlp
from gpipe_sim.core.losses import cross_entropy
from gpipe_sim.core.split import split
from gpipe_sim.core.step import single_device_step, train_step
from gpipe_sim.core.timeline import Timeline, number
from gpipe_sim.course.reply import Reply, almost, correct, keep_working, listed, quoted, your_turn
from gpipe_sim.dataset import digits
from gpipe_sim.errors import Real
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


def puzzle(name: str, text: str | None = None) -> Reply:
    """Run the order that fills a puzzle's board on real digits, and hold it against par.

    ``text`` has a row for each device, as the board gives it and ``gp.Explicit.parse`` reads it. The model
    has as many stages as the puzzle. The reply is "correct" at par and "almost" for an order that takes
    longer; it says how far the gradients are from those of one device, and the bytes that each device held
    at its peak. It is "keep working" for all that does not run, with one sentence that says why.
    """
    if not isinstance(name, str) or name not in puzzles():
        return keep_working(f"no puzzle is called {quoted(name)}; there are {listed(puzzles())}")
    if text is None:
        return your_turn("fill the board, and paste the text that it gives")
    if not isinstance(text, str):
        return keep_working(f"the text has a row per device, such as '0F0 0B0', and is not {quoted(text)}")
    board = puzzles()[name]
    try:
        timeline = board.timed(board.read(text))
    except (ValueError, TypeError) as error:
        first, *others = map(str.strip, str(error).splitlines())
        return keep_working(f"{first} {'; '.join(others)}".strip())
    measured = _measured(board, timeline)
    verdict = almost if measured.makespan > board.par else correct
    found = Played(*verdict(_in_words(board, measured)).args)
    found.measured = measured
    return found


def _measured(board: Puzzle, timeline: Timeline) -> Measured:
    layers, count = mlp([64, *[16] * (board.stages - 1), 10]), board.microbatches
    data = digits()
    batch = data.x[: SAMPLES * count], data.y[: SAMPLES * count]
    partitions = split(layers, stages=board.stages)
    step = train_step(partitions, timeline.schedule, batch, cross_entropy, costs=board.costs)
    alone = single_device_step(layers, batch, cross_entropy, microbatches=count).gradients
    error = max(float(np.abs(step.gradients[name] - alone[name]).max()) for name in alone)
    return Measured(timeline.makespan, board.par, error, tuple(trace.peak() for trace in step.memory))


def _in_words(board: Puzzle, found: Measured) -> str:
    longer, error = found.makespan - board.par, found.gradient_error
    known = f"known, and none takes less than {number(board.bound.value)}" if board.gap else "of all orders"
    takes = f"{number(longer)} more than par" if longer > 0 else f"the least {known}"
    equal = f"within {error:.0e} of" if error else "exactly"
    asks = " Which device waits, and for what?" if longer > 0 else ""
    return (
        f"it takes {number(found.makespan)}, {takes}. On {SAMPLES * board.microbatches} digits its gradients "
        f"are {equal} those of one device, and the devices hold at most {listed(map(in_bytes, found.peak))}."
        f"{asks}"
    )
