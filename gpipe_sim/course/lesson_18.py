"""Lesson 18: plan a real model, end to end."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf, isclose, isfinite

import numpy as np

from gpipe_sim.course.build import build, exercise
from gpipe_sim.course.called import called
from gpipe_sim.course.jobs import (
    OVERLOOKED,
    Job,
    Plan,
    least,
    mistaken_bytes,
    mistaken_times,
    simulated,
    sizes,
)
from gpipe_sim.course.jobs import number_of_plans as number_of_plans  # which the lesson calls
from gpipe_sim.course.reply import Reply, almost, correct, is_number, keep_working

NOTHING = "you give nothing back. What should come after return?"
A_LIST = "Later cells ask for its first plan, and again. How do you make a list of it?"

#: 1 and 7 devices, layers and shares that do not divide, no room, no latency, large start-ups.
HIDDEN_JOBS = (
    Job(4, 8, 12, 0.5, 1, 64, 32, 128, 16, 1200),
    Job(6, 12, 18, 1, 0.25, 100, 40, 160, 24, 1500),
    Job(8, 12, 16, 0, 0, 16, 64, 256, 8, inf),
    Job(1, 3, 6, 2, 1, 10, 8, 32, 4, 200),
    Job(6, 4, 12, 0.25, 0.5, 32, 16, 64, 32, inf),
    Job(4, 4, 8, 3, 1, 8, 100, 400, 100, 1200),
    Job(7, 14, 21, 0.5, 1, 32, 16, 64, 12, inf),
    Job(4, 8, 8, 1, 1, 32, 16, 64, 64, 10),
    Job(6, 12, 16, 1, 0.25, 100, 40, 160, 24, 1500),  # three copies cannot share 16 samples
)


@build("plans_that_fit")
def plans_that_fit(answer: Callable) -> Reply:
    """Check ``answer(job)``: (time, bytes, K, R, M) of every 1F1B that fits, fastest first."""
    given = []
    for job in HIDDEN_JOBS:
        given.append(_plans(called(answer, job, where=_where(job), plain=False), _where(job)))
    every = list(zip(HIDDEN_JOBS, given, strict=True))
    for ask in (_sizes, _times, _bytes, _fits, _order):
        for job, plans in every:
            ask(job, plans, every)
    return correct(f"all plans of {len(HIDDEN_JOBS)} jobs, with the times and the bytes of simulated steps")


def _where(job: Job) -> str:
    return f"with {job.devices} devices, {job.layers} layers and {job.samples} samples"


Given = list[Plan]
Every = list[tuple[Job, Given]]


def _plans(got: object, where: str) -> Given:
    """The plans that a student's function gives; raises a Reply to anything else."""
    if got is None:
        raise keep_working(f"{where} {NOTHING}")
    if isinstance(got, Iterator | set):
        raise keep_working(f"{where} you give a {type(got).__name__}. {A_LIST}")
    if not isinstance(got, list | tuple):
        raise keep_working(f"{where} you give {got!r}; it should be a list of plans")
    for plan in got:
        said = f"{where} a plan of yours is {plan!r}"
        if not isinstance(plan, list | tuple) or len(plan) != 5 or not all(map(is_number, plan)):
            raise keep_working(f"{said}. Which five numbers should it have?")
        if not all(map(isfinite, plan[:2])):
            raise keep_working(f"{said}. Which line makes that?")
        if not all(isfinite(each) and each == int(each) for each in plan[2:]):
            raise keep_working(f"{said}. Where are its K, R and M? They come last, and are whole")
    return [Plan(float(time), float(held), *map(int, rest)) for time, held, *rest in got]


def _sizes(job: Job, plans: Given, every: Every) -> None:
    """Raise a reply to sizes that there are not, or twice."""
    seen: set[tuple[int, int, int]] = set()
    for *_, k, r, m in plans:
        if min(k, r, m) < 1 or k * r != job.devices:
            raise keep_working(f"{_where(job)} you have K = {k} and R = {r}. How many devices are that?")
        if job.layers % k:
            raise keep_working(f"{_where(job)} you have K = {k}. How many layers has each stage?")
        if job.samples % r or (job.samples // r) % m:
            raise keep_working(
                f"{_where(job)} you have R = {r} and M = {m}. How many samples has each microbatch?"
            )
        if (k, r, m) in seen:
            raise almost(f"{_where(job)} K = {k}, R = {r}, M = {m} is there twice. Which loop repeats it?")
        seen.add((k, r, m))


def _by_size(job: Job) -> dict[tuple[int, int, int], Plan]:
    return {each: simulated(job, *each) for each in sizes(job)}


def _times(job: Job, plans: Given, every: Every) -> None:
    _compared(job, plans, every, 0, mistaken_times, "a step takes")


def _bytes(job: Job, plans: Given, every: Every) -> None:
    _compared(job, plans, every, 1, mistaken_bytes, "the first device holds")


def _compared(job: Job, plans: Given, every: Every, i: int, mistaken: Callable, what: str) -> None:
    right = _by_size(job)
    for plan in plans:
        size = plan[2:]
        if not isclose(plan[i], right[size][i], rel_tol=1e-9, abs_tol=1e-9):
            number = "K = {}, R = {}, M = {}".format(*size)
            said = f"{_where(job)}, {number}: you say {what} {plan[i]:g}, and it is {right[size][i]:g}"
            known = next((ask for ask in mistaken(job, *size) if _are(every, i, mistaken, ask)), None)
            raise almost(f"{said}. {known}") if known else keep_working(f"{said}. What is it made of?")


def _are(every: Every, i: int, mistaken: Callable, ask: str) -> bool:
    return all(
        isclose(plan[i], mistaken(job, *plan[2:])[ask], rel_tol=1e-9, abs_tol=1e-9)
        for job, plans in every
        for plan in plans
    )


def _fits(job: Job, plans: Given, every: Every) -> None:
    right, there = _by_size(job), {plan[2:] for plan in plans}
    for size, plan in right.items():
        said = "{}, K = {}, R = {}, M = {} holds {:g}".format(_where(job), *size, plan.held)
        room = f"and there is room for {job.room:g}"
        if plan.held > job.room and size in there:
            raise almost(f"{said}, {room}. Does it fit?")
        if plan.held == job.room and size not in there:
            raise almost(f"{said}, {room}. Does it fit?")
        if plan.held <= job.room and size not in there:
            raise almost(f"{said}, {room}. It is not in your list: which line leaves it out?")


def _order(job: Job, plans: Given, every: Every) -> None:
    times = [plan[0] for plan in plans]
    if times == sorted(times):
        return
    ways = {"the smallest K first": 2, "what holds least first": 1}
    by = [way for way, i in ways.items() if [p[i] for p in plans] == sorted(p[i] for p in plans)]
    raise almost(f"{_where(job)} you have {by[0] if by else 'another order'}. Which should come first?")


@build("bound")
def bound(answer: Callable) -> Reply:
    """Check ``answer(job)``: a time that no plan takes less than, made of three terms."""
    given = []
    for job in HIDDEN_JOBS:
        try:
            got = called(answer, job, where=_where(job))
        except Reply as reply:
            if any(plan.held <= job.room for plan in _by_size(job).values()):
                raise
            raise almost(
                f"{_where(job)} no plan fits, and your function stops. Which plans count for the bound?"
            ) from reply
        got = got.item() if isinstance(got, np.ndarray) and got.size == 1 else got
        if not is_number(got) or not isfinite(got):
            return keep_working(f"{_where(job)} you say {got!r}. How long does no plan take less than?")
        given.append(float(got))
    every = list(zip(HIDDEN_JOBS, given, strict=True))
    wrong = [(job, got) for job, got in every if not isclose(got, least(job), rel_tol=1e-9)]
    if not wrong:
        return correct(f"the least of three terms, in {len(HIDDEN_JOBS)} jobs that are not shown")
    job, got = wrong[0]
    said = f"{_where(job)} you say {got:g}, and it is {least(job):g}"
    for question, habit in OVERLOOKED.items():
        if all(isclose(each, least(one, **habit), rel_tol=1e-9) for one, each in every):
            return almost(f"{said}. {question}")
    return keep_working(
        f"{said}. What are the three terms for each K, R and M, and of which is that the least?"
    )


#: Lists of plans, (time, bytes, name): one, ties in time or bytes or both, a late one that is small.
HIDDEN_PLANS: tuple[tuple[tuple[int, int, str], ...], ...] = (
    ((5, 9, "a"), (6, 4, "b"), (7, 6, "c"), (8, 3, "d"), (9, 3, "e")),
    ((5, 9, "a"),),
    ((8, 3, "a"), (5, 9, "b"), (7, 6, "c"), (6, 4, "d")),
    ((4, 8, "a"), (4, 7, "b"), (4, 9, "c"), (6, 7, "d"), (7, 5, "e")),
    ((3, 5, "a"), (3, 5, "b"), (4, 5, "c"), (5, 2, "d")),
    ((9, 1, "a"), (1, 9, "b"), (5, 5, "c"), (6, 6, "d"), (2, 8, "e"), (8, 8, "f")),
    (),
)


def kept(plans: Sequence[tuple]) -> list[tuple]:
    """Those that no other beats."""
    return [plan for plan in plans if not any(beats(other, plan) for other in plans)]


def beats(one: tuple, other: tuple) -> bool:
    """Not worse in time and bytes, and better in one of them."""
    return one[0] <= other[0] and one[1] <= other[1] and one[:2] != other[:2]


@exercise("write unbeaten in this cell, and run it again")
def unbeaten(answer: Callable | None) -> Reply:
    """Check ``answer(plans)``: those of the plans (time, bytes, name) that no other beats."""
    given = []
    for plans in HIDDEN_PLANS:
        where = f"for {list(plans)}"
        given.append(_out_of(plans, called(answer, list(plans), where=where, whole=("plans",)), where))
    for plans, got in zip(HIDDEN_PLANS, given, strict=True):
        _what_is_beaten(plans, got)
    return correct(f"in {len(HIDDEN_PLANS)} lists, all that no other plan beats, and none that one does")


def _out_of(plans: Sequence[tuple], got: object, where: str) -> list[tuple]:
    """The plans that a student's function gives back; raises a Reply unless all are out of these."""
    if got is None:
        raise keep_working(f"{where} {NOTHING}")
    if isinstance(got, str | dict) or not isinstance(got, Iterable):
        raise keep_working(f"{where} you give {got!r}; it should be a list of plans")
    for plan in got:
        if not isinstance(plan, list | tuple) or tuple(plan) not in plans:
            which = "which is none of them. Return whole plans, as they are in the list"
            raise keep_working(f"{where} you give {plan!r}, {which}")
    return [tuple(plan) for plan in got]


def _what_is_beaten(plans: Sequence[tuple], got: list[tuple]) -> None:
    where, right = f"for {list(plans)}", kept(plans)
    if twice := next((plan for plan in got if got.count(plan) > 1), None):
        raise almost(f"{where} you give {twice} twice. When is it added again?")
    for plan in got:
        if other := next((other for other in plans if beats(other, plan)), None):
            which = "faster" if other[0] < plan[0] else "as fast"
            size = "smaller" if other[1] < plan[1] else "as small"
            raise keep_working(f"{where} you keep {plan}. But {other} is {which} and {size}")
    if missing := next((plan for plan in right if plan not in got), None):
        if any(each[:2] == missing[:2] for each in got):
            raise almost(f"{where} you leave out {missing}. Does another plan that is as good beat it?")
        raise keep_working(f"{where} you leave out {missing}. Which plan beats it?")
