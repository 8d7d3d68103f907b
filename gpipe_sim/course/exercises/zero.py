"""Bytes under ZeRO: what each device of a pipeline holds, if its copies deal out what they keep."""

from collections.abc import Callable, Iterator, Sequence
from math import isclose
from typing import NamedTuple

from gpipe_sim.course.called import result_of
from gpipe_sim.course.exercises.seeded import drawn_by, hidden, seeded
from gpipe_sim.course.reply import Reply, correct, is_number, keep_working, quoted
from gpipe_sim.errors import Real

#: Bytes of each weight: itself, its gradient, the optimizer's state.
WEIGHT, GRADIENT, OPTIMIZER = EACH = (2, 4, 12)
FLIGHT = "How many microbatches has this device in flight?"
NAMES = ("weights", "gradients", "optimizer")
PLAIN = "a plain copy"


class Copies(NamedTuple):
    """Of each stage millions of weights and the MB saved of a microbatch; copies, and the number of ZeRO."""

    weights: list[int]
    saved: list[int]
    R: int
    zero: int

    def __str__(self) -> str:
        lines = ["stage  million weights  MB saved of a microbatch"]
        for k, (weights, saved) in enumerate(zip(self.weights, self.saved, strict=True)):
            lines.append(f"{k:>5} {weights:>16} {saved:>25}")
        return "\n".join([*lines, f"{self.R} copies, {f'ZeRO {self.zero}' if self.zero else PLAIN}"])

    def kept(self, k: int, zero: int, R: int) -> list[float]:
        """MB of weights, gradients and optimizer: the last ``zero`` of these are dealt out."""
        whole = len(EACH) - zero
        return [each * self.weights[k] / (1 if i < whole else R) for i, each in enumerate(EACH)]

    def held(self, k: int) -> float:
        """What device k holds under 1F1B."""
        return sum(self.kept(k, self.zero, self.R)) + self.flight(k) * self.saved[k]

    def flight(self, k: int) -> int:
        return len(self.weights) - k

    def mistakes(self, k: int) -> Iterator[tuple[float, str]]:
        """(what device k would hold by one mistake, a question)."""
        K, saved = len(self.weights), self.saved[k]
        state, flight = self.kept(k, self.zero, self.R), self.flight(k) * saved
        yield sum(state), "That is all but the activations. What does a backward read?"
        for count in (1, K, k + 1, self.flight(k) - 1):
            yield sum(state) + count * saved, f"That has {count} times {saved} in it. {FLIGHT}"
        also = "That has the activations divided by {}. Whose samples does another copy work on?"
        yield sum(state) + flight / self.R, also.format(self.R)
        for zero in range(4):
            is_called = f"ZeRO {zero}" if zero else PLAIN
            asks = f"That is {is_called}. What more, or less, is dealt out in {self.called()}?"
            yield sum(self.kept(k, zero, self.R)) + flight, asks
        shares = "That has shares of 1/{}. How many devices hold the same stage?"
        yield sum(self.kept(k, self.zero, K)) + flight, shares.format(K)
        yield sum(self.kept(k, self.zero, K * self.R)) + flight, shares.format(K * self.R)
        for name, part in zip(NAMES, state, strict=True):
            yield sum(state) + flight - part, f"That has nothing of the {name}. Where are these?"
        yield sum(EACH) * self.weights[k] / self.R + flight, "That has all three dealt out. Which are here?"

    def called(self) -> str:
        return f"ZeRO {self.zero}" if self.zero else PLAIN


def task(seed: object = 0) -> Copies:
    rng = drawn_by(seed, "zero")
    K, R = rng.randint(3, 5), rng.choice((2, 4, 8))
    weights = [8 * rng.randint(5, 20) for _ in range(K)]
    return Copies(weights, [rng.randint(50, 400) for _ in range(K)], R, rng.randint(1, 3))


def _every(seed: object) -> Iterator[Copies]:
    """The draws, each with every number of ZeRO, its own first."""
    for copies in map(task, hidden(seed)):
        for zero in dict.fromkeys((copies.zero, 1, 2, 3, 0)):
            yield copies._replace(zero=zero)


EDGES = (Copies([8], [5], 2, 1), Copies([16, 8], [3, 7], 1, 3), Copies([7, 9], [0, 4], 3, 2))


@seeded("write held in this cell, and run it again")
def check(answer: Callable, seed: object) -> Reply:
    """Check ``answer(weights, saved, R, zero)``: the MB that each device holds under 1F1B."""
    every = [*_every(seed), *EDGES]
    for copies in every:
        where = f"called with ({', '.join(map(repr, copies))})"
        got = result_of(answer, *copies, where=where, whole=("weights", "saved"))
        _what_is_wrong(got, copies, where)
    first = every[0]
    saved = first.flight(0) * first.saved[0]
    plain, three = (saved / first._replace(zero=zero).held(0) for zero in (0, 3))
    says = f"{len(every)} times. Here {plain:.0%} of what device 0 holds are activations in {PLAIN}"
    return correct(f"{says}, and {three:.0%} in ZeRO 3. What would make these fewer?")


def _what_is_wrong(got: object, copies: Copies, where: str) -> None:
    K = len(copies.weights)
    if not isinstance(got, list | tuple) or len(got) != K or not all(map(is_number, got)):
        raise keep_working(f"{where} it gives {quoted(got)}. How many MB does each of the {K} devices hold?")
    wrong = [k for k in range(K) if not isclose(got[k], copies.held(k), rel_tol=1e-9)]
    if wrong:
        k = wrong[0]
        says = f"{where} device {k} holds {float(got[k]):,.10g} MB by your list"
        raise keep_working(f"{says}. {_asks(got, copies, wrong)}")


def _asks(got: Sequence[Real], copies: Copies, wrong: list[int]) -> str:
    """The question of the mistake that gives the student's numbers on every wrong device."""
    ways = [[*copies.mistakes(k)] for k in wrong]
    for way in zip(*ways, strict=True):
        if all(isclose(got[k], number, rel_tol=1e-9) for k, (number, _) in zip(wrong, way, strict=True)):
            return way[0][1]
    k = wrong[0]
    parts = ", ".join(f"{name} {each * copies.weights[k]:,}" for name, each in zip(NAMES, EACH, strict=True))
    whole = f"A plain copy has {parts}, and {copies.saved[k]} of each microbatch in flight"
    return f"{whole}. Which of these does it share with {copies.R - 1} others?"
