"""Builds: what passes in a notebook is kept in a file, and later lessons use it; nothing else is."""

import os
from pathlib import Path

import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from gpipe_sim.course import mine
from gpipe_sim.course.build import build
from gpipe_sim.course.called import called
from gpipe_sim.course.reply import Reply, correct, keep_working

CHECK = """
from gpipe_sim.course import mine
from test_build import doubled
"""
TWICE = """
import math
factor = 2

def twice(x):
    return math.floor(factor * x)

doubled(twice)
"""


@build("twice")
def doubled(twice) -> Reply:
    for x in (2, 5):
        if (said := called(twice, x)) != 2 * x:
            return keep_working(f"{x} gives {said}")
    return correct("twice as much")


def in_a_notebook(folder: Path, *sources: str) -> list[str]:
    """What each cell shows, run by a kernel of its own in this folder, as a student would."""
    notebook = new_notebook(cells=[new_code_cell(source) for source in sources])
    env = {name: value for name, value in os.environ.items() if name != "PYTEST_VERSION"}
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), env.get("PYTHONPATH", "")])
    client = NotebookClient(notebook, resources={"metadata": {"path": str(folder)}}, timeout=60)
    client.execute(env=env)
    return [
        "".join(out.get("text") or out["data"]["text/plain"] for out in cell.outputs)
        for cell in notebook.cells
    ]


IS_KEPT = "import os; os.path.exists(mine.FILE)"
ENDS = "def twice(x):\n    exit()\n\ndoubled(twice)"
HELPED = "def twice(x):\n    return helper(x)\n\ndoubled(twice)"


def test_what_passed_alone_is_kept_and_used_by_a_later_lesson(tmp_path):
    """The kernel outlives exit(). What is wrong is not kept, nor what needs another cell."""
    helper = "def helper(x):\n    return 2 * x"
    cells = in_a_notebook(tmp_path, CHECK, ENDS, helper, HELPED, IS_KEPT, TWICE, IS_KEPT, "mine.twice(21)")
    _, ended, _, helped, before, *after = cells
    assert "calls exit()" in ended
    assert helped.startswith("correct: twice as much. It is not kept for later lessons: on its own")
    assert "name 'helper' is not defined, in your line: return helper(x)" in helped
    assert (before, *after) == ("False", "correct: twice as much", "True", "42")
    text = (tmp_path / mine.FILE).read_text()
    assert "def twice(x):" in text and "factor = 2" in text and "doubled(twice)" not in text
    assert in_a_notebook(tmp_path, "from gpipe_sim.course import mine; mine.twice(4)") == ["8"]


def test_a_stub_is_told_what_to_write():
    assert repr(doubled(None)) == "your turn: write twice in this cell, and run it again"


def test_outside_a_notebook_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert doubled(lambda x: 2 * x).verdict == "correct"
    assert list(tmp_path.iterdir()) == []


def test_tests_do_not_see_a_students_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / mine.FILE).write_text("def clock(*_):\n    return 'mine'\n")
    assert mine.clock([[(0, "F", 0)]], mine.NEEDS, {"F": 3}) == {(0, "F", 0): 3}
    monkeypatch.delenv("PYTEST_VERSION")
    assert mine.clock() == "mine"


def test_pieces_of_the_student_and_of_the_answers_are_one_program():
    own = mine.with_section("", "the_needs", "def needs(action, S, table):\n    return []\n")
    names = mine.pipeline(own)
    rows = [[(0, "F", 0)], [(1, "F", 0)]]
    assert names["clock"](rows, names["NEEDS"], {"F": 1}) == {(0, "F", 0): 1, (1, "F", 0): 1}
    assert mine.pipeline()["clock"](rows, names["NEEDS"], {"F": 1})[1, "F", 0] == 2


def test_a_section_is_replaced_and_the_others_stay():
    text = mine.with_section("", "one", "a = 1")
    text = mine.with_section(mine.with_section(text, "two", "b = 2"), "one", "a = 3")
    assert text.startswith(mine.HEADING)
    names = mine.pipeline(text)
    assert (names["a"], names["b"], list(mine.sections(text))) == (3, 2, ["one", "two"])


def test_a_file_that_does_not_run_says_where_and_what_to_do():
    with pytest.raises(RuntimeError, match=r"my_pipeline\.py, beside the notebooks, stopped: Zero"):
        mine.pipeline("a = 1 / 0")
    with pytest.raises(RuntimeError, match="make reset"):
        mine.pipeline("def broken(:\n")


def test_a_piece_that_no_lesson_has():
    with pytest.raises(AttributeError, match="no lesson has a piece called 'clocks'"):
        mine.clocks  # noqa: B018
