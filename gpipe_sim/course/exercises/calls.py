"""A rank's program in Megatron-LM's calls, of which some send and receive at the same time."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpipe_sim.course.called import result_of
from gpipe_sim.course.exercises.seeded import drawn_by, hidden, seeded
from gpipe_sim.course.reply import Reply, almost, correct, keep_working, quoted

End = tuple[str, str]  #: "send" or "recv", and what: "forward" or "backward"
SINGLE = [(what, way) for way in ("forward", "backward") for what in ("recv", "send")]
CALLS: dict[str, list[End]] = {f"{what}_{way}": [(what, way)] for what, way in SINGLE} | {
    "send_forward_recv_backward": [("send", "forward"), ("recv", "backward")],
    "send_backward_recv_forward": [("send", "backward"), ("recv", "forward")],
}
ACTION = {"F": "forward", "B": "backward"}


class Rank(NamedTuple):
    """One of K ranks, and M microbatches."""

    k: int
    K: int
    M: int

    def __str__(self) -> str:
        return f"K = {self.K}, M = {self.M}: rank {self.k} does {' '.join(self.actions())}"

    def actions(self) -> str:
        ahead = min(self.K - self.k - 1, self.M)
        return "F" * ahead + "FB" * (self.M - ahead) + "B" * ahead

    def other(self, end: End) -> int:
        """The rank at the other end; one that is not there at the first rank and at the last."""
        return self.k + (1 if end in (("send", "forward"), ("recv", "backward")) else -1)

    def ends(self, call: str) -> list[End]:
        """What a call does on this rank: at the first and at the last, some do nothing."""
        return [end for end in CALLS.get(call, []) if 0 <= self.other(end) < self.K]

    def fewest(self) -> int:
        """How many calls that do something 1F1B needs."""
        turns = max(0, self.M - (self.K - self.k - 1))
        after, before = 2 * self.M - turns, 2 * self.M - max(0, turns - 1)
        return (self.k < self.K - 1) * after + (self.k > 0) * before


def task(seed: object = 0) -> Rank:
    rng = drawn_by(seed, "calls")
    K = rng.randint(3, 5)
    return Rank(rng.randint(1, K - 2), K, rng.randint(K, K + 3))


EDGES = (Rank(0, 1, 3), Rank(0, 2, 4), Rank(0, 4, 2), Rank(0, 6, 5))


@seeded("write calls in this cell, and run it again")
def check(answer: Callable, seed: object) -> Reply:
    """Check ``answer(k, K, M)``: the actions and calls of rank k for 1F1B, as texts."""
    sizes = [*map(task, hidden(seed)), *EDGES]
    spare = ""
    for _, K, M in sizes:
        ranks, programs = [Rank(k, K, M) for k in range(K)], []
        for rank in ranks:
            where = f"called with ({rank.k}, {K}, {M})"
            programs.append(_program(result_of(answer, *rank, where=where), rank, where))
            made = sum(bool(rank.ends(call)) for call in programs[-1])
            if made > rank.fewest():
                spare = spare or f"{where} rank {rank.k} makes {made} calls, and {rank.fewest()} would do"
        if stuck := _stuck(ranks, programs):
            raise keep_working(
                f"with K = {K} and M = {M} {stuck}. Which of them could do two things at once?"
            )
    if spare:
        return almost(f"it ends, but {spare}. Which two calls follow each other with no action in between?")
    return correct(
        f"it ends at {len(sizes)} sizes, with the fewest calls. Why does no pair wait for each other?"
    )


def _program(got: object, rank: Rank, where: str) -> list[str]:
    """The steps, if they make sense on this rank alone; raises a Reply if not."""
    if not isinstance(got, list | tuple) or not all(isinstance(step, str) for step in got):
        raise keep_working(f"{where} it gives {quoted(got)}. What stands in a list of texts such as 'F'?")
    if strange := [step for step in got if step not in CALLS and step not in ACTION]:
        raise keep_working(f"{where} it has {strange[0]!r}. Which of the six calls is that, or is it F or B?")
    done, wanted = "".join(step for step in got if step in ACTION), rank.actions()
    if done != wanted:
        raise keep_working(
            f"{where} its actions are {' '.join(done) or 'none'}. What are 1F1B's on this rank?"
        )
    count: Counter = Counter()
    for i, step in enumerate(got):
        at = f"{where}, step {i} is {step}"
        way = ACTION.get(step, "")
        if way and 0 <= rank.other(("recv", way)) < rank.K and count["recv", way] <= count[step]:
            raise keep_working(f"{at}, its number {count[step]}. Has what it reads been received?")
        for what, which in rank.ends(step):
            made = count["F" if which == "forward" else "B"]
            if what == "send" and count[what, which] >= made:
                raise keep_working(f"{at}, and {made} {which}s are done by then. What would it send?")
            count[what, which] += 1
        count[step] += step in ACTION
    for end in (end for end in SINGLE if 0 <= rank.other(end) < rank.K and count[end] != rank.M):
        raise keep_working(
            f"{where} it comes to {'_'.join(end)} {count[end]} times. Who waits for the others?"
        )
    return list(got)


def _stuck(ranks: Sequence[Rank], programs: Sequence[list[str]]) -> str:
    """Who waits for whom, if a call ends only when all of it has crossed; empty if all programs end."""
    rest, now = [[*program] for program in programs], [""] * len(ranks)
    going: list[list[End]] = [[] for _ in ranks]  # what a rank's call waits for

    def goes_on(k: int) -> bool:
        for what, way in going[k]:
            other, back = ranks[k].other((what, way)), ("recv" if what == "send" else "send", way)
            if back in going[other]:
                going[k].remove((what, way))
                going[other].remove(back)
                return True
        if going[k] or not rest[k]:
            return False
        now[k] = rest[k].pop(0)
        going[k] = ranks[k].ends(now[k])
        return True

    while any(goes_on(k) for k in range(len(ranks))):
        pass
    waits = [(k, now[k], ranks[k].other(ends[0])) for k, ends in enumerate(going) if ends]
    return "; ".join(f"rank {k} waits in {call} for rank {other}" for k, call, other in waits)
