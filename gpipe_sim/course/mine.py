"""The student's own pipeline: what passed its check, and the lesson's answer for everything else.

``mine.clock`` is the student's clock once it has passed, and until then the textbook's. All of it is one
program: the student's clock calls the student's ``needs``.

What passed is kept in ``my_pipeline.py`` in the folder of the notebooks, a plain file that later lessons read
and that the student may read too. Only a notebook writes it; ``make reset`` removes it.
"""

import ast
import linecache
import os
import re
import sys
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

from gpipe_sim.course.called import KEPT as FILE

HEADING = "# What passed its check in the lessons. `make reset` removes this file.\n"
_SECTION = re.compile(r"^# --- (\w+)\n", re.M)


def __getattr__(name: str) -> Any:
    names = pipeline(stored())
    if name.startswith("_") or name not in names:
        raise AttributeError(f"no lesson has a piece called {name!r}")
    return names[name]


@lru_cache(maxsize=4)
def pipeline(own: str = "") -> dict[str, Any]:
    """The names of the whole pipeline, with the source ``own`` in place of the answers of the same names.

    RuntimeError if ``own`` does not run.
    """
    names: dict[str, Any] = {"__name__": "my_pipeline", "gp": import_module("gpipe_sim")}
    names["mine"] = sys.modules[__name__]
    here = Path(__file__).parent
    for path in (here / "answers.py", here.parent / "textbook.py"):  # what one imports, the other redefines
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    linecache.cache[FILE] = len(own), None, own.splitlines(keepends=True), FILE  # a reply can quote its line
    try:
        exec(compile(own, FILE, "exec"), names)
    except Exception as error:
        raise RuntimeError(
            f"{FILE}, beside the notebooks, stopped: {type(error).__name__}: {error}. "
            "Mend it, or start again with `make reset`"
        ) from error
    return names


def stored() -> str:
    """The text of the student's file. Tests of the lessons do not see it: they hold for everybody."""
    if _in_a_test():
        return ""
    return Path(FILE).read_text(encoding="utf-8") if Path(FILE).exists() else ""


def sections(text: str) -> dict[str, str]:
    """The file's sections: the source that is kept under each check's name."""
    _, *parts = _SECTION.split(text)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def with_section(text: str, name: str, source: str) -> str:
    """The file's text with this section added, or put in place of the one that it has."""
    kept = sections(text) | {name: source}
    return "\n\n".join([HEADING, *(f"# --- {key}\n{body.strip()}\n" for key, body in kept.items())])


def source_of(answers: dict[str, Any]) -> str:
    """The cells that define the student's answers, without what they only print or check.

    A function knows its cell; a value is looked for in the cell that runs.
    """
    cells = [cell for answer in answers.values() if (cell := _cell_of(answer))]
    return "\n".join(_definitions(cell) for cell in dict.fromkeys(cells or [running_cell()]))


def _cell_of(answer: Any) -> str:
    if not isinstance(answer, FunctionType):
        return ""
    return "".join(linecache.getlines(answer.__code__.co_filename))


def running_cell() -> str:
    """The source of the notebook cell that is running; empty outside a notebook, and in a lesson's test."""
    if "ipykernel" not in sys.modules or _in_a_test():
        return ""
    shell = sys.modules["IPython"].get_ipython()
    return shell.transform_cell(shell.user_ns["In"][-1]) if shell else ""


def _in_a_test() -> bool:
    return "PYTEST_VERSION" in os.environ  # pytest sets it, and the kernels that it starts have it too


def _definitions(cell: str) -> str:
    """Imports, functions, classes and values of a cell; expressions, such as a check's call, are left out."""
    lines, kept = cell.splitlines(keepends=True), []
    for node in ast.parse(cell).body:
        if not isinstance(node, ast.Expr):
            first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
            kept.append("".join(lines[first - 1 : node.end_lineno]))
    return "\n".join(kept)
