"""The student's own pipeline: what passed its check, and the lesson's answer for everything else.

``mine.clock`` is the student's clock once it has passed, and until then the textbook's. All of it is one
program: the student's clock calls the student's ``needs``.

What passed is kept in ``my_pipeline.py`` in the folder of the notebooks, a plain file that later lessons read
and that the student may read too. Only a notebook writes it, and who deletes it starts again. Where that
folder cannot be written to, as on some servers, it is in the student's home folder.
"""

import ast
import linecache
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from gpipe_sim.course.called import KEPT as FILE
from gpipe_sim.course.limit import SECONDS, TooLong, time_limit

HEADING = "# What passed its check in the lessons. Delete this file to start again.\n"
MOST = 1_000_000  #: bytes of the student's file: all lessons together write some 20,000
_SECTION = re.compile(r"# --- (\w+)")


def __getattr__(name: str) -> Any:
    if name.startswith("_") or name not in (names := _UNDER_WAY or pipeline(stored())):
        raise AttributeError(f"no lesson has a piece called {name!r}")
    return names[name]


def pipeline(own: str = "") -> dict[str, Any]:
    """The names of the whole pipeline, with the source ``own`` in place of the answers of the same names.

    Warns of pieces that no longer run. RuntimeError if ``own`` is no Python, or does not end.
    """
    names, failed = read(own)
    if failed:
        says = "; ".join(f"{name or 'its first lines'} ({error})" for name, error in failed.items())
        instead = "What the lessons define there is used in its place: run the cell of your own again"
        warnings.warn(
            f"{FILE}, beside the notebooks, has what no longer runs: {says}. {instead}", stacklevel=3
        )
    return names


@lru_cache(maxsize=4)
def read(own: str) -> tuple[dict[str, Any], dict[str, str]]:
    """(the names of the whole pipeline, the error of each section of ``own`` that does not run)."""
    names: dict[str, Any] = {"__name__": "my_pipeline", "gp": import_module("gpipe_sim"), "replace": replace}
    names["mine"] = sys.modules[__name__]
    here = Path(__file__).parent
    for path in (here / "answers.py", here.parent / "textbook.py"):  # what one imports, the other redefines
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    names["__lessons__"] = dict(names)  # what the student's own takes the place of
    linecache.cache[FILE] = len(own), None, own.splitlines(keepends=True), FILE  # a reply can quote its line
    try:
        with time_limit(SECONDS), reading(names):
            return names, _run(own, names)
    except TooLong as error:
        raise wrong(str(error)) from error
    except Exception as error:
        raise wrong(f"stopped: {type(error).__name__}: {error}") from error


_UNDER_WAY: dict[str, Any] = {}  #: the names of the file that is being read


def is_reading() -> bool:
    """Whether the student's file is being read: a check that it calls would read it again."""
    return bool(_UNDER_WAY)


@contextmanager
def reading(names: dict[str, Any]) -> Iterator[None]:
    """Meanwhile ``mine.clock`` is the one of these names."""
    global _UNDER_WAY
    before, _UNDER_WAY = _UNDER_WAY, names
    try:
        yield
    finally:
        _UNDER_WAY = before


def _run(own: str, names: dict[str, Any]) -> dict[str, str]:
    """Run each statement; what is wrong with those that stop, by the section in which they stand."""
    failed: dict[str, str] = {}
    headings = _headings(own)
    for statement in ast.parse(own).body:
        try:
            exec(compile(ast.Module([statement], []), FILE, "exec"), names)
        except (KeyboardInterrupt, TooLong):  # the student's own, and the limit's
            raise
        except BaseException as error:  # sys.exit() too, which would end the cell without a word
            at = max((line for line in headings if line < statement.lineno), default=0)
            failed.setdefault(headings.get(at, ""), f"{type(error).__name__}: {error}")
    return failed


def wrong(says: str) -> RuntimeError:
    """What is wrong with the student's file, and what to do."""
    return RuntimeError(f"{FILE}, beside the notebooks, {says}. Mend it, or delete it to start again")


def place() -> Path:
    """Where the student's file is, or will be: beside the notebooks, or at home if nobody may write there."""
    beside = Path(FILE)
    return beside if beside.exists() or os.access(".", os.W_OK) else Path.home() / FILE


def stored() -> str:
    """The text of the student's file; RuntimeError if it cannot be read.

    Tests of the lessons do not see it: they hold for everybody.
    """
    if in_a_test():
        return ""
    file = place()
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
        place().write_bytes(text.encode())
    except (OSError, UnicodeError) as error:
        raise RuntimeError(f"{FILE}, beside the notebooks, cannot be written: {error}") from error


def sections(text: str) -> dict[str, str]:
    """The file's sections: the source that is kept under each check's name.

    Under "" is what stands before the first, if anything does. A heading within a function is a comment.
    """
    headings, name, found = _headings(text), "", {"": ""}
    for number, line in enumerate(text.removeprefix(HEADING).split("\n"), start=1 + text.startswith(HEADING)):
        name = headings.get(number, name)
        if number not in headings:
            found[name] = f"{found.get(name, '')}{line}\n"
    return {name: body for name, body in found.items() if body.strip()}


def with_section(text: str, name: str, source: str) -> str:
    """The file's text with this section added, or put in place of the one that it has."""
    kept = sections(text) | {name: source}
    first = [body.strip("\n") + "\n" for body in [kept.pop("", "")] if body]
    bodies = [f"# --- {key}\n" + body.strip("\n") + "\n" for key, body in kept.items()]
    return "\n\n".join([HEADING, *first, *bodies])


def _headings(text: str) -> dict[int, str]:
    """The line and the name of each heading; where a statement goes on, a comment is a part of it."""
    try:
        statements = ast.parse(text).body
    except Exception:  # what is no Python is told elsewhere
        statements = []
    inside = {
        line for each in statements for line in range(_first_line(each) + 1, (each.end_lineno or 0) + 1)
    }
    found = ((number, _SECTION.fullmatch(line)) for number, line in enumerate(text.split("\n"), start=1))
    return {number: match[1] for number, match in found if match and number not in inside}


def _first_line(statement: ast.stmt) -> int:
    return min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", ()))])


def in_a_test() -> bool:
    """Whether a lesson is being tested, in whose folder a student's file may be."""
    return "PYTEST_VERSION" in os.environ  # pytest sets it, and the kernels that it starts have it too
