"""A file that was handed in gets replies for what it defines itself, and the next file gets its own."""

import inspect

import pytest

from gpipe_sim import textbook
from gpipe_sim.course import grade, lesson_02, lesson_03, lesson_04, lesson_05, lesson_07, lesson_09, mine
from gpipe_sim.course.build import BUILDS

CHECKS = (
    lesson_02.forward_and_backward,
    lesson_02.step,
    lesson_03.run,
    lesson_04.gpipe_rows,
    lesson_05.table_and_needs,
    lesson_05.clock,
    lesson_07.capped_rows,
    lesson_09.interleaved_rows,
)
CLOCK = inspect.getsource(textbook.clock)
NEEDS = f"NEEDS = {textbook.NEEDS!r}\n{inspect.getsource(textbook.needs)}"
THROUGH_MINE = CLOCK.replace("needs(", "mine.needs(")
#: Files in which there is nothing of the student's, however they name it.
NOTHING = {
    "empty": "",
    "headings": "".join(f"# --- {check.__name__}\nx = 1\n\n" for check in CHECKS),
    "other names": "# --- clock\ndef my_clock(rows, table, cost):\n    return {}\n",
    "imported": "from gpipe_sim.textbook import *",
    "imported, each": f"from gpipe_sim.textbook import {', '.join(sum(map(BUILDS.get, BUILDS), ())[:3])}",
    "another name": "clock = mine.clock\ngpipe_rows = gpipe_rows\n",
    "changed": "NEEDS.update({})\n",
    "leaves": "import sys\n\nsys.exit(3)\n",
}


def verdicts(own: str) -> dict[str, str]:
    return {piece: reply.verdict for piece, reply in grade(own, *CHECKS).items()}


def test_all_eight_pieces_of_the_textbook_are_correct():
    said = verdicts(inspect.getsource(textbook))
    assert said == {check.__name__: "correct" for check in CHECKS} and len(said) == 8


@pytest.mark.parametrize("own", NOTHING.values(), ids=NOTHING)
def test_what_the_file_does_not_define_is_not_filled_in(own):
    assert {*verdicts(own).values()} == {"your turn"}


def test_a_piece_alone_is_graded_on_the_lessons_other_pieces():
    said = verdicts(CLOCK)
    assert said.pop("clock") == "correct" and {*said.values()} == {"your turn"}
    (reply,) = grade("def needs(*_):\n    return []", lesson_05.table_and_needs).values()
    assert repr(reply) == "your turn: the file does not define NEEDS"


@pytest.mark.parametrize("call", [CLOCK, THROUGH_MINE], ids=["by name", "through mine"])
def test_pieces_use_each_other_and_not_the_graders_own(call, tmp_path, monkeypatch):
    """A clock on wrong needs of the same file is wrong, on right ones right, whatever lies in the folder."""
    monkeypatch.delenv("PYTEST_VERSION")
    monkeypatch.chdir(tmp_path)
    wrong = "def needs(action, S, table):\n    return []\n\n\n"
    (tmp_path / mine.FILE).write_text(wrong if call is THROUGH_MINE else "")
    before = (tmp_path / mine.FILE).read_text()
    assert verdicts(wrong + call)["clock"] in ("almost", "keep working")
    assert verdicts(NEEDS + call)["clock"] == verdicts(call)["clock"] == "correct"
    assert (tmp_path / mine.FILE).read_text() == before


@pytest.mark.parametrize(
    "own", ["def clock(:\n", "\0", "while True:\n    pass\n"], ids=["syntax", "null", "endless"]
)
def test_a_broken_file_is_a_row_of_replies(own, monkeypatch):
    monkeypatch.setattr(mine, "SECONDS", 0.3)
    said = grade(own, *CHECKS)
    assert [*said] == [check.__name__ for check in CHECKS]
    assert all(repr(reply).startswith("keep working: no piece is tried: ") for reply in said.values())
    assert mine.FILE not in repr(said["clock"]) and not mine.is_reading()


def test_what_stops_where_it_is_defined_is_told():
    lost = f"# --- clock\n@lost\n{CLOCK}\n\n# --- table_and_needs\n{NEEDS.replace('= {', '= lost or {')}"
    said = grade(lost, lesson_05.clock, lesson_05.table_and_needs)
    assert [repr(reply) for reply in said.values()] == [
        "keep working: it does not run: NameError: name 'lost' is not defined"
    ] * 2


def test_a_reply_quotes_the_line_of_its_own_file():
    files = [f"def gpipe_rows(K, M):\n    return {word}\n" for word in ("one", "other", "one")]
    said = [grade(own, lesson_04.gpipe_rows)["gpipe_rows"].text for own in files]
    assert "in your line: return one." in said[0] == said[2] and "return other." in said[1]


@pytest.mark.parametrize("value", ["None", "5", "[]", "{}", "{'F': 3}", "{'F': [3], 'B': [None]}"])
def test_whatever_the_names_stand_for_there_is_a_reply(value):
    own = "".join(f"{name} = {value}\n" for check in CHECKS for name in BUILDS[check.__name__])
    assert {*verdicts(own).values()} <= {"keep working", "almost"}


@pytest.mark.parametrize("check", [lesson_04.fewest, "clock"])
def test_an_exercise_is_no_piece_of_the_file(check):
    with pytest.raises(ValueError, match=r"checks of builds, such as lesson_05\.clock, and not"):
        grade("", lesson_05.clock, check)
