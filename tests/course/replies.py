"""What the tests of all lessons ask of a reply, and how they make a student's mistakes."""

import ast
import inspect
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from gpipe_sim.course import Reply, answers, reveal

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
WRONG = ("almost", "keep working")
Cases = dict[str, list]


def each_reply(lesson: ModuleType, never: str = "$^", **cases: Cases) -> Callable:
    """A test of a lesson's checks, by their names: each answer gets the verdict under which it stands.

    Beside an answer stand words of its reply; under "wrong", whatever the reply, it stands alone. Where a
    check takes several answers, they are a tuple. No reply matches the expression ``never``.
    """
    found = [
        pytest.param(getattr(lesson, check), *case, id=f"{check}: {case[-1][:30]}")
        for check, verdicts in cases.items()
        for case in cases_of(verdicts)
    ]

    @pytest.mark.parametrize(("check", "answer", "verdict", "words"), found)
    def test(check: Callable, answer: object, verdict: str, words: str) -> None:
        reply = check(*(answer if isinstance(answer, tuple) else (answer,)))
        assert_says(reply, verdict, words)
        assert not re.search(never, reply.text), reply

    test.cases = cases
    return test


def each_alone(mistaken: Callable, *size: object) -> list[tuple[Callable, str]]:
    """(what a student would compute who makes one mistake, its question) for each that ``mistaken`` gives."""
    return [(lambda *any_size, ask=ask: mistaken(*any_size)[ask], ask) for ask in mistaken(*size)]


def cases_of(verdicts: Cases) -> list[tuple[object, str, str]]:
    """(answer, verdict, words of the reply) of each case of a check."""
    alone = [(answer, "wrong", "") for answer in verdicts.get("wrong", ())]
    return alone + [
        (answer, verdict, words)
        for verdict, answers in verdicts.items()
        if verdict != "wrong"
        for answer, words in answers
    ]


def assert_says(reply: Reply, verdict: str, words: str) -> None:
    assert reply.verdict in (WRONG if verdict == "wrong" else (verdict,)), reply
    assert reply.text.endswith(words) if words.endswith("?") else words in reply.text, reply


@cache
def predictions(lesson: str) -> dict[str, dict]:
    """What the cells of a lesson say of wrong guesses, by the name of each prediction's fold."""
    path, found = next(NOTEBOOKS.glob(f"{lesson}_*.ipynb")), {}
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and "wrong=" in source:
            given = {
                each.arg: each.value for each in ast.walk(ast.parse(source)) if isinstance(each, ast.keyword)
            }
            name = ast.literal_eval(given["name"])
            assert name not in found, name
            found[name] = eval(compile(ast.Expression(given["wrong"]), path.name, "eval"))
    return found


def natural(lesson: str, name: str) -> dict:
    """The wrong guesses that are told what they mean, where a lesson's fold has this name."""
    return predictions(lesson)[name]


def assert_each_is_told(wrong: dict, measured: object, within: object = 0) -> None:
    """Each natural wrong guess is wrong, and is told its own sentence."""
    for guess, words in wrong.items():
        reply = reveal(guess, measured, within=within, wrong=wrong).reply
        assert (reply.verdict, reply.text.endswith(words)) == ("not what happened", True), reply


def changed(of: Callable, *swaps: tuple[str, str]) -> Callable:
    """A student's mistake, made from an answer: the same function with some of its words replaced."""
    source = inspect.getsource(of)
    for old, new in swaps:
        assert old in source, old
        source = source.replace(old, new)
    names = dict(vars(answers))
    exec(source, names)
    return names[of.__name__]


def changed_text(source: str, *swaps: tuple[str, str]) -> Callable:
    """What a text defines first, after some of its words are replaced: a mistake in an exercise's answer."""
    for old, new in swaps:
        assert old in source, old
        source = source.replace(old, new)
    names: dict = {"np": np}
    exec(source, names)
    return names[re.search(r"^def (\w+)", source, re.M)[1]]
