"""What importing the package costs, and which room may know of which."""

import ast
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import gpipe_sim

PACKAGE = Path(gpipe_sim.__file__).parent

#: Imports run from a room only to rooms above it in this list.
ROOMS = [
    "refuse", "actions", "schedule", "schedules", "waits", "rendezvous", "validate",
    "remat", "costs", "planner", "simulate", "recorded", "share", "metrics", "fit", "formulas", "published",
    "export", "layers", "losses", "optim", "models", "partition",
    "memory", "device", "executor", "datasets", "training",
    "chart", "explain", "recognize", "grid", "sheet", "svg", "overlay", "deadlock", "plots",
    "torch_backend", "exercises",
]  # fmt: skip

#: What a method imports when it is called, so that a schedule and a timeline can time and draw themselves.
LAZY = {
    ("schedule", "simulate"),
    ("schedule", "svg"),
    ("schedule", "validate"),
    ("simulate", "grid"),
    ("simulate", "svg"),
}


def room(path: Path) -> str:
    """`schedules/gpipe.py` belongs to the room `schedules`."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


def imported(nodes) -> set[str]:
    """The rooms of gpipe_sim that import statements name."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("gpipe_sim.")}
        elif isinstance(node, ast.ImportFrom) and node.module == "gpipe_sim":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gpipe_sim."):
            found.add(node.module.split(".")[1])
    return found


def test_every_room_is_on_the_list():
    assert {room(path) for path in FILES} <= set(ROOMS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_downward_in_the_list_of_rooms(path):
    tree, here = ast.parse(path.read_text()), room(path)
    at_import = imported(tree.body)
    when_called = imported(ast.walk(tree)) - at_import
    assert at_import <= set(ROOMS), "import from the room, not from the package"
    above = set(ROOMS[: ROOMS.index(here)])
    assert at_import - {here} <= above
    assert {(here, name) for name in when_called - {here} - above} <= LAZY


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_rooms_name_each_other_in_full(path):
    for node in ast.walk(ast.parse(path.read_text())):
        assert not (isinstance(node, ast.ImportFrom) and node.level)


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
        "str(schedule.timeline()), schedule._repr_svg_()",
        "data = (gp.digits().x[:6], gp.digits().y[:6])",
        "gp.train_step(gp.split(gp.mlp([64, 10, 10]), stages=2), schedule, data, gp.cross_entropy)",
    ]
    loaded = (loaded_by("; ".join(work)) - loaded_by("pass")) & installed
    assert loaded - {"gpipe_sim"} == {"numpy"}


def test_every_public_name_is_there():
    for name in gpipe_sim.__all__:
        assert getattr(gpipe_sim, name) is not None
    assert {"simulate", "train_step", "OneFOneB", "mlp", "digits", "remat", "share"} <= set(gpipe_sim.__all__)


def test_an_unknown_name_is_an_attribute_error_that_says_it():
    with pytest.raises(AttributeError, match="module 'gpipe_sim' has no attribute 'GPipes'"):
        gpipe_sim.GPipes  # noqa: B018
