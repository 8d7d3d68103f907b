"""What a finished board is worth: its order runs on real digits, and is held against par."""

import math
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from gpipe_sim.core.bubbles import peak_in_flight
from gpipe_sim.core.layers import mlp
from gpipe_sim.core.losses import cross_entropy
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.split import split
from gpipe_sim.core.step import single_device_step, train_step
from gpipe_sim.core.timeline import Timeline, number
from gpipe_sim.course.printed import unbroken
from gpipe_sim.course.reply import Reply, keep_working, listed, quoted, your_turn
from gpipe_sim.course.reveal import fold, prose
from gpipe_sim.dataset import digits
from gpipe_sim.drawing.deadlock import draw_deadlock
from gpipe_sim.drawing.svg import draw
from gpipe_sim.errors import DeadlockError, Real
from gpipe_sim.memory.limit import in_bytes
from gpipe_sim.viewer.bound import device_bounds
from gpipe_sim.viewer.puzzles import Puzzle, puzzles

SAMPLES = 4  #: of each microbatch


class Measured(NamedTuple):
    """What an order gave on digits; ``peak`` is the most bytes that each device held where actions end."""

    makespan: Real
    par: Real
    gradient_error: float
    peak: tuple[int, ...]


class Played(Reply):
    """A reply to an order, with what was ``measured`` if it ran; a notebook shows what is ``below`` too."""

    measured: Measured
    below: str = ""  #: HTML: the order's chart, what each device did, and the proof of par

    def _repr_html_(self) -> str:
        return super()._repr_html_() + self.below


def puzzle(name: object, text: object = None) -> Reply:
    """Run the order that fills a puzzle's board on real digits, and hold it against par.

    ``text`` has a row for each device, as the board gives it and ``gp.Explicit.parse`` reads it. The model
    has as many stages as the puzzle. The reply is "correct" at par and "almost" for an order that takes
    longer; it says how far the gradients are from those of one device, and the bytes that each device held
    at its peak. It is "keep working" for all that does not run, with one sentence that says why.
    A notebook also shows a chart, what each device did, and why no order takes less than par.
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
        reply = Played("keep working", f"{first} {'; '.join(others)}".strip())
        reply.below = _stopped(board, text) + _proof(board)
        return reply
    measured = _measured(board, timeline)
    found = Played("almost" if measured.makespan > board.par else "correct", _in_words(board, measured))
    found.measured = measured
    learnt = prose(board.learnt) if found.verdict == "correct" else ""
    chart = draw(timeline, titles=[board.title])._repr_html_()
    found.below = chart + unbroken(_table(board, timeline, measured)) + learnt + _proof(board)
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


def _table(board: Puzzle, timeline: Timeline, found: Measured) -> str:
    """What each device did, held, and had room for."""
    lines = [f"{'':<10}{'works':>12}{'holds at most':>16}{'room':>7}{'bytes at most':>16}"]
    held = peak_in_flight(timeline.schedule)
    for k, (row, peak, room, size) in enumerate(
        zip(timeline.rows, held, board.limits, found.peak, strict=True)
    ):
        works = f"{number(sum(span.end - span.start for span in row))} of {number(timeline.makespan)}"
        most = "any" if room == math.inf else room
        lines.append(f"device {k:<3}{works:>12}{peak:>16}{most:>7}{in_bytes(size):>16}")
    return "\n".join([*lines, f"takes {number(timeline.makespan)}; par is {number(board.par)}"])


def _stopped(board: Puzzle, text: str) -> str:
    """Where an order goes wrong, drawn, if it is one that can be: who is stuck, or what is one too many."""
    with suppress(ValueError, TypeError):
        order = board.read(text)
        try:
            timeline = simulate(order, board.costs)
        except DeadlockError:
            return draw_deadlock(order)._repr_html_()
        if over := board.one_more(timeline):
            title = f"{over.action} is one more than device {over.device} has room for"
            return draw(timeline, highlight=[over], titles=[title])._repr_html_()
    return ""


def _proof(board: Puzzle) -> str:
    """Why no order takes less than par: by counting, and where that is too little by search."""
    counted = list(device_bounds(board))
    most, bound = max(each.value for each in counted), board.bound.value
    says = f"""A device starts once a microbatch has reached it, does all its work, and then the last gradient
    has to go back to stage 0. So the step takes at least the most of these, **{number(most)}**:"""
    inside = prose(says) + unbroken("\n".join(each.why for each in counted))
    if bound > most:
        inside += prose(
            f"""Counting leaves open what lies between {number(most)} and {number(bound)}. A search of
            all orders, by OR-Tools' CP-SAT, found none below {number(bound)}. In a clone of the repository
            `make prove` searches again, for all puzzles; after that `.venv/bin/python -m prove {board.name}`
            does it for this one."""
        )
    return fold(f"Why no order takes less than {number(bound)}", inside)
