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
from gpipe_sim.course.limit import SECONDS, TooLarge, TooLong, time_limit

HEADING = "# What passed its check in the lessons. `make reset` removes this file.\n"
MOST = 1_000_000  #: bytes of the student's file: all lessons together write some 20,000
_SECTION = re.compile(r"# --- (\w+)")


def __getattr__(name: str) -> Any:
    if name.startswith("_") or name not in (names := pipeline(stored())):
        raise AttributeError(f"no lesson has a piece called {name!r}")
    return names[name]


@lru_cache(maxsize=4)
def pipeline(own: str = "") -> dict[str, Any]:
    """The names of the whole pipeline, with the source ``own`` in place of the answers of the same names.

    RuntimeError if ``own`` does not run, or does not end.
    """
    names: dict[str, Any] = {"__name__": "my_pipeline", "gp": import_module("gpipe_sim")}
    names["mine"] = sys.modules[__name__]
    here = Path(__file__).parent
    for path in (here / "answers.py", here.parent / "textbook.py"):  # what one imports, the other redefines
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    linecache.cache[FILE] = len(own), None, own.splitlines(keepends=True), FILE  # a reply can quote its line
    try:
        with time_limit(SECONDS):
            exec(compile(own, FILE, "exec"), names)
    except KeyboardInterrupt:  # the student's own
        raise
    except TooLong as error:
        large = isinstance(error, TooLarge)
        says = "takes more and more memory" if large else f"was still running after {SECONDS} seconds"
        raise wrong(says) from error
    except BaseException as error:  # sys.exit() too, which would end the cell without a word
        raise wrong(f"stopped: {type(error).__name__}: {error}") from error
    return names


def wrong(says: str) -> RuntimeError:
    """What is wrong with the student's file, and what to do."""
    return RuntimeError(f"{FILE}, beside the notebooks, {says}. Mend it, or start again with `make reset`")


def stored() -> str:
    """The text of the student's file; RuntimeError if it cannot be read.

    Tests of the lessons do not see it: they hold for everybody.
    """
    if _in_a_test():
        return ""
    file = Path(FILE)
    try:
        if file.exists() and not file.is_file():
            raise RuntimeError(f"{FILE}, beside the notebooks, is no file. Give that another name")
        if file.stat().st_size > MOST:
            raise wrong(f"is over {MOST:,} bytes long")
        return file.read_text(encoding="utf-8-sig")  # some editors put a mark before the first byte
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeError) as error:
        raise wrong(f"cannot be read: {error}") from error


def keep(text: str) -> None:
    """Write the student's file; RuntimeError, before anything has changed, if that cannot be."""
    try:
        Path(FILE).write_bytes(text.encode())
    except (OSError, UnicodeError) as error:
        raise RuntimeError(f"{FILE}, beside the notebooks, cannot be written: {error}") from error


def sections(text: str) -> dict[str, str]:
    """The file's sections: the source that is kept under each check's name.

    Under "" is what stands before the first, if anything does. A heading within a function is a comment.
    """
    inside, name, found = _lines_of_statements(text), "", {"": ""}
    for number, line in enumerate(text.removeprefix(HEADING).split("\n"), start=1 + text.startswith(HEADING)):
        if number not in inside and (heading := _SECTION.fullmatch(line)):
            name = heading[1]
        else:
            found[name] = f"{found.get(name, '')}{line}\n"
    return {name: body for name, body in found.items() if body.strip()}


def with_section(text: str, name: str, source: str) -> str:
    """The file's text with this section added, or put in place of the one that it has."""
    kept = sections(text) | {name: source}
    first = [body.strip("\n") + "\n" for body in [kept.pop("", "")] if body]
    bodies = [f"# --- {key}\n" + body.strip("\n") + "\n" for key, body in kept.items()]
    return "\n\n".join([HEADING, *first, *bodies])


def _lines_of_statements(text: str) -> set[int]:
    """The lines on which a statement goes on, so that a comment there is a part of it."""
    try:
        statements = ast.parse(text).body
    except Exception:  # what does not run is told elsewhere
        return set()
    return {line for each in statements for line in range(_first_line(each) + 1, (each.end_lineno or 0) + 1)}


def _first_line(statement: ast.stmt) -> int:
    return min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", ()))])


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
            kept.append("".join(lines[_first_line(node) - 1 : node.end_lineno]))
    return "\n".join(kept)
