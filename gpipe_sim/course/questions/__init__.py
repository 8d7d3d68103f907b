"""Forty questions across the course: numbers by seed, an answer that is computed, and natural wrong ones.

Each is a function. It draws numbers, and computes what is right and what a student says who has something
wrong, with the library where that can. The words beside a wrong answer say what it is, and ask on; they never
say what is right.

The forty stand in twenty pairs, in the course's order, and a seed takes one of each. The first fifteen pairs
are answered on paper, the last five with a few lines of code.
"""

from collections.abc import Hashable
from random import Random

from gpipe_sim.course.questions import lessons_01_to_06, lessons_07_on, with_code
from gpipe_sim.course.questions.asked import QUESTIONS, Question, Value


def twenty(seed: Hashable) -> list[Question]:
    """One question of each pair."""
    rng, every = Random(f"twenty {seed}"), list(QUESTIONS.values())
    return [rng.choice(pair) for pair in zip(every[::2], every[1::2], strict=True)]


def right(seed: Hashable, first: int = 1, last: int = 20) -> dict[int, Value]:
    """What is right, by the numbers of the questions."""
    return {n: each.asked(seed).right for n, each in enumerate(twenty(seed), 1) if first <= n <= last}
