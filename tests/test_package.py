"""What is published: an sdist that tests itself, and a wheel that works where no repository is in sight.

Nothing here needs a network: setuptools builds without isolation, pip installs the wheel alone, and a .pth
file lends it the packages of this environment.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

import gpipe_sim as gp
from gpipe_sim.classroom.notebooks import notebooks

ROOT = Path(__file__).parents[1]
PROGRAMS = "Scripts" if os.name == "nt" else "bin"
BUILD = """
import sys
from setuptools import build_meta
getattr(build_meta, sys.argv[1])(sys.argv[2])
"""
NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info", "my_pipeline.py")


def run(*command: object, cwd: Path, **more: str) -> subprocess.CompletedProcess:
    """In an environment that knows nothing of where these tests run."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "JUPYTER"))}
    words = list(map(str, command))
    ran = subprocess.run(words, cwd=cwd, env=clean | more, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return ran


def build(what: str, source: Path, target: Path) -> Path:
    target.mkdir()
    run(sys.executable, "-c", BUILD, f"build_{what}", target, cwd=source)
    [made] = target.iterdir()
    return made


class Built(NamedTuple):
    sdist: Path  #: unpacked
    wheel: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Built:
    """The sdist of a copy of the project, and the wheel that is made of that sdist, as for an index."""
    place = tmp_path_factory.mktemp("built")
    shutil.copytree(ROOT, place / "copy", ignore=NOT_COPIED)
    with tarfile.open(build("sdist", place / "copy", place / "sdist")) as archive:
        archive.extractall(place / "unpacked", filter="data")
    [unpacked] = (place / "unpacked").iterdir()
    source = place / "source"
    shutil.copytree(unpacked, source)  # building leaves files
    return Built(unpacked, build("wheel", source, place / "wheel"))


class Installed(NamedTuple):
    programs: Path
    package: Path

    @property
    def python(self) -> Path:
        return self.programs / "python"


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> Installed:
    """The wheel in an environment of its own; what it needs is seen in this one, and comes second."""
    place = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(place, with_pip=False, symlinks=os.name != "nt")
    programs = place / PROGRAMS
    pip = [sys.executable, "-m", "pip", "--python", programs / "python", "install", "--quiet"]
    run(*pip, "--no-index", "--no-deps", "--no-cache-dir", built.wheel, cwd=place)
    purelib = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(run(programs / "python", "-c", purelib, cwd=place).stdout.strip())
    lent = {sysconfig.get_path("purelib"), str(Path(pytest.__file__).parents[1])}
    (packages / "lent.pth").write_text("\n".join(lent))
    return Installed(programs, packages / "gpipe_sim")


def test_the_sdist_has_all_that_git_tracks(built):
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    tracked = {name for name in listed.stdout.splitlines() if not name.startswith(".")}
    there = {path.relative_to(built.sdist).as_posix() for path in built.sdist.rglob("*") if path.is_file()}
    assert len(tracked) > 400 and tracked - there == set()
    extra = {name for name in there - tracked if (ROOT / name).exists() is False}
    assert {name.split("/")[0] for name in extra} <= {"PKG-INFO", "setup.cfg", "gpipe_sim.egg-info"}


def test_the_sdist_passes_its_own_tests_of_the_core(built):
    options = ["-q", "--tb=short", "-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin"]
    options += ["--hypothesis-profile=few", "tests/core"]
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    ran = run(sys.executable, "-m", "pytest", *options, cwd=built.sdist, **alone)
    assert int(re.match(r"(\d+) passed", ran.stdout.splitlines()[-1])[1]) >= 300
    code = "import gpipe_sim; print(gpipe_sim.__file__)"
    assert str(built.sdist) in run(sys.executable, "-c", code, cwd=built.sdist).stdout


def test_the_wheel_has_the_package_the_lessons_and_their_pictures_and_no_tests(built):
    names = set(zipfile.ZipFile(built.wheel).namelist())
    assert {name.split("/")[0] for name in names} == {"gpipe_sim", f"gpipe_sim-{gp.__version__}.dist-info"}
    package = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "gpipe_sim").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    lessons = {f"gpipe_sim/{path.relative_to(ROOT).as_posix()}" for path in notebooks().values()}
    assert package | lessons <= names and len(lessons) >= 26 + 2 * 15
    rest = names - package - lessons
    assert all(
        re.match(r"gpipe_sim/figures/(\w+\.png|view\.html)$|gpipe_sim-[\d.]+\.dist-info/", name)
        for name in rest
    )


def test_the_installed_command_draws_and_names_its_own_files(installed, tmp_path):
    where = run(installed.python, "-c", "import gpipe_sim; print(gpipe_sim.__file__)", cwd=tmp_path).stdout
    assert Path(where.strip()).parent == installed.package
    expected = str(gp.simulate(gp.OneFOneB(4, 8)))
    for command in ([installed.programs / "gpipe-sim"], [installed.python, "-m", "gpipe_sim"]):
        printed = run(*command, "draw", "1F1B", "4", "8", cwd=tmp_path).stdout
        assert printed.startswith(expected)
    assert run(*command, "--version", cwd=tmp_path).stdout == f"gpipe_sim {gp.__version__}\n"


def test_an_installed_lesson_runs_in_the_folder_that_it_was_copied_to(installed, tmp_path):
    """Lesson 04 prints there what it printed when it was stored."""
    run(installed.programs / "gpipe-sim", "lessons", "lessons", cwd=tmp_path)
    folder = tmp_path / "lessons"
    assert len(list((folder / "figures").iterdir())) > 20
    name = "04_gpipe_and_its_bubble.ipynb"
    home = {"IPYTHONDIR": str(tmp_path / "ipython"), "JUPYTER_CONFIG_DIR": str(tmp_path / "jupyter")}
    convert = ["-m", "nbconvert", "--to", "notebook", "--execute", "--output", "ran.ipynb"]
    run(installed.python, *convert, name, cwd=folder, **home)
    ran, stored = (said(path) for path in (folder / "ran.ipynb", ROOT / "notebooks" / name))
    assert sum(map(bool, stored)) > 10 and ran == stored


def said(notebook: Path) -> list[str]:
    """What each cell printed, or showed as text; a slow one prints in several pieces."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    outputs = [cell.get("outputs", []) for cell in cells]
    assert not [each for shown in outputs for each in shown if each["output_type"] == "error"]
    return ["".join(map(text_of, shown)) for shown in outputs]


def text_of(output: dict) -> str:
    return "".join(output.get("text") or output["data"].get("text/plain", ""))


def test_the_description_is_the_readme_with_an_address_before_each_link(built):
    with zipfile.ZipFile(built.wheel) as wheel:
        [metadata] = (name for name in wheel.namelist() if name.endswith("dist-info/METADATA"))
        said = wheel.read(metadata).decode()
    source = re.search("^Project-URL: Source, (.*)", said, re.M)[1].strip()
    before = f"{re.escape(source)}/(raw|blob)/main/"
    readme = (ROOT / "README.md").read_text()
    assert said.replace("\r\n", "\n").partition("\n\n")[0].count("text/markdown") == 1
    assert readme.strip() == re.sub(before, "", said.partition("\n\n")[2]).strip()
    targets = re.findall(r"\]\(([^)]*)\)", said)
    assert len(targets) == len(re.findall(r"\]\(", readme)) > 40
    assert all(re.match(before, target) for target in targets)
    assert [target for target in targets if "/raw/" in target] == [
        f"{source}/raw/main/figures/gantt_1f1b.png"
    ]


def test_what_is_released_says_one_version_everywhere():
    released = re.findall(
        r"^## (\d+\.\d+\.\d+), (\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.M
    )
    citation = dict(re.findall(r"^([a-z-]+): (.*)$", (ROOT / "CITATION.cff").read_text(), re.M))
    assert (
        released[0] == (gp.__version__, citation["date-released"]) and citation["version"] == gp.__version__
    )
    assert [version for version, _ in released] == sorted((version for version, _ in released), reverse=True)
