"""The README's promises and the map of the code: the example prints what it says, the maps match the tree."""

import re
from pathlib import Path

from test_imports import FILES, builds_on, lines_of_code
from typed import blocks

import gpipe_sim as gp

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
CODE = (ROOT / "docs" / "code.md").read_text()


def block(language: str, containing: str) -> str:
    return next(code for _, code in blocks(README, language) if containing in code)


def test_the_ten_lines_print_what_it_says_and_draw(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(block("python", "import gpipe_sim as gp"), {})
    assert capsys.readouterr().out == block("text", "measured")
    assert (tmp_path / "pipeline.svg").read_text() == str(gp.draw(gp.simulate(gp.OneFOneB(3, 6))))


def test_it_is_short():
    assert README.count("\n") <= 130


def test_every_link_and_image_is_there():
    targets = re.findall(r"\]\(([^)#:]+)\)", README)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_map_of_lessons_is_complete():
    linked = set(re.findall(r"notebooks/(\w+\.ipynb)", README))
    assert linked == {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}


def test_the_map_of_the_code_is_complete_and_a_chapter_builds_only_on_those_above_it():
    table = CODE[CODE.index("| in `gpipe_sim/` |") : CODE.index("`figures/` holds")]
    named = re.findall(r"^\| `(\w+)(\.py|/)`", table, re.M)
    assert {name + ("" if end == "/" else end) for name, end in named} == {
        file.split("/")[0] for file in FILES
    } - {"__init__.py"}
    rooms = [name for name, _ in named]
    for at, room in enumerate(rooms):
        assert builds_on()[room] <= set(rooms[:at]), room


def test_the_first_hour_is_about_a_thousand_lines_of_code():
    read = re.findall(r"\]\(gpipe_sim/(core/\w+\.py)\)", README)
    assert {"core/actions.py", "core/rules.py", "core/simulate.py", "core/step.py"} <= set(read)
    assert 900 < sum(lines_of_code(FILES[file].read_text()) for file in set(read)) < 1200


def test_every_command_is_a_target():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`make (\w+)`|^make (\w+)", README, re.M):
        name = "".join(target)
        assert re.search(rf"^{name}:", makefile, re.M), name
