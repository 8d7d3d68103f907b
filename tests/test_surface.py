"""The public names: few, typed, loaded when used; `help` and `dir` show them with NumPy alone."""

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
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
WITH_NAMES = sorted(CHAPTERS - {"errors", "machine"})  #: these two list no public names
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


def test_each_name_of_the_package_stands_under_its_own_chapter():
    """And in the order of the alphabet, as those one step down do."""
    homes = stub("gpipe_sim")
    sections = re.split(r"^(\w+): .*$", gp.__doc__[: gp.__doc__.index("NumPy is all")], flags=re.M)[1:]
    for chapter, text in zip(sections[::2], sections[1::2], strict=True):
        room = f"gpipe_sim.{'dataset' if chapter == 'data' else chapter}."
        own = sorted((name for name in FLAT if f"{homes[name]}.".startswith(room)), key=str.lower)
        listed = re.search(r" gp\. (\w+(?:,\s+\w+)*)", text)
        assert (re.split(r",\s+", listed[1]) if listed else []) == own, chapter


#: What can be called, by name: functions, classes, and the losses.
CALLABLE = {
    name: value
    for name, value in (
        {name: getattr(gp, name) for name in sorted(FLAT - EXTRAS)}
        | {f"{room}.{name}": getattr(getattr(gp, room), name) for room in CHAPTERS for name in below(room)}
    ).items()
    if callable(value)
}


def methods(found: object) -> dict[str, Callable]:
    """What a reader of help sees of a class, with what it has from its bases here."""
    return {
        name: value
        for name, value in inspect.getmembers(found if inspect.isclass(found) else None, callable)
        if not name.startswith("_") and str(getattr(value, "__module__", "")).startswith("gpipe_sim")
    }


#: With the methods of public classes, such as ``core.Timeline.on``.
READ_IN_HELP = CALLABLE | {
    f"{name}.{method}": value for name, found in CALLABLE.items() for method, value in methods(found).items()
}


def test_signatures_can_be_read_in_help():
    """``plan`` had 1,245 characters, of its types and of every schedule; ``Costs`` 949."""
    functions = {name: value for name, value in READ_IN_HELP.items() if not name.startswith("errors.")}
    assert len(functions) > 200 and len(CALLABLE) > 100
    for name, function in functions.items():
        signature = inspect.signature(function)
        defaults = [each.default for each in signature.parameters.values() if each.default is not each.empty]
        assert len(str(signature)) < 480 and all(len(repr(default)) <= 30 for default in defaults), name
        assert not re.search(r"0x|<|gpipe_sim|Union\[|fractions|collections|numpy\.", str(signature)), name
        types = [each.annotation for each in signature.parameters.values()] + [signature.return_annotation]
        assert not any(re.search("[\"']", inspect.formatannotation(each)) for each in types), name
        assert "*args" not in str(signature), name
        for each in signature.parameters.values():
            if each.kind is each.VAR_KEYWORD:  # it says what these are
                assert f"``{each.name}``" in inspect.getdoc(function), name


def test_signatures_say_types_as_the_source_does():
    for name, told in (
        ("links.simulate_shared", "links: Link | Nodes | Mapping[tuple[int, int], Link]"),
        ("Link", "latency: Real = 0"),
        ("plan", "schedules: Sequence[type[Schedule]] | None = None"),
        ("train", "report: Report = print"),
        ("digits", "dtype: DTypeLike = 'float64'"),
        ("cross_entropy", "(outputs: ndarray, targets: ndarray) -> float"),
        ("core.Kind", "(value)"),
    ):
        assert told in str(inspect.signature(CALLABLE[name])), name
    report = inspect.signature(gp.train).parameters["report"].default
    assert callable(report) and report.func is print  # as it is called
    assert gp.simulate.__annotations__["return"] is gp.core.Timeline  # and the annotations stay
    costs = inspect.signature(gp.simulate).parameters["costs"].annotation
    assert repr(costs) == "CostModel | None" and costs.meant == gp.core.CostModel | None
    assert inspect.signature(gp.GPipe).parameters["devices"].annotation is int


def test_a_schedule_of_ones_own_shows_what_it_takes():
    class Mine(gp.core.Schedule):
        pass

    assert str(inspect.signature(Mine)) == "(devices: int, microbatches: int) -> None"
    assert [*inspect.signature(gp.core.Schedule).parameters] == ["devices", "microbatches"]


@pytest.mark.parametrize("name", sorted(READ_IN_HELP))
def test_help_begins_with_a_sentence(name):
    first = (inspect.getdoc(READ_IN_HELP[name]) or "").partition("\n\n")[0]
    assert first.endswith((".", ":")) and len(first.split()) >= 3, first
    assert not first.startswith(name.split(".")[-1] + "("), "a dataclass's own"


def test_results_are_not_public_names():
    for result in ("StepResult", "History", "Plan", "Plans", "Explanation", "BalancePlan", "Overlay", "Svg"):
        assert not hasattr(gp, result) and not any(hasattr(getattr(gp, room), result) for room in CHAPTERS)


def test_an_unknown_name_is_an_attribute_error_that_says_it():
    for module, name in ((gp, "GPipes"), (gp.core, "Spam")):
        with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute '{name}'"):
            getattr(module, name)


def test_a_name_that_a_chapter_has_is_told_with_the_chapter():
    names = [(chapter, name) for chapter in WITH_NAMES for name in getattr(gp, chapter).__all__]
    for chapter, name in names:
        if not hasattr(gp, name):
            with pytest.raises(AttributeError, match=f"no attribute '{name}'.*; gpipe_sim.{chapter} has it"):
                getattr(gp, name)


def test_completion_offers_a_chapters_names_and_not_its_files():
    for chapter in WITH_NAMES:
        offered = {name for name in dir(getattr(gp, chapter)) if not name.startswith("_")}
        assert offered == set(getattr(gp, chapter).__all__), chapter


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


def test_pydoc_shows_every_chapter_with_numpy_alone():
    printed = with_numpy_alone(
        f"""
        import pydoc

        for name in {sorted(CHAPTERS | {"course"})}:
            print("::", pydoc.render_doc(f"gpipe_sim.{{name}}", renderer=pydoc.plaintext))
        """
    )
    shown = printed.split(":: ")[1:]
    assert len(shown) == len(CHAPTERS) + 1
    for name, text in zip(sorted(CHAPTERS | {"course"}), shown, strict=True):
        assert f"gpipe_sim.{name}" in text and "NAME" in text
        functions = {each for each in CALLABLE if each.startswith(f"{name}.")}
        assert all(f"{each.removeprefix(f'{name}.')}(" in text for each in functions), name


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
