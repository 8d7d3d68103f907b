"""The public names: few, typed, loaded when used; `help` and `dir` show them with NumPy alone."""

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import gpipe_sim as gp

PACKAGE = Path(gp.__file__).parent
LAZY = ("gpipe_sim", "gpipe_sim.core")
#: What needs more than NumPy.
EXTRAS = {"plots", "torch_backend"}


def stub(package: str) -> dict[str, str]:
    """name -> the module that the package's stub imports it from."""
    path = PACKAGE.parent / package.replace(".", "/") / "__init__.pyi"
    imports = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ImportFrom)]
    assert all(alias.name == alias.asname for node in imports for alias in node.names)  # "as" makes it public
    return {alias.name: node.module for node in imports for alias in node.names}


CHAPTERS = {name for name, home in stub("gpipe_sim").items() if home == "gpipe_sim"} - {"course", *EXTRAS}
#: What dir(gp) has beside the chapters.
FLAT = set(stub("gpipe_sim")) - CHAPTERS


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def below(chapter: str) -> set[str]:
    """The chapter's names that are one step down."""
    found = import_module(f"gpipe_sim.{chapter}")
    if chapter == "errors":
        return {
            name for name, value in vars(found).items() if inspect.isclass(value) and name.endswith("Error")
        }
    return set(stub("gpipe_sim.core")) if chapter == "core" else set(getattr(found, "__all__", ())) - FLAT


def test_at_most_80_names_stand_directly_under_the_package():
    assert len(FLAT) <= 80
    assert len(FLAT | CHAPTERS) <= 95  # and what completion offers


@pytest.mark.parametrize("package", LAZY)
def test_what_type_checkers_see_is_what_loads(package):
    module = import_module(package)
    for name, home in stub(package).items():
        if name not in EXTRAS:
            loaded = import_module(f"{home}.{name}") if inspect.ismodule(getattr(module, name)) else None
            assert getattr(module, name) is (loaded or getattr(import_module(home), name))
    others = public(module) - set(stub(package))
    assert all(inspect.ismodule(getattr(module, name)) for name in others)  # files that have been imported


@pytest.mark.parametrize("package", LAZY)
def test_no_file_has_a_names_name_and_would_take_its_place(package):
    """`import gpipe_sim.digits` would make `gp.digits` a module."""
    folder = PACKAGE.parent / package.replace(".", "/")
    files = {path.stem for path in folder.iterdir() if path.suffix in ("", ".py")}
    assert not files & {name for name, home in stub(package).items() if home != package}


def test_names_are_in_one_place_each():
    chapters = {chapter: below(chapter) for chapter in CHAPTERS}
    everywhere = sorted(name for names in chapters.values() for name in names)
    assert not FLAT & set(everywhere)
    assert len(everywhere) == len(set(everywhere))


def test_the_docstring_lists_all_of_them_by_chapter():
    """In lines such as "gp. Link, Nodes" and "gp.links. simulate_shared"."""
    listed = {}
    for prefix, names in re.findall(r" gp\.((?:\w+\.)?) (\w+(?:, \w+)*)", " ".join(gp.__doc__.split())):
        listed.setdefault(prefix.strip("."), []).extend(names.split(", "))
    assert sorted(listed.pop("")) == sorted(FLAT - {"course", "torch_backend"})  # these two have a sentence
    assert listed == {
        chapter: sorted(below(chapter), key=str.lower) for chapter in CHAPTERS if below(chapter)
    }


def test_signatures_can_be_read_in_help():
    """``plan`` had 1,245 characters, of its types and of every schedule; ``Costs`` 949."""
    found = {name: getattr(gp, name) for name in FLAT - EXTRAS}
    found |= {f"{room}.{name}": getattr(getattr(gp, room), name) for room in CHAPTERS for name in below(room)}
    found = {name: value for name, value in found.items() if not name.startswith("errors.")}
    functions = {name: value for name, value in found.items() if callable(value)}
    assert len(functions) > 100
    for name, function in functions.items():
        signature = inspect.signature(function)
        defaults = [each.default for each in signature.parameters.values() if each.default is not each.empty]
        assert len(str(signature)) < 530 and all(len(repr(default)) <= 30 for default in defaults), name
        assert "Union[" not in str(signature) and "fractions.Fraction | coll" not in str(signature), name


def test_results_are_not_public_names():
    for result in ("StepResult", "History", "Plan", "Plans", "Explanation", "BalancePlan", "Overlay", "Svg"):
        assert not hasattr(gp, result) and not any(hasattr(getattr(gp, room), result) for room in CHAPTERS)


def test_an_unknown_name_is_an_attribute_error_that_says_it():
    for module, name in ((gp, "GPipes"), (gp.core, "Spam")):
        with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute '{name}'"):
            getattr(module, name)


def test_the_version_is_the_projects():
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "gpipe_sim.__version__"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", gp.__version__)
    assert {"py.typed", "*.pyi"} <= {
        file for files in project["tool"]["setuptools"]["package-data"].values() for file in files
    }
    assert (PACKAGE / "py.typed").exists()


# With NumPy alone


def with_numpy_alone(code: str) -> str:
    """What a fresh interpreter prints that finds neither torch nor matplotlib nor IPython."""
    hide = """
    import sys

    class Without:
        def __init__(self, finder):
            self.finder = finder

        def find_spec(self, name, path=None, target=None):
            hidden = name.partition(".")[0] in ("torch", "matplotlib", "IPython", "ipykernel")
            return None if hidden else self.finder.find_spec(name, path, target)

    sys.meta_path[:] = map(Without, sys.meta_path)
    import gpipe_sim as gp
    """
    lines = [inspect.cleandoc(hide), inspect.cleandoc(code)]
    ran = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], cwd=PACKAGE.parent, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_help_completion_and_getmembers_work_with_numpy_alone():
    printed = with_numpy_alone(
        """
        import inspect, pydoc, rlcompleter

        print(len(inspect.getmembers(gp)) >= len(dir(gp)) > 50)
        for chapter in ("core", "why", "planning", "drawing"):
            print(bool(inspect.getmembers(getattr(gp, chapter))))
        completer = rlcompleter.Completer({"gp": gp})
        print([completer.complete("gp.peak", 0), completer.complete("gp.why.c", 0)])
        print(set(dir(gp)) & {"plots", "torch_backend"})
        from gpipe_sim import *
        print(simulate(OneFOneB(4, 8)).makespan)
        print(pydoc.render_doc(gp, renderer=pydoc.plaintext))
        """
    )
    *told, helped = printed.split("\n", 7)
    helped = " ".join(helped.split())
    assert told == ["True"] * 5 + ["['gp.peak_in_flight(', 'gp.why.critical_path(']", "set()"]
    assert helped.startswith("33 ")
    assert re.search(r" gp\.why\. [\w, ]*why_idle", helped) and "pip install 'gpipe_sim[torch]'" in helped
    assert "peak_in_flight(" in helped and "class OneFOneB(" in helped


def test_what_is_not_installed_is_named_with_the_command_that_installs_it():
    printed = with_numpy_alone(
        """
        for name in ("plots", "torch_backend"):
            try:
                getattr(gp, name)
            except AttributeError as error:
                print(error)
        """
    )
    for name, needs, extra in (("plots", "matplotlib", "plot"), ("torch_backend", "torch", "torch")):
        how = f"which is not installed: pip install 'gpipe_sim[{extra}]'"
        assert f"gpipe_sim.{name} needs {needs}, {how}" in printed


def test_importing_it_loads_neither_numpy_nor_a_chapter():
    loaded = with_numpy_alone(
        "print(*sorted(name for name in sys.modules if name.startswith(('numpy', 'gpipe_sim'))))"
    )
    assert set(loaded.split()) == {"gpipe_sim", "gpipe_sim.lazy"}
