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
import venv
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest
from test_imports import CHAPTERS, HERE_ALONE

import gpipe_sim as gp
from gpipe_sim.classroom.notebooks import notebooks

ROOT = Path(__file__).parents[1]
PROGRAMS = "Scripts" if os.name == "nt" else "bin"
#: It makes an sdist, and a wheel of what that unpacks to, as an index would; and prints where they are.
BUILD = """
import os, sys, tarfile
from setuptools import build_meta

place, said, sys.stdout = sys.argv[1], sys.stdout, sys.stderr
sdist = build_meta.build_sdist(place)
with tarfile.open(f"{place}/{sdist}") as archive:
    for copy in "unpacked", "source":  # building leaves files
        archive.extractall(f"{place}/{copy}", filter="data")
folder = sdist.removesuffix(".tar.gz")
os.chdir(f"{place}/source/{folder}")
print(f"unpacked/{folder}", build_meta.build_wheel(place), file=said)
"""
#: It runs the cells of a notebook as a kernel does, and writes what each says: printed, and shown as text.
LESSON = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

shell, said = InteractiveShell.instance(), []
for cell in json.load(open(sys.argv[1], encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        with capture_output() as out:
            shell.run_cell("".join(cell["source"])).raise_error()
        shown = "".join(each.data["text/plain"] for each in out.outputs)
        said.append(out.stdout.replace("Out[0]: ", "") + shown)
json.dump(said, sys.stdout)
"""
NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info", "my_pipeline.py")


def run(*command: object, cwd: Path, **more: str) -> subprocess.CompletedProcess:
    """In an environment that knows nothing of where these tests run."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "JUPYTER"))}
    words = list(map(str, command))
    ran = subprocess.run(words, cwd=cwd, env=clean | more, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return ran


class Built(NamedTuple):
    sdist: Path  #: unpacked
    wheel: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Built:
    """Built from a copy of the project."""
    place = tmp_path_factory.mktemp("built")
    shutil.copytree(ROOT, place / "copy", ignore=NOT_COPIED)
    made = run(sys.executable, "-c", BUILD, place, cwd=place / "copy").stdout.split()
    return Built(*(place / each for each in made))


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
    pip = [sys.executable, "-m", "pip", "--python", programs / "python", "install", "--quiet", "--no-compile"]
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


def test_the_core_of_the_sdist_passes_its_own_tests_without_the_chapters(built, tmp_path):
    """Nothing of the package is there but the core, the errors and the digits; see ``test_imports.py``."""
    torn = shutil.ignore_patterns(*CHAPTERS, "textbook.py")
    shutil.copytree(built.sdist / "gpipe_sim", tmp_path / "gpipe_sim", ignore=torn)
    shutil.copytree(built.sdist / "tests", tmp_path / "tests")
    shutil.copy(built.sdist / "pyproject.toml", tmp_path)
    (tmp_path / "sitecustomize.py").write_text(HERE_ALONE)
    options = ["-q", "--tb=short", "-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin"]
    options += ["--hypothesis-profile=few", "tests/core", "-k", "not 11_layers"]  # a long training
    alone = {"PYTHONPATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = run(sys.executable, "-m", "pytest", *options, cwd=tmp_path, **alone)
    assert int(re.fullmatch(r"(\d+) passed, 1 deselected in .*", ran.stdout.splitlines()[-1])[1]) >= 300


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
    printed = run(installed.programs / "gpipe-sim", "draw", "1F1B", "4", "8", cwd=tmp_path).stdout
    assert printed.startswith(expected)
    printed = run(installed.python, "-m", "gpipe_sim", "--version", cwd=tmp_path).stdout
    assert printed == f"gpipe_sim {gp.__version__}\n"


def test_an_installed_lesson_runs_in_the_folder_that_it_was_copied_to(installed, tmp_path):
    """Lesson 04 prints there what it printed when it was stored."""
    run(installed.programs / "gpipe-sim", "lessons", "lessons", cwd=tmp_path)
    folder = tmp_path / "lessons"
    assert len(list((folder / "figures").iterdir())) > 20
    name = "04_gpipe_and_its_bubble.ipynb"
    home = {"IPYTHONDIR": str(tmp_path / "ipython")}
    ran = json.loads(run(installed.python, "-c", LESSON, name, cwd=folder, **home).stdout)
    assert sum(map(bool, ran)) > 10 and [each.rstrip() for each in ran] == said(ROOT / "notebooks" / name)


def said(notebook: Path) -> list[str]:
    """What each cell printed, or showed as text; a slow one prints in several pieces."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    outputs = [cell["outputs"] for cell in cells if cell["cell_type"] == "code"]
    return ["".join(map(text_of, shown)).rstrip() for shown in outputs]


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
