"""What the set-up files promise each other: one list of packages, pinned; a Makefile that old make reads."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()


def requirements(extra: str) -> dict[str, Requirement]:
    """Direct dependencies by name, with the extra's; `gpipe_sim[plot]` stands for what `plot` lists."""
    found = {}
    for line in PROJECT["dependencies"] + PROJECT["optional-dependencies"][extra]:
        requirement = Requirement(line)
        if requirement.name == PROJECT["name"]:
            found |= {name: r for inner in requirement.extras for name, r in requirements(inner).items()}
        else:
            found[requirement.name] = requirement
    return found


def pins() -> list[Requirement]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [Requirement(line) for line in lines if not line.startswith("#")]


def environment() -> dict[str, list[str]]:
    """environment.yml as {key: items}: enough YAML for flat lists, of which the last ends in pip's."""
    keys: dict[str, list[str]] = {}
    for line in (ROOT / "environment.yml").read_text().splitlines():
        if re.match(r"[a-z]+:", line):
            key, value = line.split(":", 1)
            keys[key] = [value.strip()] if value.strip() else []
        elif not line.startswith("#"):
            keys[key].append(line.strip().removeprefix("- "))
    return keys


def test_the_library_needs_numpy_alone():
    assert [Requirement(line).name for line in PROJECT["dependencies"]] == ["numpy"]


def test_torch_stays_out_of_what_lessons_and_tests_install():
    assert "torch" not in requirements("test") | requirements("lessons") | requirements("plot")
    assert "torch" not in {pin.name for pin in pins()}


def test_only_looking_at_the_lessons_installs_a_browser_s_driver():
    assert "playwright" in requirements("look")
    assert "playwright" not in requirements("test") | requirements("lessons") | requirements("torch")


def test_only_the_site_installs_sphinx():
    assert "sphinx" in requirements("docs")
    assert "sphinx" not in requirements("test") | requirements("lessons") | requirements("look")


def test_only_the_proofs_install_and_import_a_solver():
    assert "ortools" in requirements("prove")
    others = set(PROJECT["optional-dependencies"]) - {"prove", "torch"}
    assert all("ortools" not in requirements(extra) for extra in others)
    texts = {path: path.read_text() for path in ROOT.glob("[!.]*/**/*.py")}
    importing = {path for path, text in texts.items() if re.search(r"^\s*(from|import) ortools", text, re.M)}
    assert importing == {ROOT / "prove/model.py"}


def test_a_hub_s_image_installs_what_the_lessons_need():
    """Binder and repo2docker read it from there; pip finds the dot in the folder where it is called."""
    lines = (ROOT / "binder/requirements.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [".[lessons]"]
    assert {"numpy", "matplotlib", "jupyter", "scipy"} == set(requirements("lessons"))


def test_conda_gets_the_same_packages_and_bounds_as_pip():
    python = f"python{PROJECT['requires-python']}"
    from_pip = {str(requirement) for requirement in requirements("test").values()}
    assert environment()["channels"] == ["conda-forge"]
    *packages, pip, pips_list, editable = environment()["dependencies"]
    assert set(packages) == {python} | from_pip
    assert len(packages) == len(set(packages))
    assert (pip, pips_list, editable) == ("pip", "pip:", "-e .")


PINNED = requirements("test") | requirements("look") | requirements("docs") | requirements("prove")


@pytest.mark.parametrize("name", PINNED)
def test_each_direct_dependency_is_pinned_within_its_bounds(name):
    versions = [next(iter(pin.specifier)) for pin in pins() if pin.name == name]
    assert versions
    assert all(pin.operator == "==" for pin in versions)
    assert all(PINNED[name].specifier.contains(pin.version) for pin in versions)


def test_constraints_pin_exactly_and_name_no_place_to_download_from():
    for pin in pins():
        assert [specifier.operator for specifier in pin.specifier] == ["=="], pin
        assert pin.url is None, pin
    assert not re.search(r"https?:|file:|--|/", "\n".join(map(str, pins())))


def test_constraints_say_how_to_remake_them():
    header = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("#")]
    extras = " ".join(f"--extra {extra}" for extra in ("test", "look", "docs", "prove"))
    assert f"uv pip compile --universal --python-version 3.11 {extras} " in " ".join(header)


def test_the_page_s_tools_are_locked_by_their_contents_and_name_no_place_to_download_from():
    """npm writes a place for each package unless told not to: --omit-lockfile-registry-resolved."""
    locked = json.loads((ROOT / "tests/page/package-lock.json").read_text())["packages"]
    own = json.loads((ROOT / "tests/page/package.json").read_text())
    assert locked.pop("")["devDependencies"] == own["devDependencies"] and "dependencies" not in own
    assert len(locked) > 50
    assert all({"integrity", "dev"} <= each.keys() and "resolved" not in each for each in locked.values())


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
def test_help_names_every_target():
    targets = re.search(r"^\.PHONY: (.*)", MAKEFILE, re.M)[1].split()
    listed = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        env={**os.environ, "MAKEFLAGS": ""},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert [line.split()[:2] for line in listed.splitlines()] == [["make", target] for target in targets]


def test_makefile_keeps_to_make_3_81():
    newer = r"\.ONESHELL|!=|&:|\$\(file|\$\(let|\$\(intcmp"
    assert not re.search(newer, MAKEFILE)
