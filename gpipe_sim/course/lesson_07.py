"""Lesson 07: 1F1B."""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import numpy as np

from gpipe_sim.core.actions import Action, Kind
from gpipe_sim.core.bubbles import peak_in_flight
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.course.answers import NEEDS, gpipe_rows
from gpipe_sim.course.build import build, exercise
from gpipe_sim.course.called import called
from gpipe_sim.course.reply import (
    NOTHING_BACK,
    Reply,
    almost,
    correct,
    is_whole,
    keep_working,
    listed,
)
from gpipe_sim.course.rows import Rows, as_schedule, done_on, rows_from, rows_of, who_is_stuck
from gpipe_sim.course.waits import first_wait
from gpipe_sim.families import GPipe, OneFOneB
from gpipe_sim.memory.greedy import greedy

#: devices, microbatches, caps, and how long a forward and a backward take: where rows under caps are tried
CAPPED = (
    (3, 4, (2, 2, 2), 1, 2),
    (3, 5, (1, 3, 2), 1, 2),
    (4, 6, (6, 6, 6, 6), 1, 2),
    (2, 4, (3, 2), 3, 1),
    (1, 3, (2,), 1, 1),
    (4, 7, (4, 3, 2, 1), 2, 3),
    (3, 2, (5, 5, 5), 1, 4),
    (5, 9, (2, 3, 1, 4, 2), 3, 2),
    (2, 4, (4, 2), 1, 1),
)
SIZES = ((3, 7), (2, 5), (5, 6), (1, 3), (4, 4), (6, 2))  #: (devices, microbatches), where caps are tried
PIPELINES = ((2, 4), (2, 7), (3, 8), (4, 9), (6, 5), (5, 1))  #: the same, for receive buffers
#: What natural wrong guesses at the length with room for four on each of 4 devices would be.
DIAL = {
    24: "That is two round trips of 12. Do all four of the second one come back at the same time?",
    36: "That is three round trips. How many groups of four are there in eight microbatches?",
    48: "That is half of the naive order. How many microbatches are on their way at once?",
    51: "That is room for two. How long would device 0 still be idle, with four on their way?",
    64.5: "That is halfway between 96 and 33. How many round trips are there, with four on their way?",
}
#: What natural wrong guesses at how the bytes of 1F1B grow from M = 4 to M = 32 would be.
GROWTH = {
    0: "As a factor, no growth at all is 1. Is that what you mean?",
    4: "That is how many are in flight on device 0 with M = 4. How many are there with M = 32?",
    8: "That is GPipe, where all M are in flight. What is in flight on device 0 under 1F1B?",
}
#: What natural wrong guesses at the time that 1F1B loses to messages with M = 64 would be.
LOST = {
    0: "What has to cross from device 0 to device 3 before device 3 can begin?",
    6: "That is GPipe, where devices wait for messages at both ends only. Who waits in between here?",
    16: "That is M = 8. How many more round trips are there with M = 64?",
    90: "That is 6 on each of 15 round trips. With M = 8 there are two, and what do they lose?",
    96: "That is 6 on each of 16 round trips. With M = 8 there are two, and what do they lose?",
    128: "That is 16, eight times. Is all of 16 lost on each round trip, or some of it only once?",
}
#: What a wrong answer to the first claim overlooks.
SMALLER = {
    "true": "71 is 32 microbatches of work and 7 forwards on the way down. What is still to come after that?"
}


@build("capped_rows")
def capped_rows(answer: Callable) -> Reply:
    """Check ``answer(K, M, caps, table, cost)``: rows in which device k never holds more than caps[k]."""
    for case in CAPPED:
        devices, microbatches, caps, forward, backward = case
        cost = {"F": forward, "B": backward}
        where = (
            f"with K = {devices}, M = {microbatches}, caps {listed(caps)}, F takes {forward}, B {backward}"
        )
        asked, wanted = (devices, microbatches, list(caps), NEEDS, cost), gpipe_rows(devices, microbatches)
        rows = rows_from(answer, *asked, wanted=wanted, where=where)
        _what_is_wrong_with_rows(rows, case, f"{where}:")
    return correct(
        f"the rows of the library's planner in all {len(CAPPED)} cases. Which caps make a step short, and "
        "which only make it hold more?"
    )


def _what_is_wrong_with_rows(rows: Rows, case: tuple, where: str) -> None:
    devices, microbatches, caps, forward, backward = case
    costs = Costs(forward=forward, input_grad=backward, weight_grad=0)
    best = greedy(devices, microbatches, memory_limit=caps, costs=costs)
    order = as_schedule(rows)
    if order.actions == best.actions:
        return
    if stuck := who_is_stuck(order):
        raise keep_working(f"{where} {stuck}. Had what each needs ended by then?")
    _over_its_cap(order, caps, where)
    raise _first_other_choice(simulate(order, costs), simulate(best, costs), where)


def _over_its_cap(order: Explicit, caps: Sequence[int], where: str) -> None:
    """Raise on which device more are in flight than its cap, and with which forward they are."""
    for device, (peak, cap) in enumerate(zip(peak_in_flight(order), caps, strict=True)):
        if peak > cap:
            held = [*accumulate(1 if action.kind is Kind.F else -1 for action in rows_of(order)[device])]
            action = order.actions[device][held.index(cap + 1)]
            its = f"device {device} has a cap of {cap} and holds {cap + 1} with {action}, {peak} at most"
            its = f"{where} {its}"
            if peak == cap + 1:
                raise almost(f"{its}. How many are in flight just before a forward that is allowed?")
            raise keep_working(f"{its}. What does your rule count before a forward?")


def _first_other_choice(theirs: Timeline, best: Timeline, where: str) -> Reply:
    """The first moment at which a device does something else than the rule says, and what it could do."""
    choices = []
    for device in range(best.schedule.devices):
        both = zip(done_on(theirs, device), done_on(best, device), strict=True)
        for (own, start, _), (right, due, _) in both:
            if own != right:
                choices.append((due, device, own, right, start))
                break
    due, device, own, right, start = min(choices)
    at = f"{where} at {due} device {device}"
    if own.kind is right.kind:
        return keep_working(f"{at} turns to {own}. Which microbatch has been there for longer?")
    if own.kind is Kind.F:
        return almost(
            f"{at} turns to {own} though {right} is ready. When could each of them start, and "
            "which goes first if both could?"
        )
    return keep_working(
        f"{at} could begin a forward: it has room, and the input is there. Why does it wait for "
        f"{own} until {start}?"
    )


@exercise("write a function cap(k, K, M) and pass it in")
def smallest_caps(answer: Callable | None) -> Reply:
    """Check ``answer(k, K, M)``: the least room of device k with which a step is as short as GPipe's."""
    for devices, microbatches in SIZES:
        caps = []
        for device in range(devices):
            cap = called(answer, device, devices, microbatches)
            if not is_whole(cap) or cap < 1:
                return _no_cap(cap, f"for k = {device}, K = {devices}, M = {microbatches}", device)
            caps.append(int(cap))
        _what_is_wrong_with_caps(caps, devices, microbatches)
    held = listed(peak_in_flight(OneFOneB(5, 6)))
    return correct(
        f"as short as GPipe wherever it was tried, and no device can do with less: 5 devices with 6 "
        f"microbatches hold at most {held}. How many with 1,000 microbatches?"
    )


def _no_cap(cap: object, where: str, device: int) -> Reply:
    if cap is None:
        return keep_working(f"{where} {NOTHING_BACK}")
    if is_whole(cap):
        return keep_working(f"{where} you say {cap}. With that much room, what could device {device} begin?")
    return keep_working(f"{where} you say {cap!r}. How many microbatches is that, as a whole number?")


def _what_is_wrong_with_caps(caps: list[int], devices: int, microbatches: int) -> None:
    where = f"K = {devices}, M = {microbatches}: caps {listed(caps)}"
    timeline = simulate(greedy(devices, microbatches, memory_limit=caps))
    best = simulate(GPipe(devices, microbatches)).makespan
    if timeline.makespan > best:
        raise keep_working(f"{where} take {timeline.makespan} units, GPipe {best}. {_who_waits(timeline)}")
    extra = [min(cap, microbatches) - min(devices - k, microbatches) for k, cap in enumerate(caps)]
    for device, cap in enumerate(caps):
        if extra[device] > 0:
            held = peak_in_flight(timeline.schedule)[device]
            says = f"holds {held} at most" if held < cap else "uses all of it"
            raise (almost if max(extra) == 1 else keep_working)(
                f"{where} are as short as GPipe, and device {device}, with room for {cap}, {says}. "
                "When is its first microbatch back, and how many can it take in until then?"
            )


def _who_waits(timeline: Timeline) -> str:
    """A sentence on the first time that the last device, which could work without a break, has to wait."""
    last = timeline.schedule.devices - 1
    if wait := first_wait(timeline, last):
        start, end, late = wait
        return f"Device {last} waits from {start} to {end} for {late}. Which device had no room for it?"
    return f"Device {last} never waits once it has begun. Who waits for it?"


@exercise("write a function buffer_of(m, k, K) and pass it in")
def receive_buffers(answer: Callable | None) -> Reply:
    """Check ``answer(m, k, K)``: the buffer into which device k of K receives microbatch m under 1F1B."""
    wasteful = None
    for devices, microbatches in PIPELINES:
        for device in range(1, devices):
            chosen = _chosen(answer, device, devices, microbatches)
            row = rows_of(OneFOneB(devices, microbatches))[device]
            where = f"device {device} of {devices}, {microbatches} microbatches"
            if found := overwritten(row, chosen):
                return keep_working(f"{where}: {_how_wrong(row, chosen, found)}")
            if len(set(chosen)) > fewest_buffers(row) and wasteful is None:
                wasteful = f"nothing is overwritten, but on {where} fill {len(set(chosen))} buffers"
    if wasteful:
        return almost(f"{wasteful}. How many still have to be read while one more arrives?")
    return correct("nothing is overwritten, and no device could do with fewer. Which device needs the most?")


def _chosen(answer: object, device: int, devices: int, microbatches: int) -> list[int]:
    chosen = []
    for m in range(microbatches):
        buffer = called(answer, m, device, devices)
        if not is_whole(buffer) or buffer < 0:
            where = f"for m = {m}, k = {device}, K = {devices}"
            if buffer is None:
                raise keep_working(f"{where} {NOTHING_BACK}")
            raise keep_working(f"{where} you say {buffer!r}. Which of the buffers 0, 1, 2, ... is that?")
        chosen.append(int(buffer))
    return chosen


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
