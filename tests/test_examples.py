"""Each example in a docstring gives what it says, and what is used most has one."""

import doctest
import json
import re
from collections import Counter
from inspect import getdoc

import numpy as np
import pytest
from test_surface import CHAPTERS, EXTRAS, FLAT, PACKAGE, below

import gpipe_sim as gp

ROOT = PACKAGE.parent
NAMES = {name: getattr(gp, name) for name in sorted(FLAT - EXTRAS)}
NAMES |= {
    f"{room}.{name}": getattr(getattr(gp, room), name) for room in CHAPTERS for name in sorted(below(room))
}
NAMES = {name: value for name, value in NAMES.items() if callable(value)}
WITH_EXAMPLES = sorted(name for name, value in NAMES.items() if ">>>" in (getdoc(value) or ""))


def texts() -> list[str]:
    """What people run: the lessons' cells of code, the README, the figures and the benchmarks."""
    lessons = [json.loads(path.read_text()) for path in (ROOT / "notebooks").glob("*.ipynb")]
    cells = [cell for lesson in lessons for cell in lesson["cells"] if cell["cell_type"] == "code"]
    files = [ROOT / "README.md", *(ROOT / "figures").glob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    return ["".join(cell["source"]) for cell in cells] + [path.read_text() for path in files]


def most_used(count: int) -> list[str]:
    """So many functions and classes, and those that are used as often as the last of them."""
    words = re.findall(r"\bgp\.((?:\w+\.)?\w+)", "\n".join(texts()))
    used = Counter(word if word in NAMES else word.split(".")[0] for word in words)
    ranked = [(name, times) for name, times in used.most_common() if name in NAMES]
    return [name for name, times in ranked if times >= ranked[count - 1][1]]


def test_the_forty_names_that_are_used_most_have_an_example():
    wanted = most_used(40)
    assert len(wanted) >= 40 and {"simulate", "OneFOneB", "draw", "train_step", "core.F"} <= set(wanted)
    assert [name for name in wanted if name not in WITH_EXAMPLES] == []


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_an_example_gives_what_it_says(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # some save a chart
    text = getdoc(NAMES[name]) or ""
    example = doctest.DocTestParser().get_doctest(text, {"gp": gp, "np": np}, name, None, None)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed, tried = doctest.DocTestRunner(optionflags=flags).run(example)
    assert not failed and tried, capsys.readouterr().out
    assert any(re.search(rf"\bgp\.{name}[(.]", each.source) for each in example.examples)
    assert text.split("\n\n")[1].startswith(">>>")  # where who asks for help sees it
