"""Builds: what passes in a notebook is kept in a file, and later lessons use it; nothing else is."""

import os
import re
from pathlib import Path
from unittest.mock import Mock

import pytest
from cells import doubled, in_a_cell
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from gpipe_sim.course import mine

CHECK = """
from gpipe_sim.course import mine
from cells import doubled
"""
TWICE = """
import math
factor = 2

def twice(x):
    return math.floor(factor * x)

doubled(twice)
"""


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
    assert helped.startswith(
        "correct: twice as much. It is not kept for later lessons: without your other cells"
    )
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


def test_an_old_file_is_read_and_what_no_longer_runs_is_named():
    """Checks that stand in it do nothing, however they are called; the rest of it is used."""
    old = "# --- clock\nreply = gp.course.lesson_05.clock(mine.clock)\nfor _ in range(9): reply = doubled\n"
    old += "# --- needs\ndef needs(*_):\n    return []\n\n\nONE = half(2)\n# --- run\nraise SystemExit\n"
    says = r"needs \(NameError: name 'half' is not defined\); run \(SystemExit: \)\. What the lessons define"
    with pytest.warns(UserWarning, match=r"no longer runs: clock \(NameError: .*doubled.*; " + says):
        names = mine.pipeline(old)
    assert names["needs"]() == [] and names["reply"].verdict == "your turn"
    assert names["clock"]([[(0, "F", 0)]], mine.NEEDS, {"F": 3}) == {(0, "F", 0): 3}


def test_a_piece_that_no_lesson_has():
    with pytest.raises(AttributeError, match="no lesson has a piece called 'clocks'"):
        mine.clocks  # noqa: B018


# A file that somebody has broken


BROKEN = {
    "latin": (b"name = '\xe9'\n", "cannot be read: 'utf-8' codec can't decode byte 0xe9"),
    "utf-16": ("a = 1\n".encode("utf-16"), "cannot be read: 'utf-8' codec"),
    "huge": (b"# " + b"x" * mine.MOST, "is over 1,000,000 bytes long"),
    "zeros": (b"a = 1\0", "stopped: "),
    "syntax": (b"def broken(:\n", "stopped: SyntaxError: invalid syntax"),
    "indented": (b"  a = 1\n", "stopped: IndentationError"),
    "nested": (b"(" * 100_000, "stopped: "),
    "endless": (b"while True:\n    pass\n", "was still running after"),
    "swallows": (b"while 1:\n  try:\n    1 / 0\n  except Exception:\n    pass\n", "was still running after"),
}
TOLD = "my_pipeline.py, beside the notebooks, "


@pytest.mark.parametrize(("text", "says"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_told_in_words_by_what_reads_it_and_what_would_save(text, says, file, monkeypatch):
    file.write_bytes(text)
    with pytest.raises(RuntimeError, match=re.escape(TOLD + says)) as told:
        mine.clock  # noqa: B018
    assert "Mend it, or delete it to start again" in str(told.value)
    (said,) = in_a_cell("def twice(x):\n    return 2 * x\n\ncheck(twice)", monkeypatch, check=doubled)
    assert said.verdict == "correct" and "It is not kept for later lessons: " in said.text
    assert TOLD + says in said.text and file.read_bytes() == text


def test_what_is_there_but_is_no_file_is_told_too(file, monkeypatch):
    file.mkdir()
    with pytest.raises(RuntimeError, match="is no file"):
        mine.clock  # noqa: B018
    with pytest.raises(RuntimeError, match="cannot be written: "):
        mine.keep("a = 1\n")
    file.rmdir()
    os.mkfifo(file)  # who opens that waits for ever
    with pytest.raises(RuntimeError, match="is no file"):
        mine.clock  # noqa: B018
    file.unlink()
    file.write_text("a = 1\n")
    monkeypatch.setattr(Path, "read_text", Mock(side_effect=PermissionError("not yours")))
    with pytest.raises(RuntimeError, match="cannot be read: not yours"):
        mine.stored()
    monkeypatch.setattr(Path, "read_text", Mock(side_effect=FileNotFoundError()))
    assert mine.stored() == "", "somebody removed it meanwhile"


def test_what_cannot_be_written_leaves_the_file_as_it_was(file):
    mine.keep("a = 1\n")
    with pytest.raises(RuntimeError, match="cannot be written: "):
        mine.keep("a = '\ud800'\n")
    assert file.read_text() == "a = 1\n"


def test_the_marks_and_line_ends_of_other_editors_do_no_harm(file):
    file.write_bytes(b"\xef\xbb\xbf# --- one\r\na = 1\r\n")
    assert mine.a == 1 and mine.sections(mine.stored()) == {"one": "a = 1\n\n"}


def test_the_student_can_interrupt_a_file(file):
    file.write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        mine.clock  # noqa: B018


def test_no_file_is_run_for_what_python_itself_asks(file):
    file.write_text("raise SystemExit\n")
    assert not hasattr(mine, "__path__") and not hasattr(mine, "_ipython_display_")


WITHIN = """\
def one():
    a = 1
# --- done
    return a


@staticmethod
# --- two
def other():
    return \'\'\'
# --- three
\'\'\'
"""


@pytest.mark.parametrize("first", ["", "helper = 5\n", mine.HEADING, "def broken(:\n", "# --- one\nb = 2\n"])
def test_a_save_never_breaks_or_loses_what_is_there(first):
    """A heading within a function or a text is a part of it; what stands before the first stays there."""
    text = mine.with_section(first, "odd", WITHIN)
    for n in range(3):
        text = mine.with_section(text, f"piece{n}", f"p{n} = {n}")
        text = mine.with_section(text, f"piece{n}", f"p{n} = {n + 1}")
    assert first.strip() in text and text.count(mine.HEADING) == 1
    if "broken" in first:
        return
    names: dict = {}
    exec(text, names)
    assert names["one"]() == 1 and names["other"]() == "\n# --- three\n"
    assert [names[f"p{n}"] for n in range(3)] == [1, 2, 3]
    own = [] if "one" not in mine.sections(first) else ["one"]
    assert [key for key in mine.sections(text) if key] == [*own, "odd", "piece0", "piece1", "piece2"]


def test_a_file_that_exits_ends_no_kernel(tmp_path):
    (tmp_path / mine.FILE).write_text("import sys\nsys.exit()\n")
    _, told, alive = in_a_notebook(tmp_path, "from gpipe_sim.course import mine\n0", "mine.clock", "1 + 1")
    assert TOLD + "has what no longer runs: its first lines (SystemExit: )" in told and alive == "2"
