"""Lesson 07: 1F1B."""

from collections.abc import Callable, Iterator, Sequence
from numbers import Integral

import numpy as np

from gpipe_sim.course.called import called
from gpipe_sim.course.reply import Reply, almost, correct, keep_working, your_turn
from gpipe_sim.families import GPipe, OneFOneB
from gpipe_sim.schedule.actions import Action, B, F, Kind
from gpipe_sim.schedule.base import needs
from gpipe_sim.schedule.explicit import Explicit
from gpipe_sim.simulation.deadlock import all_waits, cycle, in_words
from gpipe_sim.simulation.metrics import idle_spans, peak_in_flight
from gpipe_sim.simulation.problems import problems
from gpipe_sim.simulation.simulate import simulate
from gpipe_sim.simulation.timeline import Timeline

SIZES = ((3, 7), (2, 5), (5, 6), (1, 3), (4, 4), (6, 2))  #: (devices, microbatches), where a warm-up is tried
PIPELINES = ((2, 4), (2, 7), (3, 8), (4, 9), (6, 5), (5, 1))  #: the same, for receive buffers
#: What natural wrong guesses at the length with a warm-up of four on each of 4 devices would be.
DIAL = {
    33: "That is a warm-up of eight. With four, who has to wait for a gradient before a forward?",
    48: "That is half of the naive order. Does half a turn of the dial save half of all the time?",
    64.5: "That is halfway between 96 and 33. Do all eight turns of the dial save equally much?",
    69: "That is a warm-up of three. How many are in flight once the first forward of a pair has run?",
}
#: What natural wrong guesses at the microbatches that the four devices of 1F1B hold, added up, would be.
TOGETHER = {
    4: "That is device 0 alone. What do the others hold, each with one forward less ahead?",
    6: "That counts the warm-ups only. What comes before the first backward on each row?",
    16: "That is four on every device. Does the last device need as many ahead as the first?",
    32: "That is GPipe. When does 1F1B send the first microbatch back?",
}
#: What natural wrong guesses at how the bytes of 1F1B grow from M = 4 to M = 32 would be.
GROWTH = {
    0: "As a factor, no growth at all is 1. Is that what you mean?",
    4: "That is how many are in flight on device 0 with M = 4. How many are there with M = 32?",
    8: "That is GPipe, where all M are in flight. What is in flight on device 0 under 1F1B?",
}


def warm_up(answer: Callable | None) -> Reply:
    """Check ``answer(k, K, M)``: how many forwards device k runs before it alternates."""
    if answer is None:
        return your_turn("write a function warmup(k, K, M) and pass it in")
    for devices, microbatches in SIZES:
        depths = []
        for device in range(devices):
            depth = called(answer, device, devices, microbatches)
            if isinstance(depth, Reply):
                return depth
            if not _is_count(depth):
                where = f"for k = {device}, K = {devices}, M = {microbatches}"
                return keep_working(f"{where} you say {depth!r}; it should be a whole number of forwards")
            depths.append(int(depth))
        if wrong := _what_is_wrong(depths, devices, microbatches):
            return wrong
    held = _listed(peak_in_flight(OneFOneB(5, 6)))
    return correct(
        f"as short as GPipe wherever it was tried, and none holds less: 5 devices with 6 microbatches hold "
        f"at most {held}. How many with 1,000 microbatches?"
    )


def _what_is_wrong(depths: list[int], devices: int, microbatches: int) -> Reply | None:
    where = f"K = {devices}, M = {microbatches}: warm-ups {_listed(depths)}"
    for device, depth in enumerate(depths):
        if depth > microbatches:
            return almost(f"{where}. Which {depth} forwards does device {device} do?")
    schedule, gpipe = warming_up(depths, microbatches), GPipe(devices, microbatches)
    if problems(schedule):
        return keep_working(f"{where}. {in_words(cycle(all_waits(schedule)))}. Who should have sent more?")
    timeline, best = simulate(schedule), simulate(gpipe).makespan
    if timeline.makespan > best:
        return almost(f"{where} take {timeline.makespan}, GPipe {best}. {_who_waits(timeline)}")
    enough = peak_in_flight(OneFOneB(devices, microbatches))
    for device, (peak, least) in enumerate(zip(peak_in_flight(schedule), enough, strict=True)):
        if peak > least:
            return almost(
                f"{where} are as short as GPipe, but device {device} holds {peak} at once. "
                f"What did the extra forward{'s' * (peak > least + 1)} buy?"
            )
    return None


def _who_waits(timeline: Timeline) -> str:
    """A sentence on the first time that the last device, which could work without a break, has to wait."""
    last = timeline.schedule.devices - 1
    row = timeline.on(last)
    for start, end in idle_spans(timeline, last):
        if row[0].end <= start < row[-1].start:
            held_up = next(span.action for span in row if span.start == end)
            late = needs(held_up, timeline.schedule)[0]
            return (
                f"Device {last} waits from {start} to {end} for {late}. What comes before {late} on its row?"
            )
    return f"Device {last} never waits once it has begun. Who waits for it?"


def warming_up(depths: Sequence[int], microbatches: int) -> Explicit:
    """Device k runs depths[k] forwards, then alternates one forward and one backward, then runs the rest."""
    return Explicit([list(_row(device, depth, microbatches)) for device, depth in enumerate(depths)])


def _row(device: int, depth: int, microbatches: int) -> Iterator[Action]:
    yield from (F(device, m) for m in range(depth))
    for m in range(microbatches - depth):
        yield F(device, depth + m)
        yield B(device, m)
    yield from (B(device, m) for m in range(microbatches - depth, microbatches))


def receive_buffers(answer: Callable | None) -> Reply:
    """Check ``answer(m, k, K)``: the buffer into which device k of K receives microbatch m under 1F1B."""
    if answer is None:
        return your_turn("write a function buffer_of(m, k, K) and pass it in")
    wasteful = None
    for devices, microbatches in PIPELINES:
        for device in range(1, devices):
            chosen = _chosen(answer, device, devices, microbatches)
            if isinstance(chosen, Reply):
                return chosen
            row = OneFOneB(devices, microbatches).actions[device]
            where = f"device {device} of {devices}, {microbatches} microbatches"
            if found := overwritten(row, chosen):
                return keep_working(f"{where}: {_how_wrong(row, chosen, found)}")
            if len(set(chosen)) > fewest_buffers(row) and wasteful is None:
                wasteful = f"nothing is overwritten, but {where} fill {len(set(chosen))} buffers"
    if wasteful:
        return almost(f"{wasteful}. How many still have to be read while one more arrives?")
    return correct("nothing is overwritten, and no device could do with fewer. Which device needs the most?")


def _chosen(answer: Callable, device: int, devices: int, microbatches: int) -> list[int] | Reply:
    chosen = []
    for m in range(microbatches):
        buffer = called(answer, m, device, devices)
        if isinstance(buffer, Reply):
            return buffer
        if not _is_count(buffer):
            where = f"for m = {m}, k = {device}, K = {devices}"
            return keep_working(f"{where} you say {buffer!r}; buffers are numbered 0, 1, 2, ...")
        chosen.append(int(buffer))
    return chosen


def receives(row: tuple[Action, ...]) -> Iterator[tuple[Action | None, int | None]]:
    """(action, the microbatch received right after it or None): after each forward, the next one arrives.

    It starts with (None, 0): microbatch 0 arrives before any action.
    """
    yield None, 0
    last = max(action.microbatch for action in row)
    for action in row:
        follows = action.kind is Kind.F and action.microbatch < last
        yield action, action.microbatch + 1 if follows else None


def overwritten(row: tuple[Action, ...], chosen: list[int]) -> Action | None:
    """The first action whose buffer holds another microbatch than its own; None if there is none."""
    holds = {}
    for action, arriving in receives(row):
        if action and holds[chosen[action.microbatch]] != action.microbatch:
            return action
        if arriving is not None:
            holds[chosen[arriving]] = arriving
    return None


def fewest_buffers(row: tuple[Action, ...]) -> int:
    """The most activations that are arriving, or have yet to be read, at the same time."""
    kept, most = set(), 0
    for action, arriving in receives(row):
        if action and action.kind is Kind.B:
            kept.remove(action.microbatch)
        if arriving is not None:
            kept.add(arriving)
        most = max(most, len(kept))
    return most


def _how_wrong(row: tuple[Action, ...], chosen: list[int], action: Action) -> str:
    """What the overwriting does to a linear layer's gradient, measured.

    The loss stays right, because a forward always finds its own microbatch in the buffer.
    """
    right, wrong = (run(row, buffers)[1] for buffers in (range(len(chosen)), chosen))
    off = float(np.linalg.norm(wrong - right) / np.linalg.norm(right))
    return (
        f"the loss is right, the gradient is {off:.0%} wrong. {action} wants microbatch {action.microbatch} "
        f"in buffer {chosen[action.microbatch]}. Which microbatch sits there now?"
    )


def run(row: tuple[Action, ...], chosen: Sequence[int]) -> tuple[float, np.ndarray]:
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


def _is_count(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and value >= 0


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
