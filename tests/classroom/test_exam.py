"""An exam: the same for its seed, about lessons that were met, with its answers in a file of their own."""

import re

import pytest

from gpipe_sim.classroom.exam import exam, said
from gpipe_sim.command.main import main
from gpipe_sim.course.questions import QUESTIONS


def numbers(text):
    return re.findall(r"^(\d+)\. ", text, re.M)


def test_questions_and_answers_have_the_same_numbers_and_answers_are_in_one_file_alone(tmp_path):
    lessons = exam(tmp_path / "e", 5, 12)
    asked, told = ((tmp_path / "e" / name).read_text("utf-8") for name in ("exam.md", "answers.md"))
    assert numbers(asked) == numbers(told) == [str(n) for n in range(1, 13)] and len(lessons) == 12
    assert lessons == sorted(lessons)
    by_text = {
        each.asked("exam 5").text.replace("\n", " "): each.asked("exam 5") for each in QUESTIONS.values()
    }
    parts = (re.split(r"^\d+\. ", each, flags=re.M)[1:] for each in (asked, told))
    for question, answer in zip(*parts, strict=True):
        drawn = by_text[" ".join(question.split())]
        assert answer.startswith(f"**{said(drawn.right)}**")
        assert all(says not in question for _, says in drawn.wrong)


def test_another_seed_asks_otherwise_and_the_same_seed_the_same(tmp_path):
    texts = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        exam(tmp_path / name, seed, 10)
        texts.append((tmp_path / name / "exam.md").read_text("utf-8").split("\n", 1)[1])
    assert texts[0] == texts[1] != texts[2]


def test_it_asks_of_as_many_lessons_as_it_can(tmp_path):
    named = ["01", "02", "03", "04", "05", "06", "07", "09"]
    assert len({*exam(tmp_path / "e", 3, 6, named)}) == 6
    assert {*exam(tmp_path / "f", 3, 8, named)} == {*named}


def test_it_asks_of_the_lessons_that_are_named(tmp_path):
    assert {*exam(tmp_path / "e", 0, 4, ["04", "07"])} <= {"04", "07"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--lessons", "99"], "no question is about lesson 99; there are 01, 02"),
        (["--questions", "200"], "200 questions cannot be asked: these lessons have"),
        (["--seed", "x"], "'x' is no whole number"),
    ],
)
def test_what_cannot_be_asked_is_said_and_nothing_is_written(tmp_path, capsys, words, says):
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main(["course", "exam", str(tmp_path / "e"), "--seed", "1", *words]))
    assert ended.value.code == 2
    assert says in capsys.readouterr().err and not (tmp_path / "e").exists()


def test_a_folder_that_is_there_stays_as_it_is(tmp_path, capsys):
    assert main(["course", "exam", str(tmp_path), "--seed", "1"]) == 2
    assert "is there already" in capsys.readouterr().err and not [*tmp_path.iterdir()]
