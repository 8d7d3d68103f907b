"""A check says the same of a function in another process as of one in its own, right or wrong."""

import importlib
import multiprocessing
import os
import re
from itertools import groupby
from pathlib import Path

import pytest

from gpipe_sim.classroom.inside import Student
from gpipe_sim.classroom.outside import Teacher

COURSE = Path(__file__).parents[1] / "course"
TESTS = [*(f"lesson_{n:02}" for n in range(1, 22)), "lesson_A", "lesson_B", "lesson_T"]
TESTS += sorted(path.stem.removeprefix("test_") for path in COURSE.glob("test_exercise_*.py"))
#: These look into the process of the check, as no file that is handed in does.
LOOKS = "it uses clock|16 numbers for each sample|numbers for each sample too fe"


def answered(tested):
    """The check, the answers, the verdict and the name of each case in a lesson's own test of its replies."""
    module = importlib.import_module(f"test_{tested}")
    for mark in getattr(getattr(module, "test_replies", None), "pytestmark", []):
        for case in mark.args[1]:
            check, answer, verdict, _ = case.values
            answers = answer if isinstance(answer, tuple) else (answer,)
            if any(map(callable, answers)) and not re.search(LOOKS, case.id):
                yield check, answers, verdict, f"{tested} {case.id}"


def cases():
    """Of each check a right answer, and a wrong one: almost right for every other check."""
    for tested in TESTS:
        for n, (_, found) in enumerate(groupby(answered(tested), key=lambda case: case[0])):
            first = {}
            for check, answers, verdict, name in found:
                first.setdefault(verdict, pytest.param(check, answers, id=name))
            wrong = [first[each] for each in ("almost", "keep working") if each in first]
            yield from (first[each] for each in first if each not in ("almost", "keep working"))
            yield from wrong[n % 2 :][:1] or wrong[:1]


def elsewhere(answers):
    here, there = multiprocessing.Pipe()
    names = {str(n): each for n, each in enumerate(answers)}
    if not (child := os.fork()):
        try:
            here.close()
            Student(there, names, 5).serve()
        finally:
            os._exit(0)
    there.close()
    teacher = Teacher(here, 8)
    return child, teacher, [teacher.function(n) if callable(each) else each for n, each in names.items()]


@pytest.mark.parametrize(("check", "answers"), cases())
def test_replies_are_the_same(check, answers):
    child, teacher, asked = elsewhere(answers)
    try:
        there = check(*asked)
    finally:
        teacher.connection.close()
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert plainly(there) == plainly(check(*answers))


def plainly(reply):
    """Without addresses; a generator is one that has ended, in the other process."""
    it = r"<(list_iterator|generator) object .*?>|a (list_iterator|generator)"
    return reply.verdict, re.sub(it, "an iterator", reply.text)
