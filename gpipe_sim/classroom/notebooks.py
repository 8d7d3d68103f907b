"""Notebooks as they are in files: their cells, and what a lesson's own notebook asks for."""

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from inspect import unwrap
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]
FIRST = "01_why_split.ipynb"
TITLE = re.compile(r"# (Exercise )?(\d\d|[A-Z]) · ")
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
#: As a lesson shows a picture of the folder beside it, or leads to the page there, with what that is to show.
PICTURE = re.compile(rb"\]\(\.\./((?:\.\./)*)(figures/(?:\w+\.png|view\.html))(#[^)\s]*)?\)")
SEED = re.compile(r"^SEED = (\d{1,9})\b", re.MULTILINE)  #: in a notebook whose numbers are drawn
EXERCISE = "E"  #: before the number of an exercise, where a lesson has its own
SOLUTION = "solution "
PLACES = {
    "": "*.ipynb",
    EXERCISE: "exercises/*.ipynb",
    SOLUTION + EXERCISE: "exercises/solutions/*.ipynb",
}


@dataclass(frozen=True)
class Cell:
    id: str
    kind: str  #: "code", "markdown" or "raw"
    source: str
    tags: tuple[str, ...] = ()
    hidden: bool = False  #: its source is folded
    started: str = ""  #: when a kernel ran it last, if that is recorded
    outputs: list = field(default_factory=list, compare=False)


@dataclass(frozen=True)
class Piece:
    """Something that a student writes: the check that replies to it, and the names that it takes."""

    check: Callable
    names: tuple[str, ...]
    call: str  #: as its cell has it, from the check's own name on
    cell: str  #: the id of the cell that asks for it
    answers: tuple[str, ...] = field(default=(), compare=False)  #: the course's own, as source

    @property
    def name(self) -> str:
        check = unwrap(self.check)
        return check.__module__.rpartition(".")[2] if check.__name__ == "check" else check.__name__

    @property
    def by_seed(self) -> bool:
        """Whether the check takes the seed of the notebook."""
        return "SEED" in self.call


def lessons_home() -> Path:
    """Where the folders of lessons and pictures are: inside an installed package, beside it in a clone."""
    for home in (PACKAGE, PACKAGE.parent):
        if (home / "notebooks" / FIRST).exists():
            return home
    raise FileNotFoundError(f"the lessons are not in {PACKAGE}, where a wheel has them, nor beside it")


@cache
def notebooks() -> dict[str, Path]:
    """The package's own: a lesson by its number or letter, exercise 01 as E01, and "solution E01"."""
    home = lessons_home() / "notebooks"
    return {
        kind + path.name.partition("_")[0]: path
        for kind, place in PLACES.items()
        for path in sorted(home.glob(place))
    }


def folder_of(files: Mapping[Path, bytes]) -> dict[Path, bytes]:
    """The same notebooks for a folder that has the pictures that they show in it, and these pictures."""
    shown = {name.decode() for text in files.values() for _, name, _ in PICTURE.findall(text)}
    near = {path: PICTURE.sub(rb"](\1\2\3)", text) for path, text in files.items()}
    return near | {Path(name): (lessons_home() / name).read_bytes() for name in sorted(shown)}


def is_exercise(lesson: str) -> bool:
    return lesson.startswith(EXERCISE) and lesson != EXERCISE


def read_cells(text: str) -> list[Cell]:
    """The cells of a notebook; ValueError if it is none."""
    try:
        found = json.loads(text)["cells"]
        return [_cell(each) for each in found]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is no notebook ({type(error).__name__}: {error})") from error


def _cell(found: dict) -> Cell:
    source, about = found["source"], found.get("metadata") or {}
    source = source if isinstance(source, str) else "".join(source)
    started = (about.get("execution") or {}).get("iopub.execute_input", "")
    tags = tuple(map(str, about.get("tags") or ()))
    hidden = bool((about.get("jupyter") or {}).get("source_hidden"))
    kind, name = str(found["cell_type"]), str(found.get("id", ""))
    return Cell(name, kind, source, tags, hidden, str(started), found.get("outputs") or [])


def lesson_of(cells: Sequence[Cell]) -> str:
    """What a notebook is, as ``notebooks`` has it, by its first heading; empty if it has none."""
    for cell in cells:
        if cell.kind == "markdown" and (found := TITLE.match(cell.source)):
            return (EXERCISE if found[1] else "") + found[2]
    return ""


def titled(lesson: str) -> str:
    """A lesson by its heading, "04 · GPipe and its bubble"; as it is, if it is none of the package."""
    cells = own_cells(lesson)
    return cells[0].source.partition("\n")[0].removeprefix("# ") if cells else lesson


@cache
def own_cells(lesson: str) -> tuple[Cell, ...]:
    """The cells of the package's own notebook of a lesson; none if there is no such lesson."""
    path = notebooks().get(lesson)
    return tuple(read_cells(path.read_text(encoding="utf-8"))) if path else ()


@cache
def pieces(lesson: str) -> tuple[Piece, ...]:
    """What a lesson asks to be written, in its order: cells that end in a check of names."""
    cells, found = own_cells(lesson), []
    for number, cell in enumerate(cells):
        if cell.kind == "code" and not cell.hidden and (call := _check_in(cell.source)):
            solved = (each.source for each in own_cells(SOLUTION + lesson) if call[2] in each.source)
            found.append(Piece(*call, cell.id, (*_answers(cells[number + 1 :]), *solved)))
    return tuple(found)


def _check_in(source: str) -> tuple[Callable, tuple[str, ...], str] | None:
    """The check that a cell calls, the names that it passes beside the seed, and the call."""
    match ast.parse(source).body[-1:]:
        case [ast.Expr(ast.Call(ast.Attribute() as of, arguments, named))]:
            path = ast.unparse(of).split(".")
            given = [ast.unparse(each) for each in (*arguments, *named)]
            names = tuple(each for each in given if each not in ("SEED", "seed=SEED"))
            if path[:2] == ["gp", "course"] and names and all(map(str.isidentifier, names)):
                thing: Any = import_module("gpipe_sim.course")
                for part in path[2:]:
                    thing = getattr(thing, part)
                if hasattr(thing, "__wrapped__"):
                    return thing, names, f".{of.attr}({', '.join(given)})"
    return None


def _answers(after: Sequence[Cell]) -> Iterator[str]:
    for cell in after:
        if "answer" in cell.tags:
            yield from CODE.findall(cell.source)
        elif cell.kind == "code":
            return


def every_lesson() -> list[str]:
    """The numbers and letters of the package's lessons, in order, and those of its exercises."""
    return [lesson for lesson in notebooks() if not lesson.startswith(SOLUTION)]
