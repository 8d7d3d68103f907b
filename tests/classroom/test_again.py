"""A cell can be run again: Run All, then answers in reverse, then all in order, and nothing changes.

A lesson runs in this process, as a kernel would run it: a cell after the other, in one namespace.
"""

import ast
import json
import re
from contextlib import redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import pytest
from replies import assert_each_is_told

import gpipe_sim as gp
from gpipe_sim import course
from gpipe_sim.course import Reply
from gpipe_sim.course.reveal import Revealed, reveal

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
NEEDS_TORCH = pytest.mark.skipif(not find_spec("torch"), reason="it runs PyTorch's engine")
LESSONS = [
    pytest.param(path, id=path.stem[:2], marks=[NEEDS_TORCH] * ("torch_backend" in path.read_text()))
    for path in NOTEBOOKS
]
CHECK = re.compile(r"^gp\.course\.lesson_\w+\.\w+\(.*\)\Z", re.M)
#: What takes seconds, and says the same of the same: a lesson asks it once.
SLOW = "plan", "calibrate"
FOLDED = re.compile(r">One answer.*?```python\n(.*?)```", re.S)


def asked_once(function):
    found: dict[str, object] = {}

    def asked(*given, **how):
        of = repr((given, how))
        if of not in found:
            found[of] = function(*given, **how)
        return found[of]

    return asked


class Lesson:
    """A lesson that has been run, and what was measured where it asks for a guess."""

    def __init__(self, path: Path, monkeypatch):
        self.cells = json.loads(path.read_text())["cells"]
        self.measured: dict[int, object] = {}
        self.names: dict = {"__name__": "__main__", "_measured": self.measured}
        self.first: dict[int, str] = {}
        for name in SLOW:
            monkeypatch.setattr(gp, name, asked_once(getattr(gp, name)))
        for at, cell in enumerate(self.cells):
            self.at = at
            if cell["cell_type"] == "code":
                monkeypatch.setattr(course, "reveal", self.revealed)
                self.first[at] = shown(self.run("".join(cell["source"])))

    def revealed(self, guess, measured, *shows, **how) -> Revealed:
        self.measured[self.at] = measured
        assert_each_is_told(how.get("wrong", {}), measured, how.get("within", 0))
        return reveal(guess, measured, *shows, **how)

    def run(self, source: str) -> tuple[object, str]:
        """What a cell's last line is, and what the cell prints."""
        body = ast.parse(source).body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        with redirect_stdout(StringIO()) as printed:
            exec(compile(ast.Module(body, []), "<cell>", "exec"), self.names)
            value = last and eval(compile(ast.Expression(last.value), "<cell>", "eval"), self.names)
        return value, printed.getvalue()

    def answered(self) -> list[tuple[int, str]]:
        """The cells in which a student writes, filled in, and what shows the result of a guess."""
        found = []
        for at, cell in enumerate(self.cells):
            source = "".join(cell["source"])
            if cell["cell_type"] == "code" and CHECK.search(source):
                after = "".join("".join(each["source"]) for each in self.cells[at + 1 : at + 4])
                found.append((at, f"{FOLDED.search(after)[1]}\n{CHECK.search(source)[0]}"))
            elif at in self.measured:
                found.append((at, f"guess = _measured[{at}]\n{source}"))
        return found


def shown(result: tuple[object, str]) -> str:
    """What stays the same whether there is a guess or not."""
    value, printed = result
    return printed + (value.happened if isinstance(value, Revealed) else "")


@pytest.mark.parametrize("path", LESSONS)
def test_answers_can_be_filled_in_in_reverse_and_then_with_guesses_in_order(path, monkeypatch):
    """A guess makes no name that an answer does not, so no cell minds whether a later one has its guess."""
    lesson = Lesson(path, monkeypatch)
    answered = lesson.answered()
    assert answered
    exercises = [(at, source) for at, source in answered if CHECK.search(source)]
    for lesson.at, source in [*exercises[::-1], *answered]:
        value, printed = lesson.run(source)
        if isinstance(value, Revealed):
            assert (lesson.at, value.reply.verdict) == (lesson.at, "right"), value
            assert shown((value, printed)) == lesson.first[lesson.at], lesson.at
        else:
            assert isinstance(value, Reply) and value.verdict in ("correct", "right"), (lesson.at, value)
