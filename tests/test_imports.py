"""Which file may know of which: the core knows nobody, chapters build on each other, and each tears out.

To tear a chapter out is to delete its folder, and those of all chapters that build on it. What is left must
import completely, and must say in one sentence what is missing when somebody asks for it.
"""

import ast
import io
import json
import os
import re
import subprocess
import sys
import tokenize
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import cases
import pytest

import gpipe_sim
from gpipe_sim import families

PACKAGE = Path(gpipe_sim.__file__).parent
ROOT = PACKAGE.parent
TESTS = Path(__file__).parent
#: One-line names from the package's folder: "core/rules.py", "errors.py".
FILES = {str(path.relative_to(PACKAGE)): path for path in sorted(PACKAGE.rglob("*.py"))}
CHAPTERS = sorted({file.split("/")[0] for file in FILES if "/" in file} - {"core"})


def module(file: str) -> str:
    """`core/rules.py` is imported as `core.rules`, `families/__init__.py` as `families`."""
    return file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


MODULES = {module(file): file for file in FILES if file != "__init__.py"}


def room(name: str) -> str:
    """The chapter that a module belongs to; of a file that stands alone, such as `errors`, that file."""
    return name.split(".")[0]


@cache
def parsed(file: str) -> ast.Module:
    return ast.parse(FILES[file].read_text())


def imported(nodes) -> set[str]:
    """The modules of the package that import statements name, without `gpipe_sim.` in front."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if room(alias.name) == "gpipe_sim"}
        elif isinstance(node, ast.ImportFrom) and room(node.module or "") == "gpipe_sim":
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name.removeprefix("gpipe_sim.") in MODULES else node.module for name in names}
    return {name.removeprefix("gpipe_sim.") for name in found}


def everywhere(file: str) -> set[str]:
    """What a file imports, inside functions too."""
    return imported(ast.walk(parsed(file)))


def lines_of_code(text: str) -> int:
    """Lines with a token on them that is neither a comment nor part of a docstring."""
    blank = {
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER
    }  # fmt: skip
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in blank:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, False):
            lines -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(lines)


def test_the_core_knows_only_itself_and_the_errors_and_is_read_in_an_afternoon():
    core = [file for file in FILES if file.startswith("core/")]
    for file in core:
        lists_names = {"lazy"} if file == "core/__init__.py" else set()
        assert {room(name) for name in everywhere(file)} <= {"core", "errors"} | lists_names, file
    assert everywhere("errors.py") == everywhere("lazy.py") == everywhere("signatures.py") == set()
    assert len(core) <= 38
    assert sum(lines_of_code(FILES[file].read_text()) for file in core) <= 2800


def test_code_is_counted_without_comments_blanks_and_docstrings():
    text = '"""Doc."""\n\nx = """a\nb"""  # two lines\n# none\ndef f():\n    """Doc.\n\n    More."""\n'
    assert lines_of_code(f"{text}    return (\n        x\n    )\n") == 6


@cache
def builds_on() -> dict[str, set[str]]:
    """room -> the rooms that its files import, inside functions too."""
    found: dict[str, set[str]] = {}
    for name, file in MODULES.items():
        found.setdefault(room(name), set()).update(map(room, everywhere(file)))
    return {here: rooms - {here} for here, rooms in found.items()}


def test_chapters_build_on_each_other_without_a_circle_from_the_core_up_to_the_course():
    order = list(TopologicalSorter(builds_on()).static_order())  # raises CycleError
    assert {*CHAPTERS, "core", "errors"} <= set(order)
    assert builds_on()["errors"] == set()
    assert [here for here, rooms in builds_on().items() if "course" in rooms] == ["classroom"]
    for chapter in CHAPTERS:
        assert chapter == "papers" or "core" in torn_with(chapter, down=True), chapter


def test_no_files_import_each_other_in_a_circle():
    graph = {name: imported(parsed(file).body) & set(MODULES) - {name} for name, file in MODULES.items()}
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError
    assert set(order) == set(MODULES)


def test_files_name_each_other_in_full_and_never_the_package():
    for file in FILES:
        assert "gpipe_sim" not in everywhere(file), f"{file}: import from the file, not from the package"
        froms = [node for node in ast.walk(parsed(file)) if isinstance(node, ast.ImportFrom)]
        assert not any(node.level for node in froms), file
        rooms = {alias.name for node in froms if node.module == "gpipe_sim" for alias in node.names}
        assert rooms <= {"lazy", *CHAPTERS}, f"{file}: another name is looked for in all chapters first"


def test_what_tests_share_is_loaded_once_and_by_one_name():
    """As `cases` and as `tests.cases` it was two modules, with every schedule in both."""
    for path in TESTS.rglob("*.py"):
        assert not re.search(r"^\s*(from|import) tests\b", path.read_text(), re.M), path


# What importing costs


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after a statement."""
    code = f"{statement}; import sys; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


def test_importing_timing_showing_and_training_need_numpy_alone():
    installed = set(packages_distributions())
    assert {"numpy", "matplotlib", "IPython"} <= installed
    work = [
        "import gpipe_sim as gp",
        "schedule = gp.OneFOneB(2, 3)",
        "str(gp.simulate(schedule)), schedule._repr_html_()",
        "data = (gp.digits().x[:6], gp.digits().y[:6])",
        "gp.train_step(gp.split(gp.mlp([64, 10, 10]), stages=2), schedule, data, gp.cross_entropy)",
    ]
    loaded = (loaded_by("; ".join(work)) - loaded_by("pass")) & installed
    assert loaded - {"gpipe_sim"} == {"numpy"}


# Tearing out


def torn_with(chapter: str, down: bool = False) -> set[str]:
    """The chapter and all that builds on it; with ``down``, all that it builds on."""
    found = {chapter}
    while True:
        more = {
            there if down else here
            for here, rooms in builds_on().items()
            for there in rooms
            if (here if down else there) in found
        }
        if more <= found:
            return found
        found |= more


#: Of an editable install, a finder would fetch from the clone what is missing in a copy.
HERE_ALONE = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "__editable__" not in str(finder)]
"""


def copy_without(torn: set[str], target: Path) -> Path:
    """The package without these chapters and files: links to all others, and to what was compiled."""
    (target / "gpipe_sim").mkdir(parents=True)
    for path in PACKAGE.iterdir():
        if path.name.removesuffix(".py") not in torn:
            (target / "gpipe_sim" / path.name).symlink_to(path)
    (target / "sitecustomize.py").write_text(HERE_ALONE)
    return target


def run_in(copy: Path, *arguments: str, told: str = "") -> subprocess.CompletedProcess:
    """Python in the copy, so that it imports what stands there and nothing else of ours."""
    there = os.environ | {"PYTHONPATH": str(copy), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    python = [sys.executable, *arguments]
    return subprocess.run(python, input=told, cwd=copy, env=there, capture_output=True, text=True)


#: Filled hooks by name: code that uses one. Each needs no more than the core to be written.
USES = {
    "chart_of_schedule": "OneFOneB(2, 2)._repr_html_()",
    "chart_of_timeline": "simulate(OneFOneB(2, 2))._repr_html_()",
    "chart_of_causes": "gp.where_time_goes(simulate(OneFOneB(2, 2)))._repr_html_()",
    "text_of_timeline": "str(simulate(OneFOneB(2, 2)))",
    "on_links": "simulate(OneFOneB(1, 2), links={})",
    "queues": "check(GPipe(2, 2), sends='blocking')",
    "profile": "train_step(two, OneFOneB(2, 2), batch, mse, memory_limit=1e9)",
    "stream": "train_step(two, updated, batch, mse, optimizer=SGD(0.1))",
    "needs_of_updates": "simulate(updated)",
    "wrong_updates": "check(updated)",
    "own_copies": "train_step(two, both_ways, batch, mse)",
    "sum_copies": "train_step(two, both_ways, batch, mse)",
    "tied": "train_step(tied, OneFOneB(2, 2), batch, mse)",
    "balance_by_word": "split(mlp([3, 3, 3]), stages=2, balance='parameters')",
    "stopwatch": "Costs.measured(two, batch, runs=1, warmup=0)",
}
#: It prints what each torn copy imports and says, by name: [{"imports": ..., "uses": ..., "names": ...}].
#: One process for all, which loads NumPy and matplotlib once; of the package it forgets all before each copy.
PROBE = """
import gc, json, sys
from importlib import import_module
import numpy as np

gc.disable()  # what is forgotten fits; looking for it took a third of the time

def said(what, *arguments):
    try:
        what(*arguments)
    except Exception as error:
        return [type(error).__name__, str(error)]

def found_in(copy, modules, uses, names):
    for name in [name for name in sys.modules if name.split(".")[0] == "gpipe_sim"]:
        del sys.modules[name]
    sys.path[0] = copy
    there = {"np": np}
    exec(FROM_THE_CORE, there)
    assert there["gp"].__file__.startswith(copy), there["gp"].__file__
    return {
        "imports": {name: said(import_module, f"gpipe_sim.{name}") for name in modules},
        "uses": {hook: said(eval, use, there) for hook, use in uses.items()},
        "names": {name: said(getattr, there["gp"], name) for name in names},
    }

FROM_THE_CORE = '''
import gpipe_sim as gp
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.explicit import Explicit
from gpipe_sim.core.gpipe import GPipe
from gpipe_sim.core.layers import mlp
from gpipe_sim.core.losses import mse
from gpipe_sim.core.one_f_one_b import OneFOneB
from gpipe_sim.core.optimizers import SGD
from gpipe_sim.core.problems import check
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.split import split
from gpipe_sim.core.step import train_step

two, batch = split(mlp([3, 3, 3]), stages=2), (np.ones((2, 3)), np.ones((2, 3)))
tied = split(mlp([3, 3, 3]), stages=2)
tied[1].layers[-1].tied = True
updated = Explicit(["0F0 0F1 0B1 0B0 0U1", "1F0 1F1 1B1 1B0 1U1"])
both_ways = Explicit(["0F0 1F1 1B1 0B0", "0F1 1F0 1B0 0B1"], placement=[[0, 1], [1, 0]])
'''
json.dump([found_in(**asked) for asked in json.load(sys.stdin)], sys.stdout)
"""


def home(name: str) -> str | None:
    """The room of a public name: where its class or function was written. None for a tuple or a number."""
    if name == "torch_backend":  # torch may not be installed
        return name
    found = getattr(gpipe_sim, name)
    where = getattr(found, "__module__", None) or getattr(found, "__name__", "")
    return room(where.removeprefix("gpipe_sim.")) if where.startswith("gpipe_sim.") else None


def in_one_sentence(error: list[str] | None, rooms: set[str]) -> bool:
    """Whether something is refused in one sentence that names one of these chapters."""
    return error is not None and (
        error[0] in ("ModuleNotFoundError", "AttributeError")
        and any(re.search(rf"\bgpipe_sim\.{name}\b", error[1]) for name in rooms)
        and not re.search(r"\n|[.!?] [A-Z]", error[1])
        and len(error[1]) < 150
    )


def test_every_hook_of_the_core_has_a_home_and_every_home_a_hook():
    built = [
        node.args[0].value
        for file in FILES
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Hook"
    ]
    assert sorted(built) == sorted(gpipe_sim.HOOKS)
    assert set(USES) == set(gpipe_sim.HOOKS) - {"meter"}, (
        "without its meter a step is metered where actions end"
    )


@pytest.fixture(scope="module")
def said_without(tmp_path_factory) -> dict[str, dict]:
    """chapter -> what a copy without it, and without all that builds on it, imports and says."""
    place = tmp_path_factory.mktemp("torn")
    names = [name for name in (*gpipe_sim.__all__, "torch_backend") if home(name)]
    asked = []
    for chapter in CHAPTERS:
        torn = torn_with(chapter)
        left = [name for name in MODULES if room(name) not in {*torn, "torch_backend"}]  # which needs torch
        copy = str(copy_without(torn, place / chapter))
        asked.append({"copy": copy, "modules": left, "uses": USES, "names": names})
    ran = run_in(place / CHAPTERS[0], "-c", PROBE, told=json.dumps(asked))
    assert ran.returncode == 0, ran.stderr
    return dict(zip(CHAPTERS, json.loads(ran.stdout), strict=True))


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_without_a_chapter_the_rest_imports_and_says_what_is_missing(chapter, said_without):
    torn, found = torn_with(chapter), said_without[chapter]
    assert not torn & {"core", "errors", "dataset"}
    assert {name: error for name, error in found["imports"].items() if error} == {}
    for hook, error in found["uses"].items():
        missing = room(gpipe_sim.HOOKS[hook]) in torn
        assert in_one_sentence(error, torn) if missing else not error, (hook, error)
    for name, error in found["names"].items():
        if home(name) in torn:
            assert in_one_sentence(error, torn), (name, error)
        elif name != "torch_backend":
            assert not error, (name, error)


def test_with_the_chapters_there_the_core_is_tested_over_their_families_too():
    assert cases.SCHEDULES is families.SCHEDULES
