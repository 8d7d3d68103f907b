"""What importing the package costs, and which floor may know of which."""

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import gpipe_sim

PACKAGE = Path(gpipe_sim.__file__).parent

#: A floor imports only from the floors before it in this list, and from itself.
FLOORS = [
    "errors.py", "schedule", "simulation", "families", "theory", "nn", "runtime", "planning",
    "drawing", "export", "torch_backend", "course",
]  # fmt: skip

#: What a method imports when it is called: schedules and timelines show themselves, and costs are measured.
ABOVE = {
    ("core/schedule.py", "drawing.svg"),
    ("core/schedule.py", "simulation.simulate"),
    ("core/costs.py", "runtime.stopwatch"),
    ("core/timeline.py", "drawing.svg"),
    ("core/timeline.py", "drawing.text"),
}

FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


def module(path: Path) -> str:
    """`core/schedule.py` is imported as `schedule.base`, `families/__init__.py` as `families`."""
    name = str(path.relative_to(PACKAGE).with_suffix("")).replace("/", ".")
    return name.removesuffix(".__init__")


MODULES = {module(path): path for path in FILES}


def floor(name: str) -> int:
    """On which floor a module is, counted from the ground."""
    head = name.split(".")[0]
    return FLOORS.index(head if head in FLOORS else f"{head}.py")


def imported(nodes) -> set[str]:
    """The modules of gpipe_sim that import statements name."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("gpipe_sim.")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "gpipe_sim":
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name.removeprefix("gpipe_sim.") in MODULES else node.module for name in names}
    return {name.removeprefix("gpipe_sim.") for name in found}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def at_import(path: Path) -> set[str]:
    return imported(parsed(path).body)


def from_above(path: Path, names: set[str]) -> set[tuple[str, str]]:
    """(the file, the module) for each module on a floor above the file's."""
    here = floor(module(path))
    return {(str(path.relative_to(PACKAGE)), name) for name in names if floor(name) > here}


def test_a_floor_imports_only_from_the_floors_below_it():
    for path in FILES:
        assert "gpipe_sim" not in at_import(path), f"{path}: import from the file, not from the package"
        assert from_above(path, at_import(path)) == set()


def test_what_is_imported_when_called_is_from_below_too_but_for_these():
    for path in FILES:
        when_called = imported(ast.walk(parsed(path))) - at_import(path)
        assert from_above(path, when_called) <= ABOVE


def test_no_files_import_each_other_in_a_circle():
    graph = {name: at_import(path) & set(MODULES) - {name} for name, path in MODULES.items()}
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError
    assert set(order) == set(MODULES)


def test_files_name_each_other_in_full():
    for path in FILES:
        relative = [
            node for node in ast.walk(parsed(path)) if isinstance(node, ast.ImportFrom) and node.level
        ]
        assert not relative, path


def test_what_tests_share_is_loaded_once_and_by_one_name():
    """As `cases` and as `tests.cases` it was two modules, with every schedule in both."""
    for path in Path(__file__).parent.rglob("*.py"):
        assert not re.search(r"^\s*(from|import) tests\b", path.read_text(), re.M), path


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after a statement."""
    code = f"{statement}; import sys; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True
    )
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


def test_every_public_name_is_there():
    for name in gpipe_sim.__all__:
        assert getattr(gpipe_sim, name) is not None
    assert {"simulate", "train_step", "OneFOneB", "mlp", "digits", "remat", "colocate"} <= set(
        gpipe_sim.__all__
    )


def test_an_unknown_name_is_an_attribute_error_that_says_it():
    with pytest.raises(AttributeError, match="module 'gpipe_sim' has no attribute 'GPipes'"):
        gpipe_sim.GPipes  # noqa: B018
