"""The README's promises: its example prints what it says, its maps match the tree."""

import re
from pathlib import Path

import pytest
from test_imports import FILES, builds_on, lines_of_code
from typed import blocks

import gpipe_sim as gp
from gpipe_sim.errors import DeadlockError

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def block(language: str, containing: str) -> str:
    return next(code for _, code in blocks(README, language) if containing in code)


def test_the_ten_line_example_prints_what_it_says(capsys):
    exec(block("python", "import gpipe_sim as gp"), {})
    assert capsys.readouterr().out == block("text", "measured")


def test_memory_is_predicted_as_it_says(capsys):
    names: dict = {}
    exec(block("python", "import gpipe_sim as gp") + block("python", "gp.profile"), names)
    assert capsys.readouterr().out.endswith(block("text", "MemoryTrace"))


def test_sixteen_devices_print_what_it_says(capsys):
    exec(block("python", "gp.replicate"), {"gp": gp})
    assert capsys.readouterr().out == block("text", "with the sums")


def test_without_a_flush_it_prints_what_it_says(capsys):
    exec(block("python", "PipeDream"), {"gp": gp, "data": gp.digits()})
    assert capsys.readouterr().out == block("text", "versions held")


def test_the_plans_for_a_cluster_are_those_that_it_says(capsys):
    names = {"gp": gp}
    exec(block("python", "gp.Cluster"), names)
    assert capsys.readouterr().out == block("text", "limited by")
    assert names["plans"].best.parts["all-reduce"] > 0


def test_the_deadlock_reads_as_shown():
    with pytest.raises(DeadlockError) as error:
        exec(block("python", "Explicit.parse"), {"gp": gp})
    shown = block("text", "stuck").strip()
    assert shown == f"gpipe_sim.errors.DeadlockError: {error.value}"


def test_blocking_sends_hang_as_shown():
    names: dict = {}
    exec(block("python", "import gpipe_sim as gp"), names)
    with pytest.raises(DeadlockError) as error:
        exec(block("python", "device_programs"), names)
    assert block("text", "blocking sends").strip() == f"gpipe_sim.errors.DeadlockError: {error.value}"


def test_every_link_and_image_is_there():
    targets = re.findall(r"\]\(([^)#:]+)\)", README)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_map_of_lessons_is_complete():
    linked = set(re.findall(r"notebooks/(\w+\.ipynb)", README))
    assert linked == {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}


def test_the_map_of_the_code_is_complete_and_a_chapter_builds_only_on_those_above_it():
    table = README[README.index("| in `gpipe_sim/` |") : README.index("`figures/` holds")]
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
