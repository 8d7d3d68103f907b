"""What a question is: a function that draws its numbers, what is right, and what is naturally wrong."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations
from random import Random
from typing import Any

from gpipe_sim.core.bubbles import peak_in_flight
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.course.reply import apart, is_number
from gpipe_sim.errors import Real
from gpipe_sim.streams.pipedream import PipeDream
from gpipe_sim.streams.staleness import staleness

Value = Real | str
APART = 0.04  #: relatively, answers that are not whole are at least so far from each other
TRIES = 1000  #: how often numbers are drawn until all answers differ


@dataclass(frozen=True)
class Asked:
    """A question with its numbers. ``wrong`` has natural wrong answers, and what each is told."""

    text: str
    right: Value
    wrong: tuple[tuple[Value, str], ...]
    unit: str = ""

    def differ(self) -> bool:
        """Whether no two of its answers are equal, or nearly so."""
        values = [self.right, *(value for value, _ in self.wrong)]
        return not any(_near(one, other) for one, other in combinations(values, 2))


@dataclass(frozen=True)
class Question:
    key: str
    lesson: str  #: that meets it
    draw: Callable[[Random], Asked]

    def asked(self, seed: Hashable) -> Asked:
        """The same for the same seed, on every computer."""
        return _asked(self, seed)


@cache
def _asked(question: Question, seed: Hashable) -> Asked:
    rng = Random(f"{question.key} {seed}")
    for _ in range(TRIES):
        if (found := question.draw(rng)).differ():
            return found
    raise ValueError(f"{question.key} draws no numbers for which all answers differ")


QUESTIONS: dict[str, Question] = {}


def question(lesson: str) -> Callable[[Callable[[Random], Asked]], Callable[[Random], Asked]]:
    """Make a function that draws numbers a question; its name is the key."""

    def of(draw: Callable[[Random], Asked]) -> Callable[[Random], Asked]:
        QUESTIONS[draw.__name__] = Question(draw.__name__, lesson, draw)
        return draw

    return of


def _near(one: Value, other: Value) -> bool:
    if not is_number(one) or not is_number(other):
        return one == other
    whole = one % 1 == other % 1 == 0
    return apart(one, other) <= (0 if whole else APART * max(apart(one, 0), apart(other, 0)))


EXACT = Costs(Fraction(1), Fraction(1), Fraction(1))
Family = Callable[[int, int], Schedule]


@cache
def length(family: Family, K: int, M: int, comm: Real = 0, each: Real = 1) -> Real:
    """Of a step in which F, I and W take as long as ``each`` says."""
    one = Fraction(each)
    return simulate(family(K, M), Costs(one, one, one, comm=comm)).makespan


@cache
def peaks(family: Family, K: int, M: int) -> tuple[int, ...]:
    """How many microbatches each device has in flight at most."""
    return peak_in_flight(family(K, M))


@cache
def stale(K: int, M: int, weights: str = "stashed") -> Any:
    """The versions that PipeDream uses and holds."""
    return staleness(PipeDream(K, M), weights)
