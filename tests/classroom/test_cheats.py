"""Ten ways to pass without an answer, and none passes; ten bad files, and none stops the rest."""

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

from gpipe_sim import textbook
from gpipe_sim.classroom.grade import as_csv, grade, rows_of
from gpipe_sim.classroom.handed_in import HandedIn, handed_in
from gpipe_sim.classroom.notebooks import lessons_home
from gpipe_sim.classroom.outside import Limits
from gpipe_sim.classroom.report import page, read_csv

RIGHT = inspect.getsource(textbook.gpipe_rows)
CHECK = "gp.course.lesson_04.gpipe_rows(gpipe_rows)"
SAYS = "gp.course.reply.Reply('correct', 'passed')"
CHEATS = {
    "prints that it passed": "gpipe_rows = lambda K, M: print('correct: passed')",
    "imports the answer": "from gpipe_sim.textbook import gpipe_rows",
    "imports all answers": "from gpipe_sim.course.answers import *",
    "takes it from mine": "gpipe_rows = gp.course.mine.gpipe_rows",
    "wraps the one in mine": "def gpipe_rows(K, M):\n    return gp.course.mine.gpipe_rows(K, M)",
    "replaces the check": (
        f"gp.course.lesson_04.gpipe_rows = lambda *_: {SAYS}\ndef gpipe_rows(K, M): return []"
    ),
    "patches what checks compare": (
        "from gpipe_sim.core import schedule\nschedule.Schedule.__eq__ = lambda *_: True\n"
        "def gpipe_rows(K, M): return []"
    ),
    "gives back what equals all": (
        "class All(list):\n    def __eq__(self, other): return True\n"
        "def gpipe_rows(K, M):\n    return All([All() for _ in range(K)])"
    ),
    "raises that it passed": f"def gpipe_rows(K, M):\n    raise {SAYS}",
    "reads the answer's file": (
        "import gpipe_sim, pathlib\ndef gpipe_rows(K, M):\n"
        "    path = pathlib.Path(gpipe_sim.__file__).parent / 'textbook.py'\n"
        "    names = {}\n    exec(path.read_text(), names)\n    return names['gpipe_rows'](K, M)"
    ),
    "asks for the source": (
        "import inspect\nfrom gpipe_sim.course import answers\n"
        "def gpipe_rows(K, M):\n    exec(inspect.getsource(answers))\n    return []"
    ),
    "looks for the check in the process": (
        "import sys\ndef gpipe_rows(K, M):\n"
        "    check = sys.modules['gpipe_sim.course.lesson_04']\n    return check.gpipe(K, M)"
    ),
    "reloads the answers": (
        "import importlib, sys\ndef gpipe_rows(K, M):\n    sys.modules.pop('gpipe_sim.textbook', None)\n"
        "    return importlib.import_module('gpipe_sim.textbook').gpipe_rows(K, M)"
    ),
}
BAD = {
    "loops": "def gpipe_rows(K, M):\n    while True: pass",
    "loops when it is read": "while True: pass\ngpipe_rows = 1",
    "forks": "import os\ndef gpipe_rows(K, M):\n    while True: os.fork()",
    "exits": "import os\ndef gpipe_rows(K, M):\n    os._exit(0)",
    "leaves": "def gpipe_rows(K, M):\n    raise SystemExit",
    "writes": "def gpipe_rows(K, M):\n    open('/tmp/written_by_a_student', 'w')",
    "prints 1 GB": "def gpipe_rows(K, M):\n    for _ in range(1000): print('x' * 1_000_000)\n    return []",
    "imports what is missing": "import not_there\ndef gpipe_rows(K, M):\n    return not_there.rows(K, M)",
    "is no Python": "def gpipe_rows(K, M) return",
    "takes all memory": "def gpipe_rows(K, M):\n    return [0] * 10**10",
    "calls home": "import socket\ndef gpipe_rows(K, M):\n    socket.create_connection(('example.org', 80))",
    "starts a program": "import subprocess\ndef gpipe_rows(K, M):\n    subprocess.run(['true'])",
}
OUT = {
    "a program": "import _posixsubprocess",
    "a database": "import sqlite3",
    "machine code": "import cffi",
    "another's memory": "from multiprocessing import shared_memory",
    "a pipe with a name": "import posix\n    posix.mkfifo(f'/tmp/written_by_a_student')",
}
QUICK = Limits(seconds=1)


def notebook(*sources: str) -> str:
    title = {"cell_type": "markdown", "id": "goal", "metadata": {}, "source": "# 04 · GPipe and its bubble"}
    code = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    cells = [title, *(code | {"id": f"own-{n}", "source": each} for n, each in enumerate(sources))]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def handed(folder, student: str, answer: str, name: str = "04.ipynb") -> HandedIn:
    path = folder / student / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(notebook("import gpipe_sim as gp", f"{answer}\n\n{CHECK}"))
    return next(each for each in handed_in(folder) if each.path == path)


def row_of(folder, answer: str):
    """What is said of ``gpipe_rows`` in a notebook that has this answer."""
    rows = rows_of(handed(folder, "ann", answer), 1, QUICK)
    return next(row for row in rows if row.name in ("gpipe_rows", "04.ipynb"))


def test_an_answer_passes_and_a_copied_one_is_noted(tmp_path):
    own = RIGHT.replace("for k in range(K)", "for k in [*range(K)]")
    assert (row_of(tmp_path, own).passed, row_of(tmp_path, own).note) == ("yes", "")
    assert "word for word" in row_of(tmp_path, RIGHT).note


def test_what_stands_as_it_was_handed_out_is_not_begun(tmp_path):
    """The puzzles begin with orders that run, which no student wrote."""
    path = tmp_path / "P.ipynb"
    text = next((lessons_home() / "notebooks").glob("P_*.ipynb")).read_text(encoding="utf-8")
    path.write_text(text.replace("0B0 0F0", "0F0 0B0"), encoding="utf-8")
    rows = {row.name: row for row in rows_of(handed_in(tmp_path)[0], 1, QUICK) if row.kind == "piece"}
    first, *others = rows.values()
    assert first.passed == "yes" and len(others) == 22
    assert {row.verdict for row in others} == {"your turn"}


@pytest.mark.parametrize("answer", CHEATS.values(), ids=CHEATS)
def test_no_cheat_passes(answer, tmp_path):
    row = row_of(tmp_path, answer)
    assert row.passed == "no" and row.verdict in ("your turn", "keep working", "almost"), row


@pytest.mark.parametrize("answer", BAD.values(), ids=BAD)
def test_a_bad_file_gets_its_row(answer, tmp_path):
    row = row_of(tmp_path, answer)
    assert row.passed == "no" and row.verdict in ("keep working", "your turn"), row


@pytest.mark.parametrize("way", OUT.values(), ids=OUT)
def test_what_leads_out_of_the_process_is_refused(way, tmp_path):
    row = row_of(tmp_path, f"def gpipe_rows(K, M):\n    {way}\n    return []")
    assert row.passed == "no" and re.search("may not import|has no attribute 'mkfifo'", row.reply), row


def test_threads_do_not_outlive_the_grading(tmp_path):
    sleeps = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\n"
    answer = RIGHT.replace("    rows = []\n", f"    rows = []\n{indent(sleeps, '    ')}", 1)
    script = "import pathlib, sys, test_cheats\nfolder = pathlib.Path(sys.argv[1])\n"
    script += "print(test_cheats.row_of(folder, sys.argv[2]).passed)"
    words = [sys.executable, "-c", script, str(tmp_path), answer]
    here = os.pathsep.join([*sys.path, str(Path(__file__).parent)])
    said = subprocess.run(
        words, capture_output=True, text=True, timeout=60, env=os.environ | {"PYTHONPATH": here}
    )
    assert said.stdout == "yes\n", said.stderr


def test_what_the_library_was_asked_for_is_noted(tmp_path):
    row = row_of(tmp_path, "def gpipe_rows(K, M):\n    return [*map(list, gp.GPipe(K, M).actions)]")
    assert (row.passed, row.note) == ("yes", "asks the library: GPipe")


def test_a_cell_that_is_no_python_is_told_so_and_no_other_cells_line_is_taken(tmp_path):
    cells = [
        "import gpipe_sim as gp",
        f"def gpipe_rows(K, M) retrun\n\n{CHECK}",
        "gpipe_rows = mine.gpipe_rows",
    ]
    path = tmp_path / "ann" / "04.ipynb"
    path.parent.mkdir()
    path.write_text(notebook(*cells))
    row = next(row for row in rows_of(handed_in(tmp_path)[0], 1, QUICK) if row.name == "gpipe_rows")
    assert row.reply.startswith("cell 3 is no Python")


def test_a_student_has_one_row_for_a_piece_and_what_is_not_graded_is_listed(tmp_path):
    handed(tmp_path, "ann", BAD["leaves"])
    (tmp_path / "ann" / "my_pipeline.py").write_text(RIGHT)
    (tmp_path / "ann" / "solution.py").write_text(RIGHT)
    (tmp_path / "ben").mkdir()
    rows, _ = grade(tmp_path, 1, QUICK, workers=1)
    (one,) = (row for row in rows if row.name == "gpipe_rows")
    assert (one.passed, one.file) == ("yes", "ann/my_pipeline.py")
    assert {(row.student, row.reply) for row in rows if row.kind == "file"} == {
        ("ann", "it is no notebook, and not called my_pipeline.py"),
        ("ben", "nothing is in it"),
    }


def test_a_class_is_graded_whatever_one_of_them_hands_in(tmp_path):
    handed(tmp_path, "morning/ann", RIGHT)
    handed(tmp_path, "evening/ann", BAD["exits"])
    handed(tmp_path, "ben", CHEATS["imports the answer"])
    secret = "import pathlib\ndef gpipe_rows(K, M):\n    raise ValueError(pathlib.Path({!r}).read_text())"
    handed(tmp_path, "cleo", secret.format(str(tmp_path / "morning" / "ann" / "04.ipynb")))
    (tmp_path / "ben" / "my_tries.json").write_text('{"04.gpipe_rows": {"tries": 7}}')
    (tmp_path / "dan").mkdir()
    (tmp_path / "dan" / "05.ipynb").write_text("{ no notebook")
    (tmp_path / "eve").mkdir()
    (tmp_path / "eve" / "my_pipeline.py").write_text(RIGHT)
    rows, _ = grade(tmp_path, 1, QUICK, workers=2)
    passed = {row.student: row.passed for row in rows if row.name == "gpipe_rows"}
    assert passed == {"morning/ann": "yes", "evening/ann": "no", "ben": "no", "cleo": "no", "eve": "yes"}
    (bad,) = (row for row in rows if row.kind == "file")
    assert (bad.student, bad.verdict) == ("dan", "not graded") and "no notebook" in bad.reply
    (cleo,) = (row for row in rows if row.student == "cleo" and row.name == "gpipe_rows")
    assert "range(K)" not in cleo.reply
    assert read_csv(as_csv(rows)) == rows
    assert {row.tries for row in rows if row.name == "gpipe_rows"} == {"", "7"}
    assert "<td>04 · GPipe and its bubble</td><td>gpipe_rows</td><td class='n'>7.0<" in page(rows)
    assert "delete that file" in page(rows)
    assert all(student in page(rows) for student in passed)


@pytest.mark.skipif(sys.platform != "linux", reason="rights of root are given up on Linux")
def test_a_students_process_has_no_rights_of_root(tmp_path):
    row = row_of(tmp_path, "import os\ndef gpipe_rows(K, M):\n    os.setuid(1)\n    return []")
    assert "PermissionError" in row.reply, row
