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
#: Minutes: twenty choices of a plan before it, and a model tried again and again; five questions with code.
LONGER = {"my_time": 25, "last": 15}
PREDICTION, LINES = 2, 12  #: minutes for a prediction; lines of code a minute
MOST = 30  #: minutes to read and predict without a place to stop

each_lesson = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def words(source: str) -> int:
    """Without link targets and tags."""
    source = re.sub(r"<[^>]*>", "", re.sub(r"\]\([^)]*\)", "]", source))
    return len(re.findall(r"\w+(?:[.,'-]\w+)*", source))


def minutes(cell: dict) -> float:
    """Of text, of code in sight, of what a hidden cell explains, and of a prediction.

    Folded answers of exercises do not count: students compare their own with them.
    """
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return 0 if "answer" in cell["metadata"].get("tags", ()) else words(source) / READING
    if not cell["metadata"].get("jupyter", {}).get("source_hidden"):
        lines = sum(bool(line.strip()) for line in source.splitlines())
        return lines / LINES + PREDICTION * source.startswith("guess = None")
    why = re.search(r'why="""(.*?)"""', source, re.S)
    return words(why[1]) / READING if why else 0


def notebook(path: Path) -> list[dict]:
    return json.loads(path.read_text())["cells"]


def sources(path: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in notebook(path)]


def parts(path: Path) -> list[list[dict]]:
    """The cells before the place to stop, and those from it on. Most lessons have one part."""
    found: list[list[dict]] = [[]]
    for cell in notebook(path):
        if STOP in "".join(cell["source"]):
            found.append([])
        found[-1].append(cell)
    return found


def reading(cells: list[dict]) -> float:
    return sum(map(minutes, cells))


def writing(path: Path) -> int:
    """10 minutes for each build, 5 for most other exercises."""
    checks = set(re.findall(r"^gp\.course\.(lesson_\w+)\.(\w+)\(.*\)$", "\n".join(sources(path)), re.M))
    for lesson, _ in checks:
        getattr(course, lesson)  # which makes its builds known
    return sum(LONGER.get(name, WRITING["build" if name in BUILDS else "exercise"]) for _, name in checks)


def stated(path: Path) -> tuple[list[int], int]:
    """The minutes that the Goal states: to read and predict, for each part, and to write."""
    goal = re.search(r"About ([\d, and]+) minutes to read and predict, (\d+) more to write", goal_of(path))
    assert goal, "the Goal says: About 25 minutes to read and predict, 20 more to write"
    return [int(minutes) for minutes in re.findall(r"\d+", goal[1])], int(goal[2])


def goal_of(path: Path) -> str:
    return " ".join(sources(path)[0].split())


def test_what_counts():
    assert words("**K** devices: `gp.GPipe(4, 8)` takes 33.5, [see](http://long.example/address).") == 8
    shown = {"cell_type": "code", "metadata": {}, "source": ["guess = None  # units\n", "\n", "1\n"]}
    hidden = {"jupyter": {"source_hidden": True}}
    assert minutes(shown) == 2 / LINES + PREDICTION
    assert minutes(shown | {"metadata": hidden}) == 0
    assert (
        minutes({"cell_type": "code", "metadata": hidden, "source": 'f(why="""Two words.""")'}) == 2 / READING
    )
    assert minutes({"cell_type": "markdown", "metadata": {"tags": ["answer"]}, "source": "many words"}) == 0


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
