"""Lesson 13: one device's program, and where what it receives lies."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.course.build import build, exercise
from gpipe_sim.course.called import called, result_of
from gpipe_sim.course.own_program import (
    early,
    read_steps,
    with_actions,
    with_messages,
    with_waits,
    wrong_row,
    wrong_run,
)
from gpipe_sim.course.reply import NOTHING_BACK, Reply, almost, correct, is_whole, keep_working
from gpipe_sim.course.rows import rows_of
from gpipe_sim.families import OneFOneB

#: devices, microbatches
HIDDEN_PROGRAMS = ((2, 3), (3, 5), (4, 9), (4, 2), (1, 3), (6, 7))
PIPELINES = ((2, 4), (2, 7), (3, 8), (4, 9), (6, 5), (5, 1))  #: the same, for receive buffers


@build("program")
def program(answer: Callable) -> Reply:
    """Check ``answer(k, K, M)``: 1F1B as the program of one device, with sends that block."""
    soon = runs = ""
    for K, M in HIDDEN_PROGRAMS:
        rows = []
        for k in range(K):
            where = f"called with ({k}, {K}, {M})"
            rows.append(read_steps(result_of(answer, k, K, M, where=where), where))
            if wrong := wrong_row(rows[k], k, K, M):
                return with_actions(keep_working(f"{where} {wrong}"), rows, K, M)
            soon = soon or early(rows[k], f"{where} it")
        if wrong := wrong_run(rows, K, M):
            return with_waits(keep_working(f"with K = {K}, M = {M}: {wrong}"), rows)
        runs = runs or f"For M = {M}, device {k} of {K} runs {' '.join(rows[k])}"
    if soon:
        return almost(f"it ends, and the gradients are right. But {soon}")
    sizes = f"{len(HIDDEN_PROGRAMS)} sizes, with sends that block"
    told = f"it ends at {sizes}, and the gradients are those of one device to 1e-12. {runs}"
    return with_messages(correct(told), rows)


@exercise("write a function buffer_of(m, k, K) and pass it in")
def receive_buffers(answer: Callable | None) -> Reply:
    """Check ``answer(m, k, K)``: the buffer into which device k of K receives microbatch m under 1F1B."""
    wasteful = ""
    for devices, microbatches in PIPELINES:
        for device in range(1, devices):
            chosen = _chosen(answer, device, devices, microbatches)
            row = rows_of(OneFOneB(devices, microbatches))[device]
            where = f"device {device} of {devices}, {microbatches} microbatches"
            if found := overwritten(row, chosen):
                return keep_working(f"{where}: {_how_wrong(row, chosen, found)}")
            if wasteful:
                continue
            used, most = len(set(chosen)), max(chosen)
            if used > fewest_buffers(row):
                asks = "How many still have to be read while one more arrives?"
                wasteful = f"nothing is overwritten, but on {where} fill {_buffers(used)}. {asks}"
            elif most >= used:
                its = f"on {where} fill {_buffers(used)}, and the largest number is {most}"
                wasteful = f"nothing is overwritten, but {its}. Which numbers are those, counted from 0?"
    if wasteful:
        return almost(wasteful)
    return correct("nothing is overwritten, and no device could do with fewer. Which device needs the most?")


def _buffers(count: int) -> str:
    return f"{count} buffer{'s' * (count > 1)}"


def _chosen(answer: object, device: int, devices: int, microbatches: int) -> list[int]:
    """The buffer of each microbatch. It is asked for in another order than they come in."""
    chosen = {}
    for m in sorted(range(microbatches), key=lambda m: m % 2):
        buffer = called(answer, m, device, devices)
        if not is_whole(buffer) or buffer < 0:
            where = f"for m = {m}, k = {device}, K = {devices}"
            if buffer is None:
                raise keep_working(f"{where} {NOTHING_BACK}")
            raise keep_working(f"{where} you say {buffer!r}. Which of the buffers 0, 1, 2, ... is that?")
        chosen[m] = int(buffer)
    return [chosen[m] for m in range(microbatches)]


def receives(row: Sequence[Action]) -> Iterator[tuple[Action | None, int | None]]:
    """(action, the microbatch received right after it or None): after each forward, the next one arrives.

    It starts with (None, 0): microbatch 0 arrives before any action.
    """
    yield None, 0
    last = max(action.microbatch for action in row)
    for action in row:
        follows = action.kind is Kind.F and action.microbatch < last
        yield action, action.microbatch + 1 if follows else None


def overwritten(row: Sequence[Action], chosen: list[int]) -> Action | None:
    """The first action whose buffer holds another microbatch than its own; None if there is none."""
    holds: dict[int, int] = {}
    for action, arriving in receives(row):
        if action and holds[chosen[action.microbatch]] != action.microbatch:
            return action
        if arriving is not None:
            holds[chosen[arriving]] = arriving
    return None


def fewest_buffers(row: Sequence[Action]) -> int:
    """The most activations that are arriving, or have yet to be read, at the same time."""
    kept = most = 0
    for action, arriving in receives(row):
        kept += (arriving is not None) - (action is not None and action.kind is Kind.B)
        most = max(most, kept)
    return most


def _how_wrong(row: Sequence[Action], chosen: list[int], action: Action) -> str:
    """What the overwriting does to a linear layer's gradient, measured.

    The loss stays right, because a forward always finds its own microbatch in the buffer.
    """
    right, wrong = (run(row, buffers)[1] for buffers in (range(len(chosen)), chosen))
    off = float(np.linalg.norm(wrong - right) / np.linalg.norm(right))
    return (
        f"the loss is right, the gradient is {off:.0%} wrong. {action} wants microbatch {action.microbatch} "
        f"in buffer {chosen[action.microbatch]}. Which microbatch sits there now?"
    )


def run(row: Sequence[Action], chosen: Sequence[int]) -> tuple[float, np.ndarray]:
    """The loss and the weight gradient of a linear layer that reads its inputs from the buffers."""
    rng = np.random.default_rng(0)
    count, weight = len(chosen), rng.normal(size=(6, 3))
    inputs, targets = rng.normal(size=(count, 5, 6)), rng.normal(size=(count, 5, 3))
    buffers = {number: np.zeros((5, 6)) for number in chosen}
    loss, gradient, errors = 0.0, np.zeros_like(weight), {}
    for action, arriving in receives(row):
        if action:
            m, x = action.microbatch, buffers[chosen[action.microbatch]]
            if action.kind is Kind.F:
                errors[m] = x @ weight - targets[m]
                loss += float((errors[m] ** 2).sum())
            else:
                gradient += 2 * x.T @ errors.pop(m)
        if arriving is not None:
            buffers[chosen[arriving]][:] = inputs[arriving]
    return loss, gradient
