"""What the text of the how-to pages says of the numbers that their cells print."""

import csv
import json
import re
import shlex
from base64 import b64decode
from functools import cache
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace

import pytest

import gpipe_sim as gp
from gpipe_sim.classroom.notebooks import pieces
from gpipe_sim.command.main import main

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "howto"
PAGE = (PAGES / "teach.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| ([^|]*)\| \[([^]]+)\]\(\.\./lessons/(\w+)\.ipynb\) \| (\d+) \| (\d+) \|$", re.M)
LESSONS = [(title, name, int(read), int(write)) for _, title, name, read, write in ROW.findall(PAGE)]
BUILT = {
    check: int(path.stem[-2:])
    for path in (ROOT / "gpipe_sim" / "course").glob("lesson_[0-9]*.py")
    for check in re.findall(r"^@build\(.*\)\ndef (\w+)", path.read_text(encoding="utf-8"), re.M)
}  #: the pieces that are kept, each with the number of its lesson
TOGETHER = [(int(read), int(write)) for read, write in re.findall(r"together \| (\d+) \| (\d+) \|", PAGE)]


@cache
def ran(page: str) -> SimpleNamespace:
    """What the cells of a page have defined once all have run."""
    names: dict = {}
    text = (PAGES / page).read_text(encoding="utf-8")
    for cell in re.findall(r"^```{code-cell}\n(.*?)^```", text, re.M | re.S):
        exec(cell, names)
    return SimpleNamespace(**names)


def test_the_causes_of_the_slow_run_are_those_that_the_page_names():
    page = ran("slow_run.md")
    times = {each.name: each.time for each in page.causes.terms}
    assert sum(times.values()) + page.causes.rest == pytest.approx(page.step.makespan)
    others = sorted(page.fit.forward)[:3]
    assert max(page.fit.forward) == page.fit.forward[2] == pytest.approx(2 * others[1], rel=0.05)
    slow = {frozenset(each.pair) for each in page.fit.by_pair if each.time > 5}
    assert slow == {frozenset({1, 2})} and times["unequal stages"] > times["messages"] > 0


def test_what_the_page_predicts_was_measured():
    page = ran("slow_run.md")
    assert page.best.balance == (6, 3, 2, 5) and page.measured == pytest.approx(page.best.gain, abs=0.02)
    assert page.offers[0].makespan < page.best.makespan < page.step.makespan


def test_each_change_makes_the_step_without_a_trace_shorter():
    page = ran("slow_run.md")
    assert page.measured_step > page.simulated.makespan == pytest.approx(413.1)
    assert {type(each.schedule) for each in page.choices} == {gp.OneFOneB, gp.ZBH1, gp.Interleaved1F1B}
    assert all(each.makespan < page.simulated.makespan for each in page.choices)


def test_what_fits_is_within_the_limit():
    page = ran("does_it_fit.md")
    assert page.in_flight == (8, 7, 6, 5, 4, 3, 2, 1)
    held = [trace.peak_inside.bytes for trace in page.traces]
    assert held.index(max(held)) == 0 and max(held) > page.limit
    with pytest.raises(gp.errors.MemoryLimitError, match="recompute"):
        gp.simulate(page.schedule, profile=page.whole, memory_limit=page.limit)
    selective, full = (["nothing"] * 2 + [way] * 32 + ["nothing"] * 2 for way in ("attention", "all"))
    for words in (selective, full, page.words):
        layers = gp.memory.checkpointed(page.model, words)
        gp.simulate(page.schedule, profile=page.profile(page.schedule, layers), memory_limit=page.limit)


def test_what_a_step_takes_changes_as_the_page_says():
    page = ran("what_it_takes.md")
    plain, full, wide = (page.priced(zero=1, **how) for how in ({}, {"recompute": "full"}, {"tensor": 4}))
    assert sum(plain.parts.values()) == pytest.approx(plain.time)
    assert full.time > plain.time > wide.time and full.peak < plain.peak < wide.peak
    selective = page.priced(zero=1, recompute="selective")
    assert (selective.time, selective.peak) == (plain.time, plain.peak)
    often, once = (page.priced(zero=3, unshard=way) for way in ("microbatch", "step"))
    assert once.time < often.time and once.peak > often.peak


def test_more_microbatches_take_no_more_memory_in_1f1b_and_larger_ones_do():
    page = ran("does_it_fit.md")
    assert page.twice == page.fullest(page.schedule) < page.fullest(page.schedule, samples=2)
    held = gp.ZBV(8, 24).placement[0]
    assert {0, 15} == {*held}


def test_the_shortest_that_fits_is_named_as_pytorch_names_it():
    page = ran("which_schedule.md")
    assert type(page.best.schedule) is gp.ZBV and page.names[gp.ZBV] == "ZBVZeroBubble"
    assert page.plain.schedule == gp.OneFOneB(8, 24)
    assert all(max(row.in_flight) <= page.room for row in page.fits)
    assert all(row.makespan >= page.best.makespan for row in page.fits)
    assert gp.export.recognize(gp.export.from_torch_csv(page.text)).startswith("this is ZBV(")


def test_a_shape_that_was_measured_is_told_from_one_that_was_not():
    page = ran("own_card.md")
    assert page.found.fitted.mean < page.found.left_out.mean < 0.05
    known, new = map(page.found.price, gp.pricing.read_rows(page.table))
    assert known.unseen == () and new.unseen == page.priced.unseen == ((2, 1024, 1536, 2),)
    assert sum(new.parts.values()) == pytest.approx(new.time)


def goal(name: str) -> str:
    cells = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    return " ".join("".join(cells[0]["source"]).split())


def lectures() -> list[list[tuple]]:
    """The rows of each lecture: those before its sum."""
    lines = [line for line in PAGE.splitlines() if ROW.match(line) or "together |" in line]
    parts = [[*part] for is_sum, part in groupby(lines, lambda line: "together |" in line) if not is_sum]
    counts = iter(LESSONS)
    return [[next(counts) for _ in part] for part in parts]


def test_minutes_and_titles_are_those_of_the_lessons():
    assert len(LESSONS) == 8
    for title, name, read, write in LESSONS:
        assert f"About {read} minutes to read and predict, {write} more to write" in goal(name), name
        assert title.replace(" ", " · ", 1) in goal(name), name


def test_each_lecture_is_the_sum_of_its_lessons():
    sums = [(sum(row[2] for row in part), sum(row[3] for row in part)) for part in lectures()]
    assert len(sums) == 3 and sums == TOGETHER


def test_a_lesson_needs_only_lessons_before_it():
    taught = [name[:2] for _, name, *_ in LESSONS]
    for at, (_, name, *_) in enumerate(LESSONS):
        need = re.search(r"You need (?:lessons? )(\d\d)(?: (?:to|and) (\d\d))?", goal(name))
        if need:
            first, last = int(need[1]), int(need[2] or need[1])
            assert {f"{number:02}" for number in range(first, last + 1)} <= {*taught[:at]}, name


def commands() -> list[list[str]]:
    """What the page has a shell run, word by word."""
    lines = "".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)).splitlines()
    return [shlex.split(line) for line in lines]


def test_the_commands_of_the_page_do_what_it_says_in_its_order(tmp_path, monkeypatch):
    """Four students are graded, a row for each piece of each; then every line for a shell is run."""
    monkeypatch.chdir(tmp_path)
    page = ran("teach.md")
    with Path("grades.csv").open(newline="", encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    assert {row["student"] for row in rows} == {*page.students}
    passed = {
        name: {row["name"] for row in rows if (row["student"], row["passed"]) == (name, "yes")}
        for name in page.students
    }
    taught = {name[:2] for _, name, *_ in LESSONS}
    assert passed["ann"] >= {check for check, number in BUILT.items() if f"{number:02}" in taught}
    assert passed["bob"] == passed["cem"] == passed["dee"] == set()
    course = [words[3:] for words in commands() if words[2:4] == ["gpipe_sim", "course"]]
    assert [words[1] for words in course] == ["handout", "report", "exam", "slides"]
    assert [main(words) for words in course] == [0] * 4
    assert {path.name for path in Path("first-exam").iterdir()} == {"exam.md", "answers.md"}
    assert Path("report.html").exists() and [*Path("pictures").glob("*.svg")]
    notebooks = [*Path("for-students").rglob("*.ipynb")]
    assert len(notebooks) > 30 and not any({"answer", "explanation"} & tagged(path) for path in notebooks)


def tagged(path: Path) -> set[str]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return {tag for cell in cells for tag in cell["metadata"].get("tags", [])}


def test_lesson_14_needs_what_the_page_says():
    assert "needs lessons 02 to 08" in PAGE and "You need lessons 02 to 08" in goal("14_zero_bubble")


# A chart for a paper, and the list of pages


def test_the_charts_have_the_sizes_that_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = ran("chart_for_a_paper.md")
    for name in ("column", "grey"):  # points, 72 to the inch, and letters in them
        box = re.search(rb"/MediaBox \[([^]]+)\]", (tmp_path / f"{name}.pdf").read_bytes())[1].split()
        assert float(box[2]) / 72 == pytest.approx(3.3, abs=0.01)
        drawn = getattr(page, name)
        assert 12 * drawn.scale * 72 / 96 == 9 and 'font-size="12" role="img"' in str(drawn)
    width, height = png_size((tmp_path / "slide.png").read_bytes())
    assert width == 2 * 1280 and height <= 2 * 720
    assert page.high == [500, 967]  # of the last size, 20
    assert json.loads((tmp_path / "timeline.json").read_text())["kind"] == "timeline"
    assert len((tmp_path / "spans.csv").read_text().splitlines()) == 1 + 2 * 8 * 16


def png_size(data: bytes) -> tuple[int, int]:
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def test_only_a_saved_chart_turns_dark_and_not_a_grey_one(tmp_path):
    timeline = gp.simulate(gp.OneFOneB(2, 2))
    for grey, turns in ((False, True), (True, False)):
        chart = gp.draw(timeline, grey=grey)
        chart.save(tmp_path / "chart.svg")
        assert ("prefers-color-scheme:dark" in (tmp_path / "chart.svg").read_text("utf-8")) == turns
        shown = b64decode(chart._repr_html_().split("base64,")[1].split('"')[0])
        assert b"<svg" in shown and b"prefers-color-scheme" not in shown


@pytest.mark.parametrize("name", ["contents.md", "howto/index.md", "../notebooks/README.md"])
def test_the_links_of_a_list_of_pages_lead_somewhere_in_a_clone(name):
    path = PAGES.parent / name
    links = re.findall(r"\]\(([^)#]+)", path.read_text(encoding="utf-8"))
    assert len(links) > 7 and [link for link in links if not (path.parent / link).is_file()] == []


def test_the_list_of_how_to_pages_has_each_under_its_title():
    listed = re.findall(r"^- \[([^]]+)\]\((\w+\.md)\)", (PAGES / "index.md").read_text("utf-8"), re.M)
    titles = {
        path.name: re.search(r"^# (.*)$", path.read_text("utf-8"), re.M)[1] for path in PAGES.glob("*.md")
    }
    assert {name: title for title, name in listed} == {k: v for k, v in titles.items() if k != "index.md"}


def test_code_is_no_wider_than_its_column():
    """At 1,300 pixels 81 letters fit. A line for a shell stays one: each shell breaks lines otherwise."""
    for path in PAGES.glob("*.md"):
        blocks = re.findall(r"^```(.*?)\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S)
        lines = [line for kind, block in blocks if kind != "sh" for line in block.splitlines()]
        assert [line for line in lines if len(line) > 81] == [], path


# nbgrader


def test_each_check_gets_one_cell_that_nbgrader_grades(tmp_path, monkeypatch):
    script = re.search(r"^```python\n(.*?)^```", (PAGES / "nbgrader.md").read_text("utf-8"), re.M | re.S)[1]
    for lesson in ("04", "07"):
        (path,) = (ROOT / "notebooks").glob(f"{lesson}_*.ipynb")
        made = tmp_path / path.name
        made.write_bytes(path.read_bytes())
        monkeypatch.setattr("sys.argv", ["graded.py", str(made)])
        exec(script, {})
        cells = json.loads(made.read_text("utf-8"))["cells"]
        ids = [each["metadata"]["nbgrader"]["grade_id"] for each in cells if "nbgrader" in each["metadata"]]
        assert [re.sub(r"-\d+$", "", each) for each in ids] == [
            f"gp-course-lesson_{lesson}-{piece.name}" for piece in pieces(lesson)
        ]
        assert all(re.fullmatch("[a-zA-Z0-9_-]+", each) for each in ids)
