"""Lesson 07: 1F1B."""

from collections.abc import Callable, Sequence
from itertools import accumulate

from gpipe_sim.core.actions import Kind
from gpipe_sim.core.bubbles import peak_in_flight
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import Timeline
from gpipe_sim.course import answers
from gpipe_sim.course.answers import NEEDS, gpipe_rows
from gpipe_sim.course.build import build, exercise
from gpipe_sim.course.called import called
from gpipe_sim.course.own_rows import At, drawn
from gpipe_sim.course.reply import NOTHING_BACK, Reply, almost, correct, is_whole, keep_working, listed
from gpipe_sim.course.rows import (
    Rows,
    as_schedule,
    done_on,
    first_other,
    rows_from,
    rows_of,
    spelled,
    who_is_stuck,
)
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
    (2, 3, (2, 2), 1, 2),  # the lesson's example by hand, whose rows are drawn
)
ALONE = {"F": [("F", -1)], "B": [("F", 0)]}  #: another table: a backward waits for nobody else's
#: (devices, microbatches), where caps are tried
SIZES = ((3, 7), (2, 5), (5, 6), (1, 3), (4, 4), (6, 2), (13, 15))


@build("capped_rows")
def capped_rows(answer: Callable) -> Reply:
    """Check ``answer(K, M, caps, table, cost)``: rows in which device k never holds more than caps[k]."""
    for case in CAPPED:
        rows, where, cost = _tried(answer, case, NEEDS)
        _what_is_wrong_with_rows(rows, case, f"{where}:")
    _what_is_wrong_by_another_table(answer, CAPPED[0])
    says = correct(
        f"the rows of the library's planner in all {len(CAPPED)} cases. Which caps make a step short, and "
        "which only make it hold more?"
    )
    return drawn(says, rows, cost=cost)


def _tried(answer: Callable, case: tuple, table: dict) -> tuple[Rows, str, dict]:
    devices, microbatches, caps, forward, backward = case
    where = f"with K = {devices}, M = {microbatches}, caps {listed(caps)}, F takes {forward}, B {backward}"
    cost, wanted = {"F": forward, "B": backward}, gpipe_rows(devices, microbatches)
    asked, whole = (devices, microbatches, list(caps), table, cost), ("K", "M", "caps", "table", "cost")
    return rows_from(answer, *asked, wanted=wanted, where=where, whole=whole), where, cost


def _what_is_wrong_by_another_table(answer: Callable, case: tuple) -> None:
    rows, where, cost = _tried(answer, case, ALONE)
    devices, microbatches, caps, *_ = case
    for row, right in zip(rows, answers.capped_rows(devices, microbatches, caps, ALONE, cost), strict=True):
        if row != right:
            own, first = (spelled(each[first_other(row, right)]) for each in (row, right))
            its = f"{where}, by a table in which a B needs its own F alone: you write {own} where {first}"
            raise keep_working(f"{its} comes first. Who says what an action needs?")


def _what_is_wrong_with_rows(rows: Rows, case: tuple, where: str) -> None:
    devices, microbatches, caps, forward, backward = case
    costs = Costs(forward=forward, input_grad=backward, weight_grad=0)
    best = greedy(devices, microbatches, memory_limit=caps, costs=costs)
    order = as_schedule(rows)
    if order.actions == best.actions:
        return
    cost = {"F": forward, "B": backward}
    if stuck := who_is_stuck(order):
        raise drawn(keep_working(f"{where} {stuck}. Had what each needs ended by then?"), rows, cost=cost)
    reply, at = _over_its_cap(order, caps, where) or _first_other_choice(
        simulate(order, costs), simulate(best, costs), where
    )
    raise drawn(reply, rows, at, cost)


def _over_its_cap(order: Explicit, caps: Sequence[int], where: str) -> tuple[Reply, At] | None:
    """On which device more are in flight than its cap, and with which forward they are; and its place."""
    for device, (peak, cap) in enumerate(zip(peak_in_flight(order), caps, strict=True)):
        if peak > cap:
            held = [*accumulate(1 if action.kind is Kind.F else -1 for action in rows_of(order)[device])]
            at = device, held.index(cap + 1)
            action = order.actions[device][at[1]]
            its = f"device {device} has a cap of {cap} and holds {cap + 1} with {action}, {peak} at most"
            its = f"{where} {its}"
            if peak == cap + 1:
                return almost(f"{its}. How many are in flight just before a forward that is allowed?"), at
            return keep_working(f"{its}. What does your rule count before a forward?"), at
    return None


def _first_other_choice(theirs: Timeline, best: Timeline, where: str) -> tuple[Reply, At]:
    """What a device does, and where in its row, when it first does something else than the rule says."""
    choices = []
    for device in range(best.schedule.devices):
        both = zip(done_on(theirs, device), done_on(best, device), strict=True)
        for place, ((own, start, _), (right, due, _)) in enumerate(both):
            if own != right:
                choices.append((due, device, own, right, start, place))
                break
    due, device, own, right, start, place = min(choices)
    when, at = f"{where} at {due} device {device}", (device, place)
    if own.kind is right.kind:
        return keep_working(f"{when} turns to {own}. Which microbatch has been there for longer?"), at
    if own.kind is Kind.F:
        asks = "When could each of them start, and which goes first if both could?"
        return almost(f"{when} turns to {own} though {right} is ready. {asks}"), at
    could = f"{when} could begin a forward: it has room, and the input is there"
    return keep_working(f"{could}. Why does it wait for {own} until {start}?"), at


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
        says = f"{where} take {timeline.makespan} units, GPipe {best}. {_who_waits(timeline)}"
        raise drawn(keep_working(says), rows_of(timeline.schedule))
    extra = [cap - min(devices - k, microbatches) for k, cap in enumerate(caps)]
    for device, cap in enumerate(caps):
        if extra[device] > 0:
            held = peak_in_flight(timeline.schedule)[device]
            says = f"holds {held} at most" if held < cap else "uses all of it"
            asks = "When is its first microbatch back, and how many can it take in until then?"
            asks = "How many are there in all?" if cap > microbatches else asks
            reply = (almost if max(extra) == 1 or cap == devices - device else keep_working)(
                f"{where} are as short as GPipe, and device {device}, with room for {cap}, {says}. {asks}"
            )
            raise drawn(reply, rows_of(timeline.schedule))


def _who_waits(timeline: Timeline) -> str:
    """A sentence on the first time that the last device, which could work without a break, has to wait."""
    last = timeline.schedule.devices - 1
    if wait := first_wait(timeline, last):
        start, end, late = wait
        return f"Device {last} waits from {start} to {end} for {late}. Which device had no room for it?"
    return f"Device {last} never waits once it has begun. Who waits for it?"
