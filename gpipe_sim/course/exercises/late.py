"""Read a trace: was a receive waiting for a sender that was late, or for a message on its way?"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gpipe_sim.course.called import result_of
from gpipe_sim.course.exercises.ran import ran
from gpipe_sim.course.exercises.seeded import drawn_by, hidden, seeded
from gpipe_sim.course.reply import Reply, correct, is_number, keep_working, quoted
from gpipe_sim.families import GPipe, OneFOneB

Event = tuple[str, int | None, int, int]  #: its name, the other rank or None, when it began and ended
SLOWEST = 6  #: how long a message takes at most
WIDTH = 24  #: characters of a column


class Trace(NamedTuple):
    """Of each rank its events, in order."""

    ranks: list[list[Event]]

    def __str__(self) -> str:
        columns = [[f"rank {k}", *map(_said, events)] for k, events in enumerate(self.ranks)]
        most = max(map(len, columns))
        lines = zip(*(column + [""] * (most - len(column)) for column in columns), strict=True)
        return "\n".join("".join(f"{each:<{WIDTH}}" for each in line).rstrip() for line in lines)

    def received(self, k: int) -> list[tuple[int, int, int, int]]:
        """(rank that sent, when, when the receive began and ended) of each receive on rank k."""
        sent = {j: iter(self.sends(j, k)) for j in range(len(self.ranks))}
        return [
            (j, next(sent[j]), a, b) for name, j, a, b in self.ranks[k] if name == "recv" and j is not None
        ]

    def sends(self, k: int, to: int) -> list[int]:
        return [start for name, other, start, _ in self.ranks[k] if name == "send" and other == to]

    def waits(self, k: int) -> tuple[int, int]:
        """How long rank k waits for late senders, and for messages on their way."""
        each = [(max(0, sent - a), b - max(a, sent)) for _, sent, a, b in self.received(k)]
        return sum(late for late, _ in each), sum(link for _, link in each)

    def mistakes(self, k: int) -> Iterator[tuple[tuple[int, int], str]]:
        """(what a mistake gives for rank k, a question)."""
        late, link = self.waits(k)
        received = self.received(k)
        yield (link, late), "Which of the two comes first in your pair?"
        yield (late + link, link), "Together that is more than it waited. Which part do both have in them?"
        yield (late, late + link), "Together that is more than it waited. Which part do both have in them?"
        yield (late + link, 0), "For how much of that was the message under way already?"
        yield (0, late + link), "For how much of that had nobody sent anything yet?"
        unclamped = sum(sent - a for _, sent, a, _ in received)
        for by in (link, late + link - unclamped, sum(b - sent for _, sent, _, b in received)):
            yield (unclamped, by), "What does a message that was sent before the receive began add to yours?"
        whole = sum(b - sent for _, sent, _, b in received)
        yield (late, whole), "Was it waiting all the while a message was under way?"


def _said(event: Event) -> str:
    name, other, start, end = event
    if name == "send":
        return f"send to {other} at {start}"
    return f"{name}{'' if other is None else f' from {other}'} {start}-{end}"


def _trace(seed: str, K: int, M: int) -> Trace:
    rng = drawn_by(seed, "late")
    schedule = rng.choice((GPipe, OneFOneB))(K, M)
    ranks: list[list[Event]] = []
    for k, row in enumerate(ran(schedule, rng, SLOWEST)):
        events: list[Event] = []
        for (_, kind, _), free, sent, start, end in row:
            before, behind = (k - 1, k + 1) if kind == "F" else (k + 1, k - 1)
            if sent is not None:
                events.append(("recv", before, free, start))
            events.append(("compute", None, start, end))
            if 0 <= behind < K:
                events.append(("send", behind, end, end))
        ranks.append(events)
    return Trace(ranks)


def task(seed: object = 0) -> Trace:
    return _trace(str(seed), 3, drawn_by(seed, "microbatches").randint(3, 4))


def _hidden(seed: object) -> Iterator[Trace]:
    for each in hidden(seed)[1:]:
        rng = drawn_by(each, "ranks")
        yield _trace(each, rng.randint(2, 6), rng.randint(1, 7))


EDGES = (
    Trace([[("compute", None, 0, 4), ("send", 1, 4, 4)], [("recv", 0, 1, 6), ("compute", None, 6, 8)]]),
    Trace([[("send", 1, 2, 2)], [("recv", 0, 5, 5)]]),  # it was there before
    Trace([[("send", 1, 2, 2)], [("recv", 0, 5, 9)]]),  # under way when the receive began
    Trace([[("compute", None, 0, 3)]]),
)


@seeded("write waits in this cell, and run it again")
def check(answer: Callable, seed: object) -> Reply:
    """Check ``answer(trace)``: of each rank how long it waits for late senders, and for messages."""
    traces = [*EDGES[:1], task(seed), *_hidden(seed), *EDGES[1:]]
    for trace in traces:
        K, small = len(trace.ranks), len(trace.ranks) < 3 and len(trace.ranks[0]) < 3
        where = f"for {trace.ranks}" if small else f"for a trace of {K} ranks"
        got = result_of(answer, [*trace.ranks], where=where, whole=("trace",))
        _what_is_wrong(got, trace, where)
    late, link = (sum(of) for of in zip(*map(traces[1].waits, range(3)), strict=True))
    says = f"{len(traces)} traces. In the one above, {late} are for late senders and {link} for messages"
    return correct(f"{says}. Which of these would a faster link make shorter?")


def _what_is_wrong(got: object, trace: Trace, where: str) -> None:
    K = len(trace.ranks)
    if not isinstance(got, list | tuple) or len(got) != K:
        raise keep_working(f"{where} you give {quoted(got)}. What would a list with a pair for each rank be?")
    for k, pair in enumerate(got):
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not all(map(is_number, pair)):
            raise keep_working(
                f"{where} you give {quoted(pair)} for rank {k}. Which two numbers are asked for?"
            )
        if tuple(pair) != trace.waits(k):
            asks = next((asks for wrong, asks in trace.mistakes(k) if wrong == tuple(pair)), "")
            raise keep_working(
                f"{where} you give {quoted(tuple(pair))} for rank {k}. {asks or _one(trace, k)}"
            )


def _one(trace: Trace, k: int) -> str:
    """A question about the receive with the longest wait on rank k."""
    received = trace.received(k)
    if not received:
        return "It receives nothing. What would it wait for?"
    j, sent, a, b = max(received, key=lambda one: (min(one[1] - one[2], one[3] - one[1]), one[3] - one[2]))
    i = [one for one in received if one[0] == j].index((j, sent, a, b))
    which = f"Its receive number {i} from rank {j}, counted from 0, lasts from {a} to {b}"
    return f"{which}, and the send that belongs to it was at {sent}. Which part of that was for the sender?"
