"""The exercises: their notebooks are what their sources say, and ten wrong answers meet each check."""

import json
import re
from importlib import import_module
from pathlib import Path

import pytest
from replies import WRONG, cases_of

from gpipe_sim.course import exercises
from notebooks.exercises import __main__ as maker

NAMES = [path.stem.split("_", 1)[1] for path in maker.SOURCES]
MOST = 20  #: minutes
each_source = pytest.mark.parametrize("path", maker.SOURCES, ids=lambda path: path.stem)
each_name = pytest.mark.parametrize("name", NAMES)


def cells(path: Path) -> list[dict]:
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def code_of(notebook, seed: object = 0) -> list[str]:
    """The code cells, without the one that installs."""
    code = [cell["source"] for cell in notebook.cells if cell["cell_type"] == "code"][1:]
    return [source.replace("SEED = 0", f"SEED = {seed!r}") for source in code]


def last_reply(code: list[str]):
    """What the last line of the cells gives."""
    *lines, last = "\n".join(code).splitlines()
    names: dict = {}
    exec("\n".join(lines), names)
    return eval(last, names)


@each_source
def test_the_notebooks_are_what_their_source_makes(path):
    """And each was run in order: nbval compares nothing of a cell without a number."""
    for target, made in maker.both(path).items():
        stored = cells(target)
        for cell, wanted in zip(stored, made.cells, strict=True):
            assert "".join(cell["source"]) == wanted.source, f"{target.name}: run make exercises"
            assert [cell[key] for key in ("id", "cell_type", "metadata")] == [
                wanted[key] for key in ("id", "cell_type", "metadata")
            ]
        counts = [cell["execution_count"] for cell in stored if cell["cell_type"] == "code"]
        assert counts == list(range(1, len(counts) + 1))
        assert "Traceback" not in target.read_text(encoding="utf-8")


@each_source
def test_it_has_a_goal_minutes_lessons_and_one_seed(path):
    source = path.read_text(encoding="utf-8")
    goal = " ".join(source[: source.index("```")].split())
    head = rf"# Exercise {path.stem[:2]} · .+ \*\*Goal\.\*\* .+ \*About (\d+) minutes\. You need lessons? "
    assert int(re.match(head, goal)[1]) <= MOST
    assert source.count("```python seed\nSEED = 0  # who teaches may give you another\n```") == 1
    assert "NBVAL" not in source


def test_they_stand_in_the_order_of_the_lessons_that_they_need():
    asked = [path.read_text(encoding="utf-8").partition("You need lesson")[2][:40] for path in maker.SOURCES]
    last = [max(map(int, re.findall(r"\d\d", words.partition(".")[0]))) for words in asked]
    assert last == sorted(last)


@each_source
@pytest.mark.parametrize("seed", [0, 7, "class of 2026"])
def test_the_solution_is_correct_whatever_the_seed(path, seed, capsys):
    student, solution = maker.both(path).values()
    assert last_reply(code_of(student, seed)).verdict == "your turn"
    reply = last_reply(code_of(solution, seed))
    assert reply.verdict == "correct", reply


@each_name
def test_ten_wrong_answers_are_tried(name):
    cases = import_module(f"test_exercise_{name}").test_replies.cases["check"]
    tried = cases_of(cases)
    assert sum(verdict in (*WRONG, "wrong") for _, verdict, _ in tried) >= 10
    assert sum(verdict == "correct" for _, verdict, _ in tried) >= 2
    assert all(words for _, _, words in tried)


@each_name
def test_whatever_is_passed_in_there_is_a_reply(name):
    module = getattr(exercises, name)
    for answer in (7, "a", [], {}, [[]], lambda *given: None, lambda *given: "a", lambda *given: [None]):
        assert module.check(answer, 3).verdict in WRONG


@each_name
def test_another_seed_asks_for_other_numbers(name):
    task = getattr(exercises, name).task
    assert str(task(0)) == str(task(0)) and len({str(task(seed)) for seed in range(6)}) > 3
