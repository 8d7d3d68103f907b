"""A handout: the course's notebooks without what gives answers away, and nothing else differs."""

import json
import sys

import nbformat
import pytest
from nbclient import NotebookClient

from gpipe_sim.classroom.handout import ANSWERS, handout
from gpipe_sim.classroom.notebooks import SOLUTION, notebooks
from gpipe_sim.course.guarded import MARK


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("handed") / "out"
    handout(folder, seed=7)
    return folder


def cells(path):
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return {cell["id"]: cell | {"source": "".join(cell["source"])} for cell in found}


def test_it_has_the_lessons_and_exercises_and_no_solutions(folder):
    own = {lesson: path for lesson, path in notebooks().items() if not lesson.startswith(SOLUTION)}
    names = {
        ("exercises/" if lesson[1:] and lesson[0] == "E" else "") + path.name for lesson, path in own.items()
    }
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*.ipynb")} == names
    assert all((place / MARK).exists() for place in (folder, folder / "exercises"))
    assert {path.suffix for path in folder.rglob("*.*")} <= {".ipynb", ".png", ".html", ".json"}
    assert (folder / "figures" / "regret.png").exists()


def test_nothing_else_differs(folder):
    for lesson, path in notebooks().items():
        if lesson.startswith(SOLUTION):
            continue
        given = folder / path.relative_to(notebooks()["01"].parent)
        before, after, drawn = cells(path), cells(given), False
        gone = {name for name, cell in before.items() if {*cell["metadata"].get("tags", ())} & {*ANSWERS}}
        assert [*after] == [name for name in before if name not in gone]
        for name, cell in after.items():
            was = before[name]
            if seeds := "seed" in was["metadata"].get("tags", ()):
                was["source"] = was["source"].replace("SEED = 0 ", "SEED = 7 ")
            drawn |= seeds
            if cell["cell_type"] == "code" and (drawn or "reveal(" in cell["source"]):
                was |= {"outputs": [], "execution_count": None}
            assert {**was, "source": was["source"].replace("](../figures/", "](figures/")} == cell
        assert drawn == (lesson in ("22", "T") or lesson[:1] == "E")


def test_an_exercise_of_it_runs_and_is_the_courses_but_for_its_seed(folder):
    name = "03_complete.ipynb"
    notebook = nbformat.read(folder / "exercises" / name, 4)
    NotebookClient(notebook, resources={"metadata": {"path": str(folder / "exercises")}}).execute()
    ran = folder.parent / "ran.ipynb"
    nbformat.write(notebook, ran)
    from gpipe_sim.course.exercises import complete

    before, after = cells(notebooks()["E03"]), cells(ran)
    assert [*before] == [*after]
    differ = [name for name in before if before[name]["source"] != after[name]["source"]]
    assert [before[name]["metadata"].get("tags") for name in differ] == [["seed"]]
    said = json.dumps([cell.get("outputs") for cell in after.values()])
    assert str(complete.task(7)).splitlines()[0] in said and "your turn" in said
    assert str(complete.task(0)).splitlines()[0] not in said and "Traceback" not in said


def test_with_the_courses_own_seed_outputs_stay_and_with_answers_solutions_come_too(tmp_path):
    handout(tmp_path / "out", answers=True, seed=0)
    for path in notebooks().values():
        written = tmp_path / "out" / path.relative_to(notebooks()["01"].parent)
        if "reveal(" not in (text := path.read_text(encoding="utf-8")):
            assert written.read_text(encoding="utf-8") == text.replace("](../figures/", "](figures/")
    assert not (tmp_path / "out" / MARK).exists()


def test_without_nbconvert_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "nbconvert.preprocessors", None)
    with pytest.raises(
        ImportError, match=r'nbconvert, which is not installed: pip install "gpipe_sim\[lessons\]"$'
    ):
        handout(tmp_path / "out")
    assert not (tmp_path / "out").exists()
