"""What is kept of a cell: whatever stands in it, the file runs nothing when a later lesson reads it."""

import ast
import inspect
import re
from collections import defaultdict
from importlib import import_module

import pytest
from cells import doubled, in_a_cell
from test_wrong_answers import CHECKS

from gpipe_sim.course import answers, kept, mine
from gpipe_sim.course.build import BUILDS, build
from gpipe_sim.course.reply import correct

#: Cells in which a student may define an answer and have it checked.
FORMS = {
    "plain": "{define}\n\n{check}",
    "assigned": "{define}\n\nreply = {check}",
    "loop": "{define}\n\nfor _ in range(2):\n    reply = {check}\nwhile not reply:\n    {check}",
    "same line": "{define}\n\nK = 4; {check}; M = K",
    "printed": "{define}\n\nprint({check})",
    "in an if": "if True:\n{indented}\n    {check}",
    "walrus": "{define}\n\nif (reply := {check}).verdict == 'correct':\n    print(reply)",
    "in a try": "try:\n{indented}\n    reply = {check}\nfinally:\n    print(1)",
    "in a with": "from contextlib import suppress\n\n\nwith suppress(KeyError):\n{indented}\n    {check}",
    "comprehension": "{define}\n\nreplies = [{check} for _ in range(2)]",
    "%time": "{define}\n\n%time {check}",
    "%%time": "%%time\n{define}\n\n{check}",
    "asserted": "{define}\n\nassert {check}.verdict == 'correct', {check}\nlast = str({check})",
    "lambda": "{define}\n\nagain = lambda: {check}\nreply = again()",
    "default": "{define}\n\n\ndef shown(reply={check}):\n    return reply\n\n\nshown()",
    "decorator": "{define}\n\n\n@(lambda _: {check})\ndef reply():\n    pass",
    "class": "{define}\n\n\nclass Tried:\n    reply = {check}",
}


def folded(check: str) -> str:
    """A definition of each answer of a build: the lesson's own."""
    own = [getattr(answers, name) for name in BUILDS[check]]
    return "\n\n\n".join(
        inspect.getsource(each) if callable(each) else f"{name} = dict({each!r})"
        for name, each in zip(BUILDS[check], own, strict=True)
    )


LESSONS = [import_module(f"gpipe_sim.course.lesson_{lesson}") for lesson, *_ in CHECKS]
LIBRARY = {name: value for name, value in vars(answers).items() if not name.startswith("__")}


#: Each build in every fourth form, so each form has several builds.
BUILT = [
    (name, form)
    for i, name in enumerate(check for check in BUILDS if check != "doubled")
    for j, form in enumerate(FORMS)
    if (i + j) % 4 == 0
]


@pytest.mark.parametrize(("name", "form"), BUILT)
def test_a_build_is_kept_in_any_form_of_cell_and_reading_it_runs_nothing(name, form, file, monkeypatch):
    """The check is a stand-in: what a real one says of the answer is another test's."""
    define = folded(name)
    indented = re.sub("^(?=.)", "    ", define, flags=re.M)
    source = FORMS[form].format(define=define, indented=indented, check=f"check({', '.join(BUILDS[name])})")

    def stand_in(*_):
        return correct("yes")

    stand_in.__name__ = name
    said = in_a_cell(source, monkeypatch, check=build(*BUILDS[name])(stand_in), **LIBRARY)
    assert {*map(repr, said)} == {"correct: yes"}
    text = file.read_text()
    statements = ast.parse(text).body
    assert "check(" not in text and not any(map(kept._calls, statements))
    assert {*BUILDS[name]} <= {each for statement in statements for each in kept._bound(statement)}
    found, failed = mine.read(text)
    assert not failed
    for each in BUILDS[name]:
        own, right = found[each], getattr(answers, each)
        assert own.__code__.co_names == right.__code__.co_names if callable(own) else own == right


#: Cells whose answer needs something besides, and what a reply says if that is not kept.
BESIDE = {
    "a list that a call made": ("sizes = sorted([2, 1])\n\ndef twice(x):\n    return sizes[1] * x\n", ""),
    "a lambda": ("twice = lambda x: 2 * x", ""),
    "another name": ("def own(x):\n    return 2 * x\n\ntwice = own\nown = None", "without your other cells"),
    "passed under another name": ("def own(x):\n    return 2 * x\n\nout = twice = own", ""),
    "a cache": (
        "from functools import lru_cache\n@lru_cache(maxsize=9)\ndef twice(x):\n    return 2 * x",
        "",
    ),
    "an import in a try": (
        "try:\n    import math as m\nexcept ImportError:\n    m = None\n"
        "def twice(x):\n    return m.floor(2 * x)",
        "",
    ),
    "of everything": ("from math import *\ndef twice(x):\n    return floor(2 * x)", ""),
    "an object": (
        "import fractions\ntwo = fractions.Fraction(2)\ndef twice(x):\n    return two * x",
        "NameError: name 'two' is not defined",
    ),
    "a closure": (
        "def made():\n    return lambda x: 2 * x\ntwice = made()",
        "a call made twice, and no call is kept",
    ),
    "its own section": ("twice = mine.twice", ""),
}


@pytest.mark.parametrize("what", BESIDE)
def test_what_an_answer_needs_is_kept_with_it_or_the_reply_says_what_is_not(what, file, monkeypatch):
    source, words = BESIDE[what]
    file.write_text("# --- doubled\ndef twice(x):\n    return x + x\n")
    (said,) = in_a_cell(f"{source}\nunused = 1\n\ncheck(twice)", monkeypatch, check=doubled, mine=mine)
    assert said.verdict == "correct" and words in said.text
    assert ("It is not kept" in said.text) == bool(words)
    assert (file.read_text().count("x + x") == 1) == (bool(words) or what == "its own section")
    assert "unused" not in file.read_text() and mine.twice(4) == 8


def test_a_table_is_kept_as_a_dict_whatever_kind_of_dict_it_is():
    cell, names = "def same(x):\n    return x\n", {}
    exec(cell, names)
    source = kept.source_of({"same": names["same"], "table": defaultdict(list, {1: [2]})}, cell)
    assert source.endswith("table = {1: [2]}")


def test_a_name_with_its_type_and_every_decorator_that_stays_are_kept():
    cells = {
        "two: int = 2\ndef twice(x):\n    return two * x\n": "two: int = 2",
        "from functools import cache, lru_cache\n@cache\n@lru_cache\ndef twice(x):\n    return 2 * x\n": (
            "@cache\n@lru_cache\ndef"
        ),
    }
    for cell, words in cells.items():
        names = {}
        exec(cell, names)
        assert words in kept.source_of({"twice": names["twice"]}, cell)
