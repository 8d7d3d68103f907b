"""What every lesson must be, beyond what nbval compares."""

import ast
import inspect
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import gpipe_sim as gp
from gpipe_sim import textbook
from gpipe_sim.course import answers, mine
from gpipe_sim.course.build import BUILDS
from gpipe_sim.course.reveal import FRAME, HAPPENED, PRESS

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
PARTS = ("**Goal.**", "Letters in this lesson:", "**Predict.**", "**Check.**")
SECTIONS = ("Is it true?", "Exercise", "Takeaway")

each_lesson = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def number(path: Path) -> str:
    return path.stem.split("_")[0]


def cells(path: Path, kind: str) -> list[dict]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def prose(path: Path) -> str:
    return "\n\n".join("".join(cell["source"]) for cell in cells(path, "markdown"))


def test_the_course_has_lessons_01_to_22_A_B_P_and_T():
    assert [number(path) for path in NOTEBOOKS] == [*(f"{n:02d}" for n in range(1, 23)), "A", "B", "P", "T"]


@each_lesson
def test_every_code_cell_was_run_in_order(path):
    """nbval runs a cell without a number and compares nothing."""
    counts = [cell["execution_count"] for cell in cells(path, "code")]
    assert counts == list(range(1, len(counts) + 1))


def test_the_first_cell_of_each_installs_the_package_only_where_it_is_missing(monkeypatch):
    """As in Colab. A reader sees nothing of it."""
    [first] = {json.dumps({**cells(path, "code")[0], "execution_count": 1}) for path in NOTEBOOKS}
    cell, ran = json.loads(first), []
    assert cell["metadata"]["jupyter"]["source_hidden"] and cell["metadata"]["tags"] == ["colab"]
    monkeypatch.setattr(subprocess, "run", lambda words, check: ran.append(words[1:]))
    exec("".join(cell["source"]), {})
    assert ran == []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    exec("".join(cell["source"]), {})
    assert ran == [["-m", "pip", "install", "--quiet", "gpipe_sim[lessons]"]]


OPENED = re.escape(f"<details {FRAME}><summary {PRESS}>")
FOLD = rf"{OPENED}([^<]+)</summary>\n\n((?!<details).)*</details>"


@each_lesson
def test_a_lesson_has_its_parts(path):
    text = prose(path)
    headings = re.findall(r"^## (.+)$", text, re.M)
    assert re.match(rf"# {number(path)} · ", text)
    assert [part for part in PARTS if part not in text] == []
    assert [name for name in SECTIONS if not any(h.startswith(name) for h in headings)] == []
    assert re.search(r"\d+ minutes", text)


@each_lesson
def test_a_fold_of_text_is_a_cell_of_its_own_with_a_frame_and_a_tag(path):
    """So that it looks like something to press, and tools can take it out."""
    for cell in cells(path, "markdown"):
        source, tags = "".join(cell["source"]), set(cell["metadata"].get("tags", ()))
        inside = re.fullmatch(FOLD, source, re.S)
        assert bool(inside) == bool(tags & {"answer", "explanation"}) == ("<details" in source), source
        if inside:
            assert ("answer" in tags) == inside[1].startswith("One answer")


#: Predictions whose fold needs no name or no explanation of its own, by the unit asked for, and why.
PLAIN: dict[str, str] = {}


@each_lesson
def test_a_prediction_names_its_fold_and_explains_inside_it(path):
    """But where only the reply is shown: what your own machine measures is not stored."""
    for cell in cells(path, "code"):
        source = "".join(cell["source"])
        for call in ast.walk(ast.parse(source)) if "course.reveal(" in source else ():
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "gp.course.reveal":
                told = {each.arg: ast.unparse(each.value).strip("'\" ") for each in call.keywords}
                if ".reply" not in source.splitlines()[-1] and not any(words in source for words in PLAIN):
                    assert told.get("why") and told.get("name", HAPPENED) != HAPPENED, source


@each_lesson
def test_a_lesson_is_small_and_quiet(path):
    """Under 500 kB; nothing on stderr, nothing that differs from run to run."""
    assert path.stat().st_size < 500_000
    for cell in cells(path, "code"):
        for output in cell["outputs"]:
            assert output.get("name") != "stderr"
            shown = output.get("data"), output.get("text")
            assert not re.search(r"0x[0-9a-f]{6,}|Traceback", json.dumps(shown))


@each_lesson
def test_every_picture_says_in_words_what_it_shows(path):
    """JupyterLab gives a PNG no alternative text, so there is none; and nbval would not compare it."""
    outputs = [output.get("data", {}) for cell in cells(path, "code") for output in cell["outputs"]]
    assert not any(kind.startswith("image/") for data in outputs for kind in data)
    shown = re.findall(r"<img [^>]*>", "".join("".join(data.get("text/html", "")) for data in outputs))
    assert all(re.match(r'<img alt="[^"]{20,}" src="data:image/svg\+xml;base64,', image) for image in shown)
    for words, target in re.findall(r"!\[(.*?)\]\((.*?)\)", prose(path)):
        assert len(words) > 40 and (path.parent / target).exists(), target


@each_lesson
def test_no_cell_is_excused_from_comparison(path):
    for cell in cells(path, "code"):
        assert not re.search(r"NBVAL_(IGNORE|SKIP)", "".join(cell["source"]))
        assert not {"nbval-ignore-output", "nbval-skip"} & set(cell["metadata"].get("tags", ()))


@each_lesson
def test_links_between_lessons_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#:]+\.ipynb)", prose(path)):
        assert (path.parent / target).exists(), target


def exercises() -> list:
    """(lesson, check, answer): each exercise cell, with the folded answer that comes after it."""
    found = []
    for path in NOTEBOOKS:
        every = json.loads(path.read_text())["cells"]
        for i, cell in enumerate(every):
            source = "".join(cell["source"])
            check = re.search(r"^gp\.course\.lesson_(?:\d\d|[ABPT])\.\w+\(.*\)$", source, re.M)
            if cell["cell_type"] == "code" and check:
                after = "".join("".join(c["source"]) for c in every[i + 1 : i + 4])
                answer = re.search(r">One answer.*?```python\n(.*?)```", after, re.S)
                found.append(pytest.param(check[0], answer and answer[1], id=f"{path.stem}: {check[0]}"))
    return found


def test_every_lesson_has_an_exercise_that_checks_itself():
    asked = {re.search(r"lesson_(\d\d|[ABPT])", param.values[0])[0] for param in exercises()}
    assert asked == {f"lesson_{number(path)}" for path in NOTEBOOKS}


@pytest.mark.parametrize(("check", "answer"), exercises())
def test_the_folded_answer_is_correct(check, answer):
    assert answer, "no folded answer follows the exercise"
    names = mine.pipeline() | {"gp": gp, "np": np, "SEED": 0}
    exec(answer, names)
    reply = eval(check, names)
    assert reply.verdict == "correct", reply


@pytest.mark.parametrize(("check", "answer"), exercises())
def test_the_folded_answer_of_a_build_is_the_librarys(check, answer):
    """So these two files are all of them joined, and ``mine`` falls back on what the student can read."""
    name = re.search(r"\.(\w+)\(", check)[1]
    getattr(gp.course, re.search(r"lesson_\w+", check)[0])
    if name in BUILDS:
        assert answer.strip() in inspect.getsource(textbook) + inspect.getsource(answers)
