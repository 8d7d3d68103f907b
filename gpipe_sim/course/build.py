"""What makes a function a check: of an exercise, or of a build, a piece of the pipeline for later lessons.

``grade`` has the checks of builds reply to a file that was handed in.
"""

from collections.abc import Callable
from functools import wraps
from inspect import unwrap
from typing import Any

from gpipe_sim.course import kept, mine, tries
from gpipe_sim.course.called import stopped
from gpipe_sim.course.reply import Reply, correct, keep_working, your_turn

#: What each build's check is called, and the names that its answer defines.
BUILDS: dict[str, tuple[str, ...]] = {}


def exercise(task: str) -> Callable[[Callable[..., Reply]], Callable[..., Reply]]:
    """Make a check one of an exercise: without an answer (None) it says what the ``task`` is.

    A Reply that is raised anywhere in the check is what it gives back. In a notebook the try is counted. What
    is ``given`` by keyword, such as a seed, is no answer.
    """

    def of(check: Callable[..., Reply]) -> Callable[..., Reply]:
        @wraps(check)
        def checked(*answers: object, **given: object) -> Reply:
            if mine.is_reading():
                return your_turn(f"a check in {mine.FILE} does nothing")
            if all(answer is None for answer in answers):
                return your_turn(task)
            try:
                reply = check(*answers, **given)
            except Reply as raised:
                reply = raised.with_traceback(None)
            tries.note(check, reply)
            return reply

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
            cell = "" if mine.in_a_test() else kept.running_cell()
            if reply.verdict != "correct" or not cell or all(map(kept.is_elsewhere, answers)):
                return reply
            says = _kept(check, dict(zip(names, answers, strict=True)), cell)
            end = "" if reply.text.endswith("?") else "."
            return correct(f"{reply.text}{end} It is not kept for later lessons: {says}") if says else reply

        return checked

    return of


def _kept(check: Callable[..., Reply], answers: dict[str, object], cell: str) -> str:
    """Keep the answer, which must pass without the notebook's other cells; or else why it is not kept."""
    try:
        text = mine.with_section(mine.stored(), check.__name__, kept.source_of(answers, cell))
        alone, failed = mine.read(text)
        if check.__name__ in failed:
            return f"without your other cells it stops: {failed[check.__name__]}"
        again = check(*(alone[name] for name in answers))
        if again.verdict != "correct":
            return f"without your other cells, {again.text}"
        mine.keep(text)
    except Exception as error:
        return str(error) if type(error) is RuntimeError else f"without your other cells {stopped(error)}"
    return ""


def grade(own: str, *checks: Callable[..., Reply]) -> dict[str, Reply]:
    """What the checks of builds, such as ``lesson_05.clock``, reply to a student's ``my_pipeline.py``.

    ``own`` is its text, which is run: do that where students' code may run. Each reply stands under its
    check's name. Its verdict is "your turn" for what the file does not define, or only imports, and "keep
    working" for every piece of a file that is no Python or does not end. Where a piece calls one that the
    file lacks, it gets the lesson's. Nothing is kept. ValueError for a check that is not of a build.
    """
    if strange := [check for check in checks if getattr(check, "__name__", "") not in BUILDS]:
        raise ValueError(f"grade takes checks of builds, such as lesson_05.clock, and not {strange[0]!r}")
    try:
        names, failed = mine.read.__wrapped__(own)  # afresh: a reply quotes the file that was read last
    except RuntimeError as error:
        return {check.__name__: keep_working(f"no piece is tried: {error.__cause__}") for check in checks}
    with mine.reading(names):
        return {check.__name__: _graded(check, names, failed.get(check.__name__)) for check in checks}


def _graded(check: Callable[..., Reply], names: dict[str, Any], error: str | None) -> Reply:
    needed = BUILDS[check.__name__]
    if missing := [name for name in needed if not _is_own(names.get(name), names["__lessons__"].get(name))]:
        says = f"the file does not define {' and '.join(missing)}"
        return keep_working(f"it does not run: {error}") if error else your_turn(says)
    try:
        return unwrap(check)(*(names[name] for name in needed))  # which keeps nothing
    except Reply as reply:
        return reply.with_traceback(None)


def _is_own(value: Any, lessons: object) -> bool:
    """Whether the file defines it; a function that it imports has its source elsewhere."""
    code = getattr(unwrap(value), "__code__", None)
    return value is not lessons and (code is None or code.co_filename == mine.FILE)
