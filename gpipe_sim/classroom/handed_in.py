"""Who handed in what, and which of its lines make an answer."""

import ast
import symtable
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from gpipe_sim.classroom.notebooks import Cell, Piece, lesson_of, notebooks, read_cells
from gpipe_sim.course.called import KEPT
from gpipe_sim.course.kept import without_magics
from gpipe_sim.course.tries import tries

MOST = 30_000_000  #: bytes of a file
PAUSE = 15 * 60  #: seconds without a cell, after which a student has done something else
CHANGES = (
    "append",
    "extend",
    "update",
    "add",
    "insert",
    "setdefault",
    "pop",
    "remove",
    "sort",
    "reverse",
    "clear",
)
COPIES = (".ipynb_checkpoints/", "exercises/solutions/")  #: what is in them is no answer
EXERCISES = "exercises"  #: the folder of a student's that a handout has them in


@dataclass(frozen=True)
class HandedIn:
    """A file of a student: a notebook, or the file in which lessons keep what passed."""

    student: str
    path: Path
    text: str = ""
    wrong: str = ""  #: why it cannot be read
    tries: Mapping[str, int] = field(default_factory=dict)  #: at checks such as 05.clock

    @property
    def is_notebook(self) -> bool:
        return self.path.suffix == ".ipynb"


def handed_in(folder: Path) -> list[HandedIn]:
    """All files of all students. A student is the folder of their files, or the name of a lone file."""
    found = []
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.suffix == ".ipynb" or path.name.endswith(KEPT):
            if path.is_symlink() or any(each in inside.as_posix() for each in COPIES) or not path.is_file():
                continue
            of = inside.parent.parent if inside.parent.name == EXERCISES else inside.parent
            student = of.as_posix() if of.name else inside.stem
            tried = tries(path.parent) if len(inside.parts) > 1 else {}
            found.append(replace(_read(student, path), tries=tried))
        elif path.suffix == ".py" and path.is_file():
            found.append(HandedIn(inside.parts[0], path, wrong=f"it is no notebook, and not called {KEPT}"))
    empty = (each for each in sorted(folder.iterdir()) if each.is_dir() and not any(each.iterdir()))
    return [*found, *(HandedIn(each.name, each, wrong="nothing is in it") for each in empty)]


def _read(student: str, path: Path) -> HandedIn:
    try:
        if path.stat().st_size > MOST:
            return HandedIn(student, path, wrong=f"it is over {MOST:,} bytes long")
        return HandedIn(student, path, path.read_text(encoding="utf-8-sig", errors="replace"))
    except OSError as error:
        return HandedIn(student, path, wrong=f"it cannot be read: {error.strerror}")


def opened(file: HandedIn) -> tuple[str, list[Cell]]:
    """The lesson of a notebook, and its cells; ValueError if it is none, or of no lesson."""
    cells = read_cells(file.text)
    named = (lesson for lesson, path in notebooks().items() if path.name == file.path.name)
    if lesson := lesson_of(cells) or next(named, "") or _by_name(file.path.name):
        return lesson, cells
    raise ValueError("it begins with no lesson's title, such as # 04 · GPipe and its bubble")


def _by_name(name: str) -> str:
    first = name.partition("_")[0]
    return first if (first.isdigit() and len(first) == 2) or (len(first) == 1 and first.isupper()) else ""


def minutes(cells: Sequence[Cell]) -> float | None:
    """How long somebody worked in a notebook, by when its cells ran last; None if that is not recorded."""
    times = []
    for cell in cells:
        try:
            times.append(datetime.fromisoformat(cell.started.replace("Z", "+00:00")))
        except ValueError:
            continue
    gaps = (
        (after - before).total_seconds()
        for before, after in zip(sorted(times), sorted(times)[1:], strict=False)
    )
    return round(sum(gap for gap in gaps if gap < PAUSE) / 60, 1) if times else None


def lines_of(cells: Sequence[Cell], piece: Piece) -> tuple[list[str], str]:
    """(the statements that define a piece, why a cell has none)."""
    place = next((n for n, cell in enumerate(cells) if _asks(cell, piece)), len(cells) - 1)
    if cells and (own := _needed([cells[place]], piece.names)[1]):
        return [], own.replace("cell 1 ", f"cell {place + 1} ", 1)
    found = _needed(cells[: place + 1], piece.names)
    return found if found[0] else _needed(cells, piece.names)


def _asks(cell: Cell, piece: Piece) -> bool:
    return cell.kind == "code" and (cell.id == piece.cell or piece.call in cell.source)


def _needed(cells: Sequence[Cell], names: Sequence[str]) -> tuple[list[str], str]:
    statements, wrong = [], ""
    for number, cell in enumerate(cells, start=1):
        if cell.kind == "code":
            try:
                statements += ast.parse(_plain(cell.source)).body
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                wrong = f"cell {number} is no Python: {error}"
    return needed(statements, names), wrong


def _plain(source: str) -> str:
    """A cell as plain Python, where Jupyter's own words are allowed."""
    if not any(line.lstrip()[:1] in ("%", "!", "?") for line in source.split("\n")):
        return source
    from IPython.core.inputtransformer2 import TransformerManager

    return without_magics(source, TransformerManager().transform_cell)


def needed(statements: Sequence[ast.stmt], names: Sequence[str]) -> list[str]:
    """The source of those statements that give these names a value, and of all that they need in turn."""
    sources = [ast.unparse(each) for each in statements]
    uses = [_uses(each, source) for each, source in zip(statements, sources, strict=True)]
    wanted, chosen = {*names}, set[int]()
    while more := {n for n, (binds, _) in enumerate(uses) if binds & wanted or "*" in binds} - chosen:
        chosen |= more
        wanted |= set().union(*(uses[n][1] for n in more))
    return [sources[n] for n in sorted(chosen)]


def _uses(statement: ast.stmt, source: str) -> tuple[set[str], set[str]]:
    """(the names that a statement gives a value or changes in place, those of others that it reads)."""
    whole = symtable.symtable(source, "", "exec")
    binds = {each.get_name() for each in whole.get_symbols() if each.is_assigned() or each.is_imported()}
    if isinstance(statement, ast.ImportFrom):
        binds |= {each.name for each in statement.names}  # a star
    reads = {each.get_name() for each in whole.get_symbols() if each.is_referenced()}
    inner = list(whole.get_children())
    while inner:
        table = inner.pop()
        reads |= {each.get_name() for each in table.get_symbols() if each.is_global()}
        inner += table.get_children()
    return binds | {*_changed(statement)}, reads


def _changed(statement: ast.stmt) -> Iterator[str]:
    """The names whose values a statement changes in place: by an entry, an attribute or a method."""
    match statement:
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), method))) if method in CHANGES:
            yield name
    if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        for each in ast.walk(statement):
            if isinstance(each, ast.Subscript | ast.Attribute) and isinstance(each.ctx, ast.Store):
                yield from (of.id for of in ast.walk(each.value) if isinstance(of, ast.Name))
