"""Grade a folder: a row for each student and piece, and one for each guess."""

import ast
import csv
import io
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass, fields, replace
from functools import cache, partial
from importlib import import_module
from inspect import unwrap
from pathlib import Path
from typing import Any

from gpipe_sim.classroom.guesses import guesses
from gpipe_sim.classroom.handed_in import HandedIn, handed_in, lines_of, minutes, needed, opened
from gpipe_sim.classroom.notebooks import SEED, Cell, Piece, every_lesson, is_exercise, own_cells, pieces
from gpipe_sim.classroom.outside import Limits, processes, room
from gpipe_sim.classroom.plain import FAMILIES
from gpipe_sim.classroom.sizes import seeded
from gpipe_sim.course.build import BUILDS
from gpipe_sim.course.reply import Reply, keep_working, your_turn
from gpipe_sim.course.tries import named

OTHER = "its SEED is "
SAME = "word for word the course's own answer"
ASKED = "asks the library: "
FAMILY = re.compile(r"\bgp\.(?:families\.)?([A-Z]\w+)\(")


@dataclass(frozen=True)
class Row:
    student: str
    lesson: str
    kind: str  #: "piece", "guess" or "file"
    name: str  #: of the check, or of the prediction
    passed: str  #: "yes", "no"; "" of a file that could not be graded, and of what is only measured
    verdict: str
    reply: str
    guess: str = ""
    off: str = ""  #: how far off a guess is: 0.25 is a quarter
    minutes: str = ""  #: in the notebook, if the times of its cells are recorded
    tries: str = ""  #: until it passed, or so far, as a file in the student's folder says
    note: str = ""
    file: str = ""


def grade(
    folder: Path, seed: int, limits: Limits, workers: int | None = None, given: int = 0
) -> tuple[list[Row], list[str]]:
    """(the rows of all files in a folder, by student; walls around students' processes that are missing).

    ``seed`` draws the sizes that no notebook shows, and ``given`` is the SEED of the handout.
    """
    limits = replace(limits, hidden=(str(folder.resolve()),))
    files = handed_in(folder)
    work = partial(rows_of, seed=seed, limits=limits, given=given)
    most = min(workers or os.cpu_count() or 1, len(files) or 1)
    with ProcessPoolExecutor(most, mp_context=processes()) as pool:
        found = [row for of_file in pool.map(work, files) for row in of_file]
    rows = [replace(row, file=Path(row.file).relative_to(folder).as_posix()) for row in best(found)]
    with room((), (), (), limits, {}) as empty:
        return rows, empty.refused


def best(rows: Sequence[Row]) -> list[Row]:
    """One row for each piece of a student, where several files have it: of those that passed, the first."""
    found: dict[tuple, Row] = {}
    for row in rows:
        key = (row.student, row.lesson, row.kind, row.name, row.kind == "piece" or row.file)
        if key not in found or (row.passed == "yes" and found[key].passed != "yes"):
            found[key] = row
    return list(found.values())


def rows_of(file: HandedIn, seed: int, limits: Limits, given: int = 0) -> list[Row]:
    """The rows of one file, whatever is in it."""
    try:
        if file.wrong:
            raise ValueError(file.wrong)
        return list(_notebook(file, seed, limits, given) if file.is_notebook else _kept(file, seed, limits))
    except Exception as error:  # one bad file never stops the rest
        says = str(error) or type(error).__name__
        return [Row(file.student, "", "file", file.path.name, "", "not graded", says, file=str(file.path))]


def _notebook(file: HandedIn, seed: int, limits: Limits, given: int) -> Iterator[Row]:
    lesson, cells = opened(file)
    spent = minutes(cells)
    about = {"minutes": "" if spent is None else f"{spent:g}", "file": str(file.path)}
    for piece in pieces(lesson):
        lines, wrong = lines_of(cells, piece)
        if lines == _as_found(lesson)[piece.name]:
            lines, wrong = [], ""  # as it was handed out
        reply = _checked(piece, lines, lesson, seed, limits, wrong, given)
        own = _seeds(cells) - {given} if piece.by_seed else ()
        note = "; ".join(f"{OTHER}{each}" for each in sorted(own))
        yield _row(file, lesson, piece, reply, lines, note, **about)
    for guess in guesses(cells, lesson, given):
        off = "" if guess.off is None else f"{guess.off:.4g}"
        verdict = guess.reply.verdict
        passed = {"right": "yes", "near enough": "yes", "measured": ""}.get(verdict, "no")
        said = dict(guess=str(guess.value)[:200], off=off, **about)
        yield Row(file.student, lesson, "guess", guess.name, passed, verdict, guess.reply.text, **said)


@cache
def _as_found(lesson: str) -> dict[str, list[str]]:
    """What the cells of a lesson define before a student has written anything, by piece."""
    return {piece.name: lines_of(own_cells(lesson), piece)[0] for piece in pieces(lesson)}


def _kept(file: HandedIn, seed: int, limits: Limits) -> Iterator[Row]:
    """Of the file in which lessons keep what passed: the builds of all lessons."""
    statements, begun = ast.parse(file.text).body, False
    for lesson in every_lesson():
        for piece in pieces(lesson):
            if piece.name in BUILDS and (lines := needed(statements, piece.names)):
                reply = _checked(piece, lines, lesson, seed, limits, "")
                begun = True
                yield _row(file, lesson, piece, reply, lines, file=str(file.path))
    if not begun:
        raise ValueError("no piece of a lesson is in it")


def _seeds(cells: Sequence[Cell]) -> set[int]:
    """What a notebook's cells say that its SEED is."""
    return {int(each) for cell in cells if cell.kind == "code" for each in SEED.findall(cell.source)}


def _row(
    of: HandedIn,
    lesson: str,
    piece: Piece,
    reply: Reply,
    lines: Sequence[str],
    note: str = "",
    **about: str,
) -> Row:
    right = reply.verdict == "correct"
    own = {name for text in piece.answers for name in FAMILY.findall(text)}
    asked = sorted({name for text in lines for name in FAMILY.findall(text)} & {*FAMILIES} - own)
    notes = [SAME if right and is_the_courses(lines, piece) else "", note]
    notes += [ASKED + ", ".join(asked)] if right and asked else []
    note = "; ".join(filter(None, notes))
    said = "yes" if right else "no", reply.verdict, reply.text
    begun = reply.verdict != "your turn"
    tried = str(of.tries.get(named(piece.check), "")) if begun else ""
    return Row(of.student, lesson, "piece", piece.name, *said, tries=tried, note=note, **about)


def _checked(
    piece: Piece, lines: Sequence[str], lesson: str, seed: int, limits: Limits, wrong: str, given: int = 0
) -> Reply:
    """What the check replies to the names that the lines define, in a process of their own."""
    without = (*BUILDS.get(piece.name, ()), *piece.names)
    if not lines:
        return keep_working(wrong) if wrong else your_turn(f"write {' and '.join(piece.names)}")
    try:
        asked = task(piece, given) if is_exercise(lesson) else {}
        with room(lines, piece.names, without, limits, asked) as inside, seeded(piece.name, lesson, seed):
            failed = [why for name, why in inside.failed.items() if name in ("", *piece.names)]
            if failed and not all(inside.found[name][0] for name in piece.names):
                return keep_working(f"it does not run: {failed[0]}")
            of = {"seed": given} if piece.by_seed else {}
            return piece.check(*map(inside.value, piece.names), **of)
    except Reply as reply:
        return reply
    except Exception as error:
        return keep_working(f"it cannot be tried: {error or type(error).__name__}")


def task(piece: Piece, seed: int) -> dict[str, Any]:
    """What an exercise asks for with this seed, as plain data: its task as text, and the fields of that."""
    asked = import_module(unwrap(piece.check).__module__).task(seed)
    return {"text": str(asked), "fields": dict(asked._asdict()) if hasattr(asked, "_asdict") else {}}


def is_the_courses(lines: Sequence[str], piece: Piece) -> bool:
    """Whether a piece is a folded answer or a solution of the course, apart from blanks and comments."""
    own = {name: _dumped(text, name) for name in piece.names for text in piece.answers if _dumped(text, name)}
    theirs = {name: _dumped("\n".join(lines), name) for name in own}
    return bool(own) and own == theirs


def _dumped(text: str, name: str) -> str:
    """The last definition of a name, as the parts of Python that it is made of."""
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return ""
    found = [each for each in body if isinstance(each, ast.FunctionDef) and each.name == name]
    return ast.dump(found[-1]) if found else ""


def as_csv(rows: Sequence[Row]) -> str:
    """A table that a spreadsheet reads and does not run."""
    text = io.StringIO(newline="")
    table = csv.writer(text)
    table.writerow(each.name for each in fields(Row))
    table.writerows([_harmless(each) for each in astuple(row)] for row in rows)
    return text.getvalue()


def _harmless(text: str) -> str:
    """A cell that begins with one of these is a formula in a spreadsheet."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
