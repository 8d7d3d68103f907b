"""Numbers by seed: how an exercise draws them, and what makes a function its check."""

from collections.abc import Callable
from functools import wraps
from random import Random

from gpipe_sim.course.build import exercise
from gpipe_sim.course.reply import Reply

HIDDEN = tuple("012345")  #: the further draws that a function is tried on


def drawn_by(seed: object, of: str) -> Random:
    """What an exercise draws its numbers with: the same for the same seed, on every computer."""
    return Random(f"{of} {seed}")


def hidden(seed: object) -> list[str]:
    """The seed, and further ones that no notebook shows."""
    return [str(seed), *(f"{seed}, hidden {i}" for i in HIDDEN)]


def seeded(task: str) -> Callable[[Callable[..., Reply]], Callable[..., Reply]]:
    """Make ``check(answer, seed)`` the check of an exercise: without an answer it says what the task is."""

    def of(check: Callable[..., Reply]) -> Callable[..., Reply]:
        told = exercise(task)(check)

        @wraps(check)
        def checked(answer: object = None, seed: object = 0) -> Reply:
            return told(answer, seed=seed)

        return checked

    return of
