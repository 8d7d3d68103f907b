"""Exercises and the truth lab, graded: whoever solved them passes with any seed, and nobody else does."""

import json
from pathlib import Path

import pytest
from test_cheats import QUICK

from gpipe_sim.classroom.grade import OTHER, grade, rows_of
from gpipe_sim.classroom.guesses import predictions
from gpipe_sim.classroom.handed_in import HandedIn, handed_in
from gpipe_sim.classroom.locked import PACKAGE, _hook
from gpipe_sim.classroom.notebooks import every_lesson, is_exercise, lesson_of, notebooks, pieces, read_cells
from gpipe_sim.classroom.outside import Limits

EXERCISES = [lesson for lesson in every_lesson() if is_exercise(lesson)]
SOLUTION = pieces("E02")[0].answers[0].partition("\n\n\n")[0]
TABLE = "KNOWN = {}\ndef start(s, kind, m, K, M, F, B):\n    return KNOWN.get((s, kind, m, K, M, F, B), 0)"
BOXES = "gp.course.exercises.boxes"
SAYS = "gp.course.reply.Reply('correct', 'passed')"
CHEATS = {
    "prints that it passed": "start = lambda *given: print('correct: passed')",
    "replaces the check": f"{BOXES}.check = lambda *_: {SAYS}\ndef start(*given): return 0",
    "raises that it passed": f"def start(*given):\n    raise {SAYS}",
    "gives back what equals all": (
        "class All(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\n"
        "def start(*given):\n    return All()"
    ),
    "asks the exercise's module": (
        f"def start(s, kind, m, K, M, F, B):\n    return {BOXES}.Size(K, M, F, B).start(s, kind, m)"
    ),
    "asks the task": (
        f"def start(s, kind, m, K, M, F, B):\n    size = {BOXES}.size(0)\n"
        "    return type(size)(K, M, F, B).start(s, kind, m)"
    ),
    "imports the module": (
        "import importlib\ndef start(s, kind, m, *size):\n"
        "    boxes = importlib.import_module('gpipe_sim.course.exercises.boxes')\n"
        "    return boxes.Size(*size).start(s, kind, m)"
    ),
    "reads the module's file": (
        "import gpipe_sim, pathlib\ndef start(s, kind, m, *size):\n"
        "    path = pathlib.Path(gpipe_sim.__file__).parent / 'course' / 'exercises' / 'boxes.py'\n"
        "    names = {}\n    exec(path.read_text(), names)\n    return names['Size'](*size).start(s, kind, m)"
    ),
    "reads the solution": (
        "import json, pathlib\ndef start(*given):\n"
        f"    path = pathlib.Path({str(notebooks()['solution E02'])!r})\n"
        "    names = {}\n    for cell in json.loads(path.read_text())['cells']:\n"
        "        if 'def start' in (text := ''.join(cell['source'])):\n"
        "            exec(text.partition('gp.course')[0], names)\n    return names['start'](*given)"
    ),
    "patches what checks draw": (
        "import random\nrandom.Random.randint = lambda *given: 1\ndef start(*given): return 0"
    ),
    "looks for the check in the process": (
        "import sys\ndef start(s, kind, m, *size):\n"
        "    return sys.modules['gpipe_sim.course.exercises.boxes'].Size(*size).start(s, kind, m)"
    ),
}


def piece_of(folder: Path, lesson: str, answer: str, given: int = 0):
    """What is said of an exercise, in a copy of the course's notebook with this answer."""
    [piece] = pieces(lesson)
    notebook = json.loads(notebooks()[lesson].read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if cell["id"] == piece.cell:
            cell["source"] = f"{answer}\n\ngp{piece.call}"
    path = folder / "ann" / "exercises" / notebooks()[lesson].name
    [row] = rows_of(HandedIn("ann", path, json.dumps(notebook)), 1, QUICK, given)
    assert row.kind == "piece"
    return row


def handed(folder: Path, student: str, what: str) -> None:
    """All exercises as the course has them ("E") or their solutions ("solution E")."""
    (folder / student / "exercises").mkdir(parents=True)
    for lesson in EXERCISES:
        path = notebooks()[lesson.replace("E", what)]
        (folder / student / "exercises" / path.name).write_bytes(path.read_bytes())


def test_exercise_01_is_not_lesson_01():
    assert len(EXERCISES) >= 10 and {"01", "E01", "T"} <= {*every_lesson()}
    assert notebooks()["01"].name == "01_why_split.ipynb" and notebooks()["E01"].name == "01_gate.ipynb"
    for lesson in every_lesson():
        assert lesson_of(read_cells(notebooks()[lesson].read_text(encoding="utf-8"))) == lesson
    assert all(len(pieces(lesson)) == 1 and pieces(lesson)[0].by_seed for lesson in (*EXERCISES, "T"))
    names = [piece.name for lesson in every_lesson() for piece in pieces(lesson)]
    assert len({*names}) == len(names)


def test_solutions_pass_with_two_seeds_and_empty_notebooks_do_not(tmp_path):
    handed(tmp_path, "morning/ann", "solution E")
    handed(tmp_path, "ben", "E")
    for seed, given in ((1, 0), (2, 7)):
        rows, _ = grade(tmp_path, seed, Limits(), given=given)
        of = {(row.student, row.lesson): row for row in rows}
        assert len(of) == len(rows) == 2 * len(EXERCISES)
        assert not [row for row in rows if (row.student == "ben") != (row.verdict == "your turn")]
        assert {row.passed for row in rows if row.student == "morning/ann"} == {"yes"}
        assert {OTHER in row.note for row in rows} == {given != 0}


@pytest.mark.parametrize("answer", CHEATS.values(), ids=CHEATS)
def test_no_cheat_passes_an_exercise(answer, tmp_path):
    row = piece_of(tmp_path, "E02", answer)
    assert row.passed == "no" and row.verdict in ("keep working", "almost"), row
    assert piece_of(tmp_path, "E02", SOLUTION).passed == "yes"


def test_a_table_of_what_the_notebooks_check_asks_does_not_pass(tmp_path):
    from gpipe_sim.course.exercises import boxes
    from gpipe_sim.course.exercises.seeded import hidden

    sizes = [*map(boxes.size, hidden(0)), boxes.Size(1, 4, 1, 3), boxes.Size(4, 1, 2, 1), boxes.HUGE]
    known = {(*box, *size): size.start(*box) for size in sizes for box in size.boxes()}
    row = piece_of(tmp_path, "E02", TABLE.replace("{}", repr(known)))
    assert row.passed == "no" and boxes.check(lambda *given: known[given], 0).verdict == "correct"


def test_rows_for_another_seed_than_the_handouts_do_not_pass(tmp_path):
    import gpipe_sim as gp
    from gpipe_sim.course.exercises import complete

    puzzle = complete.task(0)
    order = gp.memory.greedy(4, len(puzzle.rows[0]) // 2, memory_limit=puzzle.caps)
    answer = f'answer = """{order}"""'
    assert piece_of(tmp_path, "E03", answer).passed == "yes"
    row = piece_of(tmp_path, "E03", answer, given=7)
    assert (row.passed, row.note) == ("no", f"{OTHER}0")


def test_my_time_passes_unless_it_looks_rows_up(tmp_path):
    [piece] = pieces("T")
    assert piece_of(tmp_path, "T", piece.answers[0], given=3).passed == "yes"
    rows = (
        "ROWS = [row for name in ('one-node', 'many-nodes') for row in gp.pricing.measured_rows(name)]\n"
        "def my_time(plan):\n"
        "    return min(row.seconds for row in ROWS if row.devices == plan.t * plan.K * plan.R)"
    )
    row = piece_of(tmp_path, "T", rows)
    assert row.passed == "no" and "name 'ROWS' is not defined" in row.reply


def test_predictions_of_the_lab_are_those_of_the_handouts_seed():
    stored, other = predictions("T"), predictions("T", 7)
    assert [each.name for each in stored] == [each.name for each in other]
    assert [a.measured == b.measured for a, b in zip(stored, other, strict=True)] == [
        False,
        False,
        True,
        True,
    ]


def test_plans_by_judgement_are_measured_and_neither_right_nor_wrong(tmp_path):
    source = f"choices = {[1] * 19 + [None]}\n\nlesson_T.judged(choices, SEED)"
    notebook = json.loads(notebooks()["T"].read_text(encoding="utf-8"))
    next(cell for cell in notebook["cells"] if cell["id"] == "choices")["source"] = source
    _, row = rows_of(HandedIn("ann", tmp_path / "T.ipynb", json.dumps(notebook)), 1, QUICK)
    assert (row.kind, row.passed, row.verdict) == ("guess", "", "measured")
    assert f"take {float(row.off):.1%} longer than the fastest" in row.reply


def test_what_is_no_answer_is_not_read(tmp_path):
    for folder in ("ann/exercises/solutions", "ann/exercises/.ipynb_checkpoints", "ann/exercises"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "01_gate.ipynb").write_bytes(notebooks()["solution E01"].read_bytes())
    assert [(each.student, each.path.parent.name) for each in handed_in(tmp_path)] == [("ann", "exercises")]


@pytest.mark.parametrize(
    "name", ["notebooks/01_why_split.ipynb", "data/measured/one-node.csv", "course/build.py"]
)
def test_a_students_process_reads_no_answers_beside_the_package(name, tmp_path):
    with pytest.raises(PermissionError, match="may not read"):
        _hook(str(tmp_path))("open", (f"{PACKAGE}/{name}", "r", 0))
