"""What the type checker finds in the README, a how-to page and a lesson, and where it says that it is."""

from typed import ROOT, Line, check, documents, lesson, page, readme

#: A line of code -> what is said of it. ``step`` is a training step.
FAULTS = {
    "gp.simulat(schedule)": 'has no attribute "simulat"',
    "gp.families.OneFTwoB(4, 8)": 'has no attribute "OneFTwoB"',
    "gp.course.lesson_04.clock(None)": 'has no attribute "clock"',
    "gp.GPipe(4, microbatch=8)": 'Unexpected keyword argument "microbatch" for "GPipe"',
    "gp.simulate('1F1B')": '"simulate" has incompatible type "str"; expected "Schedule"',
    "gp.draw(step)": '"draw" has incompatible type "StepResult"; expected "Timeline | Causes"',
    "gp.simulate(schedule).makespam": '"Timeline" has no attribute "makespam"',
    "step.memory[0].peek()": '"MemoryTrace" has no attribute "peek"',
}
STEP = "step = gp.train_step([], schedule, gp.digits()[:2], gp.mse)"
LESSON = ROOT / "notebooks/04_gpipe_and_its_bubble.ipynb"
SCHEDULE = Line("how to", "schedule = gp.GPipe(4, 8)")
JOB = ROOT / "docs/howto/chart_for_a_paper.md"


def with_faults(where: str, lines: list[Line]) -> list[Line]:
    """Each fault by itself and, as lessons have several of that name, in a function ``table``."""
    plain = [Line(f"{where}: {code}", code) for code in FAULTS]
    inside = [Line(f"{where}, inside: {code}", f"    {code}") for code in FAULTS]
    return [*lines, Line(where, STEP), *plain, Line(where, "def table():"), *inside]


def test_every_fault_is_found_and_nothing_else():
    _, lines = check(
        {
            "documents/readme.py": with_faults("readme", readme()),
            "documents/pages/job.py": with_faults("how to", [*page(JOB), SCHEDULE]),
            "documents/lessons/lesson_04.py": with_faults("lesson", lesson(LESSON)),
        }
    )
    own = [line for line in lines if not line.startswith("gpipe_sim/")]
    found = dict(line.split(": error: ") for line in own if ": error: " in line)
    places = [f"{where}{inside}" for where in ("readme", "how to", "lesson") for inside in ("", ", inside")]
    expected = {f"{place}: {code}": says for place in places for code, says in FAULTS.items()}
    assert found.keys() == expected.keys()
    assert [place for place, says in expected.items() if says not in found[place]] == []


def test_a_line_is_where_it_says():
    assert lesson(LESSON)[7:10] == [
        Line("notebooks/04_gpipe_and_its_bubble.ipynb:cell 3:1", "from fractions import Fraction"),
        Line("notebooks/04_gpipe_and_its_bubble.ipynb:cell 3:2", ""),
        Line("notebooks/04_gpipe_and_its_bubble.ipynb:cell 3:3", "import gpipe_sim as gp"),
    ]
    job = JOB.read_text().splitlines()
    assert all(line.code == job[int(line.place.rpartition(":")[2]) - 1] for line in page(JOB) if line.code)
    assert Line("docs/howto/chart_for_a_paper.md:17", "import gpipe_sim as gp") in page(JOB)
    text = (ROOT / "README.md").read_text().splitlines()
    assert len(readme()) >= 10
    assert all(line.code == text[int(line.place.removeprefix("README.md:")) - 1] for line in readme())


def test_the_code_of_every_page_is_read():
    read = documents()
    told = {
        "chart_for_a_paper",
        "does_it_fit",
        "glossary",
        "hang",
        "slow_run",
        "teach",
        "tour",
        "uneven_layers",
    }
    assert {f"documents/pages/{name}.py" for name in told} <= set(read)
    assert len(read["documents/pages/tour.py"]) > 60 and len(read["documents/torch.py"]) > 8
