"""Tries are counted until one is correct, once for each answer, and only in a notebook."""

import json
from fractions import Fraction

import pytest

from gpipe_sim import course
from gpipe_sim.course import kept, tries
from gpipe_sim.course.tries import FILE, MOST

LESSON = course.lesson_04


def tried(answer, cell, monkeypatch):
    monkeypatch.setattr(kept, "running_cell", lambda: cell)
    return LESSON.name_the_bubble(answer).verdict


def test_where_nothing_can_be_written_the_check_replies_as_ever(file, tmp_path, monkeypatch):
    (tmp_path / FILE).mkdir()
    assert tried(Fraction(3, 11), "first", monkeypatch) == "correct" and tries.tries(tmp_path) == {}


def test_each_answer_counts_once_and_none_after_the_correct_one(file, tmp_path, monkeypatch):
    assert tried(None, "none", monkeypatch) == "your turn" and not (tmp_path / FILE).exists()
    assert tried(Fraction(3, 8), "first", monkeypatch) in ("almost", "keep working")
    tried(Fraction(3, 8), "first", monkeypatch)  # run again
    tried(Fraction(5, 8), "second", monkeypatch)
    assert tries.tries(tmp_path) == {"04.name_the_bubble": 2}
    assert tried(Fraction(3, 11), "third", monkeypatch) == "correct"
    tried(Fraction(3, 8), "fourth", monkeypatch)
    assert tries.tries(tmp_path) == {"04.name_the_bubble": 3}
    assert json.loads((tmp_path / FILE).read_text())["04.name_the_bubble"]["passed"]


def test_an_exercise_is_counted_by_its_name(file, tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "running_cell", lambda: "first")
    assert course.exercises.gaps.check("nothing of the kind").verdict == "keep working"
    assert tries.tries(tmp_path) == {"exercise.gaps": 1}


def test_outside_a_notebook_nothing_is_counted(file, tmp_path):
    LESSON.name_the_bubble("3/8")
    assert list(tmp_path.iterdir()) == []


EDITED = ["", "[]", "{", '{"04.clock": 3}', "[" * 100_000, " " * MOST]
EDITED += [f'{{"04.clock": {{"tries": {count}}}}}' for count in ('"x"', "-1", "1e9", "true", "10000")]


@pytest.mark.parametrize("text", EDITED)
def test_a_file_that_somebody_edited_stops_nothing(text, tmp_path):
    (tmp_path / FILE).write_text(text)
    assert tries.tries(tmp_path) == {}
