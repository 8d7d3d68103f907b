"""What makes a function a check: of an exercise, or of a build, a piece of the pipeline for later lessons."""

from collections.abc import Callable
from functools import wraps

from gpipe_sim.course import mine
from gpipe_sim.course.called import stopped
from gpipe_sim.course.reply import Reply, correct, your_turn

#: What each build's check is called, and the names that its answer defines.
BUILDS: dict[str, tuple[str, ...]] = {}


def exercise(task: str) -> Callable[[Callable[..., Reply]], Callable[..., Reply]]:
    """Make a check one of an exercise: without an answer (None) it says what the ``task`` is.

    A Reply that is raised anywhere in the check is what it gives back.
    """

    def of(check: Callable[..., Reply]) -> Callable[..., Reply]:
        @wraps(check)
        def checked(*answers: object) -> Reply:
            if all(answer is None for answer in answers):
                return your_turn(task)
            try:
                return check(*answers)
            except Reply as reply:
                return reply.with_traceback(None)

        return checked

    return of


def build(*names: str) -> Callable[[Callable[..., Reply]], Callable[..., Reply]]:
    """Make a check one of a build, whose answer defines ``names``; the check takes these, in this order.

    Without an answer (None) it says what to write. In a notebook, what is correct is kept for later lessons.
    """

    def of(check: Callable[..., Reply]) -> Callable[..., Reply]:
        BUILDS[check.__name__] = names
        check = exercise(f"write {' and '.join(names)} in this cell, and run it again")(check)

        @wraps(check)
        def checked(*answers: object) -> Reply:
            reply = check(*answers)
            if reply.verdict != "correct" or not mine.running_cell():
                return reply
            return _kept(check, dict(zip(names, answers, strict=True)), reply)

        return checked

    return of


def _kept(check: Callable[..., Reply], answers: dict[str, object], reply: Reply) -> Reply:
    """The reply, and whether the answer is kept: it must pass without the notebook's other cells."""
    try:
        text = mine.with_section(mine.stored(), check.__name__, mine.source_of(answers))
    except RuntimeError as error:
        return correct(f"{reply.text}. It is not kept for later lessons: {error}")
    try:
        alone = mine.pipeline(text)
        again = check(*(alone[name] for name in answers))
    except Exception as error:
        return correct(f"{reply.text}. It is not kept for later lessons: on its own {stopped(error)}")
    if again.verdict != "correct":
        return correct(f"{reply.text}. It is not kept for later lessons: on its own, {again.text}")
    try:
        mine.keep(text)
    except RuntimeError as error:
        return correct(f"{reply.text}. It is not kept for later lessons: {error}")
    return reply
