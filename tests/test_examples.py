"""Each example in a docstring gives what it says, and what is used most has one."""

import ast
import doctest
import json
import re
from collections import Counter
from inspect import getdoc

import numpy as np
import pytest
from test_surface import CALLABLE, PACKAGE

import gpipe_sim as gp

ROOT = PACKAGE.parent
WITH_EXAMPLES = sorted(name for name, value in CALLABLE.items() if ">>>" in (getdoc(value) or ""))


def texts() -> list[str]:
    """What people run: the lessons' cells of code, the README, the figures and the benchmarks."""
    lessons = [json.loads(path.read_text()) for path in (ROOT / "notebooks").glob("*.ipynb")]
    cells = [cell for lesson in lessons for cell in lesson["cells"] if cell["cell_type"] == "code"]
    files = [ROOT / "README.md", *(ROOT / "figures").glob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    return ["".join(cell["source"]) for cell in cells] + [path.read_text() for path in files]


def most_used(count: int) -> list[str]:
    """So many functions and classes, and those that are used as often as the last of them."""
    words = re.findall(r"\bgp\.((?:\w+\.)?\w+)", "\n".join(texts()))
    used = Counter(word if word in CALLABLE else word.split(".")[0] for word in words)
    ranked = [(name, times) for name, times in used.most_common() if name in CALLABLE]
    return [name for name, times in ranked if times >= ranked[count - 1][1]]


def test_the_forty_names_that_are_used_most_have_an_example():
    wanted = most_used(40)
    assert len(wanted) >= 40 and {"simulate", "OneFOneB", "draw", "train_step", "core.F"} <= set(wanted)
    assert [name for name in wanted if name not in WITH_EXAMPLES] == []


def run(name: str, text: str, names: dict) -> doctest.DocTest:
    """The examples of a docstring, run with these names; AssertionError if one does not give what it says."""
    told: list[str] = []
    examples = doctest.DocTestParser().get_doctest(text, names, name, None, None)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    failed, tried = runner.run(examples, out=told.append, clear_globs=False)
    assert tried and not failed, "".join(told)
    return examples


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_an_example_gives_what_it_says(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some save a chart
    text = getdoc(CALLABLE[name]) or ""
    ran = run(name, text, {"gp": gp, "np": np}).examples
    assert any(re.search(rf"\bgp\.{name}[(.]", each.source) for each in ran)
    assert text.split("\n\n")[1].startswith(">>>")  # where who asks for help sees it


def test_the_packages_own_example_runs_as_it_is_typed():
    names = run("gpipe_sim", gp.__doc__, {}).globs
    assert names["timeline"].makespan == 3 * (8 + 4 - 1)  # (M + K - 1)(F + B)
    assert abs(names["step"].loss - np.log(10)) < 0.2  # ten classes, nothing learned


def test_an_example_that_is_wrong_is_found():
    with pytest.raises(AssertionError, match=r"Expected:\s+34\s+Got:\s+33"):
        run("wrong", ">>> gp.simulate(gp.GPipe(4, 8)).makespan\n34\n", {"gp": gp})


def test_no_docstring_has_an_example_that_nothing_runs():
    files = [path.read_text() for path in PACKAGE.rglob("*.py")]
    trees = [ast.parse(text) for text in files if ">>>" in text]
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, kinds)]
    assert sum(">>>" in (ast.get_docstring(node) or "") for node in nodes) == len(WITH_EXAMPLES) + 1
