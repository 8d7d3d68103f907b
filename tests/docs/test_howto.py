"""What the text of the how-to pages says of the numbers that their cells print."""

import json
import re
from base64 import b64decode
from functools import cache
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace

import pytest

import gpipe_sim as gp

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "howto"
PAGE = (PAGES / "teach.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| ([^|]*)\| \[([^]]+)\]\(\.\./lessons/(\w+)\.ipynb\) \| (\d+) \| (\d+) \|$", re.M)
LESSONS = [(title, name, int(read), int(write)) for _, title, name, read, write in ROW.findall(PAGE)]
TOGETHER = [(int(read), int(write)) for read, write in re.findall(r"together \| (\d+) \| (\d+) \|", PAGE)]


@cache
def ran(page: str) -> SimpleNamespace:
    """What the cells of a page have defined once all have run."""
    names: dict = {}
    text = (PAGES / page).read_text(encoding="utf-8")
    for cell in re.findall(r"^```{code-cell}\n(.*?)^```", text, re.M | re.S):
        exec(cell, names)
    return SimpleNamespace(**names)


def test_the_causes_of_a_slow_step_add_up_to_it():
    page = ran("slow_run.md")
    assert sum(page.causes.values()) == pytest.approx(page.step.makespan)
    assert sum(page.on_path.values()) == pytest.approx(page.step.makespan)
    assert page.causes["work"] == pytest.approx(sum(map(works, page.step.rows)) / 8)
    assert all(ms > 0 for ms in page.causes.values()) and page.measured > page.step.makespan


def works(row) -> float:
    return sum(span.end - span.start for span in row)


def test_who_works_and_who_waits_in_the_slow_step():
    rows = ran("slow_run.md").step.rows
    assert max(range(8), key=lambda k: works(rows[k])) == 7
    between = [row[-1].end - row[0].start - works(row) for row in rows]
    assert max(range(8), key=between.__getitem__) == 0


def test_the_flags_of_the_slow_run_give_the_cuts_that_were_simulated():
    page = ran("slow_run.md")
    first, *others, last = page.plans["1F1B, cut by makespan"].balance
    assert len({*others}) == 1 and first + last + sum(others) == 32
    stages = f"E{page.layout}L".split("|")
    assert [stage.count("t") for stage in stages] == [*page.plans["interleaved, V=2"].balance]
    assert sum(page.cut) == 32 and len(stages) == 16


def test_each_change_makes_the_slow_step_shorter():
    page = ran("slow_run.md")
    times = [plan.makespan / page.tried[name].microbatches for name, plan in page.plans.items()]
    assert len(times) == 4 and max(times) < page.step.makespan / 16


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


@pytest.mark.parametrize("name", ["index.md", "howto/index.md", "lessons/index.md"])
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
    """At 1,300 pixels 81 letters fit."""
    for path in PAGES.glob("*.md"):
        blocks = re.findall(r"^```.*?\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S)
        assert [line for block in blocks for line in block.splitlines() if len(line) > 81] == [], path


def test_the_two_tables_of_lessons_say_the_same():
    row = re.compile(r"^\| \w\w? \| \[([^]]+)\]\([./]*notebooks/([^)]+)\) \| (.*) \|$", re.M)
    pages = ROOT / "README.md", ROOT / "docs" / "lessons" / "index.md"
    one, other = (row.findall(path.read_text(encoding="utf-8")) for path in pages)
    assert one == other and len(one) == 22
