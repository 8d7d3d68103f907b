"""Every check meets at least ten wrong answers that a student could write, and none passes.

Most of them stand in the lesson's test module, in its ``test_replies``. Those that go wrong alike in every
lesson stand here.
"""

import re
from importlib import import_module
from pathlib import Path

import pytest
from replies import WRONG, cases_of

from gpipe_sim import course
from gpipe_sim.course import lesson_P
from gpipe_sim.textbook import NEEDS, ON_LINKS

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
CALL = r'"gp\.course\.lesson_(\d\d|[ABPT])\.([a-z_]+)\(([A-Za-z_, ]+?)(?:, seed=SEED)?\)"'
#: (lesson, check, how many answers it takes) of each exercise of the notebooks
CHECKS = sorted(
    {
        (lesson, check, 1 + takes.count(","))
        for path in NOTEBOOKS.glob("*.ipynb")
        for lesson, check, takes in re.findall(CALL, path.read_text())
    }
)
CHOICES = ("which_hides_it",)  #: questions with four answers to choose from
#: what is answered with a number, a word, a table or rows; the others take functions
VALUES = (*CHOICES, "name_the_bubble", "unlock", "short_and_small", "slots_by_hand", "best_order", "put_off")
VALUES += ("deal_out", "first", "second", "third", "last")
VALUES += tuple(f"play_{name}" for name in lesson_P.names())
#: those that take a table and a function, with the table
TABLES = {"table_and_needs": NEEDS, "on_links": ON_LINKS}
#: what may go wrong in any function, and what it is told
FUNCTIONS = {
    "it stopped: ZeroDivisionError": lambda *given: 1 // 0,
    "how many does it take?": lambda: 0,
    r"None|nothing|\?$": lambda *given: None,
    "pass in ": 7,
}
each_check = pytest.mark.parametrize(("lesson", "check", "takes"), CHECKS)


def check_of(lesson: str, check: str):
    return getattr(getattr(course, f"lesson_{lesson}"), check)


@each_check
def test_ten_wrong_answers_are_tried(lesson, check, takes):
    cases = import_module(f"test_lesson_{lesson}").test_replies.cases.get(check, {})
    wrong = [answer for answer, verdict, _ in cases_of(cases) if verdict in (*WRONG, "wrong")]
    shared = () if check in VALUES else FUNCTIONS
    assert len(wrong) + len(shared) >= (4 if check in CHOICES else 10)


@each_check
def test_without_an_answer_it_is_the_students_turn(lesson, check, takes):
    reply = check_of(lesson, check)(*takes * [None])
    assert reply.verdict == "your turn", reply
    assert re.match("write |answer with one of ", reply.text), reply


@pytest.mark.parametrize("words", FUNCTIONS)
@pytest.mark.parametrize(("lesson", "check", "takes"), [each for each in CHECKS if each[1] not in VALUES])
def test_a_function_that_fails_is_told_how(lesson, check, takes, words):
    function = FUNCTIONS[words]
    reply = check_of(lesson, check)(*([TABLES[check], function] if check in TABLES else takes * [function]))
    assert reply.verdict in WRONG and re.search(words, reply.text), reply
