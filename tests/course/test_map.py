"""The map of the course says what the notebooks say: order, minutes, needs, and which claims are false."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from test_minutes import goal_of, stated

HERE = Path(__file__).parents[2] / "notebooks"
TEXT = (HERE / "README.md").read_text(encoding="utf-8")
LESSON = re.compile(
    r"^\| (\w\w?) \| \[[^]]+\]\((\w+\.ipynb)\) \| [^|]* \| ([\d +]+) \| (\d+) \| ([^|]*) \|$", re.M
)
EXERCISE = re.compile(r"^\| E(\d\d) \| \[([^]]+)\]\((exercises/\w+\.ipynb)\) \| (\d+) \| ([^|]*) \|$", re.M)
SAID = (HERE.parent / "docs" / "howto" / "teach.md").read_text(encoding="utf-8")
CLAIM = re.compile(r'^\| (".*?") \| (\w\w?) \|', re.M)
LESSONS = LESSON.findall(TEXT)


def needs(goal: str) -> str:
    """Lessons that a Goal asks for, "lessons 02 to 07 and 09" as "02–07, 09"."""
    asked = re.search(r"(?:You need|it assumes) (.*?)\*", goal)
    assert asked, goal
    words = re.sub(r"\]\(.*?\)", "", asked[1])
    found = re.findall(r"\b(\d\d)(?: to (\d\d))?\b|\b([AB])\b", words)
    return ", ".join(f"{first}–{last}" if last else first + letter for first, last, letter in found)


def test_it_has_every_lesson_and_every_exercise():
    assert {name for _, name, *_ in LESSONS} == {path.name for path in HERE.glob("*.ipynb")}
    assert [path for *_, path, _, _ in EXERCISE.findall(TEXT)] == [
        f"exercises/{path.name}" for path in sorted((HERE / "exercises").glob("*.ipynb"))
    ]


@pytest.mark.parametrize(
    ("number", "name", "read", "write", "needed"), LESSONS, ids=[each[0] for each in LESSONS]
)
def test_a_lesson_takes_and_needs_what_its_goal_says(number, name, read, write, needed):
    minutes, writing = stated(HERE / name)
    assert (number, read, int(write)) == (name.split("_")[0], " + ".join(map(str, minutes)), writing)
    assert needed == needs(goal_of(HERE / name))
    before = [each[0] for each in LESSONS[: [each[1] for each in LESSONS].index(name)]]
    assert {*re.findall(r"\w+", needed)} <= {*before}, "it comes after what it needs"


def test_a_lesson_leads_to_the_next_one():
    names = [name for _, name, *_ in LESSONS]
    for name, following in pairwise(names):
        text = "\n".join("".join(cell["source"]) for cell in json.loads((HERE / name).read_text())["cells"])
        assert re.findall(r"^Next: \[[^]]+\]\((\w+\.ipynb)\)", text, re.M) == [following], name


@pytest.mark.parametrize(("number", "title", "path", "minutes", "needed"), EXERCISE.findall(TEXT))
def test_an_exercise_takes_and_needs_what_its_goal_says(number, title, path, minutes, needed):
    goal = goal_of(HERE / path)
    assert goal.startswith(f"# Exercise {number} · {title} ") and f"About {minutes} minutes." in goal
    assert needed == needs(goal)


def test_a_route_takes_as_long_as_its_lessons():
    read, write = ({n: sum(map(int, re.findall(r"\d+", each[at]))) for n, *each in LESSONS} for at in (1, 2))
    part = TEXT[TEXT.index("| route |") : TEXT.index("On the evening")]
    routes = re.findall(r"^\| [a-z][^|]* \| (\d\d [^|]*) \| ([^|]*) \|([^|]*)\|$", part, re.M)
    assert len(routes) == 3
    for lessons, reads, writes in routes:
        parts = [each.split() for each in lessons.split(" · ")]
        assert reads == " · ".join(str(sum(read[n] for n in part)) for part in parts)
        assert writes.strip() in ("", " · ".join(str(sum(write[n] for n in part)) for part in parts))


@pytest.mark.parametrize(("claim", "number"), CLAIM.findall(SAID))
def test_what_students_will_say_stands_in_its_lesson(claim, number):
    name = next(name for n, name, *_ in LESSONS if n == number)
    words = [
        " ".join("".join(cell["source"]).replace("\n> ", " ").split())
        for cell in json.loads((HERE / name).read_text())["cells"]
    ]
    assert any(claim in each for each in words)


def test_six_weeks_have_every_lesson_once():
    row = re.search(r"^\| six weeks[^|]*\| ([^|]*) \|", TEXT, re.M)
    lessons = re.findall(r"\w+", row[1])
    assert sorted(lessons) == sorted(n for n, *_ in LESSONS)
