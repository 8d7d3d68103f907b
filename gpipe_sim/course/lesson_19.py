"""Lesson 19: without a flush."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import ceil

import numpy as np

from gpipe_sim.course import answers
from gpipe_sim.course.build import build, exercise
from gpipe_sim.course.called import result_of
from gpipe_sim.course.mistakes import recognized
from gpipe_sim.course.old_weights import MISTAKES, TRIALS, Trained, Trial, run, trained
from gpipe_sim.course.own_rows import drawn
from gpipe_sim.course.reply import (
    Reply,
    almost,
    correct,
    is_array,
    is_number,
    is_whole,
    keep_working,
    listed,
    shown,
)
from gpipe_sim.course.rows import A_LIST, Step, first_other, in_a_row, rows_from, rows_of, spelled
from gpipe_sim.families import OneFOneB, PipeDream
from gpipe_sim.families.derived import repeat, with_updates
from gpipe_sim.streams.staleness import staleness

#: As a student's rows are drawn: an update that takes no time would not be seen.
SEEN_COST = {"F": 1, "B": 2, "U": 0.5}
#: devices, microbatches
HIDDEN_STREAMS = ((3, 5), (4, 9), (1, 3), (5, 3), (2, 1), (6, 14))
#: devices, microbatches to an update
HIDDEN_UPDATES = tuple((K, every) for K in (1, 2, 3, 5, 6, 8) for every in (1, 2, 3, 4, 5, 7, 9))


@build("delayed")
def delayed(answer: Callable) -> Reply:
    """Check ``answer(stages, batches, delays, rate)`` by the library's pipelines, trained on digits."""
    found = [_trained_by(answer, trial) for trial in TRIALS]
    if all(got.equals(trained(trial)) for got, trial in zip(found, TRIALS, strict=True)):
        return correct(f"losses and weights to 1e-12, in {len(TRIALS)} trainings that are not on this page")
    return _what_is_wrong_with_training(found)


def _trained_by(answer: Callable, trial: Trial) -> Trained:
    where, stages = str(trial), trial.stages()
    with np.errstate(all="ignore"):
        got = result_of(
            answer,
            *(stages, trial.batches(), list(trial.delays), trial.rate),
            where=where,
            copies=False,
            plain=False,
            whole=("", "batches", "delays"),
        )
    if isinstance(got, Iterator):
        raise keep_working(f"{where} you give a {type(got).__name__}. {A_LIST}")
    if not isinstance(got, list | tuple | np.ndarray) or not all(map(is_number, got)):
        asks = "Where do you keep the loss of each mini-batch?"
        raise keep_working(f"{where} you return {shown(got)}; it should be a list of losses. {asks}")
    if len(got) != trial.updates:
        raise keep_working(f"{where} you return {len(got)} losses. How many mini-batches have one?")
    for s, (stage, wanted) in enumerate(zip(stages, trial.stages(), strict=True)):
        for name in "Wb":
            if not is_array(stage.get(name)) or stage[name].shape != wanted[name].shape:
                its = f"at the end stage {s} has {shown(stage.get(name))} for {name}"
                raise keep_working(f"{where} {its}. Which array did it begin with?")
    return Trained([float(loss) for loss in got], [(stage["W"], stage["b"]) for stage in stages])


def _what_is_wrong_with_training(found: Sequence[Trained]) -> Reply:
    pairs = list(zip(found, TRIALS, strict=True))
    got, trial = next((got, trial) for got, trial in pairs if not got.equals(trained(trial)))
    said = _first_difference(got, trial)
    same = lambda loop: all(one.equals(run(loop, each)) for one, each in pairs)  # noqa: E731
    if question := recognized(answers.delayed, MISTAKES, same):
        return almost(f"{said} {question}")
    asks = (
        "Which version do you read there, and which one do you change? Does a line change an array in place?"
    )
    return keep_working(f"{said} {asks}")


def _first_difference(got: Trained, trial: Trial) -> str:
    right = trained(trial)
    if got.same_losses(right):
        return f"{trial}, your losses are right, and your stages end with other weights."
    t = next(t for t, (a, b) in enumerate(zip(got.losses, right.losses, strict=True)) if not _near(a, b))
    read = listed(f"version {version} of stage {s}" for s, version in enumerate(trial.read(t)))
    return (
        f"{trial}: mini-batch {t} reads {read}, and its loss is {right.losses[t]:.4f}; yours is "
        f"{got.losses[t]:.4g}."
    )


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-12 * max(1, abs(other))


@build("stream_rows", "versions_seen")
def stream(stream_rows: Callable, versions_seen: Callable) -> Reply:
    """Check the rows of a stream with an update after each backward, and the versions that forwards see."""
    if stream_rows is None:
        return keep_working("versions_seen is there. Now write stream_rows")
    for K, M in HIDDEN_STREAMS:
        wanted, where = answers.stream_rows(K, M), f"with K = {K} and M = {M}"
        rows = rows_from(stream_rows, K, M, wanted=wanted, where=where)
        if rows != wanted:
            k = first_other(rows, wanted)
            reply = _what_is_wrong_with_row(rows[k], wanted[k], k, f"{where}, device {k}")
            n = first_other(rows[k], wanted[k])
            due = spelled(wanted[k][n]) if wanted[k][n][1] == "U" else ""
            return drawn(reply, rows, (k, n), SEEN_COST, due)
    shown_rows = answers.stream_rows(*HIDDEN_STREAMS[1])
    if versions_seen is None:
        reply = almost(f"the rows are right at {len(HIDDEN_STREAMS)} sizes. Now write versions_seen")
        return drawn(reply, shown_rows, cost=SEEN_COST)
    _what_is_wrong_with_versions(versions_seen)
    reply = correct("rows of streams of many sizes, and the versions on these and on rows with fewer updates")
    return drawn(reply, shown_rows, cost=SEEN_COST)


def _what_is_wrong_with_row(row: list[Step], wanted: list[Step], k: int, where: str) -> Reply:
    yours, its = ([action for action in each if action[1] != "U"] for each in (row, wanted))
    if yours != its:
        ahead, due = ([kind for _, kind, _ in each].index("B") for each in (yours, its))
        if ahead != due:
            said = f"does {ahead} forward{'s' * (ahead != 1)} before its first backward"
            return keep_working(f"{where} {said}. How many does 1F1B do there, its first round included?")
        said = f"without its U, its row is {in_a_row(yours, most=8, end='.')}"
        return keep_working(f"{where}: {said} In which order does 1F1B do its F and B?")
    for m in range(len(its) // 2):
        if row.index((k, "U", m)) < row.index((k, "B", m)):
            return keep_working(f"{where}: {k}U{m} comes before {k}B{m}. What does an update subtract?")
    n = first_other(row, wanted)
    if all(kind == "U" for _, kind, _ in row[len(its) :]):
        return almost(f"{where}: all updates come at the end. How soon may {k}U0 be done?")
    said = f"after {spelled(row[n - 1])} comes {spelled(row[n])}"
    update = wanted[n] if wanted[n][1] == "U" else row[n]
    return almost(f"{where}: {said}. Right behind which action should {spelled(update)} stand?")


@cache
def _hidden_rows() -> tuple[list[Step], ...]:
    """Rows of streams, rows with an update after several backwards, and rows with flushes."""
    schedules = (PipeDream(3, 7), PipeDream(4, 12, every=3), PipeDream(2, 7, every=2))
    flushed = repeat(with_updates(OneFOneB(3, 4)), 3)
    rows = [row for schedule in (*schedules, flushed) for row in rows_of(schedule)]
    return tuple([(s, str(kind), m) for s, kind, m in row] for row in rows)


def _what_is_wrong_with_versions(versions_seen: Callable) -> None:
    given = []
    for row in _hidden_rows():
        where = f"for the row {in_a_row(row, most=14)}"
        got = result_of(versions_seen, row, where=where, whole=("row",))
        if not isinstance(got, dict):
            asks = "Which dict says the version for each microbatch?"
            raise keep_working(f"{where} you return {shown(got)}. {asks}")
        if wrong := _what_is_no_version(got, row):
            raise keep_working(f"{where} {wrong}")
        given.append(got)
    for row, got in zip(_hidden_rows(), given, strict=True):
        for m, version in answers.versions_seen(row).items():
            if got[m] != version:
                said = f"you say that {row[0][0]}F{m} sees version {got[m]!r}"
                raise keep_working(f"for the row {in_a_row(row, most=14)} {said}. {_asked(given)}")


def _what_is_no_version(got: dict, row: list[Step]) -> str:
    """What keeps a dict from having a version of each microbatch; empty if nothing does."""
    right = answers.versions_seen(row)
    if extra := [m for m in got if m not in right]:
        return f"your dict has {extra[0]!r}, and no forward is of that microbatch. What are its keys?"
    if missing := [m for m in right if m not in got]:
        return f"your dict says nothing of microbatch {missing[0]}. Which actions do you look at?"
    if other := [m for m in got if not is_whole(got[m])]:
        return f"your dict has {shown(got[other[0]])} for microbatch {other[0]}. How many updates is that?"
    return ""


def _asked(given: Sequence[dict]) -> str:
    """A question about what was counted, on all rows, instead of the updates before a forward."""
    for question, count in SEEN.items():
        if [count(row) for row in _hidden_rows()] == list(given):
            return question
    return "Which updates stand before it?"


def _counted(row: Sequence[Step], at: str, kinds: str) -> dict[int, int]:
    """For each microbatch, how many actions of these kinds stand before the one of the kind ``at``."""
    seen, count = {}, 0
    for _, kind, m in row:
        if kind == at:
            seen[m] = count
        count += kind in kinds
    return seen


def _last_updated(row: Sequence[Step]) -> dict[int, int]:
    seen, last = {}, 0
    for _, kind, m in row:
        if kind == "F":
            seen[m] = last
        last = m if kind == "U" else last
    return seen


def _all_updates(row: Sequence[Step]) -> dict[int, int]:
    return {m: sum(each == "U" for _, each, _ in row) for _, kind, m in row if kind == "F"}


#: Versions that one may count by mistake, and the question that each is asked.
SEEN: dict[str, Callable[[Sequence[Step]], dict[int, int]]] = {
    "Does every backward make a new version?": lambda row: _counted(row, "F", "B"),
    "Does a forward make a new version?": lambda row: _counted(row, "F", "F"),
    "Is that the version for its forward, or for its backward?": lambda row: _counted(row, "B", "U"),
    "Is that all updates, or those before its forward?": _all_updates,
    "Which version is there before any update, number 0 or 1?": (
        lambda row: {m: version + 1 for m, version in _counted(row, "F", "U").items()}
    ),
    "Is that the number of the last update's microbatch, or how many updates there were?": _last_updated,
}


@exercise("write versions_held in this cell, and run it again")
def versions_held(answer: Callable | None) -> Reply:
    """Check ``answer(K, k, every)``: the versions that weight stashing holds on device k, with the newest."""
    given = {}
    for K, every in HIDDEN_UPDATES:
        for k in range(K):
            where = f"for device {k} of {K}, with an update after every {every},"
            got = result_of(answer, K, k, every, where=where)
            if not is_number(got) or got % 1 != 0:
                said = got if is_number(got) else shown(got)
                return keep_working(f"{where} you say {said}. How many versions is that?")
            given[K, k, every] = got
    for (K, k, every), got in given.items():
        if got != (right := held(K, every)[k]):
            where = f"device {k} of {K}, with an update after every {every}"
            return _mistaken(f"{where}: you say {got}, and the rows need {right}.", given)
    return correct(
        f"as on the rows, on {len(given)} devices. From which `every` on are two enough everywhere?"
    )


@cache
def held(devices: int, every: int) -> tuple[int, ...]:
    """Counted from the rows of a stream that is long enough."""
    return staleness(PipeDream(devices, 3 * devices + 4 * every, every)).held


def mistaken_counts(K: int, k: int, every: int) -> dict[str, int]:
    """Versions that one may count by mistake, by the question that each is asked."""
    same = "Is that the same on every device?"
    return {
        "That is with an update for every microbatch. How many microbatches share a version here?": K - k,
        same: 1 + ceil((K - 1) / every),
        f"{same} And is the newest among them?": ceil(K / every),
        "In flight are K-k microbatches in a row. If the first of them ends its mini-batch, of how many "
        "mini-batches are they?": ceil((K - k) / every),
        "Try the last device. Who is still in flight there when a new mini-batch begins?": (
            1 + ceil((K - k) / every)
        ),
        "Is the newest version among them?": ceil((K - k - 1) / every),
        "Does it not matter how often there is an update?": K - k - 1,
        "Is that so for an update after every microbatch, too?": min(2, K - k),
        "Is that so on every device, and for every `every`?": 2,
        "That is all K on every device. How many microbatches has device k in flight?": K,
        "More microbatches to an update: are there more versions, or fewer?": (K - k) * every,
        "Which device is the first, k = 0 or k = K-1?": 1 + ceil(k / every),
    }


def _mistaken(told: str, given: dict) -> Reply:
    for question in mistaken_counts(1, 0, 1):
        if all(got == mistaken_counts(*size)[question] for size, got in given.items()):
            return almost(f"{told} {question}")
    return keep_working(
        f"{told} When a mini-batch begins there, how many microbatches before it are still in flight?"
    )
