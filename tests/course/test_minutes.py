"""What a lesson's Goal says about minutes is computed, not hoped: 180 words a minute, 2 for a prediction."""

import json
import math
import re
from pathlib import Path

import pytest

from gpipe_sim import course
from gpipe_sim.course.build import BUILDS

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
STOP = "## A good place to stop"
READING, WRITING = 180, {"build": 10, "exercise": 5}  #: words a minute, and minutes for each
PREDICTION = 2  #: minutes
MOST = 30  #: minutes to read and predict without a place to stop

each_lesson = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def words(source: str) -> int:
    """Without link targets, tags and folded answers of exercises, with which students compare their own."""
    source = re.sub(r"<details>\s*<summary>One answer.*?</details>", "", source, flags=re.S)
    source = re.sub(r"<[^>]*>", "", re.sub(r"\]\([^)]*\)", "]", source))
    return len(re.findall(r"\w+(?:[.,'-]\w+)*", source))


def sources(path: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]


def parts(path: Path) -> list[list[str]]:
    """The cells before the place to stop, and those after it. Most lessons have one part."""
    found: list[list[str]] = [[]]
    for source in sources(path):
        before, *after = source.split(STOP)
        found[-1].append(before)
        found += [[rest] for rest in after]
    return found


def reading(cells: list[str]) -> float:
    guesses = sum("guess = None" in cell for cell in cells)
    return sum(map(words, cells)) / READING + PREDICTION * guesses


def writing(path: Path) -> int:
    """10 minutes for each build, and 5 for each other exercise."""
    checks = set(re.findall(r"^gp\.course\.(lesson_\w+)\.(\w+)\(.*\)$", "\n".join(sources(path)), re.M))
    for lesson, _ in checks:
        getattr(course, lesson)  # which makes its builds known
    return sum(WRITING["build" if name in BUILDS else "exercise"] for _, name in checks)


def stated(path: Path) -> tuple[list[int], int]:
    """The minutes that the Goal states: to read and predict, for each part, and to write."""
    goal = re.search(r"About ([\d, and]+) minutes to read and predict, (\d+) more to write", goal_of(path))
    assert goal, "the Goal says: About 25 minutes to read and predict, 20 more to write"
    return [int(minutes) for minutes in re.findall(r"\d+", goal[1])], int(goal[2])


def goal_of(path: Path) -> str:
    return " ".join(sources(path)[0].split())


def test_what_counts_as_a_word():
    assert words("**K** devices: `gp.GPipe(4, 8)` takes 33.5, [see](http://long.example/address).") == 8
    assert (
        words("<details><summary>One answer</summary>\n\nmany words here\n\n</details>\n\n**2.** Next") == 2
    )
    assert reading(["guess = None  # units"]) == 3 / READING + PREDICTION


@each_lesson
def test_the_goal_states_the_minutes_of_reading_rounded_up_to_five(path):
    """For each part, as in "About 25 and 20 minutes", or one number for the whole lesson."""
    minutes, each = stated(path)[0], list(map(reading, parts(path)))
    each = each if len(minutes) > 1 else [sum(each)]
    assert minutes == [5 * math.ceil(part / 5) for part in each]
    assert max(minutes) <= MOST


@each_lesson
def test_the_goal_states_the_minutes_of_writing(path):
    assert stated(path)[1] == writing(path)
