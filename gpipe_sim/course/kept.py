"""What of a student's cells is kept: the definitions, imports and plain assignments that an answer needs.

Nothing that is kept calls anything when it is read, and a check least of all: that would read the file again.
A table is kept as the value that it has, and so is what a call made for a helper, if that is plain data.
"""

import ast
import linecache
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from inspect import unwrap
from types import FunctionType
from typing import Any

from gpipe_sim.course.called import KEPT, LIBRARIES

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
IMPORTS = (ast.Import, ast.ImportFrom)
ASSIGNMENTS = (ast.Assign, ast.AnnAssign)
DECORATORS = {"cache", "lru_cache", "dataclass"}  #: others are left out: a check can stand there too


def running_cell() -> str:
    """The source of the notebook cell that is running; empty outside a notebook."""
    if not {"ipykernel", "IPython"} <= sys.modules.keys():
        return ""
    shell = sys.modules["IPython"].get_ipython()
    return without_magics(shell.user_ns["In"][-1], shell.transform_cell) if shell else ""


def without_magics(cell: str, transform: Callable[[str], str]) -> str:
    """A cell as plain Python. What ``%%time`` runs is the rest of the cell."""
    return transform(re.sub(r"\A\s*%%.*\n", "", cell))


def is_elsewhere(answer: Any) -> bool:
    """Whether a function was defined in no cell: it is the library's, or was kept before."""
    file = code.co_filename if (code := getattr(unwrap(answer), "__code__", None)) else ""
    return file == KEPT or file.startswith(LIBRARIES)


def source_of(answers: Mapping[str, Any], running: str) -> str:
    """The source that defines the answers: a function knows its cell, or it is in the one that is running.

    RuntimeError if it takes a call to define one.
    """
    functions = {name: unwrap(answer) for name, answer in answers.items() if callable(answer)}
    cell = "\n".join(dict.fromkeys(_cell_of(function) or running for function in functions.values()))
    statements = list(_statements(ast.parse(cell)))
    bound = set().union(*map(_bound, statements))
    own = {name: getattr(function, "__name__", "") for name, function in functions.items()}
    own = {name: other if other in bound else name for name, other in own.items()}
    values = {
        key: value for each in functions.values() for key, value in getattr(each, "__globals__", {}).items()
    }
    needed = _needed(statements, {*own.values()})
    kept = [text for each in statements if _bound(each) & needed for text in _written(each, cell, values)]
    kept += [f"{name} = {other}" for name, other in own.items() if other != name]
    tables = {name: answer for name, answer in answers.items() if name not in functions}
    kept += [f"{name} = {dict(one) if isinstance(one, dict) else one!r}" for name, one in tables.items()]
    source = "\n\n".join(dict.fromkeys(kept))
    if missing := [name for name in answers if name not in set().union(*map(_bound, ast.parse(source).body))]:
        raise RuntimeError(f"a call made {missing[0]}, and no call is kept. Write it with def, in a cell")
    return source


def _cell_of(function: Any) -> str:
    if not isinstance(function, FunctionType):
        return ""
    return "".join(linecache.getlines(function.__code__.co_filename))


def _statements(of: ast.AST) -> Iterator[ast.stmt]:
    """Definitions, imports and assignments, in place of an ``if``, a loop or a ``try`` those within it.

    What an ``except`` holds is for another machine.
    """
    for each in ast.iter_child_nodes(of):
        if isinstance(each, (*DEFINITIONS, *IMPORTS, *ASSIGNMENTS)):
            yield each
        elif not isinstance(each, ast.ExceptHandler):
            yield from _statements(each)


def _bound(statement: ast.stmt) -> set[str]:
    """The names that a statement gives a value."""
    if isinstance(statement, DEFINITIONS):
        return {statement.name}
    if isinstance(statement, IMPORTS):
        return {(each.asname or each.name).partition(".")[0] for each in statement.names}
    return {name for name, context in _names(statement) if isinstance(context, ast.Store)}


def _names(statement: ast.stmt) -> Iterator[tuple[str, ast.expr_context]]:
    return ((each.id, each.ctx) for each in ast.walk(statement) if isinstance(each, ast.Name))


def _needed(statements: list[ast.stmt], names: set[str]) -> set[str]:
    """These names, and all that their statements read, and what those read in turn."""
    found: set[str] = {"*"}  # an import of everything
    while names - found:
        found |= names
        names = {name for each in statements if _bound(each) & found for name, _ in _names(each)}
    return found


def _written(statement: ast.stmt, cell: str, values: Mapping[str, Any]) -> Iterator[str]:
    """A statement as it is kept, as source that calls nothing; of what calls make only plain data."""
    if isinstance(statement, DEFINITIONS) and not all(map(_may_stay, statement.decorator_list)):
        statement.decorator_list = []
    if not _calls(statement):
        yield _source(statement, cell)
    elif isinstance(statement, ASSIGNMENTS):
        yield from (f"{name} = {values[name]!r}" for name in _bound(statement) if _is_plain(values.get(name)))


def _source(statement: ast.stmt, cell: str) -> str:
    if statement.col_offset:
        return ast.unparse(statement)  # it stood within another, or behind a ;
    above = [each.lineno for each in getattr(statement, "decorator_list", ())]
    lines = cell.split("\n")[min(above, default=statement.lineno) - 1 : statement.lineno - 1]
    return "\n".join([*lines, ast.get_source_segment(cell, statement) or ""])


def _may_stay(decorator: ast.expr) -> bool:
    name = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(name).rpartition(".")[2] in DECORATORS


def _calls(part: ast.AST) -> bool:
    """Whether this calls anything when it runs; the body of a function runs later."""
    if isinstance(part, ast.Call | ast.Await):
        return True
    later = [*getattr(part, "decorator_list", ())]  # those that stay
    if isinstance(part, ast.Lambda):
        later += [part.body]
    elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
        later += part.body
    return any(_calls(each) for each in ast.iter_child_nodes(part) if each not in later)


def _is_plain(value: object) -> bool:
    """Whether it is a number, a text, or a container of such, as Python writes it."""
    try:
        return value is not None and ast.literal_eval(repr(value)) == value
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False
