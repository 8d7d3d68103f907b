"""A plan of messages over one slow hop: which crosses first, if each is waited for."""

from collections.abc import Callable, Iterator, Sequence
from math import factorial
from typing import NamedTuple

import numpy as np

from gpipe_sim.course.called import result_of
from gpipe_sim.course.exercises.seeded import drawn_by, hidden, seeded
from gpipe_sim.course.reply import Reply, correct, is_whole, keep_working, listed, quoted

Message = tuple[int, int]  #: how long it keeps the hop busy, and what its pipeline has to do after it


class Hop(NamedTuple):
    """Messages that are all ready at time 0."""

    messages: list[Message]

    def __str__(self) -> str:
        lines = ["message  keeps the hop busy  then to do"]
        for i, (busy, after) in enumerate(self.messages):
            lines.append(f"{i:>7} {busy:>19} {after:>11}")
        return "\n".join(lines)

    def done(self, order: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """(moment at which its pipeline is done, when it begins to cross, number) of each, in this order."""
        start = 0
        for i in order:
            busy, after = self.messages[i]
            yield start + busy + after, start, i
            start += busy

    def least(self) -> int:
        """When all are done at the earliest: who has most to do afterwards crosses first."""
        order = sorted(range(len(self.messages)), key=lambda i: -self.messages[i][1])
        return max(self.done(order))[0]


def task(seed: object = 0) -> Hop:
    rng = drawn_by(seed, "hop")
    return Hop([(rng.randint(1, 8), rng.randint(1, 20)) for _ in range(rng.randint(5, 7))])


def _many(seed: object, count: int) -> Hop:
    rng = drawn_by(seed, "many over a hop")
    return Hop([(rng.randint(1, 9), rng.randint(1, 5 * count)) for _ in range(count)])


EDGES = (Hop([(3, 0)]), Hop([(2, 5), (2, 5), (1, 5)]), Hop([(1, 9), (9, 10)]), Hop([(9, 1), (1, 8), (5, 4)]))


@seeded("write crossing in this cell, and run it again")
def check(answer: Callable, seed: object) -> Reply:
    """Check ``answer(messages)``: the numbers of the messages in an order that is done soonest."""
    hops = [*map(task, hidden(seed)), *EDGES, _many(seed, 12), _many(seed, 200)]
    for hop in hops:
        count = len(hop.messages)
        where = f"for the messages {listed(hop.messages[:8])}{' ...' * (count > 8)},"
        ways = f"{count} messages have {factorial(min(count, 12)):,} orders" + " and more" * (count > 12)
        asks = f"{ways}. If two neighbours change places, whose moment changes?"
        got = result_of(answer, list(hop.messages), where=where, whole=("messages",), endless=asks)
        _what_is_wrong(got, hop, f"{where} you give {quoted(got)}")
    return correct(
        f"done as soon as can be, {len(hops)} times. Did you look at how long they keep the hop busy?"
    )


def _what_is_wrong(got: object, hop: Hop, said: str) -> None:
    if not isinstance(got, list | tuple | np.ndarray) or not all(map(is_whole, got)):
        raise keep_working(f"{said}. Which number has the message that crosses first?")
    order, count = list(map(int, got)), len(hop.messages)
    if sorted(order) != list(range(count)):
        raise keep_working(
            f"{said}. There are the messages 0 to {count - 1}: which is missing, or there twice?"
        )
    (end, start, last), least = max(hop.done(order)), hop.least()
    if end > least:
        busy, after = hop.messages[last]
        before = [i for i in order[: order.index(last)] if hop.messages[i][1] < after][-1]
        says = f"message {last} crosses from {start} to {start + busy}, and its pipeline is done at {end}"
        asks = f"Message {before} crosses before it. Which of these two pipelines has more to do then?"
        raise keep_working(f"{said}: {says}; in another order all are done at {least}. {asks}")
