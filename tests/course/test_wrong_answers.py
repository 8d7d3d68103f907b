"""Every check is tried with at least ten wrong answers that a student could write, and none passes.

They stand in ``WRONG`` of the lesson's test module: for each check, answers, or tuples
where it takes several.
"""

import re
from importlib import import_module
from pathlib import Path

import pytest

from gpipe_sim import course

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
CHECKS = sorted(
    set(
        re.findall(
            r'"gp\.course\.lesson_(\d\d|[AB])\.([a-z_]+)\([A-Za-z_, ]+\)"',
            "".join(path.read_text() for path in NOTEBOOKS.glob("*.ipynb")),
        )
    )
)
CHOICES = ("which_hides_it",)  #: questions with four answers to choose from


def wrong_answers(lesson: str, check: str) -> list:
    return getattr(import_module(f"test_lesson_{lesson}"), "WRONG", {}).get(check, [])


@pytest.mark.parametrize(("lesson", "check"), CHECKS)
def test_ten_wrong_answers_do_not_pass(lesson, check):
    answers = wrong_answers(lesson, check)
    assert len(answers) >= (4 if check in CHOICES else 10)
    for answer in answers:
        reply = getattr(getattr(course, f"lesson_{lesson}"), check)(
            *(answer if isinstance(answer, tuple) else (answer,))
        )
        assert reply.verdict in ("almost", "keep working"), (answer, reply)
